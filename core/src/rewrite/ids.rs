//! The id that all means share; others stand beside what they number. Operators and the boundaries between them are
//! positions on one axis, on which the code computes, so they stay numbers; so do rows.

use crate::id::{Id, ids};
use crate::trace::Row;

ids! {
    /// The number of a block in the trace.
    pub(in crate::rewrite) struct BlockId;
}

impl Row {
    #[inline]
    pub(in crate::rewrite) fn block_id(&self) -> BlockId {
        BlockId::of(self.block)
    }
}
