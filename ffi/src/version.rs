//! The version of the library.

use core::ffi::{CStr, c_char};

const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("Cargo's versions are numbers"),
    }
}

const NUMBER: u32 = number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const STRING: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(string) => string,
    Err(_) => panic!("Cargo's versions hold no zero"),
};

/// The version of the library that runs: 1,000,000 × major + 1,000 × minor + patch. The macro SUBLET_VERSION_NUMBER is
/// the version of the header, as the same kind of number.
#[unsafe(no_mangle)]
pub const extern "C" fn sublet_version_number() -> u32 {
    NUMBER
}

/// The version of the library that runs, as text. The text lives as long as the program.
#[unsafe(no_mangle)]
pub const extern "C" fn sublet_version_string() -> *const c_char {
    STRING.as_ptr()
}
