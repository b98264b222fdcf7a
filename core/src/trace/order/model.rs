//! Operators with the tensors that they touch, that is, read or write ([`Model`]); and a set of operators that have run
//! ([`Walk`]), to which a search for an order adds one operator after the other.
//!
//! Why it is safe to run an operator v next that is ready, needs no more bytes than the max load so far, and does not
//! raise the load (the bytes that are alive): take any order of the operators that are left, and move v to its front.
//! The more operators have run before v, the fewer tensors v is the first to touch, and the more tensors v is the last
//! to touch. So if v does not raise the load now, it would not raise the load at a later place either. The move
//! therefore raises the load at none of the operators before which v now runs, and none of them needs more memory than
//! before.
//!
//! Why it is safe to put off a source, an operator that reads nothing and makes one tensor, for example one that
//! unpacks weights: take any order, and move the source to right before the first operator that reads its tensor. While
//! that operator runs, the tensor is alive anyway. While the operators run that the source has moved past, the tensor
//! is no longer alive. So a search leaves the sources out: the tensor of a source comes alive with its first reader.

use crate::table::Table;
use crate::workspace::workspace;
use crate::{Workspace, WorkspaceLen, sort};

const GIVEN: u32 = 1;
const KEPT: u32 = 2;

workspace! {
    pub(crate) struct Model<'a>(most_tensors, most, most_operands, most_edges) {
        tables {
            bytes: u64[most_tensors],
            how: u32[most_tensors],
            workspace: u64[most],
            /// Tensors that the output may be written over, as 1 + number; 0 for none.
            givers: [u32; 2][most],
            spared: [u64; 2][most],
            first_touched: u32[most + 1],
            touched: u32[most_operands],
            users: u32[most_tensors],
            first_next: u32[most + 1],
            next: u32[most_edges],
            /// An operator that `next` lists twice counts twice.
            waits: u32[most],
            late: u64[most.div_ceil(64)],
        }
        state {
            pub(crate) operators: u32 = 0,
            late_count: u32 = 0,
            tensors: u32 = 0,
            operands: u32 = 0,
            edges: u32 = 0,
        }
    }
}

