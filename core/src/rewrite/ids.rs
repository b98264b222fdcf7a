//! [`BlockId`], the type of block numbers, which all ways to save memory use. The types of other numbers are defined
//! beside what they number. Operators, the boundaries between them, and rows have plain integers as numbers, as the
//! code computes with them.

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
