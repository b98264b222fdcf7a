#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![allow(non_camel_case_types, reason = "types have the names that they have in C")]
#![allow(
    clippy::missing_safety_doc,
    reason = "what every function asks of its pointers is said once, at the header's top"
)]
#![allow(clippy::doc_markdown, reason = "the documentation is that of the header, where backticks are noise")]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
//! The C library of sublet: the functions of the crate `sublet_core` for C, as the headers in `include` declare them.
//! Each file is about one subject.
//!
//! A call takes three steps. [`boundary`] runs it, so that no panic leaves the library and its error is written;
//! [`arguments`] turns pointers and lengths into slices, or says what is wrong with them; [`workspace`] cuts the memory
//! that the caller lends into what `sublet_core` asks for. Beside these steps an exported function only translates
//! structs.
//!
//! The headers are generated from this crate by the test in `header.rs`; their comments are the doc comments here.

mod arguments;
#[cfg(any(feature = "std", test))]
mod barrier;
mod boundary;
mod failure;
mod fork;
mod handle;
#[cfg(test)]
mod header;
#[cfg(test)]
mod lengths;
mod lock;
mod plain;
mod profile;
mod system;
pub mod workspace;

// In the order of the header.
pub mod version;

pub mod status;

pub mod error;

pub mod block;

pub mod place;

pub mod bound;

pub mod banks;

pub mod chunks;

pub mod verify;

pub mod trace;

pub mod operator;

pub mod device;

pub mod iteration;

pub mod lifetimes;

pub mod graph;

pub mod parallel;

pub mod simulate;

pub mod schedule;

pub mod fit;

pub mod network;

pub mod allocator;

pub mod recorder;

pub mod detector;

pub mod replay;

pub mod pool;

#[cfg(all(feature = "cuda", target_os = "linux"))]
pub mod arena;
#[cfg(feature = "cuda")]
pub mod relu;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub mod runtime;
#[cfg(feature = "cuda")]
pub mod torch;

/// With `prove_no_panic`, an exported function that reaches this does not link.
#[cfg(not(any(feature = "std", test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    #[cfg(prove_no_panic)]
    // SAFETY: it is never linked.
    unsafe {
        unsafe extern "C" {
            fn sublet_a_panic_is_reachable() -> !;
        }
        sublet_a_panic_is_reachable()
    }
    #[cfg(not(prove_no_panic))]
    loop {
        core::hint::spin_loop();
    }
}

/// Panics if `index` is above 2. `ci.sh no_panic` proves that the exported functions reach no panic by linking each of
/// them; this one must not link, which shows that the proof finds a panic.
#[cfg(prove_no_panic)]
#[unsafe(no_mangle)]
pub extern "C" fn sublet_panics(index: usize) -> u32 {
    [1, 2, 3][index]
}
