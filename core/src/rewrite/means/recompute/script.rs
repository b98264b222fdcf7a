//! What is run, recomputed and freed, one after the other.

use crate::table::Field;

/// What a step of a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rewrite) enum Step {
    /// An operator runs as recorded.
    First(u32),
    /// An operator is recomputed.
    Again(u32),
    /// A managed block is freed.
    Free(u32),
}

const AGAIN: u32 = 1 << 30;
const FREE: u32 = 2 << 30;
const WHICH: u32 = AGAIN - 1;

impl Field for Step {
    fn keep(self) -> u32 {
        match self {
            Self::First(operator) => operator,
            Self::Again(operator) => AGAIN | operator,
            Self::Free(block) => FREE | block,
        }
    }

    fn kept(kept: u32) -> Self {
        match kept & !WHICH {
            AGAIN => Self::Again(kept & WHICH),
            FREE => Self::Free(kept & WHICH),
            _ => Self::First(kept & WHICH),
        }
    }
}
