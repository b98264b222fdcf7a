//! What a placement is asked for, and what it tells: solvers and their names, options, summaries.

use core::ops::ControlFlow;

use super::gap::Fit;
use super::technique::Techniques;
use crate::Constraints;

/// The settings of a method of placement: constraints of the plan, budgets, and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The alignment of all offsets, and the capacity: the most bytes that a plan may take.
    pub constraints: Constraints,
    /// The seed of the random choices; the same seed gives the same plan everywhere.
    pub seed: u64,
    /// The budget, in blocks placed, of the heuristics that could go on without end: [`Solver::Multistart`], which always
    /// finishes its first plan, and the placement in many orders by [`overlap`](super::overlap). [`Solver::Portfolio`] has
    /// this budget a second time, for those of its methods whose time grows with the number of pairs of blocks that are
    /// alive together.
    pub work: u64,
    /// The budget of the exact search, in nodes of its search tree. The search also counts one node for each 1,024 blocks
    /// and sections of time that it looks at, so that a node stands for about 3 µs of work on every instance. The search in
    /// [`overlap`](super::overlap) has this budget too. Beam search gets the time that so many nodes take.
    /// [`Solver::Auto`] divides the budget among its methods.
    pub nodes: u64,
    /// The techniques that the exact search uses; its other techniques are turned off.
    pub techniques: Techniques,
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
            techniques: Techniques::ALL,
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
    /// How many nodes of its search tree the exact search has looked at. Beam searches count too: each adds as many nodes
    /// as the exact search would look at in the same time.
    pub nodes: u64,
}

/// A function that a method of placement calls with its result so far. It returns `ControlFlow::Break` to end a method
/// that could go on; the method then returns the best result that it has.
pub type Watch<'a> = &'a mut dyn FnMut(&Summary) -> ControlFlow<()>;

/// The order in which blocks are placed one after the other; the first blocks get the best places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Largest size first.
    Size,
    /// Largest size times lifetime (bytes times steps) first.
    Area,
    /// Longest lifetime first.
    Lifetime,
    /// Earliest begin of the lifetime first.
    Start,
    /// Largest size first; of equal sizes, the longest lifetime first.
    SizeLifetime,
}

/// A method of placement. Each method gives every block an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Solver {
    /// Runs quick heuristics first: one plan built from address 0 upwards, colouring in both directions of time, and those of
    /// [`Self::Portfolio`]. If their best peak is above the lower bound, exact search, beam search and more plans by
    /// heuristics take turns; where blocks are pinned, mostly [`Self::Ejection`].
    Auto,
    /// Runs the [`Self::HEURISTICS`] one after the other, and keeps the best plan.
    Portfolio,
    /// Exact search for the least peak.
    Search,
    /// Builds one plan from address 0 upwards, then looks for better plans by beam search along time.
    Beam,
    /// Builds one plan from address 0 upwards, then takes blocks out and puts each back where it disturbs least; good where
    /// blocks are pinned.
    Ejection,
    /// Builds many plans and keeps the best. Each is built from address 0 upwards, with another rule of which block comes
    /// next.
    Multistart,
    /// The lowest free place goes to the block with the longest lifetime of those that fit there (Sekiyama et al. 2018).
    BestFit,
    /// Weighted interval colouring (Zhang et al. 2019): blocks are placed from the largest to the smallest, each into free
    /// addresses between the placed blocks that are alive with it; the field says which of these it takes.
    Coloring(Fit),
    /// [`Self::Coloring`] by first fit, backward in time: of equal sizes, the block that ends last comes first.
    ColoringBackward,
    /// Places one block after the other in a fixed order, each into free addresses between the placed blocks that are alive
    /// with it; the second field says which of these it takes.
    Greedy(Order, Fit),
}

macro_rules! names {
    ($($variant:ident $(($($value:path),+))? $name:literal;)*) => {
        impl Solver {
            const ALL: &'static [Self] = &[$(Self::$variant $(($($value),+))?,)*];

            /// The name of the method: lower case, words joined by dashes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant $(($($value),+))? => $name,)*
                }
            }
        }
    };
}

names! {
    Auto "auto";
    Portfolio "portfolio";
    Search "search";
    Beam "beam";
    Ejection "ejection";
    Multistart "multistart";
    BestFit "best-fit";
    Coloring(Fit::First) "coloring-first-fit";
    Coloring(Fit::Best) "coloring-best-fit";
    ColoringBackward "coloring-backward";
    Greedy(Order::Size, Fit::First) "size-first-fit";
    Greedy(Order::Size, Fit::Best) "size-best-fit";
    Greedy(Order::SizeLifetime, Fit::First) "size-lifetime-first-fit";
    Greedy(Order::SizeLifetime, Fit::Best) "size-lifetime-best-fit";
    Greedy(Order::Area, Fit::First) "area-first-fit";
    Greedy(Order::Area, Fit::Best) "area-best-fit";
    Greedy(Order::Lifetime, Fit::First) "lifetime-first-fit";
    Greedy(Order::Lifetime, Fit::Best) "lifetime-best-fit";
    Greedy(Order::Start, Fit::First) "start-first-fit";
    Greedy(Order::Start, Fit::Best) "start-best-fit";
}

impl Solver {
    /// The methods that [`Solver::Portfolio`] runs, in the order in which it runs them.
    pub const HEURISTICS: [Self; 14] = [
        Self::Multistart,
        Self::BestFit,
        Self::Coloring(Fit::First),
        Self::Coloring(Fit::Best),
        Self::Greedy(Order::Size, Fit::First),
        Self::Greedy(Order::Size, Fit::Best),
        Self::Greedy(Order::SizeLifetime, Fit::First),
        Self::Greedy(Order::SizeLifetime, Fit::Best),
        Self::Greedy(Order::Area, Fit::First),
        Self::Greedy(Order::Area, Fit::Best),
        Self::Greedy(Order::Lifetime, Fit::First),
        Self::Greedy(Order::Lifetime, Fit::Best),
        Self::Greedy(Order::Start, Fit::First),
        Self::Greedy(Order::Start, Fit::Best),
    ];

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
}
