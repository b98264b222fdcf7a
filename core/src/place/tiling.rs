//! Looks for plans without unused bytes, where the same number of bytes is alive in every section of time. With time
//! and addresses as its two sides, such a plan is a rectangle cut into the blocks.
//!
//! *Sections* are numbered from 0. To each belongs a set of blocks that are all alive at one step, to which no block
//! can be added. Between two sections, some blocks end and others begin. At steps between two sections, fewer bytes may
//! be alive; such steps do not matter.
//!
//! Problem: the load is the max load in every section. Is there a plan with that peak? In such a plan, the bytes of the
//! blocks that end between two sections are taken by the blocks that begin there, and all other blocks stay where they
//! are. So a plan is a sequence of *events*: at each, blocks that lie side by side end, and others take their place, in
//! any order. Every event is a vertex, every block an edge from its first event to its last: the plan is a planar
//! drawing of that graph.
//!
//! Steps:
//! 1. A *state* is the set of orders in which the blocks that are alive in a section can lie. It is stored as a
//!    PQ-tree, a tree that describes such a set ([`pq_tree`]), as in Booth and Lueker's test of planarity (1976).
//!    Blocks that end together must be consecutive; the blocks that begin take their place.
//! 2. Where several blocks end and several begin between two sections, they may form more than one event: in each, a
//!    group of blocks ends and a group of equal total size begins. A state has a successor for each way to divide the
//!    blocks into events. The way with a single event is tried first. There may be too many ways to try them all: the
//!    trees that are made for all states together are at most [`MOST_ITEMS`], and each state has an equal share of
//!    them.
//! 3. Of the successors of all states, the `width` cheapest are kept. A state costs less the more orders it allows, and
//!    more if blocks that soon end together cannot lie side by side. This is a beam search (Ow and Morton 1988). Both
//!    directions of time are tried, first with a look at which blocks soon end together, then without it. Then the
//!    width doubles, again and again. After the first round, random numbers are added to the costs.
//! 4. When the last section of time is reached, offsets are read off its state, and events are undone one by one: the
//!    blocks that end get the place of those that begin, in an order that the PQ-tree before the event allows.
//!
//! The PQ-trees lie in memory as *tokens*, one number for each node and each leaf; a leaf is a block. An *item* is an
//! intermediate state between two sections: what becomes of a state after some or all of the events before the next
//! section. After all of them, it is a successor of the state.
//!
//! Most instances have hardly a choice in step 2. So a narrow beam solves a thousand blocks in a tenth of a second,
//! where searches that decide each offset find no such plan. An instance is left alone if a section has less than the
//! max load, a block is pinned, or a size is no multiple of the alignments. Ties: the state and the way to divide
//! blocks into events that come first. Cost: O(blocks · alive · width) for each pass. Memory: linear, at most
//! 1,000 n + 9,000 indices.

mod layout;
mod partition;
mod pq_tree;
#[cfg(test)]
mod tests;

use core::ops::Range;

use self::partition::{Group, Sums};
use self::pq_tree::{PqTree, children, copy, is_free, leaf};
use super::interval::{self, Sweep};
use super::{Options, Solver, Summary, Watch};
use crate::hash::{self, ODD};
use crate::table::{Table, at, count};
use crate::workspace::workspace;
use crate::{Block, Error, Workspace, WorkspaceLen, sort};

const MOST_ITEMS: usize = 4096;
const STATES: usize = 40;
const ITEMS: usize = 480;
const WAY: usize = 160;
const MOST_SUMS: u32 = 8;
const MOST_WIDTH: usize = 256;
const MOST_ROUNDS: u32 = 16;
const NARROW: u32 = 4;
/// A doubling of a state's orders lowers its cost by 256: noise outweighs at most a factor of 8.
const NOISE: u64 = 3 * 256;
const AHEAD: u32 = 5;
/// Added for each of the next [`AHEAD`] sections whose ending blocks lie side by side in no order.
const SCATTERED: u64 = 2 * 256;
/// Nodes and leaves of PQ-trees looked at in the time of one node of the exact search.
const TOKENS_OF_A_NODE: u64 = 180;
/// The source of an item that was made straight from a state.
const STATE: u32 = u32::MAX;

#[must_use]
pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let own = Tiling::workspace(n, most_width(n));
    interval::workspace(n).max(own).and(WorkspaceLen { words: 0, indices: 2 * n })
}

const fn most_width(n: usize) -> usize {
    if n < MOST_WIDTH { n } else { MOST_WIDTH }
}

