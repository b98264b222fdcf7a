//! Hashes of numbers, and sets of them in lent memory.

use crate::table::Table;

/// An odd number with random bits: 2⁶⁴ over the golden ratio.
pub(crate) const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes all bits of a number: the finaliser of `SplitMix64` (Steele, Lea and Flood 2014).
pub(crate) const fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Adds a hash to a hash table, the first `slots` cells of `set`; returns whether the hash was not there before. An
/// empty cell is 0, so 0 is not allowed as a hash. At least one cell has to stay empty.
pub(crate) fn insert(set: &mut Table<'_, u64>, slots: u32, hash: u64) -> bool {
    let mut slot = u32::try_from(((hash >> 32) * u64::from(slots)) >> 32).unwrap_or(0);
    while set[slot] != 0 && set[slot] != hash {
        slot = if slot + 1 < slots { slot + 1 } else { 0 };
    }
    let is_new = set[slot] == 0;
    set[slot] = hash;
    is_new
}
