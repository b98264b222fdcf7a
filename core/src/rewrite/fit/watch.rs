//! What a fit tells its caller while it works: every schedule that is tried, and between these, that work goes on. At
//! each of these calls the caller may stop the fit.

use core::ops::ControlFlow;

use super::{Means, Using};
use crate::rewrite::means::order::Reordering;

/// A function of the caller that a fit calls to report its progress. It ends the work by returning `Break`. The fit
/// then returns the best schedule that it has made, or [`Error::Stopped`](crate::Error::Stopped) if none fits.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// How a schedule combines swaps and recomputation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// Nothing is swapped or recomputed: in-place reuse and masks alone, or the network as it was recorded. The
    /// operators may run in another order.
    Free,
    /// Swaps alone.
    Swap,
    /// Recomputation alone.
    Recompute,
    /// Recomputation lowers the bytes alive to a level that the fit chooses; then swaps bring them within the limit.
    RecomputeThenSwap,
}

impl Strategy {
    /// All strategies, in the order in which a fit tries them.
    pub const ALL: [Self; 4] = [Self::Free, Self::Recompute, Self::RecomputeThenSwap, Self::Swap];

    /// The name of the strategy, to be shown to people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Swap => "swap",
            Self::Recompute => "recompute",
            Self::RecomputeThenSwap => "recompute, then swap",
        }
    }

    pub(super) const fn means(self) -> Using {
        match self {
            Self::Free => Using::NONE,
            Self::Swap => Using::NONE.with(Means::Swap),
            Self::Recompute => Using::NONE.with(Means::Recompute),
            Self::RecomputeThenSwap => Self::Swap.means().with(Means::Recompute),
        }
    }

    pub(super) const fn recomputes(self) -> bool {
        self.means().has(Means::Recompute)
    }

    pub(super) const fn swaps(self) -> bool {
        self.means().has(Means::Swap)
    }
}

/// A schedule that was made and placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// How the schedule combines swaps and recomputation.
    pub strategy: Strategy,
    /// Whether the schedule has neither masks nor in-place reuse. Its operators may still be in another order than the
    /// recorded one ([`reordering`](Self::reordering)).
    pub as_recorded: bool,
    /// The order in which the operators run; none means the recorded order.
    pub reordering: Option<Reordering>,
    /// The time, in ns, that the schedule adds to the original, as simulated.
    pub overhead_ns: f64,
    /// The memory that the schedule takes on the device: the highest end of a block, in bytes from the start of the
    /// arena. If it is above the limit, the schedule is not kept.
    pub footprint: u64,
    /// The limit, in bytes, that the schedule was made for. In a search for the least limit that can be kept, it is the
    /// limit that the search tried; otherwise it is the limit that the caller gave.
    pub limit: u64,
}

/// What a fit tells the caller's [`Watch`] function.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The fit is still at work; the caller may end it here.
    Working,
    /// A schedule was tried.
    Tried(Tried),
}

pub(super) struct Watched<'w> {
    watch: Watch<'w>,
    stopped: bool,
}

impl<'w> Watched<'w> {
    pub(super) fn new(watch: Watch<'w>) -> Self {
        Self { watch, stopped: false }
    }

    pub(super) fn tell(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.stopped = self.stopped || (self.watch)(progress).is_break();
        if self.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(super) fn stops(&mut self) -> bool {
        self.tell(&Progress::Working).is_break()
    }

    pub(super) const fn stopped(&self) -> bool {
        self.stopped
    }
}
