//! The least recomputation, for programs of few values: best-first search, as in Dijkstra's algorithm.
//!
//! A state is how many operators have run, and which values are on the device. A step to the next state is one of
//! these:
//! - the next operator runs, if what it reads is on the device and what it writes fits. Where the output does not fit,
//!   and the operator may write it over its input, it does so, and the input is lost;
//! - an operator that has run is recomputed, if what it reads is on the device, what it writes fits, and a value that
//!   it writes is missing and may be read later;
//! - a value is evicted (freed although it may be read later), but only where one of the above does not fit. Values
//!   that nobody can need any more are freed at once.
//!
//! States are taken in the order of a sum: the time spent on recomputation so far, plus a lower bound on the time still
//! to be spent (A*, Hart, Nilsson and Raphael 1968). The bound is the time of the operators that must be recomputed,
//! each counted once: those that write a missing value which will be read, and those that write missing inputs of these
//! operators. The first state in which all operators have run is the optimum. A value may be recomputed long before it
//! is read, while its inputs are still there; the [walk](super::walk), which plans operator by operator, cannot do
//! that.
//!
//! Limits: at most [`MOST_BLOCKS`] block numbers; at most [`MOST_VALUES`] blocks that the plan allocates and frees,
//! each written by one operator before it is read; and at most [`MOST_STATES`] states. Beyond these the search ends
//! without an answer. Cost: O(states · (operators + values²)), and O(operators²) to prepare.

use super::{Recomputer, most_rows};
use crate::hash;
use crate::heap::Heap;
use crate::id::{Id, ids};
use crate::list::List;
use crate::rewrite::ids::BlockId;
use crate::rewrite::script::{Cost, Step};
use crate::rewrite::values::Owner;
use crate::workspace::workspace;
use crate::{Workspace, WorkspaceLen};

const MOST_VALUES: u32 = u64::BITS;
const MOST_STATES: u32 = 1 << 14;
pub(in crate::rewrite) const MOST_BLOCKS: usize = 256;
/// A state that is reached again at a lower cost gets a further entry; its cheapest counts.
const WAITING: usize = 2;

const fn states(blocks: usize) -> usize {
    if blocks <= MOST_BLOCKS { MOST_STATES as usize } else { 0 }
}

pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let path = List::<StateId>::LEN.times(states(blocks));
    Problem::workspace(rows, blocks).and(States::workspace(states(blocks))).and(path)
}

ids! {
    struct ValueId;

    struct StateId;
}

impl ValueId {
    fn alone(self) -> u64 {
        1 << self.number()
    }
}

workspace! {
    struct Problem<'a>(rows, blocks) {
        tables {
            reads: u64[rows + 1],
            writes: u64[rows + 1],
            /// May still be read: by this operator, a later one, or to recompute another of the set.
            useful: u64[rows + 2],
            /// Read by first runs from here on; reads by recomputations do not count.
            wanted: u64[rows + 2],
            made: u64[rows + 2],
            /// Bytes that the search does not decide about; sums wrap, as frees may exceed mallocs.
            fixed: u64[rows + 2],
            size[ValueId]: u64[MOST_VALUES as usize],
        }
        records {
            maker[ValueId]: Option<u32>[MOST_VALUES as usize],
            block[ValueId]: BlockId[MOST_VALUES as usize],
            value[BlockId]: Option<ValueId>[blocks],
        }
        state {
            values: u32 = 0,
            movable: u64 = 0,
        }
    }
}

