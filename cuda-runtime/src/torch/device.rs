//! The memory of one device, which PyTorch's requests are served from.
//!
//! The allocator, [`Allocator`], plans in a range of numbers that stand for bytes, without any memory behind them. The
//! *number* of a block is where the allocator has put the block in that range; its *address* is where the block lies on
//! the device. A stream is *captured* while its work becomes part of a CUDA graph instead of being done.

use std::collections::{BTreeSet, HashMap};

use sublet_core::block::{self, Block};
use sublet_core::replay::{self, Allocator, Config, Memory};

use super::driver::{Driver, Stream};
use super::graphs::{Graphs, PoolId};
use crate::{Error, Memory as Kind, Result};

/// The alignment of addresses, in bytes: that of PyTorch's own allocator.
const ALIGNMENT: u64 = 512;
/// The most mallocs and frees that an iteration may have if it is to be planned; the allocator's bookkeeping takes
/// about 300 bytes for each.
const EVENTS: usize = 1 << 16;
const LIVE: usize = 1 << 15;
/// The arena of a plan is not allocated while too many blocks are live outside it. After this many requests that the
/// plan has a place for, the arena is allocated all the same.
const PATIENCE: u32 = 1 << 14;
/// The length of the range in which the allocator places blocks, in bytes: more than any memory has. The allocator
/// hands out numbers below this, which stand for bytes; the device turns them into addresses.
const RANGE: u64 = 1 << 60;
/// The driver's other name of the legacy default stream (`CU_STREAM_LEGACY`), besides 0.
const LEGACY: Stream = 1;

/// Device memory for a plan's arena, allocated by the driver as one piece.
struct Backing {
    /// The number of the allocation's first byte. The allocator plans in numbers instead of addresses: the byte at the
    /// address `address + d` has the number `start + d`.
    start: u64,
    bytes: u64,
    address: u64,
    /// How many live blocks lie in this allocation of the driver's.
    live: usize,
}

impl Backing {
    /// The number of the byte at this address; `None` if the address is not in this allocation of the driver's.
    const fn number(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.address);
        if offset < self.bytes { Some(self.start + offset) } else { None }
    }
}

/// The driver's latest refusal of memory for an arena. The driver is asked again only after some more requests: after
/// twice as many each time that it refuses the same arena again.
#[derive(Clone, Copy, Default)]
struct Refused {
    /// How many plans had been made when the driver refused memory for the arena. A later plan has another arena: the
    /// driver is asked for that at once.
    plans: u64,
    /// How many more requests with a place in the plan must come until the driver is asked for the arena again.
    left: u64,
    /// What `left` was set to at the driver's latest refusal: of the planned requests after that refusal, the one of
    /// this number, counted from 1, makes the next try. The next refusal for the same plan doubles this.
    waited: u64,
}

impl Refused {
    /// After the driver's first refusal of memory for a plan's arena, how many planned requests pass until the driver
    /// is asked again. One try takes about as long as serving this many requests.
    const FIRST: u64 = 1 << 10;

    /// Whether to ask the driver again for memory for an arena that it has refused: enough requests have come since, or
    /// there is a new plan (`plans` is how many were made so far). Each call counts as one request.
    const fn is_over(&mut self, plans: u64) -> bool {
        self.left = self.left.saturating_sub(1);
        self.plans != plans || self.left == 0
    }

    const fn next(self, plans: u64) -> Self {
        let waited = if self.plans == plans { self.waited.saturating_mul(2) } else { Self::FIRST };
        Self { plans, left: waited, waited }
    }
}

/// A block that lies outside the arena, in memory that the driver allocated for it alone.
struct Apart {
    /// The number by which the allocator knows the block, to free it in the allocator too; `None` if the allocator does
    /// not know the block.
    number: Option<u64>,
    bytes: u64,
}

/// The live blocks that lie outside the plan's arena, by address.
#[derive(Default)]
struct Aparts {
    blocks: HashMap<u64, Apart>,
    /// The bytes of all blocks in `blocks` together: those that are live outside the arena now.
    live: u64,
    /// The highest value of `live` so far, in bytes. It never includes the bytes of an arena.
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

