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
use crate::{Workspace, WorkspaceLen, sort};

/// The bit that marks a tensor as alive from the start of the iteration, before any operator touches it.
const GIVEN: u32 = 1;
/// The bit that marks a tensor as alive to the end of the iteration, after all operators that touch it.
const KEPT: u32 = 2;

/// What the search for an order of operators works on: the operators, the tensors that they read or write, and which
/// operators have to run before which.
pub(crate) struct Model<'a> {
    pub(crate) operators: u32,
    /// For each tensor: its size in bytes.
    bytes: Table<'a, u64>,
    /// For each tensor, two bits: [`GIVEN`] if it is alive from the start, [`KEPT`] if it is alive to the end.
    how: Table<'a, u32>,
    /// For each operator: the bytes that it needs while it runs, beside its tensors.
    workspace: Table<'a, u64>,
    /// For each operator: the tensors over which it may write its output, two at most, each as 1 + its number; 0 for
    /// none.
    givers: Table<'a, [u32; 2]>,
    /// For each operator: the bytes saved by writing its output over the first of its tensors in `givers`, and the
    /// bytes saved by writing it over the second instead.
    spared: Table<'a, [u64; 2]>,
    /// For each operator: the index in `touched` of its first tensor. One more entry, after the last operator, is how
    /// many entries of `touched` are in use.
    first_touched: Table<'a, u32>,
    /// The tensors that each operator reads or writes, operator by operator; each tensor once for an operator.
    touched: Table<'a, u32>,
    /// For each tensor: how many operators read or write it. The sources that the search leaves out are not counted
    /// ([`Self::put_off_sources`]).
    users: Table<'a, u32>,
    /// For each operator: the index in `next` of the first operator that waits for it. One more entry, after the last
    /// operator, is how many entries of `next` are in use.
    first_next: Table<'a, u32>,
    /// The operators that wait for operator 0, then those that wait for operator 1, and so on. An operator may be
    /// listed twice among those that wait for the same operator.
    next: Table<'a, u32>,
    /// For each operator: how many operators it waits for. If `next` lists it twice among those that wait for the same
    /// operator, that operator counts twice. Operators that the search leaves out are not counted
    /// ([`Self::put_off_sources`]).
    waits: Table<'a, u32>,
    /// A bit for each operator: 1 if the search leaves it out ([`Self::put_off_sources`]).
    late: Table<'a, u64>,
    /// How many operators are sources that a search leaves out ([`Self::put_off_sources`]).
    late_count: u32,
    tensors: u32,
    operands: u32,
    edges: u32,
}

/// Length of the workspace of a [`Model`]: the operators and tensors that the search for an order works on. `operands`
/// is how many inputs and outputs all operators have together. `edges` is how many pairs of operators are added of
/// which the first has to run before the second.
pub(crate) const fn workspace(tensors: usize, operators: usize, operands: usize, edges: usize) -> WorkspaceLen {
    WorkspaceLen {
        words: tensors + 3 * operators + Model::set_words(operators),
        indices: 2 * tensors + 5 * operators + operands + edges + 2,
    }
}

impl<'a> Model<'a> {
    /// An empty model with room for this many tensors, operators, inputs and outputs of operators, and edges: pairs of
    /// operators of which the first has to run before the second. The tensors are added first, then each operator and
    /// the tensors that it touches, then the edges in ascending order of their first operator. [`Self::finish`] comes
    /// last.
    pub(crate) fn new(
        tensors: usize,
        operators: usize,
        operands: usize,
        edges: usize,
        scratch: &mut Workspace<'a>,
    ) -> Self {
        Self {
            operators: 0,
            bytes: scratch.words(tensors),
            how: scratch.indices(tensors),
            workspace: scratch.words(operators),
            givers: scratch.index_records(operators),
            spared: scratch.word_records(operators),
            first_touched: scratch.indices(operators + 1),
            touched: scratch.indices(operands),
            users: scratch.indices(tensors),
            first_next: scratch.indices(operators + 1),
            next: scratch.indices(edges),
            waits: scratch.indices(operators),
            late: scratch.words(Self::set_words(operators)),
            late_count: 0,
            tensors: 0,
            operands: 0,
            edges: 0,
        }
    }

    /// Adds a tensor of `bytes` bytes to the model. `tensor` is its number: tensors are added in the order of their
    /// numbers, the first with 0. `given` says whether the tensor is alive from the start, and `kept` whether it is
    /// alive to the end.
    pub(crate) fn tensor(&mut self, tensor: u32, bytes: u64, given: bool, kept: bool) {
        self.bytes[tensor] = bytes;
        self.how[tensor] = if given { GIVEN } else { 0 } | if kept { KEPT } else { 0 };
        self.tensors = tensor + 1;
    }

