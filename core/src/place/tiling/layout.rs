//! Reads the offsets of a plan from the states that the search went through. A *state* is the set of orders in which
//! the living blocks can lie, stored as a PQ-tree; at an *event*, blocks that lie side by side end, and others take
//! their place. The states on the way to the last one are made again, and then their events are undone, the last first.
//! The search gives each state a cost, which is lower the more orders the state allows. It may go backward in time:
//! what ends, begins or comes last is meant in the direction of the search.

use super::pq_tree::{children, copy, is_free, leaf};
use super::{STATE, Tiling};
use crate::sort;
use crate::table::{Table, at, count};

impl Tiling<'_> {
    pub(super) fn lay_out(&mut self, offsets: &mut [u64]) -> bool {
        let mut offset = Table::new(offsets);
        let Some(events) = self.retrace() else { return false };
        let mut end = 0;
        for b in self.state.range(0, self.state_len[0]).iter().filter_map(|&token| leaf(token)) {
            offset[b] = end;
            end += at(self.blocks, b).size;
        }
        for event in (0..events).rev() {
            self.undo(event, &mut offset);
        }
        true
    }

    fn retrace(&mut self) -> Option<u32> {
        let mut state = 0;
        for section in (1..self.sections).rev() {
            let share = self.share[section];
            let item = self.back[section * self.most_width() + state];
            self.taken[section] = item.checked_rem(share).unwrap_or(0);
            state = item.checked_div(share).unwrap_or(0);
        }
        self.start();
        let mut events = 0;
        self.event[0] = [0; 3];
        for section in 1..self.sections {
            self.expand(0, section);
            let (mut item, mut chain) = (self.taken[section], 0);
            while item != STATE {
                self.aside[chain] = item;
                item = self.items.source[item];
                chain += 1;
            }
            for link in (0..chain).rev() {
                item = self.aside[link];
                self.keep(events, section, item)?;
                events += 1;
            }
            let len = self.items.len[item];
            copy(self.items.token.range(item * self.row, item * self.row + len), self.state.range_mut(0, self.row));
            self.state_len[0] = len;
        }
        Some(events)
    }

    fn keep(&mut self, event: u32, section: u32, item: u32) -> Option<()> {
        let [mut used, mut ended, mut begun] = self.event[event];
        let source = self.items.source[item];
        let tokens = if source == STATE {
            self.state.range(0, self.state_len[0])
        } else {
            self.items.token.range(source * self.row, source * self.row + self.items.len[source])
        };
        let room = self.way.range_mut(used, used + count(tokens));
        if room.len() < tokens.len() {
            return None;
        }
        copy(tokens, room);
        used += count(tokens);
        let [ending, beginning] = self.items.group[item].map(super::Group);
        for i in (0..self.first_end[section + 1] - self.first_end[section]).filter(|&i| ending.has(i)) {
            self.ended[ended] = self.by_end[self.first_end[section] + i];
            ended += 1;
        }
        for i in (0..self.first_begin[section + 1] - self.first_begin[section]).filter(|&i| beginning.has(i)) {
            self.begun[begun] = self.by_begin[self.first_begin[section] + i];
            begun += 1;
        }
        self.event[event + 1] = [used, ended, begun];
        Some(())
    }

    fn undo(&mut self, event: u32, offset: &mut Table<'_, u64>) {
        let ([from, ended, begun], [to, ended_to, begun_to]) = (self.event[event], self.event[event + 1]);
        let base = (begun..begun_to).map(|i| offset[self.begun[i]]).min().unwrap_or(0);
        self.marks += 1;
        for i in ended..ended_to {
            self.mark[self.ended[i]] = self.marks;
            offset[self.ended[i]] = base;
        }
        let Self { way, nearest, sorted, aside, mark, marks, blocks, .. } = self;
        let tokens = way.range(from, to);
        // By node or leaf of the tree, the lowest and the highest offset in its subtree. Of the blocks in the tree,
        // only those that end in the event are at `base`.
        for i in (0..to - from).rev() {
            nearest[i] = match leaf(at(tokens, i)) {
                Some(b) => [offset[b]; 2],
                None => children(tokens, i)
                    .map(|c| nearest[c])
                    .fold([u64::MAX, 0], |[low, high], [l, h]| [low.min(l), high.max(h)]),
            };
        }
        let (mut waiting, mut end) = (1, base);
        aside[0] = 0;
        while waiting > 0 {
            waiting -= 1;
            let i = aside[waiting];
            if let Some(b) = leaf(at(tokens, i)) {
                if mark[b] == *marks {
                    offset[b] = end;
                    end += at(blocks, b).size;
                }
                continue;
            }
            let mut n = 0;
            for c in children(tokens, i) {
                sorted[n] = [nearest[c][0], nearest[c][1], c.into()];
                n += 1;
            }
            let falling = sorted[0] > sorted[n - 1];
            if is_free(at(tokens, i)) {
                sort::in_place(sorted, n);
            }
            // From the highest child to the lowest: what is put on the stack last comes off first, and gets the lowest
            // offsets.
            for k in 0..n {
                let [low, high, c] = sorted[if falling && !is_free(at(tokens, i)) { k } else { n - 1 - k }];
                if low <= base && base <= high {
                    aside[waiting] = u32::try_from(c).unwrap_or(0);
                    waiting += 1;
                }
            }
        }
    }
}