/// Searches only if all maximal cliques have the max load, no block is pinned and sizes are aligned.
pub(super) fn improve(
    blocks: &[Block],
    options: &Options,
    incumbent: Summary,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let mut best = Summary { nodes: 0, ..incumbent };
    let n = blocks.len();
    let mut scratch = scratch.reborrow();
    let (mut low, mut high) = (scratch.indices(n), scratch.indices(n));
    let sweep = Sweep::new(blocks, scratch.reborrow())?;
    let (max_load, sections) = (sweep.max_load(), sweep.clique_ranges(&mut low, &mut high));
    let alignment = blocks.iter().fold(options.constraints.alignment, |most, b| most.max(b.alignment));
    let fits = |b: &Block| b.pin.is_none() && b.size & (alignment - 1) == 0;
    if !sweep.is_full() || !blocks.iter().all(fits) || best.peak <= max_load {
        return Ok(best);
    }
    let mut tiling = Tiling::lend(n, most_width(n), blocks, [low, high], sections, options.seed, &mut scratch);
    let most = options.nodes.saturating_mul(TOKENS_OF_A_NODE);
    for pass in 0..2 * MOST_ROUNDS {
        if tiling.pass(pass % 2 == 0, pass / 2, most) && tiling.lay_out(offsets) {
            best = Summary { peak: max_load, solver: Solver::Beam, ..best };
        }
        best.nodes = tiling.looked / TOKENS_OF_A_NODE;
        if watch(&best).is_break() || best.peak == max_load || tiling.looked >= most {
            break;
        }
    }
    Ok(best)
}

workspace! {
    struct Tiling<'a>(
        n, width;
        blocks: &'a [Block], ranges: [Table<'a, u32>; 2], sections: u32, seed: u64
    ) then prepare {
        tables {
            by_begin: u32[n],
            by_end: u32[n],
            first_begin: u32[n + 2],
            first_end: u32[n + 2],
            aside: u32[n],
            /// By block: the first in `by_end` with the same size and end; these can change places.
            kind: u32[n],
            mark: u32[n],
            /// By k: log2(k!), with 8 fraction bits.
            orders: u64[n + 1],
            state: u32[STATES * n],
            state_len: u32[width],
            /// By section and state: its item. Divided by the section's `share`, it is the state before.
            back: u32[n * width],
            /// Cost in the upper half, number of the item in the lower; the cheapest first.
            rank: u64[items(n)],
            seen: u64[4 * width],
            token_hash: u64[row(n)],
            share: u32[n + 1],
            taken: u32[n + 1],
            way: u32[WAY * n],
            /// By event: where its entries begin in `way`, `ended` and `begun`; one more entry for the end.
            event: [u32; 3][n + 1],
            ended: u32[n],
            begun: u32[n],
            nearest: [u64; 2][row(n)],
            /// Lowest and highest offset of the subtree's blocks, in bytes, and index in the tree.
            sorted: [u64; 3][row(n)],
        }
        parts {
            items: Items(n, items(n)),
            tree: PqTree(row(n)),
        }
        state {
            blocks: &'a [Block] = blocks,
            ranges: [Table<'a, u32>; 2] = ranges,
            sections: u32 = sections,
            random: u64 = next(seed),
            forward: bool = true,
            count: u32 = 0,
            row: u32 = 0,
            marks: u32 = 0,
            looked: u64 = 0,
        }
    }
}

workspace! {
    struct Items<'a>(n, items) {
        tables {
            token: u32[ITEMS * n],
            /// 0 if the place in the tables is not in use.
            len: u32[items],
            /// The blocks that still have to end (by `by_end`) and to begin (by `by_begin`); above 63, all bits are set
            /// or none.
            rest: [u64; 2][items],
            group: [u64; 2][items],
            source: u32[items],
            hash: u64[items],
        }
    }
}

const fn items(n: usize) -> usize {
    if ITEMS * n < MOST_ITEMS { ITEMS * n } else { MOST_ITEMS }
}

const fn row(n: usize) -> usize {
    2 * n + 1
}

