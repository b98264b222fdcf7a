//! An allocator of addresses that serves each request as it comes, without a plan.

use core::ffi::c_void;

use sublet_core::Pool;

use crate::arguments::{Arguments, params, plain};
use crate::boundary::{boundary, tell};
use crate::error::sublet_error;
use crate::handle::{self, Marked, handles};
use crate::status::sublet_status;
use crate::workspace::{Needed, sublet_layout};

/// An allocator of the addresses from 0 to below a capacity. It works by best fit: each block takes the start of the
/// smallest range of free addresses in which it fits. A freed block is merged with the free ranges next to it. The
/// memory at the addresses is never accessed. Only one thread at a time may use a pool.
pub struct sublet_pool(Pool<'static>);

handles!(sublet_pool: b"pool    ");

/// How much of a pool is in use: the blocks and bytes that are live now, and the most that have been used so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_pool_usage {
    /// Set this to sizeof(sublet_pool_usage): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// How many blocks of the pool are live.
    pub blocks: u32,
    /// Bytes of the live blocks, each size rounded up to the alignment.
    pub live: u64,
    /// The most bytes of blocks that were live at once so far, each size rounded up to the alignment.
    pub peak: u64,
    /// The highest end that a block has had so far, in bytes from address 0.
    pub footprint: u64,
}

plain!(sublet_pool_usage);
params! {
    sublet_pool_usage { struct_size, blocks, live, peak, footprint }
}

fn needed(live: usize) -> Needed {
    Needed::workspace(Pool::workspace(live)).and::<Marked<sublet_pool>>(1)
}

/// Tells in `layout` how large a workspace sublet_pool_create needs for a pool with at most `live` blocks alive at
/// once.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_pool_workspace(
    live: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let live = arguments.count(live)?;
        Ok(needed(live))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Makes a pool of the addresses from 0 to `capacity` - 1, all free, for at most `live` live blocks at once. Addresses
/// of blocks are multiples of `alignment`, a power of two in bytes, and sizes are rounded up to it. The pool lives in
/// `workspace`: keep that memory as long as you use the pool. There is nothing to destroy.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_pool_create(
    capacity: u64,
    alignment: u64,
    live: usize,
    workspace: *mut c_void,
    workspace_size: usize,
    pool: *mut *mut sublet_pool,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        arguments.skip();
        arguments.skip();
        let needed = needed(arguments.count(live)?);
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (mut room, to) =
            unsafe { (arguments.workspace(workspace, workspace_size, needed)?, arguments.result(pool)?) };
        let place = room.uninit();
        let kept = room.workspace(Pool::workspace(live));
        handle::put(place, sublet_pool(Pool::new(capacity, alignment, live, kept)?), to)
    })
}

/// Allocates `bytes` bytes; `address` receives an address at which no live block lies. O(log live blocks).
///
/// SUBLET_STATUS_OUT_OF_MEMORY: no run of free addresses is large enough. SUBLET_STATUS_TOO_MANY_LIVE: as many blocks
/// are live as the pool was made for. SUBLET_STATUS_ZERO_SIZE: `bytes` is 0.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_pool_malloc(
    pool: *mut sublet_pool,
    bytes: u64,
    address: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a pool that lives, and for pointers that hold what they are to hold.
        let pool = unsafe { arguments.handle(pool)? };
        arguments.skip();
        // SAFETY: as above.
        let to = unsafe { arguments.result(address)? };
        to.set(pool.0.malloc(bytes)?);
        Ok(())
    })
}

/// Frees the block that begins at `address`. O(log live blocks).
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block begins at `address`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_pool_free(
    pool: *mut sublet_pool,
    address: u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a pool that lives.
        let pool = unsafe { arguments.handle(pool)? };
        Ok(pool.0.free(address)?)
    })
}

/// Writes to `usage` how many blocks and bytes of a pool are live now, the most bytes that have been live at once, and
/// the highest end that a block has had.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_pool_stats(
    pool: *mut sublet_pool,
    usage: *mut sublet_pool_usage,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a pool that lives, and for pointers that hold what they are to hold.
        let pool = unsafe { arguments.handle(pool)? };
        // SAFETY: as above.
        let to = unsafe { arguments.report(usage)? };
        let pool = &pool.0;
        to.set(sublet_pool_usage {
            struct_size: 0,
            blocks: pool.count(),
            live: pool.live(),
            peak: pool.peak(),
            footprint: pool.footprint(),
        });
        Ok(())
    })
}
