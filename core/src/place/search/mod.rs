//! Exact search: the least peak, and the proof that there is none below.
//!
//! Problem: offline dynamic storage allocation is NP-hard (Garey and Johnson 1979, SR2). Blocks have sizes and
//! lifetimes; blocks that are alive at the same time must not overlap in memory. Is there a placement, an offset for
//! each block, in which no block ends above a capacity c? Peers are `MiniMalloc` (Moffitt 2023) and `SuperMalloc`.
//!
//! Steps; in brackets the function and, if it can be turned off, the name of the [`Technique`]:
//! 1. Times are compressed to *sections*, the maximal cliques of blocks that are alive together (`Search::new`). Sizes
//!    are divided by their greatest common divisor. Blocks are numbered by content, so that names, order of rows and
//!    scale of time do not matter (`Search::new`, `unit`).
//! 2. Only placements are looked at in which every block lies at offset 0 or on another block, at the next offset that
//!    its alignment allows; a pinned block lies at its given offset. Of blocks that are alike, the one with the lower
//!    number lies lower (`State::load`, `twins`). Placements are built from the bottom: every block that is still
//!    *open* (not placed yet) lies above the placed ones that are alive with it.
//! 3. Each node of the search tree decides about one open block b: one whose least possible offset m is the lowest of
//!    all open blocks in its component (step 6). Left branch: b lies at m, and all open blocks that are alive with it
//!    lie above. Right branch: b does not lie at m. Then it lies on another open block, so m rises to the least end
//!    that an open block alive with b can have. That may raise the m of others in turn, until nothing moves
//!    (`State::place`, `State::refuse`). No order of the blocks is fixed in advance.
//! 4. A node fails when in some section the lowest m and the bytes of all open blocks together exceed c
//!    (`State::refresh`). If a block's own m and these bytes exceed c, it cannot be the lowest open block of the
//!    section: it lies above one that can (`State::tighten`).
//! 5. To choose b, a section is chosen first: one with the lowest *floor*, the least m of its open blocks. Among equals
//!    it is the one with the fewest blocks that could lie at the floor, divided by 1 + the number of nodes that have
//!    failed because of it (each restart forgets a quarter of these; `Tree::choose`, `State::fade`, `failures`). Of the
//!    blocks that could lie at its floor, b is the one in whose lifetime the load rises highest; of equals the longest,
//!    then the one of largest area (`order::rank`).
//! 6. Where no open block crosses from one section to the next, the sections on both sides are *components*, which are
//!    searched one by one. A failure in one goes back past all decisions that were about others (`Tree::narrow`,
//!    `Tree::back`, `components`).
//! 7. A search that takes very long with one order of the blocks may be short with another. So after a long first run
//!    from the root of the tree, short ones follow (Luby, Sinclair and Zuckerman 1993). In step 5, these change lengths
//!    and sizes at random by up to a tenth, in the runs of step 8 by up to a twentieth, and do not count the load
//!    (`Search::attempt`, `restarts`).
//! 8. At capacities above the lower bound, where some bytes may stay unused, three runs of four, without those of step
//!    9, keep the *ground*, the top of the placed blocks, level, as heuristics for packing strips do (Burke, Kendall
//!    and Whitwell 2004). In step 5, a block then moves forward in the order for each end of its lifetime at which the
//!    level part of the ground ends, and again if its top is level with the ground beyond that end (`Tree::choose`,
//!    `level`).
//! 9. In a long search that has found a plan already, every second run begins near the best plan so far: in step 5, of
//!    the blocks that could lie at the floor, b is the one that lies lowest in that plan. The offsets are changed at
//!    random by up to a fifth. Beck 2007 guides searches for schedules so (`order::follow`, `guidance`). This is not
//!    done where all sections have the same load: there it finds fewer plans.
//! 10. States that were searched to the end without a placement are kept, and fail at once where other decisions lead
//!     to them again (`Nogoods`, `nogoods`).
//!
//! To find the least peak, capacities are tried between the lower bound and the peak of the best plan so far: first the
//! bound itself, then capacities below that peak by a half, a quarter and an eighth of the gap between the two. Each is
//! tried again for as long as it succeeds; each round has twice the nodes of the last (`Search::minimise`). A search
//! that begins with a plan may begin with another of these capacities. Failures are remembered throughout. Where the
//! constraints have a capacity, nothing else is tried: a plan within it ends the search, and so does the proof that
//! there is none.
//!
//! Cost: O(blocks alive there + blocks changed) for each section that a node touches. Scratch: n²/64 words for which
//! block is alive where, up to 11 MiB for the states of step 10, and lists of changes to take back, of 128 n entries
//! each; a run that needs longer ones is given up.

mod nogood;
mod order;
mod state;
#[cfg(test)]
mod tests;
mod tree;

use core::num::NonZeroU64;
use core::ops::ControlFlow;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use self::state::{Item, State, UNBOUNDED};
use self::tree::{End, Tree};
use super::bound;
use super::solver::{Options, Solver, Summary, Watch};
use super::support::{Problem, gcd};
use super::technique::Technique;
use crate::table::{Table, at, count};
use crate::{Block, Workspace, WorkspaceLen, sort};

