//! Device memory for PyTorch: what `CUDAPluggableAllocator` asks for, served from a plan.
//!
//! Problem: a training loop asks for the same memory in every iteration. PyTorch's own allocator answers from lists of
//! free blocks, and holds more than is ever live; from a plan the peak is that of the best placement.
//!
//! Paper: Sekiyama et al. 2018 (profile, plan, replay), Zhang et al. 2019, section V (the iteration is found).
//!
//! Steps. Each device has an [`Allocator`](sublet_core::replay::Allocator) over a range of numbers, which is larger than
//! any memory, so that it always has room: it records, finds the iteration, plans, and follows the plan. Its arena is
//! backed by one allocation of the driver, made at the first request that is planned; a request whose number is in the
//! arena gets its address there. All others, those of the profile too, are the driver's own: stream-ordered allocations
//! from a pool that the device has for this alone.
//!
//! - *Streams.* The plan orders memory as its stream orders work, so that it has one stream, the first that asks;
//!   requests of others are the driver's, which knows how to order streams. What is freed in another stream than it
//!   was asked for in waits for that stream.
//! - *A new plan.* The allocation behind the one before stays until its last block is freed, or goes at once.
//! - *No memory.* What the driver holds for nobody is given back, an arena without live blocks too, and it is asked again.
//!   An arena that it refuses is done without, request by request, and asked for again ever more seldom.
//! - *Failures* of the driver are errors; what is free and what is live is right after each of them.
//!
//! Limits: memory that is used in another stream than it was asked for in must outlive that use, as
//! `Tensor.record_stream` is not told to a pluggable allocator unless it asks; graphs that are captured are not planned.

mod cuda;
mod device;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use cuda::Cuda;
pub use device::{Device, Statistics};

use crate::{MemoryInfo, Result};

/// A stream, as the driver names it; 0 is the default one.
pub type Stream = usize;

/// What is asked of the driver of one device: the table that tests fill with other functions.
pub trait Driver: Send {
    /// Memory that work in this stream may use from here on.
    ///
    /// # Errors
    /// As the driver tells it, here and below; [`OutOfMemory`](crate::Error::OutOfMemory) if it is that.
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64>;

    /// Takes memory back that work in this stream has used up to here.
    ///
    /// # Errors
    /// As above.
    fn free(&mut self, address: u64, stream: Stream) -> Result<()>;

    /// Waits for the work of a stream.
    ///
    /// # Errors
    /// As above.
    fn synchronize(&mut self, stream: Stream) -> Result<()>;

    /// Gives back to the device what nobody has.
    ///
    /// # Errors
    /// As above.
    fn trim(&mut self) -> Result<()>;

    /// The bytes that are held now, for somebody or nobody, and the most so far.
    ///
    /// # Errors
    /// As above.
    fn reserved(&mut self) -> Result<(u64, u64)>;

    /// The memory of the device.
    ///
    /// # Errors
    /// As above.
    fn memory(&mut self) -> Result<MemoryInfo>;
}

/// The devices of a process, each with its own allocator, which begins when it is first asked.
pub struct Devices<D> {
    open: fn(i32) -> Result<D>,
    devices: Mutex<BTreeMap<i32, Arc<Mutex<Device<D>>>>>,
}

/// What was locked when a thread panicked is whole: nothing here is left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Driver> Devices<D> {
    /// No device yet; `open` makes the driver of one.
    #[must_use]
    pub const fn new(open: fn(i32) -> Result<D>) -> Self {
        Self { open, devices: Mutex::new(BTreeMap::new()) }
    }

    /// Does something with a device; all threads may at once, one after the other on the same device.
    ///
    /// # Errors
    /// Why there is no such device; what the body returns.
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
}
