//! Placement: an offset for every block.

use core::ffi::{CStr, c_char, c_void};
use core::ops::ControlFlow;
use core::ptr;

use sublet_core::Block;
use sublet_core::place::{self, Fit, Options, Order, Solver, Summary};

use crate::arguments::{Arguments, params, plain};
use crate::block::{self, sublet_block};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{MOST_COUNTED, Needed, sublet_layout};

/// A method by which blocks get their offsets.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_solver {
    /// The solver for most uses. It runs the heuristics of SUBLET_SOLVER_PORTFOLIO and, unless very many pairs of
    /// blocks are alive together, SUBLET_SOLVER_COLORING_BACKWARD. If the peak of their best plan is above the lower
    /// bound, it looks for better plans, until one reaches the bound or the budgets `work` and `nodes` of the
    /// sublet_place_params are used up: by more heuristics, by the beam search, and up to 6,000 blocks by the exact
    /// search, which take turns; where blocks are pinned, mostly by SUBLET_SOLVER_EJECTION (19).
    Auto = 0,
    /// Runs the solvers of this list from SUBLET_SOLVER_MULTISTART (3) to SUBLET_SOLVER_START_BEST_FIT (16), and takes
    /// the best plan. Ends early if a plan's peak is the lower bound. The time of the solvers from
    /// SUBLET_SOLVER_COLORING_FIRST_FIT (5) on grows with the number of pairs of blocks that are alive together. These
    /// solvers share a budget as large as the `work` of the sublet_place_params. Once it is used up, the rest of them
    /// do not run; with very many pairs, none of them runs.
    Portfolio = 1,
    /// An exact search: tries placements as branches of a tree, and looks at no more nodes of the tree than the field
    /// `nodes` of the sublet_place_params says.
    Search = 2,
    /// Makes many plans by the skyline heuristic, and takes the best. The skyline is, for each step, the address up to
    /// which memory is taken; the heuristic is a form of best fit. The plans differ in which of the blocks that fit is
    /// placed first, for example the largest or the longest-lived.
    Multistart = 3,
    /// Best fit (Sekiyama et al. 2018): memory is filled from address 0 up. Each time, at the steps where the filled
    /// memory ends lowest, the longest-lived block that fits there is placed.
    BestFit = 4,
    /// Weighted interval colouring (Zhang et al. 2019): places blocks from the largest to the smallest, of equal sizes
    /// the one that begins first, each in the lowest range of free addresses in which it fits.
    ColoringFirstFit = 5,
    /// Weighted interval colouring (Zhang et al. 2019): places blocks from the largest to the smallest, of equal sizes
    /// the one that begins first, each in the smallest range of free addresses in which it fits.
    ColoringBestFit = 6,
    /// Places blocks from the largest to the smallest, each at the lowest offset where it fits.
    SizeFirstFit = 7,
    /// Places blocks from the largest to the smallest, each in the smallest range of free addresses in which it fits.
    SizeBestFit = 8,
    /// Places blocks from the largest to the smallest, of equal sizes the longest-lived first, each at the lowest
    /// offset where it fits.
    SizeLifetimeFirstFit = 9,
    /// Places blocks from the largest to the smallest, of equal sizes the longest-lived first, each in the smallest
    /// range of free addresses in which it fits.
    SizeLifetimeBestFit = 10,
    /// Places blocks by the product of size and lifetime, the largest product first, each at the lowest offset where it
    /// fits.
    AreaFirstFit = 11,
    /// Places blocks by the product of size and lifetime, the largest product first, each in the smallest range of free
    /// addresses in which it fits.
    AreaBestFit = 12,
    /// Places blocks from the longest-lived to the shortest-lived, each at the lowest offset where it fits.
    LifetimeFirstFit = 13,
    /// Places blocks from the longest-lived to the shortest-lived, each in the smallest range of free addresses in
    /// which it fits.
    LifetimeBestFit = 14,
    /// Places blocks in the order in which their lifetimes begin, each at the lowest offset where it fits.
    StartFirstFit = 15,
    /// Places blocks in the order in which their lifetimes begin, each in the smallest range of free addresses in which
    /// it fits.
    StartBestFit = 16,
    /// Makes one plan by the skyline heuristic, a form of best fit, then looks for better plans by a beam search: it
    /// places blocks in the order of time, and keeps many partial plans side by side.
    Beam = 17,
    /// Places blocks from the largest to the smallest, each at the lowest offset where it fits. Of blocks of equal
    /// size, the one whose lifetime ends latest is placed first.
    ColoringBackward = 18,
    /// Makes one plan by the skyline heuristic, then lowers its peak by taking blocks out and putting each back where it
    /// disturbs least; good where blocks are pinned.
    Ejection = 19,
}