workspace! {
    struct States<'a>(n) {
        tables {
            set[StateId]: u64[n],
            cost[StateId]: u64[n],
            /// `cost` plus a lower bound on the rest, in ns.
            key[StateId]: u64[n],
            at[StateId]: u32[n],
        }
        records {
            parent[StateId]: Option<StateId>[n],
            /// None where a value was evicted.
            ran[StateId]: Option<u32>[n],
            slots: Option<StateId>[2 * n.next_power_of_two()],
        }
        parts {
            waiting[u32]: Heap(WAITING * n),
        }
        state {
            len: u32 = 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    at: u32,
    set: u64,
    cost: u64,
}

struct Full;

enum Found {
    Optimum(StateId),
    Nothing,
    /// There was no room for more states; no schedule takes less than this.
    AtLeast(u64),
}

impl States<'_> {
    fn state(&self, i: StateId) -> State {
        State { at: self.at[i], set: self.set[i], cost: self.cost[i] }
    }

    fn reach(&mut self, state: State, key: u64, parent: Option<StateId>, ran: Option<u32>) -> Result<(), Full> {
        let State { at, set, cost } = state;
        let mask = u32::try_from(self.slots.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let mut slot = u32::try_from(hash::mixed(set ^ hash::mixed(at.into())) >> 32).unwrap_or(0) & mask;
        while self.slots.get(slot).is_some_and(|known| (self.set[known], self.at[known]) != (set, at)) {
            slot = (slot + 1) & mask;
        }
        let full = |len: u32, most: usize| usize::try_from(len).is_ok_and(|len| len >= most);
        let i = match self.slots.get(slot) {
            None if full(self.len, self.set.len()) => return Err(Full),
            None => {
                let new = StateId::of(self.len);
                self.len += 1;
                self.slots.set(slot, Some(new));
                new
            }
            Some(known) if self.cost[known] <= cost => return Ok(()),
            Some(known) => known,
        };
        if full(self.waiting.len(), WAITING * self.set.len()) {
            return Err(Full);
        }
        (self.set[i], self.at[i], self.cost[i], self.key[i]) = (set, at, cost, key);
        self.parent.set(i, parent);
        self.ran.set(i, ran);
        // Of equal keys the heap takes the least number first. Inverted numbers make it take the newest state first.
        self.waiting.push(key, u32::MAX - i.number());
        Ok(())
    }

    /// From the last to the first; the state in which nothing has run is left out.
    fn path_to<'s>(&self, end: StateId, scratch: &mut Workspace<'s>) -> List<'s, StateId> {
        let mut path = List::lend(self.set.len(), scratch);
        let mut state = end;
        while let Some(parent) = self.parent.get(state) {
            path.push(state);
            state = parent;
        }
        path
    }

    fn take(&mut self) -> Option<StateId> {
        while let Some((key, number)) = self.waiting.pop() {
            let i = StateId::of(u32::MAX - number);
            if key <= self.key[i] {
                return Some(i);
            }
        }
        None
    }
}

fn each(set: u64) -> impl Iterator<Item = ValueId> {
    core::iter::successors(Some(set), |&set| Some(set & set.wrapping_sub(1)))
        .take_while(|&set| set > 0)
        .map(|set| ValueId::of(set.trailing_zeros()))
}

