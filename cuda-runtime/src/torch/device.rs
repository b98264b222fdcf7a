//! The memory of one device, which PyTorch's requests are served from.
//!
//! The allocator, [`Allocator`], plans in a range of numbers that stand for bytes, without any memory behind them. The
//! *number* of a block is where the allocator has put the block in that range; its *address* is where the block lies on
//! the device. A stream is *captured* while its work becomes part of a CUDA graph instead of being done.

use std::collections::{BTreeSet, HashMap};

use sublet_core::Block;
use sublet_core::replay::{self, Allocator, Config, Memory};

use super::driver::{self, Driver, Stream};
use super::graphs::{Graphs, PoolId};
use crate::{Error, Memory as Kind, Result};

/// In bytes, as in PyTorch's own allocator.
const ALIGNMENT: u64 = 512;
/// In an iteration that is planned; each takes about 300 bytes of bookkeeping.
const EVENTS: usize = 1 << 16;
const LIVE: usize = 1 << 15;
/// In planned requests: then the arena is allocated even if many blocks are live outside.
const PATIENCE: u32 = 1 << 14;
/// In bytes, more than any memory has. The device turns these numbers into addresses.
const RANGE: u64 = 1 << 60;

struct Backing {
    /// The byte at `address + d` has the number `start + d`.
    start: u64,
    bytes: u64,
    address: u64,
    live: usize,
}

impl Backing {
    const fn number(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.address);
        if offset < self.bytes { Some(self.start + offset) } else { None }
    }
}

/// Each refusal of the same arena doubles the requests until the next try.
#[derive(Clone, Copy, Default)]
struct Refused {
    /// A later plan has another arena, which is asked for at once.
    plans: u64,
    left: u64,
    waited: u64,
}

impl Refused {
    /// In requests: one try takes about as long as serving so many.
    const FIRST: u64 = 1 << 10;

    /// Each call counts as one request.
    const fn is_over(&mut self, plans: u64) -> bool {
        self.left = self.left.saturating_sub(1);
        self.plans != plans || self.left == 0
    }

    const fn next(self, plans: u64) -> Self {
        let waited = if self.plans == plans { self.waited.saturating_mul(2) } else { Self::FIRST };
        Self { plans, left: waited, waited }
    }
}

struct Apart {
    number: Option<u64>,
    bytes: u64,
    stream: Stream,
}

#[derive(Default)]
struct Aparts {
    blocks: HashMap<u64, Apart>,
    live: u64,
    /// The highest `live` so far.
    most: u64,
}

impl Aparts {
    fn add(&mut self, address: u64, block: Apart) {
        self.live += block.bytes;
        self.most = self.most.max(self.live);
        self.blocks.insert(address, block);
    }

    fn remove(&mut self, address: u64) -> Option<Apart> {
        let block = self.blocks.remove(&address)?;
        self.live -= block.bytes;
        Some(block)
    }

    /// With it, at most 17/16 of `most` is in use.
    const fn leave_room(&self, arena: u64) -> bool {
        self.live.saturating_add(arena) <= self.most + self.most / 16
    }
}

/// What the allocator of a device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How many requests got their address from a plan.
    pub planned: u64,
    /// How many requests were served without a plan; requests that belong to CUDA graphs are not counted.
    pub unplanned: u64,
    /// How many plans were made.
    pub plans: u64,
    /// The length in bytes of the driver's allocation that backs the arena of the plan; 0 if there is none.
    pub arena: u64,
    /// How many bytes of the device's memory the allocator holds now, whether live blocks lie in them or not.
    pub reserved: u64,
    /// The most bytes of the device's memory that the allocator has held so far, used or not; see [`Driver::reserved`].
    pub reserved_peak: u64,
}

