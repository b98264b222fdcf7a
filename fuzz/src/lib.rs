//! What the fuzz targets share: arbitrary blocks and traces, and oracles that are too simple to be wrong.

pub mod blocks;
pub mod judge;
pub mod naive;
#[cfg(not(fuzzing))]
pub mod repeat;
pub mod schedule;
pub mod scratch;
pub mod stream;
pub mod trace;

/// Makes a fuzz target. Under `cargo fuzz`, which sets `cfg(fuzzing)`, a fuzzer chooses the inputs; otherwise the
/// target is a program that tries the same inputs each time.
#[cfg(fuzzing)]
#[macro_export]
macro_rules! target {
    (|$input:ident: $type:ty| $body:block) => {
        libfuzzer_sys::fuzz_target!(|$input: $type| $body);
    };
}

#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! target {
    (|$input:ident: $type:ty| $body:block) => {
        fn main() -> std::process::ExitCode {
            $crate::repeat::main(|data| {
                let made = <$type as arbitrary::Arbitrary>::arbitrary_take_rest(arbitrary::Unstructured::new(data));
                if let Ok($input) = made {
                    $body
                }
            })
        }
    };
}

/// A number of a random magnitude: small numbers are often equal or near to each other, large ones make sums overflow.
///
/// # Errors
/// If the fuzzer's bytes are used up.
pub fn number(u: &mut arbitrary::Unstructured<'_>) -> arbitrary::Result<u64> {
    Ok(match u.int_in_range(0..=7)? {
        0..=3 => u.int_in_range(0..=15)?,
        4 => u.int_in_range(0..=255)?,
        5 => u.int_in_range(0..=(1 << 20))?,
        6 => u64::MAX - u.int_in_range(0..=15)?,
        _ => u.arbitrary()?,
    })
}