use sublet_solver as N;

const SOLVERS: [(N, Solver, &CStr); 20] = [
    (N::Auto, Solver::Auto, c"auto"),
    (N::Portfolio, Solver::Portfolio, c"portfolio"),
    (N::Search, Solver::Search, c"search"),
    (N::Multistart, Solver::Multistart, c"multistart"),
    (N::BestFit, Solver::BestFit, c"best-fit"),
    (N::ColoringFirstFit, Solver::Coloring(Fit::First), c"coloring-first-fit"),
    (N::ColoringBestFit, Solver::Coloring(Fit::Best), c"coloring-best-fit"),
    (N::SizeFirstFit, Solver::Greedy(Order::Size, Fit::First), c"size-first-fit"),
    (N::SizeBestFit, Solver::Greedy(Order::Size, Fit::Best), c"size-best-fit"),
    (N::SizeLifetimeFirstFit, Solver::Greedy(Order::SizeLifetime, Fit::First), c"size-lifetime-first-fit"),
    (N::SizeLifetimeBestFit, Solver::Greedy(Order::SizeLifetime, Fit::Best), c"size-lifetime-best-fit"),
    (N::AreaFirstFit, Solver::Greedy(Order::Area, Fit::First), c"area-first-fit"),
    (N::AreaBestFit, Solver::Greedy(Order::Area, Fit::Best), c"area-best-fit"),
    (N::LifetimeFirstFit, Solver::Greedy(Order::Lifetime, Fit::First), c"lifetime-first-fit"),
    (N::LifetimeBestFit, Solver::Greedy(Order::Lifetime, Fit::Best), c"lifetime-best-fit"),
    (N::StartFirstFit, Solver::Greedy(Order::Start, Fit::First), c"start-first-fit"),
    (N::StartBestFit, Solver::Greedy(Order::Start, Fit::Best), c"start-best-fit"),
    (N::Beam, Solver::Beam, c"beam"),
    (N::ColoringBackward, Solver::ColoringBackward, c"coloring-backward"),
    (N::Ejection, Solver::Ejection, c"ejection"),
];

/// What is known of a plan that a solver made: the size of its arena, and a lower bound on that size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_placement {
    /// Set this to sizeof(sublet_placement): the library sees from it which fields the struct has in the caller's
    /// version. In the struct that the library passes to a sublet_watch, the library has set this.
    pub struct_size: u32,
    /// The sublet_solver that made the plan; where several were tried, the one whose plan was taken.
    pub solver: u32,
    /// The highest end of a block, in bytes: the size of the arena. UINT64_MAX while there is no plan.
    pub peak: u64,
    /// A lower bound on the peak of every placement, in bytes; the plan is optimal if its peak equals this.
    pub lower_bound: u64,
    /// How many nodes of its search tree the exact search looked at. The time of other searches, such as the beam
    /// search, counts too: as many nodes as the exact search would look at in that time.
    pub nodes: u64,
}