/// The memory of one device, given to PyTorch from a plan or, where the plan has no place, by the driver.
pub struct Device<D> {
    driver: D,
    /// Its bookkeeping is never given back: a device lives as long as the process.
    allocator: Allocator<'static>,
    /// The first that allocates: only its requests are planned.
    stream: Option<Stream>,
    backing: Option<Backing>,
    retired: Vec<Backing>,
    refused: Refused,
    crowded: u32,
    apart: Aparts,
    graphs: Graphs,
    streams: BTreeSet<Stream>,
    users: HashMap<u64, Vec<Stream>>,
    /// Freed while a stream was captured; really freed after the capture.
    deferred: Vec<(u64, Stream)>,
    /// In bytes; `None` is no limit.
    limit: Option<u64>,
    planned: u64,
    unplanned: u64,
}

impl<D: Driver> Device<D> {
    /// Makes the allocator for a device, with nothing allocated yet. `driver` makes the calls of the device's driver.
    ///
    /// # Errors
    /// None is known to occur: the allocator is given all the memory that it needs.
    pub fn new(driver: D) -> Result<Self> {
        Self::with_room(driver, EVENTS, LIVE)
    }

    /// Makes the allocator for a device, whose driver `driver` calls. `events` is the most mallocs and frees, counted
    /// together, of an iteration: no plan is made of a longer one. `live` is the most blocks outside the plan that may
    /// be live at once. If there are more, the plan may be given up, and the allocator may lack room to record a
    /// request. The driver serves such a request, and no plan has a place for it.
    ///
    /// # Errors
    /// [`Error::Plan`] if `events` or `live` is 2²⁸ or more.
    pub fn with_room(driver: D, events: usize, live: usize) -> Result<Self> {
        sublet_core::check_count(events).and(sublet_core::check_count(live))?;
        let config = Config { alignment: ALIGNMENT, ..Config::new(RANGE, events, live) };
        let len = replay::memory(&config);
        let memory = Memory {
            blocks: Box::leak(vec![Block::default(); len.blocks].into_boxed_slice()),
            words: Box::leak(vec![0; len.words].into_boxed_slice()),
            indices: Box::leak(vec![0; len.indices].into_boxed_slice()),
        };
        let allocator = Allocator::new(&config, memory)?;
        let retired = Vec::new();
        Ok(Self {
            driver,
            allocator,
            stream: None,
            backing: None,
            retired,
            refused: Refused::default(),
            crowded: 0,
            apart: Aparts::default(),
            graphs: Graphs::default(),
            streams: BTreeSet::new(),
            users: HashMap::new(),
            deferred: Vec::new(),
            limit: None,
            planned: 0,
            unplanned: 0,
        })
    }

