//! The statistics of an allocator, and functions to reset its peaks, to free ranges of addresses that it does not use,
//! and to make it forget its plan.

use sublet_core::replay::State;

use super::{looked_at, sublet_allocator, sublet_state, sublet_statistics, within};
use crate::boundary::boundary;
use crate::error::sublet_error;
use crate::status::sublet_status;

/// Writes to `statistics` what an allocator has done so far, and what it has now: requests, plans, bytes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_stats(
    allocator: *const sublet_allocator,
    statistics: *mut sublet_statistics,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives, and for pointers that hold what they are to hold.
        let handle = unsafe { looked_at(allocator, arguments)? };
        // SAFETY: as above.
        let statistics = unsafe { arguments.report(statistics)? };
        let (done, state, (live_bytes, live_blocks), resident) = handle.inner.with(|inner| {
            let allocator = &inner.allocator;
            Ok((allocator.statistics(), allocator.state(), allocator.live(), allocator.resident()))
        })?;
        statistics.set(sublet_statistics {
            struct_size: 0,
            state: match state {
                State::Profile => sublet_state::Profile,
                State::Replay => sublet_state::Replay,
                State::Diverged => sublet_state::Diverged,
            } as u32,
            hits: done.hits,
            misses: done.misses,
            plans: done.plans,
            arena_peak: done.arena_peak,
            fallback_peak: done.fallback_peak,
            footprint: done.footprint,
            held: done.held,
            live_bytes,
            live_blocks,
            resident,
            unended: done.unended,
        });
        Ok(())
    })
}

/// Resets `arena_peak`, `fallback_peak` and `footprint` of the statistics to their values for the present arena and the
/// blocks that are live now. From then on they are the peaks since this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_reset_peaks(
    allocator: *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.allocator.reset_peaks();
            Ok(())
        })
    }
}

/// Gives back memory in which no block is live: ranges of addresses by the function `free` that the allocator was
/// created with, and the pages of the system's own memory. The plan's arena is kept, even without a live block. The
/// allocator does the same once by itself when a new plan was followed for a whole iteration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_trim(allocator: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.allocator.trim();
            Ok(())
        })
    }
}

/// Makes the allocator forget its plans and the requests that it has recorded, for example because the network has
/// changed. Live blocks stay at their addresses, and the next iteration is planned anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_forget(allocator: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.allocator.forget();
            Ok(())
        })
    }
}