impl Model<'_> {
    pub(crate) fn tensor(&mut self, tensor: u32, bytes: u64, given: bool, kept: bool) {
        self.bytes[tensor] = bytes;
        self.how[tensor] = if given { GIVEN } else { 0 } | if kept { KEPT } else { 0 };
        self.tensors = tensor + 1;
    }

    pub(crate) fn operator(&mut self, operator: u32, workspace: u64) {
        self.workspace[operator] = workspace;
        self.operators = operator + 1;
        self.first_touched[self.operators] = self.operands;
    }

    pub(crate) fn touches(&mut self, tensor: u32) {
        let operator = self.operators - 1;
        if !self.touched(operator).contains(&tensor) {
            self.touched[self.operands] = tensor;
            self.operands += 1;
            self.first_touched[self.operators] = self.operands;
        }
    }

    pub(crate) fn works_in_place(&mut self, operator: u32, giver: u32) {
        self.reuses(operator, giver, self.bytes[giver]);
    }

    pub(crate) fn reuses(&mut self, operator: u32, giver: u32, bytes: u64) {
        let bytes = bytes.min(self.bytes[giver]);
        let known = self.givers[operator].iter_mut().zip(&mut self.spared[operator]);
        if let Some((to, spared)) = known.min_by_key(|(_, spared)| **spared)
            && bytes > *spared
        {
            (*to, *spared) = (giver + 1, bytes);
        }
    }

    pub(crate) fn before(&mut self, operator: u32, next: u32) {
        self.next[self.edges] = next;
        self.edges += 1;
        self.first_next[operator + 1] = self.edges;
        self.waits[next] += 1;
    }

    pub(crate) fn finish(&mut self) {
        for operator in 0..self.operators {
            self.first_next[operator + 1] = self.first_next[operator + 1].max(self.first_next[operator]);
        }
        for i in 0..self.operands {
            self.users[self.touched[i]] += 1;
        }
    }

    /// Some order of least max load runs each source right before its tensor's first reader.
    pub(super) fn put_off_sources(&mut self) {
        for operator in 0..self.operators {
            if self.is_source(operator) {
                self.late[operator / 64] |= 1 << (operator % 64);
                self.late_count += 1;
            }
        }
        for source in 0..self.operators {
            if !self.is_late(source) {
                continue;
            }
            let Self { touched, first_touched, users, next, first_next, waits, .. } = self;
            users[touched[first_touched[source]]] -= 1;
            for &next in next.range(first_next[source], first_next[source + 1]) {
                waits[next] -= 1;
            }
        }
    }

    fn is_source(&self, operator: u32) -> bool {
        let &[tensor] = self.touched(operator) else { return false };
        let readers = self.successors(operator);
        self.waits[operator] == 0
            && self.workspace[operator] == 0
            && self.how[tensor] & GIVEN == 0
            && !readers.is_empty()
            && usize::try_from(self.users[tensor]).is_ok_and(|users| users == readers.len() + 1)
            && readers.iter().all(|&reader| self.touched(reader).contains(&tensor))
    }

    pub(super) fn is_late(&self, operator: u32) -> bool {
        self.late[operator / 64] >> (operator % 64) & 1 > 0
    }

    pub(super) fn walked(&self) -> u32 {
        self.operators - self.late_count
    }

    pub(crate) fn successors(&self, operator: u32) -> &[u32] {
        self.next.range(self.first_next[operator], self.first_next[operator + 1])
    }

    pub(crate) fn touched(&self, operator: u32) -> &[u32] {
        self.touched.range(self.first_touched[operator], self.first_touched[operator + 1])
    }

    pub(crate) fn lower_bound(&self) -> u64 {
        let always = (0..self.tensors).filter(|&t| self.how[t] == GIVEN | KEPT && self.users[t] == 0);
        let always: u64 = always.map(|t| self.bytes[t]).sum();
        (0..self.operators).map(|k| always + self.needs(k)).fold(self.given(), u64::max)
    }

    pub(super) fn needs(&self, operator: u32) -> u64 {
        let touched: u64 = self.touched(operator).iter().map(|&t| self.bytes[t]).sum();
        let spared = self.spared[operator].into_iter().fold(0, u64::max);
        touched + self.workspace[operator] - spared
    }

    pub(super) fn tensors(&self) -> u32 {
        self.tensors
    }

    pub(super) fn bytes(&self, tensor: u32) -> u64 {
        self.bytes[tensor]
    }

    pub(super) fn given_and_kept(&self, tensor: u32) -> (bool, bool) {
        (self.how[tensor] & GIVEN > 0, self.how[tensor] & KEPT > 0)
    }

    fn given(&self) -> u64 {
        (0..self.tensors).filter(|&t| self.how[t] & GIVEN > 0).map(|t| self.bytes[t]).sum()
    }

    pub(crate) const fn set_words(operators: usize) -> usize {
        operators.div_ceil(64)
    }
}

pub(super) struct Walk<'m, 's> {
    pub(super) model: &'m Model<'m>,
    pub(super) done: Table<'s, u64>,
    pub(super) load: u64,
    pub(super) key: u64,
    waits: Table<'s, u32>,
    ran: Table<'s, u32>,
    ready: Table<'s, u32>,
    /// 1 + the index in `ready`; 0 if it is not there.
    place: Table<'s, u32>,
    ready_count: u32,
}

pub(super) const fn walk_workspace(tensors: usize, operators: usize) -> WorkspaceLen {
    WorkspaceLen { words: Model::set_words(operators), indices: tensors + 3 * operators }
}

impl<'m, 's> Walk<'m, 's> {
    pub(super) fn new(model: &'m Model<'m>, scratch: &mut Workspace<'s>) -> Self {
        let n = model.waits.len();
        let mut walk = Self {
            model,
            done: scratch.words(Model::set_words(n)),
            load: 0,
            key: 0,
            waits: scratch.indices(n),
            ran: scratch.indices(model.bytes.len()),
            ready: scratch.indices(n),
            place: scratch.indices(n),
            ready_count: 0,
        };
        walk.begin();
        walk
    }

    pub(super) fn begin(&mut self) {
        self.done.copy_from(&self.model.late);
        self.load = self.model.given();
        self.key = self.load;
        self.waits.copy_from(&self.model.waits);
        self.ran.fill(0);
        self.ready_count = 0;
        self.place.fill(0);
        for operator in 0..self.model.operators {
            if self.waits[operator] == 0 {
                self.make_ready(operator);
            }
        }
    }