/// The most blocks for which [`Solver::Auto`] runs this search. For n blocks, it needs a table of n²/64 words, of 64
/// bits each, that tells which block is alive when.
pub(super) const MOST_BLOCKS: usize = 6000;

const MOST_HALVINGS: u32 = 3;
const RUNS: u64 = 32;
const RUNS_AT_BOUND: u64 = 256;
const PART_AT_BOUND: u64 = 4;
const RUNS_NEAR: u64 = 1_024;
const UNLEVELLED: u64 = 4;
const GUIDED: u64 = 2;
/// Runs near one plan give plans that are alike: a short search finds better ones without.
const UNGUIDED: u64 = 150_000;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let searching = State::workspace(n).and(Tree::workspace(n)).and(WorkspaceLen { words: n, indices: 0 });
    WorkspaceLen { words: 0, indices: 4 * n }.and(searching).max(bound::raised_workspace(n))
}

pub(super) fn improve(
    problem: &Problem<'_>,
    options: &Options,
    incumbent: Option<Summary>,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Summary {
    let mut search = Search::new(problem, options, incumbent, scratch);
    search.minimise(options.nodes, offsets, watch);
    search.summary()
}

struct Search<'a> {
    state: State<'a>,
    tree: Tree<'a>,
    key: Table<'a, u64>,
    order: Table<'a, u32>,
    aside: Table<'a, u32>,
    random: Xoshiro256PlusPlus,
    unit: NonZeroU64,
    lower: u64,
    full: bool,
    capacity: Option<u64>,
    best: Option<(u64, Solver)>,
}

impl<'a> Search<'a> {
    fn new(problem: &Problem<'_>, options: &Options, incumbent: Option<Summary>, mut scratch: Workspace<'a>) -> Self {
        let &Problem { blocks, sweep, .. } = problem;
        let n = blocks.len();
        let lower_bound =
            bound::raised(blocks, &sweep, &options.constraints, scratch.reborrow()).max(problem.lower_bound);

        let mut low = scratch.indices(n);
        let mut high = scratch.indices(n);
        let mut order = scratch.indices(n);
        let mut aside = scratch.indices(n);
        let full = sweep.is_full();
        let sections = sweep.clique_ranges(&mut low, &mut high);
        let alignment = |b: &Block| b.alignment.max(options.constraints.alignment);
        let content: [&dyn Fn(u32) -> u64; 5] = [
            &|i| at(blocks, i).pin.map_or(0, |pin| pin.saturating_add(1)),
            &|i| alignment(&at(blocks, i)),
            &|i| !at(blocks, i).size,
            &|i| high[i].into(),
            &|i| low[i].into(),
        ];
        sort::identity(&mut order, count(blocks));
        for key in content {
            sort::by_key(&mut order, count(blocks), &mut aside, key);
        }
        let unit = unit(blocks, alignment);
        let item = |k: u32| {
            let i = order[k];
            let b = at(blocks, i);
            Item {
                low: low[i],
                high: high[i],
                size: b.size / unit,
                alignment: (alignment(&b) / unit).max(1),
                pin: b.pin.map(|pin| pin / unit),
            }
        };
        let state = State::new(n, sections, options.techniques, item, &mut scratch);
        let lower_bound = incumbent.map_or(lower_bound, |summary| lower_bound.max(summary.lower_bound));
        Self {
            state,
            tree: Tree::lend(n, &mut scratch),
            key: scratch.words(n),
            order,
            aside,
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            unit,
            lower: units(lower_bound, unit),
            full,
            capacity: options.constraints.capacity.map(|capacity| capacity / unit),
            best: incumbent.map(|summary| (summary.peak, summary.solver)),
        }
    }

    fn minimise(&mut self, nodes: u64, offsets: &mut [u64], watch: Watch<'_>) {
        // The next capacity is the peak less the gap over 2^`halvings`. A search that made the incumbent has tried the
        // bound.
        let searched = self.best.is_some_and(|(_, solver)| solver == Solver::Search);
        let near = self.full && self.best.is_some() && RUNS_NEAR * self.base() >= nodes;
        let (mut halvings, mut round) = (if near { MOST_HALVINGS } else { u32::from(searched) }, 0);
        while !self.satisfied() {
            let gap = self.best.map(|(peak, _)| units(peak, self.unit) - self.lower);
            let capacity = match (self.capacity, gap) {
                (Some(capacity), _) => capacity,
                (None, Some(gap)) => self.lower + gap - (gap >> halvings).max(1),
                (None, None) => self.lower,
            };
            let limit = if self.capacity.is_some() {
                nodes
            } else {
                let at_bound = (RUNS_AT_BOUND * self.base()).min(nodes / PART_AT_BOUND);
                let anywhere = (RUNS << round) * self.base();
                let part = if capacity > self.lower { anywhere } else { anywhere.max(at_bound) };
                nodes.min(self.spent().saturating_add(part))
            };
            let end = self.attempt(capacity, limit, offsets, watch);
            match end {
                End::Found => halvings -= u32::from(near && halvings > 1),
                End::Infeasible => {
                    self.lower = capacity + 1;
                    halvings = halvings.max(1);
                }
                End::Stopped => break,
                End::Limit if self.spent() >= nodes => break,
                End::Limit if halvings < MOST_HALVINGS && gap.is_none_or(|gap| gap >> halvings > 1) => {
                    halvings += 1;
                }
                End::Limit => {
                    halvings = 0;
                    round = 32.min(round + 1);
                }
            }
            if self.best.is_none() && halvings > 0 {
                self.pile(offsets);
            }
        }
        if self.best.is_none() {
            self.pile(offsets);
        }
    }

