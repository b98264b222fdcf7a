//! Placement: gives every memory block an offset, so that blocks that are alive at the same step share no address.
//!
//! Every method of placement takes the blocks, options, a workspace and a slice to which it writes the offsets, and
//! returns a [`Summary`]. No method knows where the blocks come from. No plan is trusted until
//! [`verify`](crate::verify::verify) has accepted it.
//!
//! [`place`] runs the method that a [`Solver`] names; [`Solver::Auto`] is the one to use.

pub mod auto;
pub mod banks;
pub mod beam;
pub mod best_fit;
pub mod bound;
pub mod chunks;
pub mod coloring;
mod earliest_end;
mod gap;
pub mod greedy;
pub mod improve;
pub mod interval;
pub mod large_first;
pub mod late_reuse;
mod lifetime_tree;
mod load_tree;
pub mod multistart;
pub mod outward;
pub mod overlap;
pub mod portfolio;
pub mod search;
mod skyline;
mod tiling;

pub use gap::Fit;
use greedy::Order;
use interval::Sweep;

use core::ops::ControlFlow;

use crate::error::Buffer;
use crate::table::at;
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block, sort};

/// The settings of a method of placement: constraints of the plan, budgets, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The alignment of all offsets, and the capacity: the most bytes that a plan may take.
    pub constraints: Constraints,
    /// The seed of the random choices; the same seed gives the same plan everywhere.
    pub seed: u64,
    /// The budget, in blocks placed, of the heuristics that could go on without end: [`multistart`], [`outward`],
    /// [`improve`], and the placement in many orders by [`overlap`]. [`multistart`] always finishes its first plan,
    /// whatever the budget. [`portfolio`] has this budget a second time, for those of its methods whose time grows with
    /// the number of pairs of blocks that are alive together.
    pub work: u64,
    /// The budget of the exact search ([`search`]), in nodes of its search tree. The search also counts one node for
    /// each 1,024 blocks and sections of time that it looks at, so that a node stands for about 3 µs of work on every
    /// instance. [`large_first`] and the search in [`overlap`] have this budget too. Beam search ([`beam`]) gets the
    /// time that so many nodes take. [`auto`] divides the budget among its methods.
    pub nodes: u64,
    /// The techniques that the exact search uses; its other techniques are turned off.
    pub techniques: search::Techniques,
}

impl Options {
    /// The default of [`Options::work`], in blocks placed: enough for the optimum on most networks, in a fraction of a
    /// second.
    pub const DEFAULT_WORK: u64 = 400_000;
    /// The default of [`Options::nodes`], in nodes of the search tree: about a second of search, enough for the optimum
    /// on most hard instances of a few hundred blocks.
    pub const DEFAULT_NODES: u64 = 280_000;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            constraints: Constraints::NONE,
            seed: 1,
            work: Self::DEFAULT_WORK,
            nodes: Self::DEFAULT_NODES,
            techniques: search::Techniques::ALL,
        }
    }
}

/// What a method of placement has found: its final result, or its best result so far while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The peak of the best plan: the highest end of a block, in bytes. `u64::MAX` as long as there is no plan.
    pub peak: u64,
    /// A lower bound on the peak of all plans, in bytes; a plan with this peak is optimal.
    pub lower_bound: u64,
    /// The method that made the plan. Where several methods ran, the one whose plan is kept.
    pub solver: Solver,
    /// How many nodes of its search tree the exact search has looked at. Beam searches, and the search of `auto` for
    /// plans without unused bytes (`tiling`), count too: each adds as many nodes as the exact search would look at in
    /// the same time.
    pub nodes: u64,
}

/// A function that a method of placement calls with its result so far. It returns `ControlFlow::Break` to end a method
/// that could go on; the method then returns the best result that it has.
pub type Watch<'a> = &'a mut dyn FnMut(&Summary) -> ControlFlow<()>;

#[derive(Clone, Copy)]
enum Part {
    None,
    Always,
    FewPairs,
}

