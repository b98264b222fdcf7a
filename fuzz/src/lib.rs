//! What the fuzz targets share: arbitrary blocks and traces, and oracles that are too simple to be wrong.

pub mod blocks;
pub mod judge;
pub mod naive;
pub mod schedule;
pub mod scratch;
pub mod stream;
pub mod trace;

/// A number of one of several magnitudes: small ones meet, large ones overflow.
///
/// # Errors
/// Where the fuzzer's bytes are used up.
pub fn number(u: &mut arbitrary::Unstructured<'_>) -> arbitrary::Result<u64> {
    Ok(match u.int_in_range(0..=7)? {
        0..=3 => u.int_in_range(0..=15)?,
        4 => u.int_in_range(0..=255)?,
        5 => u.int_in_range(0..=(1 << 20))?,
        6 => u64::MAX - u.int_in_range(0..=15)?,
        _ => u.arbitrary()?,
    })
}