/// A function of the caller's that is called during a placement, at each improvement and in between, with the figures
/// of the best plan so far. Solvers that make only one plan do not call it. If it returns another value than 0, the
/// placement ends, and the best plan so far is its result. The function must return: no exception and no longjmp.
/// `context` is the `watch_context` of the sublet_place_params.
pub type sublet_watch = Option<unsafe extern "C" fn(context: *mut c_void, best: *const sublet_placement) -> i32>;

/// The options of sublet_place. As a rule, set `struct_size` and leave all else 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sublet_place_params {
    /// Set this to sizeof(sublet_place_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// The sublet_solver that is to place the blocks.
    pub solver: u32,
    /// Every offset must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
    /// The most bytes that the arena may take; 0 is no constraint. Once a plan is within the capacity,
    /// SUBLET_SOLVER_AUTO starts no further method, and SUBLET_SOLVER_SEARCH and SUBLET_SOLVER_BEAM end. Other solvers
    /// work as without a capacity.
    pub capacity: u64,
    /// The seed of all random choices: the same seed gives the same plan on every machine. 0 stands for the seed 1.
    pub seed: u64,
    /// A budget for the solvers that look for ever better plans and have no end of their own, such as
    /// SUBLET_SOLVER_MULTISTART: how many blocks they may place, each counted as often as it is placed. 0 is the
    /// default, 400,000, which suffices for most networks, in a fraction of a second.
    pub work: u64,
    /// A budget: how many nodes of its search tree the exact search (SUBLET_SOLVER_SEARCH) may look at. A node takes
    /// about 3 µs. The beam search (SUBLET_SOLVER_BEAM) gets the time that as many nodes would take. 0 is the
    /// default, 280,000 nodes, or about a second, which suffices for most hard instances of a few hundred blocks.
    pub nodes: u64,
    /// A function that is called during the placement, and can end it; NULL is none.
    pub watch: sublet_watch,
    /// The pointer that each call of `watch` gets as its `context`.
    pub watch_context: *mut c_void,
}

plain!(sublet_placement, sublet_place_params);
params! {
    sublet_place_params { struct_size, solver, alignment, capacity, seed, work, nodes, watch, watch_context }
    sublet_placement { struct_size, solver, peak, lower_bound, nodes }
}

impl sublet_place_params {
    fn options(&self) -> Options {
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        let usual = Options::default();
        Options {
            constraints: block::constraints(self.alignment, self.capacity),
            seed: or(self.seed, usual.seed),
            work: or(self.work, usual.work),
            nodes: or(self.nodes, usual.nodes),
            ..usual
        }
    }
}

pub(crate) fn solver(number: u32, position: u32) -> Result<Solver, Failure> {
    let known = SOLVERS.iter().find(|&&(n, ..)| n as u32 == number);
    known.map(|&(_, solver, _)| solver).ok_or(Failure::new(S::UnknownValue, position, 0, number.into()))
}

impl From<Summary> for sublet_placement {
    fn from(Summary { peak, lower_bound, solver, nodes }: Summary) -> Self {
        let number = SOLVERS.iter().find(|&&(_, s, _)| s == solver).map_or(N::Auto, |&(number, ..)| number);
        let struct_size = u32::try_from(size_of::<Self>()).unwrap_or(0);
        Self { struct_size, solver: number as u32, peak, lower_bound, nodes }
    }
}

/// Its memory grows with the square of the blocks, and must not overflow 32 bits.
const MOST_SEARCHED: usize = if usize::BITS < 64 { 1 << 14 } else { MOST_COUNTED };

/// `position` is that of the argument `n`.
pub(crate) fn check_count(solver: Solver, n: usize, position: u32) -> Result<(), Failure> {
    if matches!(solver, Solver::Search) && n > MOST_SEARCHED {
        return Err(Failure::new(S::LengthOverflow, position, MOST_SEARCHED as u64, n as u64));
    }
    Ok(())
}

fn needed(solver: Solver, n: usize, position: u32) -> Result<Needed, Failure> {
    check_count(solver, n, position)?;
    Ok(Needed::workspace(place::workspace_of(solver, n)).and::<Block>(n))
}