macro_rules! solvers {
    (
        ($blocks:ident, $options:ident, $scratch:ident, $offsets:ident, $watch:ident)
        $(
            $(#[$about:meta])*
            $variant:ident $(($($field:ident: $kind:ty),+))? {
                $($(($($value:path),+))? $name:literal),+ $(,)?
            } $part:ident, $workspace:path, $call:expr;
        )*
    ) => {
        /// A method of placement. Each method gives every block an offset.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Solver {
            $($(#[$about])* $variant $(($($kind),+))?,)*
        }

        impl Solver {
            const ALL: &'static [Self] = &[$($(Self::$variant $(($($value),+))?,)+)*];

            /// The name of the method: lower case, words joined by dashes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$variant $(($($value),+))? => $name,)+)*
                }
            }

            const fn part(self) -> Part {
                match self {
                    $(Self::$variant { .. } => Part::$part,)*
                }
            }

            const fn workspace(self, n: usize) -> WorkspaceLen {
                match self {
                    $(Self::$variant { .. } => $workspace(n),)*
                }
            }

            fn run(
                self,
                $blocks: &[Block],
                $options: &Options,
                $scratch: Workspace<'_>,
                $offsets: &mut [u64],
                $watch: Watch<'_>,
            ) -> Result<Summary, Error> {
                match self {
                    $(Self::$variant $(($($field),+))? => $call,)*
                }
            }
        }
    };
}

// The portfolio runs its members in this order.
solvers! {
    (blocks, options, scratch, offsets, watch)

    /// [`auto`]: runs quick heuristics first: one plan built from address 0 upwards, [`coloring`], forward and backward
    /// in time, and those of the [`portfolio`]. If their best peak is above the lower bound, slower methods follow.
    /// Which ones depends on the number of blocks: with few it is the exact [`search`] above all, with many it is
    /// heuristics alone.
    Auto { "auto" } None, auto::workspace, auto::place(blocks, options, scratch, offsets, watch);
    /// [`portfolio`]: runs several heuristics one after the other, and keeps the best plan.
    Portfolio { "portfolio" } None, portfolio::workspace, portfolio::place(blocks, options, scratch, offsets, watch);
    /// [`search`]: exact search for the least peak.
    Search { "search" } None, search::workspace, search::place(blocks, options, scratch, offsets, watch);
    /// [`improve`]: builds one plan from address 0 upwards. Then moves its highest blocks down, and moves the blocks
    /// that are in their way elsewhere.
    Improve { "improve" } None, improve::workspace, improve::place(blocks, options, scratch, offsets, watch);
    /// [`outward`]: builds one plan from address 0 upwards. Then builds plans that begin with the blocks alive at the
    /// step with the most bytes alive, and go on from there in both directions of time.
    Outward { "outward" } None, outward::workspace, outward::place(blocks, options, scratch, offsets, watch);
    /// [`beam`]: builds one plan from address 0 upwards, then looks for better plans by beam search along time.
    Beam { "beam" } None, beam::workspace, beam::place(blocks, options, scratch, offsets, watch);
    /// [`large_first`]: builds one plan from address 0 upwards. Then places the large blocks alone by exact search, and
    /// the others into the holes that these leave.
    LargeFirst { "large-first" } None, large_first::workspace, large_first::place(blocks, options, scratch, offsets, watch);
    /// [`multistart`]: builds many plans and keeps the best. Each is built from address 0 upwards, with another rule of
    /// which block comes next.
    Multistart { "multistart" } Always, multistart::workspace, multistart::place(blocks, options, scratch, offsets, watch);
    /// [`best_fit`]: the lowest free place goes to the block with the longest lifetime of those that fit there, as
    /// published by Sekiyama et al. 2018.
    BestFit { "best-fit" } Always, best_fit::workspace, best_fit::place(blocks, options, scratch, offsets);
    /// [`coloring`]: weighted interval colouring, as published by Zhang et al. 2019. Blocks are placed from the largest
    /// to the smallest, each into free addresses between the placed blocks that are alive with it. The field says which
    /// of these addresses a block takes: the lowest that are enough, or the smallest range that is large enough.
    Coloring(fit: Fit) {
        (Fit::First) "coloring-first-fit",
        (Fit::Best) "coloring-best-fit",
    } FewPairs, coloring::workspace, coloring::place(blocks, options, fit, scratch, offsets);
    /// [`coloring`] backward in time: blocks are placed from the largest to the smallest; of equal sizes, the block
    /// that ends last comes first. Each block takes the lowest range of free addresses that is large enough.
    ColoringBackward { "coloring-backward" } None, coloring::workspace, coloring::place_backward(blocks, options, scratch, offsets);
    /// [`greedy`]: places one block after the other in a fixed order, each into free addresses between the placed
    /// blocks that are alive with it. The first field is the order. The second says which of these addresses a block
    /// takes: the lowest that are enough, or the smallest range that is large enough.
    Greedy(order: Order, fit: Fit) {
        (Order::Size, Fit::First) "size-first-fit",
        (Order::Size, Fit::Best) "size-best-fit",
        (Order::SizeLifetime, Fit::First) "size-lifetime-first-fit",
        (Order::SizeLifetime, Fit::Best) "size-lifetime-best-fit",
        (Order::Area, Fit::First) "area-first-fit",
        (Order::Area, Fit::Best) "area-best-fit",
        (Order::Lifetime, Fit::First) "lifetime-first-fit",
        (Order::Lifetime, Fit::Best) "lifetime-best-fit",
        (Order::Start, Fit::First) "start-first-fit",
        (Order::Start, Fit::Best) "start-best-fit",
    } FewPairs, greedy::workspace, greedy::place(blocks, options, order, fit, scratch, offsets);
}

