//! The script of a recomputation: which operators run, which are recomputed, and which blocks are freed, in order.
//!
//! Every method that decides what is recomputed makes a script: the search for recomputation, an exact search, or
//! [`follow`] where the order of the runs is given. [`emit`] writes the rows of any script.

pub(super) mod emit;
pub(super) mod follow;

use super::ids::BlockId;
use super::values::Values;
use crate::id::Id;
use crate::table::Field;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An operator runs, as recorded.
    Run(u32),
    /// An operator is recomputed.
    Recompute(u32),
    /// A block is freed whose memory the script, and not the recording, allocates and frees.
    Free(BlockId),
}

/// A [`Step`] is kept as one `u32`. This bit of it marks a recomputation.
const RECOMPUTE: u32 = 1 << 30;
/// A [`Step`] is kept as one `u32`. This bit of it marks the free of a block.
const FREE: u32 = 2 << 30;
/// A [`Step`] is kept as one `u32`. These bits of it hold the number of the operator or the block.
const WHICH: u32 = RECOMPUTE - 1;

/// What a script of runs, recomputations and frees costs: memory above the limit, and time. Costs are compared by the
/// excess, and where that is equal, by the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cost {
    /// The most bytes by which the load exceeds the memory limit; 0 if it never does.
    pub(super) excess: u64,
    /// How much longer the script takes than the original, in ns: the time of all its recomputations.
    pub(super) delay: u64,
}

impl Cost {
    /// The highest possible cost: as a limit on the cost, it allows every script.
    pub(super) const MOST: Self = Self { excess: u64::MAX, delay: u64::MAX };
}

impl Step {
    /// An upper bound on how many rows of a trace the step makes.
    pub(super) fn most_rows(self, values: &Values<'_>) -> u32 {
        let Some((g, _)) = self.run() else { return 1 };
        let (first, end) = values.range(g);
        values.program.first_row[g + 1] - values.program.first_row[g] + end - first
    }

    /// The step in which an operator runs, or is recomputed if `recomputed` is true.
    pub(super) const fn of(operator: u32, recomputed: bool) -> Self {
        if recomputed { Self::Recompute(operator) } else { Self::Run(operator) }
    }

    /// The operator that runs, and whether it is recomputed; none where a block is freed.
    pub(super) const fn run(self) -> Option<(u32, bool)> {
        match self {
            Self::Run(operator) => Some((operator, false)),
            Self::Recompute(operator) => Some((operator, true)),
            Self::Free(_) => None,
        }
    }
}

impl Field for Step {
    fn keep(self) -> u32 {
        match self {
            Self::Run(operator) => operator,
            Self::Recompute(operator) => RECOMPUTE | operator,
            Self::Free(block) => FREE | block.number(),
        }
    }

    fn kept(kept: u32) -> Self {
        match kept & !WHICH {
            RECOMPUTE => Self::Recompute(kept & WHICH),
            FREE => Self::Free(BlockId::of(kept & WHICH)),
            _ => Self::Run(kept & WHICH),
        }
    }
}
