//! Device memory for PyTorch: what `CUDAPluggableAllocator` asks for, served from a plan.
//!
//! Problem: a training loop asks for the same memory in every iteration. PyTorch's own allocator answers from lists of
//! free blocks, and holds more memory than is ever live. With a plan, the peak is that of the best placement found.
//!
//! Paper: Sekiyama et al. 2018 (profile, plan, replay), Zhang et al. 2019, section V (the iteration is found).
//!
//! Steps. Each device has an [`Allocator`](sublet_core::replay::Allocator) over a range of numbers, which stand for
//! bytes. The range is larger than any memory, so that it always has room. The allocator records the requests, finds
//! the iteration, plans it, and follows the plan; it answers each request with a number. The plan's arena, a part of
//! the range, is backed by one allocation of the driver, made at the first request that is planned, or later if too
//! many blocks are live outside the arena then. A request whose number lies in the arena gets the address of that byte.
//! All other requests, also those that are recorded, are served by the driver: with stream-ordered allocations from a
//! pool that the device has for this alone or, where there is none or it refuses, with plain ones.
//!
//! - *Streams.* The plan reuses memory in the order of one stream's work: that of the first stream that asks. Requests
//!   of other streams are served by the driver, which knows how to order streams. A block that another stream uses too,
//!   as `Tensor.record_stream` tells, or that is freed in another stream, is given out again only after that stream's
//!   work. Where such a stream is gone, or is the default stream of another thread, all streams are waited for. If the
//!   planned stream is gone, the next one that asks is planned.
//! - *Graphs.* Before anything else a request asks whether its stream is captured into a CUDA graph. Memory that is
//!   allocated during a capture belongs to the graph (`graphs.rs`), and is never planned; blocks that are freed during
//!   a capture are taken back when it is over. No call is made that a capture forbids.
//! - *A new plan.* The allocation that backs the arena of the previous plan stays until its last live block is freed.
//! - *No memory.* Where the driver has no memory for a request, memory that nothing uses, also an arena without live
//!   blocks, is given back to the device, and the driver is asked again. Where the driver refuses an arena, the planned
//!   requests are served one by one; the driver is asked for the arena again, each time after twice as many requests.
//! - *Failures* of the driver are errors; after each of them it is still known which memory is free and which is live.
//!
//! Limits: a pool of PyTorch's (`torch.cuda.use_mem_pool`) that belongs to no graph is ignored. Memory that is
//! allocated while two captures go on at the same time on one device is never given back.

mod cuda;
mod device;
mod driver;
mod graphs;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use cuda::Cuda;
pub use device::{Device, Statistics};
pub use driver::{Driver, Stream};
pub use graphs::PoolId;

use crate::Result;

/// The devices of a process, each with an allocator of its own, which is made at the first request for the device.
pub struct Devices<D> {
    open: fn(i32) -> Result<D>,
    devices: Mutex<BTreeMap<i32, Arc<Mutex<Device<D>>>>>,
}

/// Also after a panic: what these locks guard is never left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Driver> Devices<D> {
    /// A set that has no device yet. At the first request for a device, `open` is called with the device's number and
    /// makes its driver.
    #[must_use]
    pub const fn new(open: fn(i32) -> Result<D>) -> Self {
        Self { open, devices: Mutex::new(BTreeMap::new()) }
    }

    /// Calls `body` with the device of this number, which is opened first if it has had no request yet. All threads may
    /// call this at once; on the same device they run one after the other.
    ///
    /// # Errors
    /// The error of opening the device, for instance if there is none of this number; or the error of `body`.
    pub fn with<T>(&self, device: i32, body: impl FnOnce(&mut Device<D>) -> Result<T>) -> Result<T> {
        let found = {
            let mut devices = lock(&self.devices);
            if let Some(found) = devices.get(&device) {
                found.clone()
            } else {
                let made = Arc::new(Mutex::new(Device::new((self.open)(device)?)?));
                devices.entry(device).or_insert(made).clone()
            }
        };
        let mut device = lock(&found);
        body(&mut device)
    }

    /// Calls `body` with each device that has had a request, until it succeeds on one: for calls that do not name a
    /// device. `None` if no device has had a request.
    ///
    /// # Errors
    /// The error of the last call of `body`, if all of them fail.
    pub fn any<T>(&self, mut body: impl FnMut(&mut Device<D>) -> Result<T>) -> Result<Option<T>> {
        let mut outcome = Ok(None);
        for device in self.opened() {
            outcome = body(&mut lock(&device)).map(Some);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Calls `body` with every device that has had a request, also after an error on one of them.
    ///
    /// # Errors
    /// The first error that the body returns.
    pub fn all(&self, mut body: impl FnMut(&mut Device<D>) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        for device in self.opened() {
            outcome = outcome.and(body(&mut lock(&device)));
        }
        outcome
    }

    fn opened(&self) -> Vec<Arc<Mutex<Device<D>>>> {
        lock(&self.devices).values().cloned().collect()
    }
}