impl Solver {
    /// The methods that [`Solver::Portfolio`] runs, in the order in which it runs them.
    pub const HEURISTICS: [Self; Self::MEMBER_COUNT] = {
        let mut members = [Self::Auto; Self::MEMBER_COUNT];
        let (mut count, mut i) = (0, 0);
        while i < Self::ALL.len() {
            if Self::ALL[i].is_member() {
                members[count] = Self::ALL[i];
                count += 1;
            }
            i += 1;
        }
        members
    };

    const MEMBER_COUNT: usize = {
        let (mut count, mut i) = (0, 0);
        while i < Self::ALL.len() {
            count += Self::ALL[i].is_member() as usize;
            i += 1;
        }
        count
    };

    /// Every method of placement.
    ///
    /// ```
    /// use sublet_core::place::Solver;
    /// assert!(Solver::all().all(|solver| Solver::named(solver.name()) == Some(solver)));
    /// ```
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied()
    }

    /// The method of placement that has this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|s| s.name() == name)
    }

    const fn is_member(self) -> bool {
        !matches!(self.part(), Part::None)
    }

    const fn grows_with_pairs(self) -> bool {
        matches!(self.part(), Part::FewPairs)
    }
}

/// Length of the workspace that [`place`] needs for `n` blocks. The length is linear in n, except that
/// [`Solver::Search`], and [`Solver::Auto`] with at most [`search::MOST_BLOCKS`] blocks, also need a table of n²/64
/// words.
#[must_use]
pub const fn workspace_of(solver: Solver, n: usize) -> WorkspaceLen {
    solver.workspace(n)
}

/// Length of the workspace that [`place`] needs for any number of blocks up to `n`. With [`Solver::Auto`], this may be
/// more than [`workspace_of`] says for `n`: with at most [`search::MOST_BLOCKS`] blocks, the exact search runs too, and
/// may need more than the other methods need for `n` blocks.
#[must_use]
pub const fn workspace_up_to(solver: Solver, n: usize) -> WorkspaceLen {
    let searched = if n < search::MOST_BLOCKS { n } else { search::MOST_BLOCKS };
    workspace_of(solver, n).max(workspace_of(solver, searched))
}

/// Gives every block an offset by the method that `solver` names.
///
/// # Errors
/// The error of [`block::check`] if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks that are alive
/// together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or the workspace is
/// shorter than [`workspace_of`] says; [`Error::OverCapacity`] if the peak is above the capacity: the plan found is
/// left in `offsets`.
///
/// ```
/// use sublet_core::place::{self, Options, Solver};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = place::workspace_of(Solver::Auto, blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = place::place(Solver::Auto, &blocks, &Options::default(), scratch, &mut offsets)?;
/// assert_eq!((summary.peak, summary.lower_bound), (12, 12));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    solver: Solver,
    blocks: &[Block],
    options: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    place_watched(solver, blocks, options, scratch, offsets, &mut |_| ControlFlow::Continue(()))
}