    fn satisfied(&self) -> bool {
        let enough = self.capacity.unwrap_or(0).max(self.lower);
        self.capacity.is_some_and(|capacity| capacity < self.lower)
            || self.best.is_some_and(|(peak, _)| units(peak, self.unit) <= enough)
    }

    fn pile(&mut self, offsets: &mut [u64]) {
        self.attempt(UNBOUNDED, u64::MAX, offsets, &mut |_| ControlFlow::Continue(()));
    }

    fn attempt(&mut self, capacity: u64, limit: u64, offsets: &mut [u64], watch: Watch<'_>) -> End {
        let mut progress = self.summary();
        for run in 0u64.. {
            if run > 0 {
                self.state.fade();
            }
            let guided = self.has(Technique::Guidance)
                && !self.full
                && self.best.is_some()
                && self.spent() >= UNGUIDED
                && run > 0
                && run.is_multiple_of(GUIDED);
            let level = self.has(Technique::Level) && !guided && capacity > self.lower && run % UNLEVELLED != 0;
            self.tree.fit = if level { 3 * self.state.n / 10 } else { 0 };
            if guided {
                for b in 0..self.state.n {
                    self.key[b] = at(offsets, self.order[b]) / self.unit;
                }
                order::follow(&mut self.state, &mut self.key, &mut self.aside, &mut self.random);
            } else {
                let noise = if level { 50 } else { 100 };
                let noise = (run > 0).then_some((&mut self.random, noise));
                order::rank(&mut self.state, &mut self.key, &mut self.aside, noise);
            }
            let length = match run {
                _ if !self.has(Technique::Restarts) => u64::MAX,
                0 => 4 * self.base(),
                _ => luby(run) * self.base(),
            };
            self.tree.budget = limit;
            let end = self.tree.run(&mut self.state, capacity, self.tree.nodes.saturating_add(length), &mut |nodes| {
                progress.nodes = nodes;
                watch(&progress)
            });
            match end {
                End::Found => {
                    let mut peak = 0;
                    for b in 0..self.state.n {
                        let [offset, end] = self.state.span[b];
                        peak = peak.max(end * self.unit.get());
                        if let Some(x) = usize::try_from(self.order[b]).ok().and_then(|i| offsets.get_mut(i)) {
                            *x = offset * self.unit.get();
                        }
                    }
                    self.best = Some((peak, Solver::Search));
                    return if watch(&self.summary()).is_break() { End::Stopped } else { End::Found };
                }
                End::Limit if self.spent() < limit => {}
                end => return end,
            }
        }
        End::Limit
    }

    fn spent(&self) -> u64 {
        self.tree.spent(&self.state)
    }

    fn has(&self, technique: Technique) -> bool {
        self.state.techniques.has(technique)
    }

    fn base(&self) -> u64 {
        128 + u64::from(self.state.n)
    }

    fn summary(&self) -> Summary {
        let (peak, solver) = self.best.unwrap_or((u64::MAX, Solver::Search));
        Summary { peak, lower_bound: self.lower * self.unit.get(), solver, nodes: self.tree.nodes }
    }
}

/// Luby's sequence 1, 1, 2, 1, 1, 2, 4, …, from i = 1.
const fn luby(mut i: u64) -> u64 {
    loop {
        let k = u64::BITS - i.leading_zeros();
        if i == (1 << k) - 1 {
            return 1 << (k - 1);
        }
        i -= (1 << (k - 1)) - 1;
    }
}

/// An alignment that divides all sizes and pins is left out: sums of these are multiples of it anyway.
fn unit(blocks: &[Block], alignment: impl Fn(&Block) -> u64) -> NonZeroU64 {
    let sizes = blocks.iter().fold(0, |g, b| gcd(gcd(g, b.size), b.pin.unwrap_or(0)));
    let unit = blocks.iter().map(alignment).filter(|&a| sizes.checked_rem(a) != Some(0)).fold(sizes, gcd);
    NonZeroU64::new(unit).unwrap_or(NonZeroU64::MIN)
}

fn units(bytes: u64, unit: NonZeroU64) -> u64 {
    bytes / unit + u64::from(bytes % unit != 0)
}