    pub(super) fn set(&mut self, done: &[u64], load: u64, key: u64) {
        for (word, &bits) in (0..).zip(done) {
            let mut differs = self.done[word] ^ bits;
            while differs > 0 {
                let operator = 64 * word + differs.trailing_zeros();
                differs &= differs - 1;
                if self.has_run(operator) {
                    self.take_out(operator);
                } else {
                    self.put_in(operator);
                }
            }
        }
        (self.load, self.key) = (load, key);
        // Sorted, so that the order of the list does not depend on what the walk did before.
        sort::in_place(&mut self.ready, self.ready_count);
        for i in 0..self.ready_count {
            self.place[self.ready[i]] = i + 1;
        }
    }

    fn put_in(&mut self, operator: u32) {
        self.done[operator / 64] |= 1 << (operator % 64);
        self.unready(operator);
        let model = self.model;
        for &tensor in model.touched(operator) {
            self.ran[tensor] += 1;
        }
        for &next in model.successors(operator) {
            self.waits[next] -= 1;
            if self.waits[next] == 0 {
                self.make_ready(next);
            }
        }
    }

    fn take_out(&mut self, operator: u32) {
        self.done[operator / 64] &= !(1 << (operator % 64));
        let model = self.model;
        for &tensor in model.touched(operator) {
            self.ran[tensor] -= 1;
        }
        for &next in model.successors(operator) {
            self.unready(next);
            self.waits[next] += 1;
        }
        if self.waits[operator] == 0 {
            self.make_ready(operator);
        }
    }

    fn make_ready(&mut self, operator: u32) {
        if !self.has_run(operator) {
            self.ready[self.ready_count] = operator;
            self.ready_count += 1;
            self.place[operator] = self.ready_count;
        }
    }

    fn unready(&mut self, operator: u32) {
        if self.place[operator] > 0 {
            let place = self.place[operator] - 1;
            self.ready_count -= 1;
            let moved = self.ready[self.ready_count];
            self.ready[place] = moved;
            self.place[moved] = place + 1;
            self.place[operator] = 0;
        }
    }

    pub(super) fn ready(&self) -> &[u32] {
        self.ready.first(self.ready_count)
    }

    pub(super) fn has_run(&self, operator: u32) -> bool {
        self.done[operator / 64] >> (operator % 64) & 1 > 0
    }

    pub(super) fn step(&self, operator: u32) -> (u64, u64) {
        let (mut added, mut freed, mut saved) = (0, 0, 0);
        for &tensor in self.model.touched(operator) {
            let (bytes, how, ran) = (self.model.bytes[tensor], self.model.how[tensor], self.ran[tensor]);
            let alive = how & GIVEN > 0 || ran > 0;
            let dies = how & KEPT == 0 && ran + 1 == self.model.users[tensor];
            if !alive {
                added += bytes;
            }
            if dies {
                freed += bytes;
                let givers = self.model.givers[operator].into_iter().zip(self.model.spared[operator]);
                for (_, spared) in givers.filter(|&(giver, _)| giver == tensor + 1) {
                    saved = saved.max(spared);
                }
            }
        }
        (self.load + added + self.model.workspace[operator] - saved, self.load + added - freed)
    }

    pub(super) fn run(&mut self, operator: u32, (peak, load): (u64, u64)) {
        self.key = self.key.max(peak);
        self.load = load;
        self.put_in(operator);
    }

    pub(super) fn take_back(&mut self, operator: u32, load: u64, key: u64) {
        (self.load, self.key) = (load, key);
        self.take_out(operator);
    }

    /// It needs at most `key` and does not raise the load: no other choice ends lower.
    pub(super) fn safe(&self) -> Option<(u32, (u64, u64))> {
        let mut steps = self.ready().iter().map(|&operator| (operator, self.step(operator)));
        steps.find(|&(_, (peak, load))| peak <= self.key && load <= self.load)
    }

    pub(super) fn max_load(&mut self, order: &[u32]) -> u64 {
        self.begin();
        for &operator in order.iter().filter(|&&operator| !self.model.is_late(operator)) {
            let step = self.step(operator);
            self.run(operator, step);
        }
        self.key
    }
}