/// Gives every block an offset by the method that `solver` names, and tells `watch` the result so far: after
/// improvements, and in between to report progress. The last improvement may be told by the returned summary alone. If
/// `watch` returns `ControlFlow::Break`, the method ends with its best result. Methods that make only one plan do not
/// call `watch`.
///
/// # Errors
/// The error of [`block::check`] if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks that are alive
/// together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or the workspace is
/// shorter than [`workspace_of`] says; [`Error::OverCapacity`] if the peak is above the capacity: the plan found is
/// left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{self, Options, Solver};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = place::workspace_of(Solver::Auto, blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let mut told = 0;
/// let mut watch = |_: &_| {
///     told += 1;
///     ControlFlow::Continue(())
/// };
/// let scratch = Workspace::new(&mut words, &mut indices);
/// place::place_watched(Solver::Auto, &blocks, &Options::default(), scratch, &mut offsets, &mut watch)?;
/// assert!(told > 0);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place_watched(
    solver: Solver,
    blocks: &[Block],
    options: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    solver.run(blocks, options, scratch, offsets, watch)
}

fn prepare(
    blocks: &[Block],
    options: &Options,
    needed: WorkspaceLen,
    scratch: &mut Workspace<'_>,
    offsets: &[u64],
) -> Result<u64, Error> {
    let pinned = block::check(blocks, options.constraints.alignment)?;
    if offsets.len() != blocks.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got: offsets.len() });
    }
    scratch.check(needed)?;
    if pinned > 0 {
        check_pins(blocks, &mut scratch.reborrow())?;
    }
    Ok(Sweep::new(blocks, scratch.reborrow())?.max_load().max(pinned))
}

fn check_pins(blocks: &[Block], scratch: &mut Workspace<'_>) -> Result<(), Error> {
    let mut pins = scratch.indices(blocks.len());
    let mut aside = scratch.indices(blocks.len());
    let mut pin_count = 0;
    for (i, _) in (0u32..).zip(blocks).filter(|(_, b)| b.pin.is_some()) {
        pins[pin_count] = i;
        pin_count += 1;
    }
    let offset = |i: u32| at(blocks, i).pin.unwrap_or(0);
    sort::by_key(&mut pins, pin_count, &mut aside, offset);
    for p in 0..pin_count {
        let low = pins[p];
        let end = offset(low).saturating_add(at(blocks, low).size);
        for high in (p + 1..pin_count).map(|q| pins[q]).take_while(|&high| offset(high) < end) {
            if at(blocks, low).collides(&at(blocks, high)) {
                return Err(Error::PinsOverlap { first: low.min(high), second: low.max(high) });
            }
        }
    }
    Ok(())
}

type Improve = fn(&[Block], &Options, Summary, Workspace<'_>, &mut [u64], Watch<'_>) -> Result<Summary, Error>;

fn improve_one(
    improve: Improve,
    needed: WorkspaceLen,
    blocks: &[Block],
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    prepare(blocks, options, needed, &mut scratch, offsets)?;
    let once = Options { work: 0, ..*options };
    let mut stopped = false;
    let mut tell = |now: &Summary| tell(watch, now, &mut stopped);
    let built = multistart::build(blocks, &once, multistart::Series::Any(1), scratch.reborrow(), offsets, &mut tell)?;
    let improved = if stopped { built } else { improve(blocks, options, built, scratch, offsets, watch)? };
    finish(improved, options)
}

fn tell(watch: Watch<'_>, now: &Summary, stopped: &mut bool) -> ControlFlow<()> {
    let flow = watch(now);
    *stopped |= flow.is_break();
    flow
}

fn finish(summary: Summary, options: &Options) -> Result<Summary, Error> {
    let Summary { peak, lower_bound, .. } = summary;
    match options.constraints.capacity {
        Some(capacity) if peak > capacity => Err(Error::OverCapacity { peak, lower_bound, capacity }),
        _ => Ok(summary),
    }
}

fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// `alignment` is a power of two; 0 if the multiple does not fit 64 bits.
pub(crate) fn align_up(offset: u64, alignment: u64) -> u64 {
    offset.wrapping_add(alignment - 1) & !(alignment - 1)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
