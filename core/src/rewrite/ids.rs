//! [`BlockId`], the type of the numbers of blocks. It is here because all means of saving memory use it; the type of
//! any other number is defined beside what it numbers. Operators, rows, and the boundaries between operators have plain
//! integers as numbers, since the code does arithmetic with these.

use crate::id::{Id, ids};
use crate::trace::Row;

ids! {
    pub(in crate::rewrite) struct BlockId;
}

impl Row {
    #[inline]
    pub(in crate::rewrite) fn block_id(&self) -> BlockId {
        BlockId::of(self.block)
    }
}
