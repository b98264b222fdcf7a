//! Hash values of numbers, and hash tables (sets of such values) in memory that the caller lends.

use crate::table::Table;

/// 2⁶⁴ over the golden ratio; odd.
pub(crate) const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of `SplitMix64` (Steele, Lea and Flood 2014).
pub(crate) const fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// True if `hash` is new. A cell of 0 is empty: `hash` must not be 0, and one of the `slots` must stay empty.
pub(crate) fn insert(set: &mut Table<'_, u64>, slots: u32, hash: u64) -> bool {
    let mut slot = u32::try_from(((hash >> 32) * u64::from(slots)) >> 32).unwrap_or(0);
    while set[slot] != 0 && set[slot] != hash {
        slot = if slot + 1 < slots { slot + 1 } else { 0 };
    }
    let is_new = set[slot] == 0;
    set[slot] = hash;
    is_new
}
