//! The script of a recomputation: which operators run, which are recomputed, and which blocks are freed, in order.
//!
//! Every method that decides what is recomputed makes a script: the walks over the operators, and the exact search.
//! [`emit`] writes the rows of any script.

pub(super) mod emit;

use super::ids::BlockId;
use super::values::Values;
use crate::id::Id;
use crate::table::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Run(u32),
    Recompute(u32),
    Free(BlockId),
}

/// A [`Step`] is one `u32`: two bits for the kind, the others for the operator or block.
const RECOMPUTE: u32 = 1 << 30;
const FREE: u32 = 2 << 30;
const WHICH: u32 = RECOMPUTE - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Cost {
    pub(super) excess: u64,
    /// In ns: the time of all recomputations.
    pub(super) delay: u64,
}

impl Cost {
    pub(super) const MOST: Self = Self { excess: u64::MAX, delay: u64::MAX };
}

impl Step {
    pub(super) fn most_rows(self, values: &Values<'_>) -> u32 {
        let Some((g, _)) = self.run() else { return 1 };
        let (first, end) = values.range(g);
        values.program.first_row[g + 1] - values.program.first_row[g] + end - first
    }

    pub(super) const fn of(operator: u32, recomputed: bool) -> Self {
        if recomputed { Self::Recompute(operator) } else { Self::Run(operator) }
    }

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