    /// Allocates `bytes` bytes for work in this stream; returns their address, which is 0 if `bytes` is 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and others of the driver; nothing is allocated then.
    pub fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        let stream = driver::named(stream);
        if bytes == 0 {
            return Ok(0);
        }
        self.streams.insert(stream);
        if self.driver.is_capturing(stream)? == Some(true) {
            return self.malloc_captured(bytes, stream);
        }
        // A failure of this is told by the next call of the driver.
        let _ = self.free_deferred();
        // The planned stream is gone: what it was given comes before the work of the next one.
        if self.stream.is_none() && self.planned > 0 && (self.captures()? || self.driver.synchronize_all().is_err()) {
            return self.malloc_apart(bytes, stream, None);
        }
        if *self.stream.get_or_insert(stream) != stream {
            return self.malloc_apart(bytes, stream, None);
        }
        // If the allocator has no room to note a request, the request is served without it.
        let number = self.allocator.malloc(bytes).ok();
        let arena = self.allocator.arena();
        self.retire_unless(|backing| {
            !arena.is_empty() && backing.start <= arena.start && arena.end <= backing.start + backing.bytes
        });
        if let Some(number) = number.filter(|number| arena.contains(number))
            && let Some(backing) = self.backing()
        {
            backing.live += 1;
            let address = backing.address + (number - backing.start);
            self.planned += 1;
            return Ok(address);
        }
        self.malloc_apart(bytes, stream, number)
    }

    /// Frees the block at `address`, which [`malloc`](Self::malloc) returned, in this stream; the address 0 does
    /// nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if no live block begins at `address`. Errors of the driver: even then the block is no
    /// longer live; its memory is freed, or will be, or what becomes of it is up to the driver.
    pub fn free(&mut self, address: u64, stream: Stream) -> Result<()> {
        let stream = driver::named(stream);
        if address == 0 {
            return Ok(());
        }
        if self.graphs.free(address) {
            return self.free_surplus();
        }
        if !self.is_live(address) {
            return Err(Error::OutOfRange { address, bytes: 0 });
        }
        // Captured work is not done: there is nothing to wait for yet.
        match self.is_captured(address, stream) {
            Ok(false) => self.free_now(address, stream).and(self.free_deferred()),
            captured => {
                self.deferred.push((address, stream));
                captured.map(drop)
            }
        }
    }

    /// Notes that work in this stream uses the block at `address` too (`Tensor.record_stream`): the block's memory is
    /// reused only after that work; if it belongs to a CUDA graph, it is not reused. The address 0 does nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if no live block begins at `address`.
    pub fn record_stream(&mut self, address: u64, stream: Stream) -> Result<()> {
        let stream = driver::named(stream);
        if address == 0 || self.graphs.share(address, stream) {
            return Ok(());
        }
        if !self.is_live(address) {
            return Err(Error::OutOfRange { address, bytes: 0 });
        }
        self.streams.insert(stream);
        let users = self.users.entry(address).or_default();
        if !users.contains(&stream) {
            users.push(stream);
        }
        Ok(())
    }

    /// From here on, until [`end_pool`](Self::end_pool), memory that captured streams allocate belongs to `pool`, which
    /// is memory for CUDA graphs; while several pools are open, to none. Other streams are served as before.
    pub fn begin_pool(&mut self, pool: PoolId) {
        self.graphs.begin(pool);
    }

    /// Ends what [`begin_pool`](Self::begin_pool) began: memory that is allocated from here on does not belong to this
    /// pool.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn end_pool(&mut self, pool: PoolId) -> Result<()> {
        self.graphs.end(pool);
        self.free_surplus()
    }

    /// Notes that a CUDA graph which has memory in this pool was destroyed. Once this was called for the pool as often
    /// as [`begin_pool`](Self::begin_pool), the pool's memory goes back to the driver, block by block as it is freed.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn release_pool(&mut self, pool: PoolId) -> Result<()> {
        self.graphs.release(pool);
        self.free_surplus()
    }

    /// Gives the memory that nothing uses back to the device (`torch.cuda.empty_cache`). Does nothing while a stream is
    /// captured, or a pool is open ([`begin_pool`](Self::begin_pool)).
    ///
    /// # Errors
    /// The error of the driver.
    pub fn reset(&mut self) -> Result<()> {
        if self.captures()? {
            return Ok(());
        }
        let freed = self.free_deferred();
        self.retire_unless(|backing| backing.live > 0);
        freed.and(self.driver.synchronize_all()).and_then(|()| self.driver.trim())
    }

    /// Limits the memory that is taken from the driver to this fraction of the device's memory. The limit holds from
    /// the next request to the driver on; what is held already stays.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a fraction that is below 0, above 1, or NaN; errors of the driver.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a part of a number of bytes")]
    #[expect(clippy::cast_sign_loss, reason = "both factors are positive")]
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::OutOfRange { address: 0, bytes: 0 });
        }
        let total = self.driver.memory()?.total;
        self.limit = Some((total as f64 * fraction) as u64);
        Ok(())
    }

    /// Marks the end of an iteration, and the begin of the next. After the first such call the allocator does not
    /// search for iterations on its own any more.
    ///
    /// # Errors
    /// [`Error::Plan`]: why there is no plan of the iteration that ends. Requests are served all the same.
    pub fn iteration(&mut self) -> Result<()> {
        let ended = self.allocator.end_iteration();
        self.allocator.begin_iteration();
        Ok(ended?)
    }

    /// The statistics so far.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn statistics(&mut self) -> Result<Statistics> {
        let (reserved, reserved_peak) = self.driver.reserved()?;
        Ok(Statistics {
            planned: self.planned,
            unplanned: self.unplanned,
            plans: self.allocator.statistics().plans,
            arena: self.backing.as_ref().map_or(0, |backing| backing.bytes),
            reserved,
            reserved_peak,
        })
    }

    /// The driver that this device calls, for instance to ask it how much memory is free.
    pub const fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Waits until the arena and the blocks outside take hardly more than an unplanned iteration.
    fn backing(&mut self) -> Option<&mut Backing> {
        let plans = self.allocator.statistics().plans;
        let stream = self.stream?;
        if self.backing.is_none() && self.refused.is_over(plans) {
            let arena = self.allocator.arena();
            let bytes = arena.end - arena.start;
            self.crowded += 1;
            if !self.apart.leave_room(bytes) && self.crowded < PATIENCE {
                return None;
            }
            self.crowded = 0;
            // The blocks of the profile are scattered over the driver's memory: that is freed before the arena is
            // allocated.
            let emptied = self.driver.synchronize(stream).and_then(|()| self.driver.trim());
            match emptied.and_then(|()| self.alloc(bytes, stream)) {
                Ok(address) => self.backing = Some(Backing { start: arena.start, bytes, address, live: 0 }),
                Err(_) => self.refused = self.refused.next(plans),
            }
        }
        self.backing.as_mut()
    }

    fn within_limit(&mut self, bytes: u64) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let (held, _) = self.driver.reserved()?;
        let fits = held.checked_add(bytes).is_some_and(|all| all <= limit);
        if fits { Ok(()) } else { Err(Error::OutOfMemory { memory: Kind::Device, bytes }) }
    }

    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        self.within_limit(bytes)?;
        self.driver.alloc(bytes, stream)
    }

    /// While a stream is captured or a pool is open, neither frees the arena nor waits.
    fn make_room(&mut self) -> Result<()> {
        if !self.captures()? {
            self.retire_unless(|backing| backing.live > 0);
            self.driver.synchronize_all()?;
        }
        self.driver.trim()
    }

    /// If the driver fails, the block is freed in the allocator too.
    fn malloc_apart(&mut self, bytes: u64, stream: Stream, number: Option<u64>) -> Result<u64> {
        let given = match self.alloc(bytes, stream) {
            Err(Error::OutOfMemory { .. }) => self.make_room().and_then(|()| self.alloc(bytes, stream)),
            given => given,
        };
        match given {
            Ok(address) => {
                self.apart.add(address, Apart { number, bytes, stream });
                self.unplanned += 1;
                Ok(address)
            }
            Err(error) => {
                if let Some(number) = number {
                    self.allocator.free(number)?;
                }
                Err(error)
            }
        }
    }

    fn malloc_captured(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        if let Some(address) = self.graphs.take(bytes, stream) {
            return Ok(address);
        }
        let given = match self.within_limit(bytes).and_then(|()| self.driver.alloc_unordered(bytes)) {
            Err(Error::OutOfMemory { .. }) => {
                self.driver.trim()?;
                self.within_limit(bytes)?;
                self.driver.alloc_unordered(bytes)
            }
            given => given,
        };
        let address = given?;
        self.graphs.add(address, bytes, stream);
        Ok(address)
    }

    fn is_live(&self, address: u64) -> bool {
        let mut numbers = self.backing.iter().chain(&self.retired).filter_map(|b| b.number(address));
        (self.apart.blocks.contains_key(&address) || numbers.any(|number| self.allocator.size_at(number).is_some()))
            && self.deferred.iter().all(|(freed, _)| *freed != address)
    }

    /// `stream`, the block's users, and the planned stream matter.
    fn is_captured(&mut self, address: u64, stream: Stream) -> Result<bool> {
        let users = self.users.get(&address).into_iter().flatten();
        let streams: Vec<Stream> = users.copied().chain([stream]).chain(self.stream).collect();
        streams.into_iter().try_fold(false, |found, stream| Ok(found || self.asks(stream)?))
    }

    /// Whether it is captured. A stream that cannot be asked is forgotten, so that nobody asks again.
    fn asks(&mut self, stream: Stream) -> Result<bool> {
        let captured = self.driver.is_capturing(stream)?;
        if captured.is_none() {
            self.streams.remove(&stream);
            // The default stream of another thread may live on.
            self.stream.take_if(|planned| *planned == stream && !driver::is_of_a_thread(stream));
        }
        Ok(captured == Some(true))
    }

    /// Also while `PyTorch` allocates in a pool for CUDA graphs.
    fn captures(&mut self) -> Result<bool> {
        let mut found = self.graphs.is_open();
        for stream in self.streams.clone() {
            found = found || self.asks(stream)?;
        }
        Ok(found)
    }

    /// No stream that uses it may be captured.
    fn free_now(&mut self, address: u64, stream: Stream) -> Result<()> {
        let users = self.users.remove(&address).unwrap_or_default();
        let mut backings = self.backing.iter_mut().chain(&mut self.retired);
        let Some((backing, number)) = backings.find_map(|b| b.number(address).map(|number| (b, number))) else {
            return self.free_apart(address, stream, &users);
        };
        self.allocator.free(number).map_err(|_| Error::OutOfRange { address, bytes: 0 })?;
        backing.live -= 1;
        // The memory is reused in the order of the planned stream.
        let owner = self.stream.unwrap_or(stream);
        let followed = self.follow(owner, users.into_iter().chain([stream]));
        followed.and(self.release_retired())
    }

    fn follow(&mut self, stream: Stream, others: impl IntoIterator<Item = Stream>) -> Result<()> {
        let mut followed = Ok(());
        for other in others.into_iter().filter(|other| *other != stream) {
            followed = followed.and(self.driver.follow(stream, other));
        }
        followed
    }

    /// The memory is reused only after the work that `stream` and `users` have so far.
    fn free_apart(&mut self, address: u64, stream: Stream, users: &[Stream]) -> Result<()> {
        let block = self.apart.remove(address).ok_or(Error::OutOfRange { address, bytes: 0 })?;
        let noted = block.number.map_or(Ok(()), |number| self.allocator.free(number));
        let followed = self.follow(stream, users.iter().copied().chain([block.stream]));
        followed.and(self.driver.free(address, stream))?;
        Ok(noted?)
    }

    fn free_deferred(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for (address, stream) in std::mem::take(&mut self.deferred) {
            match self.is_captured(address, stream) {
                Ok(false) => outcome = outcome.and(self.free_now(address, stream)),
                Ok(true) => self.deferred.push((address, stream)),
                Err(error) => {
                    self.deferred.push((address, stream));
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    fn free_surplus(&mut self) -> Result<()> {
        if !self.graphs.has_surplus() || self.captures()? {
            return Ok(());
        }
        // A graph that is destroyed may still be running.
        let waited = self.driver.synchronize_all();
        self.graphs.surplus().into_iter().fold(waited, |freed, address| freed.and(self.driver.free_unordered(address)))
    }

    /// A retired allocation gets no new blocks, and is freed with its last one.
    fn retire_unless(&mut self, wanted: impl Fn(&Backing) -> bool) {
        if let Some(backing) = self.backing.take_if(|backing| !wanted(backing)) {
            self.retired.push(backing);
            // A failure of this is told by the next call of the driver.
            let _ = self.release_retired();
        }
    }

    fn release_retired(&mut self) -> Result<()> {
        let stream = self.stream.unwrap_or(0);
        let mut released = Ok(());
        self.retired.retain(|backing| {
            if backing.live == 0 {
                released = released.clone().and(self.driver.free(backing.address, stream));
            }
            backing.live > 0
        });
        released
    }
}