impl Recomputer<'_> {
    pub(in crate::rewrite) fn exactly(
        &mut self,
        limit: u64,
        least: Option<Cost>,
        mut scratch: Workspace<'_>,
    ) -> Option<Cost> {
        let program = self.values.program;
        let states = states(program.size.len());
        self.optimum = false;
        if states == 0 || least == Some(Cost::default()) {
            return least;
        }
        let mut problem = Problem::lend(program.rows.len(), program.size.len(), &mut scratch);
        if self.describe(&mut problem).is_none() {
            return least;
        }
        // A script that recomputes as long as `least` is not better.
        let most = least.filter(|least| least.excess == 0).map_or(u64::MAX, |least| least.delay);
        let mut states = States::lend(states, &mut scratch);
        let end = match self.search(&problem, &mut states, limit, most) {
            Found::Optimum(end) => end,
            Found::Nothing => {
                self.optimum = true;
                return least;
            }
            Found::AtLeast(_) => return least,
        };
        // A script with more rows than there is room for is not kept, and then nothing is proved of `least`.
        let path = states.path_to(end, &mut scratch);
        self.optimum = self.write_path(&problem, &states, &path, false).is_some();
        if !self.optimum {
            return least;
        }
        self.best.clear();
        self.write_path(&problem, &states, &path, true);
        Some(Cost { excess: 0, delay: states.cost[end] })
    }

    /// The least time, in ns, that a schedule by recomputation alone adds; `u64::MAX` if there is none. None if there are
    /// too many values, or blocks of which a schedule could make more than this search knows.
    pub(in crate::rewrite) fn takes_at_least(&self, limit: u64, mut scratch: Workspace<'_>) -> Option<u64> {
        let program = self.values.program;
        let states = states(program.size.len());
        let is_known = |block: BlockId| {
            self.values.owner(block) != Owner::Recorded || program.is_persistent(block) || program.size[block] == 0
        };
        if states == 0 || !program.blocks().all(is_known) {
            return None;
        }
        let mut problem = Problem::lend(program.rows.len(), program.size.len(), &mut scratch);
        self.describe(&mut problem)?;
        let mut states = States::lend(states, &mut scratch);
        Some(match self.search(&problem, &mut states, limit, u64::MAX) {
            Found::Optimum(end) => states.cost[end],
            Found::Nothing => u64::MAX,
            Found::AtLeast(least) => least,
        })
    }

    /// None if there is no room for the rows.
    fn write_path(
        &mut self,
        problem: &Problem<'_>,
        states: &States<'_>,
        path: &List<'_, StateId>,
        keeps: bool,
    ) -> Option<()> {
        let (mut rows, mut before) = (0, State { at: 0, set: 0, cost: 0 });
        for i in path.iter().rev() {
            let state = states.state(i);
            let ran = states.ran.get(i).map(|operator| Step::of(operator, state.at == before.at));
            let made = ran.and_then(Step::run).map_or(0, |(operator, _)| problem.writes[operator]);
            let freed = each((before.set | made) & !state.set).map(|value| Step::Free(problem.block.get(value)));
            for step in ran.into_iter().chain(freed) {
                rows += step.most_rows(self.values);
                if keeps {
                    self.best.push(step);
                }
            }
            before = state;
        }
        usize::try_from(rows).is_ok_and(|rows| rows <= most_rows(self.values.program.rows.len())).then_some(())
    }

    fn describe(&self, problem: &mut Problem<'_>) -> Option<()> {
        let values = self.values;
        let program = values.program;
        for g in 0..program.operators {
            problem.made[g + 1] = problem.made[g];
            problem.fixed[g + 1] = problem.fixed[g].wrapping_add(values.left[g]);
            for r in values.managed(g) {
                if r.writes {
                    // The block is written a second time, or there are too many values.
                    if problem.value.get(r.block).is_some() || problem.values == MOST_VALUES {
                        return None;
                    }
                    let value = ValueId::of(problem.values);
                    problem.values += 1;
                    problem.value.set(r.block, Some(value));
                    problem.size[value] = program.size[r.block];
                    problem.block.set(value, r.block);
                    problem.maker.set(value, values.maker(r.version));
                    let movable = values.owner(r.block) == Owner::Managed;
                    problem.movable |= if movable { value.alone() } else { 0 };
                    problem.writes[g] |= value.alone();
                    problem.made[g + 1] |= value.alone();
                } else {
                    problem.reads[g] |= problem.value.get(r.block)?.alone();
                }
            }
        }
        for g in (0..program.operators).rev() {
            problem.wanted[g] = problem.wanted[g + 1] | problem.reads[g];
        }
        for g in 0..=program.operators {
            let mut useful = problem.wanted[g];
            for maker in (0..g).rev().filter(|&maker| values.is_recomputable(maker)) {
                if problem.writes[maker] & useful > 0 {
                    useful |= problem.reads[maker];
                }
            }
            problem.useful[g] = useful;
        }
        Some(())
    }

    fn search(&self, problem: &Problem<'_>, states: &mut States<'_>, limit: u64, most: u64) -> Found {
        let mut least = 0;
        if states.reach(State { at: 0, set: 0, cost: 0 }, 0, None, None).is_err() {
            return Found::AtLeast(0);
        }
        while let Some(i) = states.take() {
            if states.at[i] == self.values.program.operators {
                return Found::Optimum(i);
            }
            // Every schedule goes by way of a state that waits, and none of these has a lower key.
            least = states.key[i].max(least);
            if self.expand(problem, states, i, (limit, most)).is_err() {
                return Found::AtLeast(least);
            }
        }
        Found::Nothing
    }

    fn expand(
        &self,
        problem: &Problem<'_>,
        states: &mut States<'_>,
        i: StateId,
        (limit, most): (u64, u64),
    ) -> Result<(), Full> {
        let state = states.state(i);
        let mut reach = |next: State, ran: Option<u32>| {
            let set = next.set & problem.useful[next.at];
            let Some(rest) = self.rest(problem, next.at, set) else { return Ok(()) };
            let key = next.cost.saturating_add(rest);
            if key < most { states.reach(State { set, ..next }, key, Some(i), ran) } else { Ok(()) }
        };
        let mut short = false;
        for g in (0..=state.at).filter(|&g| self.may_run(problem, state, g)) {
            let first = g == state.at;
            let took = if first { 0 } else { self.values.program.duration(g) };
            let (at, cost) = (state.at + u32::from(first), state.cost.saturating_add(took));
            let set = state.set | problem.writes[g];
            if self.fits(problem, state, g, limit) {
                reach(State { at, set, cost }, Some(g))?;
                continue;
            }
            short = true;
            let input = self.overwritten(problem, state, g);
            let kept = State { set: state.set & !input, ..state };
            if input > 0 && self.fits(problem, kept, g, limit) {
                reach(State { at, set: set & !input, cost }, Some(g))?;
            }
        }
        // What cannot be recomputed may go once no first run reads it: then nothing is recomputed from it.
        let evictable = if short { state.set & (problem.movable | !problem.wanted[state.at]) } else { 0 };
        for value in each(evictable) {
            reach(State { set: state.set & !value.alone(), ..state }, None)?;
        }
        Ok(())
    }

    fn may_run(&self, problem: &Problem<'_>, State { at, set, .. }: State, g: u32) -> bool {
        let values = self.values;
        let on_device = problem.reads[g] & !set == 0;
        let missing = || problem.writes[g] & !set & problem.useful[at] > 0;
        on_device && (g == at || missing() && values.may_recompute(g, at))
    }

    /// 0 if there is none. The input is lost, so it must be evictable or needed by nobody.
    fn overwritten(&self, problem: &Problem<'_>, State { at, .. }: State, g: u32) -> u64 {
        let in_place = self.values.in_place(g).filter(|_| g == at && self.walk.in_place);
        let input = in_place.and_then(|(input, _)| problem.value.get(input)).map_or(0, ValueId::alone);
        input & (problem.movable | !problem.useful[at + 1])
    }

    fn fits(&self, problem: &Problem<'_>, State { at, set, .. }: State, g: u32, limit: u64) -> bool {
        let values = self.values;
        let size = |set: u64| each(set).fold(0u64, |sum, value| sum.saturating_add(problem.size[value]));
        let beside = if g == at { values.most[g] } else { values.local[g] };
        let new = size(problem.writes[g] & !set);
        let load = problem.fixed[at].wrapping_add(size(set)).wrapping_add(new).wrapping_add(beside);
        load.cast_signed() <= limit.saturating_sub(self.walk.headroom_of(at)).cast_signed()
    }

    fn rest(&self, problem: &Problem<'_>, at: u32, set: u64) -> Option<u64> {
        let (mut seen, mut sum) = (0, 0u64);
        let mut missing = problem.wanted[at] & problem.made[at] & !set;
        while missing > 0 {
            let maker = problem.maker.get(ValueId::of(missing.trailing_zeros()))?;
            sum = sum.saturating_add(self.values.program.duration(maker));
            seen |= problem.writes[maker];
            missing = (missing | problem.reads[maker] & !set) & !seen;
        }
        Some(sum)
    }
}
