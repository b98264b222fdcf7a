//! The requests of an allocator other than malloc and free: aligned malloc, realloc, and questions about an address.

use core::ffi::c_void;
use core::ptr;

use super::{answer, sublet_allocator};
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};

/// Allocates as sublet_malloc does, at a multiple of `alignment`, a power of two. If `alignment` exceeds that of the
/// allocator's parameters, the request is served outside of the plan, in O(log live blocks), and is no part of an
/// iteration. So set the alignment in the parameters to the one that most requests need.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_malloc_aligned(
    allocator: *mut sublet_allocator,
    bytes: usize,
    alignment: usize,
    pointer: *mut *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    let request = |handle: &sublet_allocator| {
        handle.take(bytes, |allocator| allocator.malloc_aligned(bytes as u64, alignment as u64))
    };
    // SAFETY: the header asks for an allocator that lives, and for a pointer that can be written.
    unsafe { answer(allocator, (pointer, 3), error, request) }
}

/// Changes the size of the block at `pointer` to `bytes` bytes; `moved` receives the block's address afterwards. If the
/// block's memory suffices, the block stays where it is. Otherwise a new block is allocated as by sublet_malloc, the
/// content is copied there, and the old block is freed. A block of sublet_malloc_aligned may lose its alignment then.
/// The memory at the allocator's addresses must be the host's, so that it can be copied. With `pointer` NULL a new
/// block is allocated; with 0 bytes the block is freed, and `moved` receives NULL.
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block begins at `pointer`. After this status, SUBLET_STATUS_OUT_OF_MEMORY and
/// SUBLET_STATUS_TOO_MANY_LIVE the old block is unchanged.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_realloc(
    allocator: *mut sublet_allocator,
    pointer: *mut c_void,
    bytes: usize,
    moved: *mut *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    let request = |handle: &sublet_allocator| {
        let size = if pointer.is_null() { 0 } else { handle.size(pointer)? };
        if bytes > 0 && bytes <= size {
            return Ok(pointer);
        }
        let new = handle.take(bytes, |allocator| allocator.malloc(bytes as u64))?;
        // SAFETY: both are memory of the host that nobody else has, and as long.
        unsafe { ptr::copy_nonoverlapping(pointer.cast::<u8>(), new.cast::<u8>(), size.min(bytes)) };
        handle.give_back(pointer, 1)?;
        Ok(new)
    };
    // SAFETY: the header asks for an allocator that lives, and for a pointer that can be written.
    unsafe { answer(allocator, (moved, 3), error, request) }
}

/// Tells in `bytes` how many bytes the user of the block at `pointer` may use: at least those that were requested.
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block begins at `pointer`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_usable_size(
    allocator: *const sublet_allocator,
    pointer: *const c_void,
    bytes: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives, and for a number that can be written.
    unsafe { answer(allocator, (bytes, 2), error, |handle| handle.size(pointer)) }
}

/// Tells in `owns` whether `pointer` lies in the allocator's ranges of addresses, in a live block or not: 1 if so, else
/// 0. It is for callers that free the pointers of several allocators, and have to find out which allocator a pointer is
/// from.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_owns(
    allocator: *const sublet_allocator,
    pointer: *const c_void,
    owns: *mut i32,
    error: *mut sublet_error,
) -> sublet_status {
    let request = |handle: &sublet_allocator| {
        let owns = handle.inner.with(|inner| Ok(inner.allocator.owns(pointer.addr() as u64)))?;
        Ok(owns.into())
    };
    // SAFETY: the header asks for an allocator that lives, and for a number that can be written.
    unsafe { answer(allocator, (owns, 2), error, request) }
}

impl sublet_allocator {
    fn size(&self, pointer: *const c_void) -> Result<usize, Failure> {
        let address = pointer.addr() as u64;
        let size = self.inner.with(|inner| Ok(inner.allocator.size_at(address)))?;
        let unknown = Failure::new(S::NotAllocated, 1, 0, address);
        size.and_then(|size| usize::try_from(size).ok()).ok_or(unknown)
    }
}