    /// Whether a new arena of `arena` bytes hardly raises the most memory in use: the arena and the live blocks outside
    /// it take at most 17/16 of `most`, the most bytes that blocks outside an arena have taken at once so far.
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
    /// Plans the memory: gives each block a number, which the device turns into an address. The allocator's bookkeeping
    /// memory is never given back: a device lives as long as the process.
    allocator: Allocator<'static>,
    /// The stream whose requests are planned: the first one that allocates.
    stream: Option<Stream>,
    /// The driver's allocation that backs the arena of the present plan, if there is one.
    backing: Option<Backing>,
    /// The driver's allocations that backed the arenas of earlier plans, and still have live blocks.
    retired: Vec<Backing>,
    /// The driver's latest refusal of memory for the arena, and how many requests come until the driver is asked
    /// again.
    refused: Refused,
    /// How many requests for which a plan has a place have come since the driver was last asked for an arena, while the
    /// arena was not allocated because too many other blocks were live.
    crowded: u32,
    /// The blocks that the driver allocated one by one.
    apart: Aparts,
    graphs: Graphs,
    /// All streams that have allocated a block, or have used a block that was allocated for another stream.
    streams: BTreeSet<Stream>,
    /// For a live block, by its address: the streams that use the block, as [`record_stream`](Self::record_stream) was
    /// told.
    users: HashMap<u64, Vec<Stream>>,
    /// Blocks that PyTorch freed while a stream was captured into a CUDA graph, each with its address and the stream
    /// that it was freed in. They are really freed after the capture.
    deferred: Vec<(u64, Stream)>,
    /// The most bytes of the device's memory that the allocator may hold at once; `None` is no limit.
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
        block::check_count(events).and(block::check_count(live))?;
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
        let stream = canonical(stream);
        if bytes == 0 {
            return Ok(0);
        }
        self.streams.insert(stream);
        if self.driver.is_capturing(stream)? {
            return self.malloc_captured(bytes, stream);
        }
        // A failure of this is told by the next call of the driver.
        let _ = self.free_deferred();
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
        let stream = canonical(stream);
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
        let stream = canonical(stream);
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

    /// The driver's allocation that backs the arena of the plan in use; it is made now if there is none. `None` if the
    /// driver or the limit on memory refuses it, or if the driver is not to be asked yet: it has refused before, or too
    /// many blocks are live outside the arena.
    ///
    /// A plan may begin in the middle of an iteration, when many blocks of this iteration are live outside the arena.
    /// Then the arena is allocated later in the iteration, so that the arena and those blocks together take hardly more
    /// than an iteration without a plan.
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