/// The name of the solver whose number, a sublet_solver, is `solver`; NULL if no solver has this number. The text lives
/// as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_solver_name(solver: u32) -> *const c_char {
    SOLVERS.iter().find(|(number, ..)| *number as u32 == solver).map_or(ptr::null(), |(_, _, name)| name.as_ptr())
}

/// Writes to `solver` the sublet_solver that is called `name`, a name as sublet_solver_name returns them.
///
/// SUBLET_STATUS_UNKNOWN_NAME: there is no solver of this name.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_solver_named(
    name: *const c_char,
    solver: *mut u32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        let names = SOLVERS.iter().map(|&(number, solver, _)| (solver.name(), number as u32));
        // SAFETY: the header asks for a text that ends, and for pointers that hold what they are to hold.
        let (number, to) = unsafe { (arguments.name(name, names)?, arguments.result(solver)?) };
        to.set(number);
        Ok(())
    })
}

/// Tells in `layout` how large a workspace sublet_place needs for `block_count` blocks and the parameters `params`,
/// which may be NULL. Its size is linear in the number of blocks, or quadratic where the exact search may run: for
/// SUBLET_SOLVER_SEARCH, and for SUBLET_SOLVER_AUTO with up to 6,000 blocks.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_place_workspace(
    block_count: usize,
    params: *const sublet_place_params,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let n = arguments.count(block_count)?;
        // SAFETY: the header asks for parameters that are as long as they say.
        let params = unsafe { arguments.params(params)? };
        needed(solver(params.solver, 1)?, n, 0)
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Gives every block an offset, so that blocks that are alive together share no address.
///
/// `params` may be NULL. `offsets` has room for one offset for each block. `placement` may be NULL; it is written if
/// the status is SUBLET_STATUS_OK. SUBLET_STATUS_OVER_CAPACITY: no plan within the capacity was found;
/// SUBLET_STATUS_NO_PLAN_FITS: it is proved that there is none. After these two, `offsets` holds the best placement
/// that was found.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_place(
    blocks: *const sublet_block,
    block_count: usize,
    params: *const sublet_place_params,
    workspace: *mut c_void,
    workspace_size: usize,
    offsets: *mut u64,
    placement: *mut sublet_placement,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, params) = unsafe { (arguments.input(blocks, block_count)?, arguments.params(params)?) };
        let solver = solver(params.solver, 2)?;
        let needed = needed(solver, block_count, 1)?;
        // SAFETY: as above.
        let (mut room, offsets, placement) = unsafe {
            (
                arguments.workspace(workspace, workspace_size, needed)?,
                arguments.output_of(offsets, block_count, 1)?,
                arguments.report_if_wanted(placement)?,
            )
        };
        let blocks = block::blocks(&mut room, blocks)?;
        // Solvers that call others may ask once more: a watch that has ended the work is not called again.
        let mut ended = false;
        let mut watch = |best: &Summary| {
            let best = sublet_placement::from(*best);
            if let (false, Some(watch)) = (ended, params.watch) {
                // SAFETY: the header asks for a function that takes these two and returns.
                ended = unsafe { watch(params.watch_context, &raw const best) } != 0;
            }
            if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let scratch = room.workspace(place::workspace_of(solver, block_count));
        let summary = place::place_watched(solver, blocks, &params.options(), scratch, offsets, &mut watch)?;
        placement.set(summary.into());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_solver_of_core_has_its_number_and_name() {
        for solver in Solver::all() {
            let same: Vec<_> = SOLVERS.iter().filter(|&&(_, s, _)| s == solver).collect();
            assert_eq!(same.len(), 1, "{solver:?}");
            assert_eq!(same[0].2.to_str(), Ok(solver.name()));
        }
        assert!(SOLVERS.iter().enumerate().all(|(i, &(number, ..))| number as usize == i));
        assert_eq!(Solver::all().count(), SOLVERS.len());
    }
}