impl Tiling<'_> {
    fn prepare(&mut self) {
        let mut sum = 0.0;
        for i in 1..count(self.blocks) {
            sum += libm::log2(f64::from(i + 1));
            self.orders[i + 1] = fixed(sum);
        }
    }

    fn turn(&mut self, forward: bool) {
        self.forward = forward;
        let n = count(self.blocks);
        let [low, high] = &self.ranges;
        let (begins, ends) = if forward { (low, high) } else { (high, low) };
        let time = |x: u32| u64::from(if forward { x } else { self.sections - x });
        let size = |b: u32| at(self.blocks, b).size;
        for (order, first, of) in
            [(&mut self.by_begin, &mut self.first_begin, begins), (&mut self.by_end, &mut self.first_end, ends)]
        {
            sort::identity(order, n);
            let keys: [&dyn Fn(u32) -> u64; 3] = [&|b| !time(ends[b]), &|b| !size(b), &|b| time(of[b])];
            for key in keys {
                sort::by_key(order, n, &mut self.aside, key);
            }
            let mut i = 0;
            for section in 0..=self.sections {
                while i < n && time(of[order[i]]) < section.into() {
                    i += 1;
                }
                first[section] = i;
            }
            first[self.sections + 1] = n;
        }
        let mut before = None;
        sort::identity(&mut self.kind, n);
        for i in 0..n {
            let b = self.by_end[i];
            let content = (time(ends[b]), size(b));
            self.kind[b] = if before == Some(content) { self.kind[self.by_end[i - 1]] } else { b };
            before = Some(content);
        }
        let (mut alive, mut most) = (0, 0);
        for s in 0..self.sections {
            let begun = self.first_begin[s + 1] - self.first_begin[s];
            most = most.max(alive + begun);
            alive = alive + begun - (self.first_end[s + 1] - self.first_end[s]);
        }
        self.row = 2 * most + 1;
    }

    fn pass(&mut self, forward: bool, round: u32, most: u64) -> bool {
        self.turn(forward);
        let room = u32::try_from(self.state.len()).unwrap_or(u32::MAX).checked_div(self.row).unwrap_or(0);
        let width = (NARROW << (round / 2)).min(self.most_width()).min(room);
        let noise = if round > 0 { NOISE } else { 0 };
        if width == 0 {
            return false;
        }
        self.start();
        for section in 1..self.sections {
            let rows = u32::try_from(self.items.token.len()).unwrap_or(u32::MAX).checked_div(self.row).unwrap_or(0);
            self.share[section] = rows.min(count(self.items.len.first(u32::MAX))).checked_div(self.count).unwrap_or(0);
            for state in 0..self.count {
                self.expand(state, section);
            }
            self.select(section, width, noise, if round.is_multiple_of(2) { AHEAD } else { 0 });
            if self.count == 0 || self.looked > most {
                return false;
            }
        }
        true
    }

    fn start(&mut self) {
        let Self { tree, by_begin, first_begin, .. } = self;
        tree.begin((0..first_begin[1]).map(|i| by_begin[i]));
        let made = tree.made();
        copy(made, self.state.range_mut(0, self.row));
        (self.count, self.state_len[0]) = (1, count(made));
    }

    fn expand(&mut self, state: u32, section: u32) {
        let of = |first: &Table<'_, u32>| Group::all(first[section + 1] - first[section]);
        let all = [of(&self.first_end), of(&self.first_begin)];
        let share = self.share[section];
        let first = state * share;
        for i in first..first + share {
            self.items.len[i] = 0;
        }
        let (mut next, mut free) = (first, first..first + share);
        self.tree.load(self.state.range(state * self.row, state * self.row + self.state_len[state]));
        self.divide(all, section, STATE, &mut free);
        while next < free.start {
            let rest = self.items.rest[next].map(Group);
            if rest[0] != Group::NONE {
                self.tree.load(self.items.token.range(next * self.row, next * self.row + self.items.len[next]));
                self.divide(rest, section, next, &mut free);
            }
            next += 1;
        }
    }

    fn divide(&mut self, rest: [Group; 2], section: u32, source: u32, free: &mut Range<u32>) {
        let mut add = |tiling: &mut Self, group: [Group; 2]| {
            let item = free.start;
            let fits = free.start < free.end && tiling.event(group, section, item);
            if fits {
                tiling.items.rest[item] = [rest[0].without(group[0]).0, rest[1].without(group[1]).0];
                tiling.items.source[item] = source;
                free.start += 1;
            }
            fits
        };
        add(self, rest);
        for ending in rest[0].parts() {
            let Self { by_end, first_end, .. } = self;
            let size = ending.members().map(|i| at(self.blocks, by_end[first_end[section] + i]).size).sum();
            let mut sums = Sums::new(rest[1], size);
            for _ in 0..MOST_SUMS {
                let Some(beginning) = self.next_sum(&mut sums, section) else { break };
                if !add(self, [ending, beginning]) {
                    break;
                }
            }
            self.looked += u64::from(sums.steps);
        }
    }

    fn next_sum(&self, sums: &mut Sums, section: u32) -> Option<Group> {
        let block = |i: u32| self.by_begin[self.first_begin[section] + i];
        sums.next(|i| at(self.blocks, block(i)).size, |i| self.kind[block(i)])
    }

    fn event(&mut self, group: [Group; 2], section: u32, item: u32) -> bool {
        let Self { tree, mark, by_begin, by_end, first_begin, first_end, marks, .. } = self;
        *marks += 1;
        let mut ending = 0;
        for i in first_end[section]..first_end[section + 1] {
            if group[0].has(i - first_end[section]) {
                mark[by_end[i]] = *marks;
                ending += 1;
            }
        }
        let begin = first_begin[section];
        let beginning = (begin..first_begin[section + 1]).filter(|&i| group[1].has(i - begin)).map(|i| by_begin[i]);
        let fits = tree.replace(|b| mark[b] == *marks, ending, beginning);
        let made = tree.made();
        self.looked += u64::from(tree.len);
        if fits {
            copy(made, self.items.token.range_mut(item * self.row, (item + 1) * self.row));
            self.items.len[item] = count(made);
            self.items.group[item] = group.map(|g| g.0);
        }
        fits
    }

    fn select(&mut self, section: u32, width: u32, noise: u64, ahead: u32) {
        let mut found = 0;
        for item in 0..self.count * self.share[section] {
            if self.items.len[item] > 0 && self.items.rest[item] == [0; 2] {
                self.random = next(self.random);
                let noise = self.random.checked_rem(noise).unwrap_or(0);
                let scattered = self.scattered(item, section, ahead) * SCATTERED;
                let cost = (1 << 31) + noise + scattered - self.judge(item).min(1 << 31);
                self.rank[found] = cost << 32 | u64::from(item);
                found += 1;
            }
        }
        sort::in_place(&mut self.rank, found);
        let most_width = self.most_width();
        self.seen.fill(0);
        self.count = 0;
        for i in 0..found {
            let item = u32::try_from(self.rank[i] & u64::from(u32::MAX)).unwrap_or(0);
            if self.count == width {
                break;
            }
            if !hash::insert(&mut self.seen, 4 * most_width, self.items.hash[item].max(1)) {
                continue;
            }
            let (k, len) = (self.count, self.items.len[item]);
            let from = self.items.token.range(item * self.row, item * self.row + len);
            copy(from, self.state.range_mut(k * self.row, (k + 1) * self.row));
            self.state_len[k] = len;
            self.back[section * most_width + k] = item;
            self.count += 1;
        }
    }

    fn scattered(&mut self, item: u32, section: u32, ahead: u32) -> u64 {
        let Self { tree, items, mark, marks, by_end, first_end, ranges: [low, high], sections, forward, .. } = self;
        let len = items.len[item];
        tree.load(items.token.range(item * self.row, item * self.row + if ahead > 0 { len } else { 0 }));
        let mut scattered = 0;
        for later in section + 1..(section + 1 + ahead).min(*sections) {
            *marks += 1;
            let mut alive = 0;
            for i in first_end[later]..first_end[later + 1] {
                let b = by_end[i];
                let begin = if *forward { low[b] } else { *sections - high[b] };
                if begin <= section {
                    mark[b] = *marks;
                    alive += 1;
                }
            }
            if alive > 1 {
                scattered += u64::from(!tree.replace(|b| mark[b] == *marks, alive, core::iter::empty()));
                self.looked += u64::from(len);
            }
        }
        scattered
    }

    fn judge(&mut self, item: u32) -> u64 {
        let Self { items, token_hash, kind, orders, .. } = self;
        let len = items.len[item];
        let tokens = items.token.range(item * self.row, item * self.row + len);
        let mut open = 0;
        for i in (0..len).rev() {
            token_hash[i] = if let Some(b) = leaf(at(tokens, i)) {
                next(kind[b].into())
            } else {
                let (mut n, mut sum, mut there, mut back, mut power) = (0, 0u64, 0u64, 0u64, 1u64);
                for hash in children(tokens, i).map(|c| token_hash[c]) {
                    n += 1;
                    sum = sum.wrapping_add(hash);
                    there = there.wrapping_mul(ODD).wrapping_add(hash);
                    back = back.wrapping_add(hash.wrapping_mul(power));
                    power = power.wrapping_mul(ODD);
                }
                open += if is_free(at(tokens, i)) { orders[n] } else { orders[2] };
                next(if is_free(at(tokens, i)) { sum } else { next(there).wrapping_add(next(back)) })
            };
        }
        items.hash[item] = token_hash[0];
        open
    }

    fn most_width(&self) -> u32 {
        u32::try_from(most_width(self.blocks.len())).unwrap_or(0)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2³² times 32")]
fn fixed(x: f64) -> u64 {
    (x * 256.0) as u64
}

const fn next(x: u64) -> u64 {
    hash::mixed(x.wrapping_add(ODD))
}