    /// Adds an operator to the model. `operator` is its number: operators are added in the order of their numbers, the
    /// first with 0. Beside its tensors, the operator needs `workspace` bytes while it runs.
    pub(crate) fn operator(&mut self, operator: u32, workspace: u64) {
        self.workspace[operator] = workspace;
        self.operators = operator + 1;
        self.first_touched[self.operators] = self.operands;
    }

    /// Adds a tensor to the tensors that the operator which was added last reads or writes.
    pub(crate) fn touches(&mut self, tensor: u32) {
        let operator = self.operators - 1;
        if !self.touched(operator).contains(&tensor) {
            self.touched[self.operands] = tensor;
            self.operands += 1;
            self.first_touched[self.operators] = self.operands;
        }
    }

    /// Notes that an operator may write a new tensor over `giver`, a tensor of the same size, if it is the last
    /// operator to touch `giver`.
    pub(crate) fn works_in_place(&mut self, operator: u32, giver: u32) {
        self.reuses(operator, giver, self.bytes[giver]);
    }

    /// Notes that an operator may write its output over `giver` or a part of it, if it is the last operator to touch
    /// `giver`; and that this saves `bytes` bytes, but no more than `giver` has. Of each operator, only the two tensors
    /// are kept with which it saves most.
    pub(crate) fn reuses(&mut self, operator: u32, giver: u32, bytes: u64) {
        let bytes = bytes.min(self.bytes[giver]);
        let known = self.givers[operator].iter_mut().zip(&mut self.spared[operator]);
        if let Some((to, spared)) = known.min_by_key(|(_, spared)| **spared)
            && bytes > *spared
        {
            (*to, *spared) = (giver + 1, bytes);
        }
    }

    /// Notes that `operator` has to run before the operator `next`. These calls come in ascending order of `operator`.
    pub(crate) fn before(&mut self, operator: u32, next: u32) {
        self.next[self.edges] = next;
        self.edges += 1;
        self.first_next[operator + 1] = self.edges;
        self.waits[next] += 1;
    }

    /// Completes the model: the lists of which operators wait for which, and how many operators touch each tensor. To
    /// be called once, after everything is added: tensors, operators, and the pairs of operators of which the first has
    /// to run before the second.
    pub(crate) fn finish(&mut self) {
        for operator in 0..self.operators {
            self.first_next[operator + 1] = self.first_next[operator + 1].max(self.first_next[operator]);
        }
        for i in 0..self.operands {
            self.users[self.touched[i]] += 1;
        }
    }

    /// Puts off the sources. A source is an operator that reads nothing, needs no workspace, and makes one tensor; at
    /// least one operator waits for it, and those that do are all the other operators that touch this tensor. In a
    /// [`Walk`] the sources count as run from the start, and their tensors come alive with their first readers. The
    /// least max load stays the same: some order that has it runs each source right before the first reader of its
    /// tensor.
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

    /// Whether the search leaves out an operator, since it reads nothing and runs right before the first reader of its
    /// output ([`Self::put_off_sources`]).
    pub(super) fn is_late(&self, operator: u32) -> bool {
        self.late[operator / 64] >> (operator % 64) & 1 > 0
    }

    /// How many operators the search orders: all but those that it leaves out ([`Self::is_late`]).
    pub(super) fn walked(&self) -> u32 {
        self.operators - self.late_count
    }

    pub(crate) fn successors(&self, operator: u32) -> &[u32] {
        self.next.range(self.first_next[operator], self.first_next[operator + 1])
    }

    pub(crate) fn touched(&self, operator: u32) -> &[u32] {
        self.touched.range(self.first_touched[operator], self.first_touched[operator + 1])
    }

    /// A lower bound on the max load of all orders of the operators, in bytes. It is the bytes that are alive at the
    /// start, or the most that an operator needs while it runs, whichever is more. Tensors that are always alive and
    /// that no operator touches are added to the needs of each operator.
    pub(crate) fn lower_bound(&self) -> u64 {
        let always = (0..self.tensors).filter(|&t| self.how[t] == GIVEN | KEPT && self.users[t] == 0);
        let always: u64 = always.map(|t| self.bytes[t]).sum();
        (0..self.operators).map(|k| always + self.needs(k)).fold(self.given(), u64::max)
    }

    /// The bytes of an operator's tensors and workspace, less the most that it may save by writing over an input. At
    /// least this many bytes are alive while the operator runs.
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

