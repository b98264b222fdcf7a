//! The script of a recomputation: which operators run, are recomputed, and which blocks are freed, in order.

use crate::table::Field;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rewrite) enum Step {
    /// An operator runs, as recorded.
    Run(u32),
    /// An operator is recomputed.
    Recompute(u32),
    /// A managed block is freed.
    Free(u32),
}

const RECOMPUTE: u32 = 1 << 30;
const FREE: u32 = 2 << 30;
const WHICH: u32 = RECOMPUTE - 1;

impl Field for Step {
    fn keep(self) -> u32 {
        match self {
            Self::Run(operator) => operator,
            Self::Recompute(operator) => RECOMPUTE | operator,
            Self::Free(block) => FREE | block,
        }
    }

    fn kept(kept: u32) -> Self {
        match kept & !WHICH {
            RECOMPUTE => Self::Recompute(kept & WHICH),
            FREE => Self::Free(kept & WHICH),
            _ => Self::Run(kept & WHICH),
        }
    }
}