    /// Fails if taking `bytes` more bytes from the driver would exceed the limit that `set_memory_fraction` has set.
    fn within_limit(&mut self, bytes: u64) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let (held, _) = self.driver.reserved()?;
        let fits = held.checked_add(bytes).is_some_and(|all| all <= limit);
        if fits { Ok(()) } else { Err(Error::OutOfMemory { memory: Kind::Device, bytes }) }
    }

    /// Allocates memory of the driver for work in this stream; fails if more than `self.limit` bytes would be held.
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        self.within_limit(bytes)?;
        self.driver.alloc(bytes, stream)
    }

    /// Gives unused memory back to the device, after a request was refused. First frees the arena if it has no live
    /// block, and waits for all work; does neither while a stream is captured into a CUDA graph, or a pool is open.
    fn make_room(&mut self) -> Result<()> {
        if !self.captures()? {
            self.retire_unless(|backing| backing.live > 0);
            self.driver.synchronize_all()?;
        }
        self.driver.trim()
    }

    /// Serves a request outside the arena: the driver allocates memory for this block alone. Returns its address.
    /// `number` is the number by which the allocator knows the block; `None` if it does not know the block. If the
    /// driver fails, the block is freed in the allocator too.
    fn malloc_apart(&mut self, bytes: u64, stream: Stream, number: Option<u64>) -> Result<u64> {
        let given = match self.alloc(bytes, stream) {
            Err(Error::OutOfMemory { .. }) => self.make_room().and_then(|()| self.alloc(bytes, stream)),
            given => given,
        };
        match given {
            Ok(address) => {
                self.apart.add(address, Apart { number, bytes });
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

    /// Serves a request for `bytes` bytes of a stream that is captured into a CUDA graph, with memory that belongs to
    /// the graph. Returns the address of the memory on the device. Makes no call that a capture forbids.
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

    /// Whether a live block begins at this address, in memory that does not belong to a CUDA graph.
    fn is_live(&self, address: u64) -> bool {
        let mut numbers = self.backing.iter().chain(&self.retired).filter_map(|b| b.number(address));
        (self.apart.blocks.contains_key(&address) || numbers.any(|number| self.allocator.size_at(number).is_some()))
            && self.deferred.iter().all(|(freed, _)| *freed != address)
    }

    /// Whether the block at `address` cannot be freed now, because a stream that matters for it is captured into a CUDA
    /// graph. Three kinds of streams matter: `stream`, in which the block is freed; the streams that use it, as
    /// `record_stream` was told; and the stream whose requests are planned, if there is one yet.
    fn is_captured(&mut self, address: u64, stream: Stream) -> Result<bool> {
        let users = self.users.get(&address).into_iter().flatten();
        let streams: Vec<Stream> = users.copied().chain([stream]).chain(self.stream).collect();
        streams.into_iter().try_fold(false, |found, stream| Ok(found || self.driver.is_capturing(stream)?))
    }

    /// Whether a stream is captured into a CUDA graph, or may be about to be: that is so while `PyTorch` allocates in a
    /// pool for CUDA graphs. Looks at all streams that have allocated or used a block.
    fn captures(&mut self) -> Result<bool> {
        let mut found = self.graphs.is_open();
        for stream in &self.streams {
            found = found || self.driver.is_capturing(*stream)?;
        }
        Ok(found)
    }

    /// Frees a block at once. The caller has made sure that no stream that uses it is being captured into a CUDA graph.
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

    /// Makes later work of `stream` wait for the work that `others` have been given so far; returns the first error.
    fn follow(&mut self, stream: Stream, others: impl IntoIterator<Item = Stream>) -> Result<()> {
        let mut followed = Ok(());
        for other in others.into_iter().filter(|other| *other != stream) {
            followed = followed.and(self.driver.follow(stream, other));
        }
        followed
    }

    /// Frees a block outside the arena, in memory of its own. The memory is reused only after the work that `stream`
    /// and the streams `users` have been given so far.
    fn free_apart(&mut self, address: u64, stream: Stream, users: &[Stream]) -> Result<()> {
        let block = self.apart.remove(address).ok_or(Error::OutOfRange { address, bytes: 0 })?;
        let noted = block.number.map_or(Ok(()), |number| self.allocator.free(number));
        let followed = self.follow(stream, users.iter().copied());
        followed.and(self.driver.free(address, stream))?;
        Ok(noted?)
    }

    /// Frees the blocks that `PyTorch` freed during captures that are over by now: until then they had to be kept.
    /// Returns the first error.
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

    /// Frees the memory of pools that no CUDA graph uses any more, unless a stream is captured or a pool is open now;
    /// returns the first error.
    fn free_surplus(&mut self) -> Result<()> {
        if !self.graphs.has_surplus() || self.captures()? {
            return Ok(());
        }
        // A graph that is destroyed may still be running.
        let waited = self.driver.synchronize_all();
        self.graphs.surplus().into_iter().fold(waited, |freed, address| freed.and(self.driver.free_unordered(address)))
    }

    /// Retires the driver's allocation that backs the arena, unless `wanted` returns true for it. A retired allocation
    /// gets no new blocks, and is freed as soon as no live block lies in it.
    fn retire_unless(&mut self, wanted: impl Fn(&Backing) -> bool) {
        if let Some(backing) = self.backing.take_if(|backing| !wanted(backing)) {
            self.retired.push(backing);
            // A failure of this is told by the next call of the driver.
            let _ = self.release_retired();
        }
    }

    /// Frees the retired allocations that have no live block.
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

/// The one number by which a stream is known here. The legacy default stream has two names in the driver, 0 and 1, and
/// is 0 here; any other stream keeps its number.
const fn canonical(stream: Stream) -> Stream {
    if stream == LEGACY { 0 } else { stream }
}