    /// Whether a tensor is alive from the start, before any operator touches it; and whether it is alive to the end.
    pub(super) fn given_and_kept(&self, tensor: u32) -> (bool, bool) {
        (self.how[tensor] & GIVEN > 0, self.how[tensor] & KEPT > 0)
    }

    /// The bytes that are alive before anything runs.
    fn given(&self) -> u64 {
        (0..self.tensors).filter(|&t| self.how[t] & GIVEN > 0).map(|t| self.bytes[t]).sum()
    }

    /// How many 64-bit words a set of operators takes, with one bit for each of `operators`.
    pub(crate) const fn set_words(operators: usize) -> usize {
        operators.div_ceil(64)
    }
}

/// A set of operators that have run, the bytes alive after them, and the operators that can run next. A search for an
/// order adds operators to the set one by one, and takes them out again.
pub(super) struct Walk<'m, 's> {
    pub(super) model: &'m Model<'m>,
    /// A bit for each operator: 1 if it has run.
    pub(super) done: Table<'s, u64>,
    /// The bytes that are alive after the operators in `done` have run.
    pub(super) load: u64,
    /// The most bytes alive at once so far. A search may set it to the lower bound of all orders at the start; it is
    /// never below that bound then.
    pub(super) key: u64,
    /// For each operator: how many of the operators that it waits for have not run yet. The operator can run when this
    /// number is 0. An operator of which the model was told twice that it has to run before this one counts twice.
    waits: Table<'s, u32>,
    /// For each tensor: how many of the operators that touch it have run.
    ran: Table<'s, u32>,
    /// The operators that are ready: they have not run, and wait for none.
    ready: Table<'s, u32>,
    /// For each operator: 1 + its index in `ready`; 0 if it is not there.
    place: Table<'s, u32>,
    ready_count: u32,
}

/// Length of the workspace of a [`Walk`], a set of operators that have run.
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

    /// Goes back to the start. No operator has run then, except that the operators that are put off
    /// ([`Model::put_off_sources`]) count as run. The load is the bytes of the tensors that are alive from the start;
    /// so is `key`, the max load so far.
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

    /// Changes the set of operators that have run to the bit set `done`. `load` is the load after them and `key` the
    /// max load so far, in bytes. The cost grows with the number of operators that are in only one of the old and the
    /// new set.
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

    /// Adds an operator to the set of operators that have run, and updates which operators are ready.
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

    /// Takes an operator out of the set of operators that have run, and updates which operators are ready.
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

    /// Puts an operator on the list of ready operators, unless it has run.
    fn make_ready(&mut self, operator: u32) {
        if !self.has_run(operator) {
            self.ready[self.ready_count] = operator;
            self.ready_count += 1;
            self.place[operator] = self.ready_count;
        }
    }

    /// Takes an operator from the list of ready operators, if it is there.
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

    /// The bytes that are alive while an operator runs, if it runs next; and the bytes that are alive after it.
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

    /// Runs an operator that is ready. `peak` is the bytes that are alive while it runs and `load` the bytes alive
    /// after it, as [`Self::step`] gives them.
    pub(super) fn run(&mut self, operator: u32, (peak, load): (u64, u64)) {
        self.key = self.key.max(peak);
        self.load = load;
        self.put_in(operator);
    }

    /// Undoes the run of an operator. `load` is the bytes that were alive before it ran, and `key` the most bytes that
    /// had been alive at once by then.
    pub(super) fn take_back(&mut self, operator: u32, load: u64, key: u64) {
        (self.load, self.key) = (load, key);
        self.take_out(operator);
    }

    /// An operator that can safely run next, with the bytes that are alive while it runs and the bytes that are alive
    /// after it; `None` if there is no such operator. The operator is ready, needs no more bytes than `key`, the max
    /// load so far, and does not raise the load. No other choice leads to a lower max load in the end, since running
    /// this operator first makes no other one need more memory.
    pub(super) fn safe(&self) -> Option<(u32, (u64, u64))> {
        let mut steps = self.ready().iter().map(|&operator| (operator, self.step(operator)));
        steps.find(|&(_, (peak, load))| peak <= self.key && load <= self.load)
    }

    /// Goes back to the start, and runs all operators in the order `order`. The operators that are put off
    /// ([`Model::put_off_sources`]) are passed over, since they count as run. Returns the max load, the most bytes that
    /// are alive at once.
    pub(super) fn max_load(&mut self, order: &[u32]) -> u64 {
        self.begin();
        for &operator in order.iter().filter(|&&operator| !self.model.is_late(operator)) {
            let step = self.step(operator);
            self.run(operator, step);
        }
        self.key
    }
}
