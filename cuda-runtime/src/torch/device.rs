//! The memory of one device.

use std::collections::HashMap;

use sublet_core::Block;
use sublet_core::replay::{self, Allocator, Config, Memory};

use super::{Driver, Stream};
use crate::{Error, Result};

/// What PyTorch's own allocator aligns blocks to.
const ALIGNMENT: u64 = 512;
/// The bookkeeping is about 300 bytes for each.
const EVENTS: usize = 1 << 16;
const LIVE: usize = 1 << 15;
/// More than any memory: the numbers that the allocator hands out.
const RANGE: u64 = 1 << 60;

/// An allocation of the driver that backs an arena.
struct Backing {
    /// The numbers that it backs, from `start` on.
    start: u64,
    bytes: u64,
    address: u64,
    /// Blocks in it.
    live: usize,
}

impl Backing {
    /// The number of the block at this address.
    const fn number(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.address);
        if offset < self.bytes { Some(self.start + offset) } else { None }
    }
}

/// How long an arena that was refused is not asked for again: each time twice as many requests of its plan.
#[derive(Clone, Copy, Default)]
struct Refused {
    /// How many plans there were.
    plans: u64,
    /// Requests that are left.
    left: u64,
    /// How many there were.
    waited: u64,
}

impl Refused {
    /// Requests that the first refusal is good for: to ask costs as much as all of them.
    const FIRST: u64 = 1 << 10;

    /// Whether to ask for the arena of this plan now.
    const fn is_over(&mut self, plans: u64) -> bool {
        self.left = self.left.saturating_sub(1);
        self.plans != plans || self.left == 0
    }

    const fn again(self, plans: u64) -> Self {
        let waited = if self.plans == plans { self.waited.saturating_mul(2) } else { Self::FIRST };
        Self { plans, left: waited, waited }
    }
}

/// What a device has done, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests that got their address from a plan.
    pub planned: u64,
    /// All others.
    pub unplanned: u64,
    /// Plans that were made.
    pub plans: u64,
    /// The allocation behind the arena, 0 without one.
    pub arena: u64,
    /// What is held of the device's memory now, live or not.
    pub reserved: u64,
    /// The most that was.
    pub reserved_peak: u64,
}

/// A device's memory.
pub struct Device<D> {
    driver: D,
    /// Its memory is never given back: a device lives as long as the process.
    allocator: Allocator<'static>,
    /// The one that the plan is of: the first that asks.
    stream: Option<Stream>,
    /// What backs the arena.
    backing: Option<Backing>,
    /// What backed arenas before, and has live blocks.
    retired: Vec<Backing>,
    /// When the driver has refused an arena.
    refused: Refused,
    /// What the driver gave one by one, and the numbers of those that the allocator knows.
    apart: HashMap<u64, Option<u64>>,
    planned: u64,
    unplanned: u64,
}

impl<D: Driver> Device<D> {
    /// A device of which nothing is allocated.
    ///
    /// # Errors
    /// None that is known: the allocator has the memory that it asks for.
    pub fn new(driver: D) -> Result<Self> {
        Self::with_room(driver, EVENTS, LIVE)
    }

    /// As [`new`](Self::new), with other bounds: the most mallocs and frees of an iteration that can be planned, and
    /// the most blocks at once beside those of a plan; those beyond are served all the same.
    ///
    /// # Errors
    /// [`Error::Plan`]: bounds beyond what can be counted.
    pub fn with_room(driver: D, events: usize, live: usize) -> Result<Self> {
        let config = Config { alignment: ALIGNMENT, ..Config::new(RANGE, events, live) };
        let len = replay::memory(&config);
        let memory = Memory {
            blocks: Box::leak(vec![Block::default(); len.blocks].into_boxed_slice()),
            words: Box::leak(vec![0; len.words].into_boxed_slice()),
            indices: Box::leak(vec![0; len.indices].into_boxed_slice()),
        };
        let allocator = Allocator::new(&config, memory)?;
        let (retired, apart) = (Vec::new(), HashMap::new());
        Ok(Self {
            driver,
            allocator,
            stream: None,
            backing: None,
            retired,
            refused: Refused::default(),
            apart,
            planned: 0,
            unplanned: 0,
        })
    }

    /// The address of `bytes` bytes for work in this stream; 0 bytes are at 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and others of the driver; nothing is allocated then.
    pub fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        if *self.stream.get_or_insert(stream) != stream {
            return self.malloc_apart(bytes, stream, None);
        }
        // A request that the allocator has no room to note is served without it.
        let number = self.allocator.malloc(bytes).ok();
        let arena = self.allocator.arena();
        self.retire_unless(|backing| {
            !arena.is_empty() && backing.start <= arena.start && arena.end <= backing.start + backing.bytes
        });
        if let Some(number) = number.filter(|number| arena.contains(number))
            && let Some(backing) = self.backing(stream)
        {
            backing.live += 1;
            let address = backing.address + (number - backing.start);
            self.planned += 1;
            return Ok(address);
        }
        self.malloc_apart(bytes, stream, number)
    }

    /// Takes back what [`malloc`](Self::malloc) gave; 0 is nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if nothing live begins there; those of the driver: the block is free all the same, and its
    /// memory with the driver.
    pub fn free(&mut self, address: u64, stream: Stream) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let mut backings = self.backing.iter_mut().chain(&mut self.retired);
        let Some((backing, number)) = backings.find_map(|b| b.number(address).map(|number| (b, number))) else {
            return self.free_apart(address, stream);
        };
        self.allocator.free(number).map_err(|_| Error::OutOfRange { address, bytes: 0 })?;
        backing.live -= 1;
        // The next block at this place is of the plan's stream.
        let waited = if self.stream == Some(stream) { Ok(()) } else { self.driver.synchronize(stream) };
        waited.and(self.release_retired())
    }

    /// An iteration ends, and the next begins: from the first such call on iterations are told, and not looked for.
    ///
    /// # Errors
    /// [`Error::Plan`]: why there is no plan of the iteration that ends. Requests are served all the same.
    pub fn iteration(&mut self) -> Result<()> {
        let ended = self.allocator.end_iteration();
        self.allocator.begin_iteration();
        Ok(ended?)
    }

    /// What it has done.
    ///
    /// # Errors
    /// Those of the driver.
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

    /// The driver, as a test looks at it.
    pub const fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The allocation behind the plan in use; it is made if there is none. None if the driver has refused it.
    fn backing(&mut self, stream: Stream) -> Option<&mut Backing> {
        let plans = self.allocator.statistics().plans;
        if self.backing.is_none() && self.refused.is_over(plans) {
            let arena = self.allocator.arena();
            let bytes = arena.end - arena.start;
            // What the profile leaves with the driver is not of one piece: it goes before the arena comes.
            let emptied = self.driver.synchronize(stream).and_then(|()| self.driver.trim());
            match emptied.and_then(|()| self.driver.alloc(bytes, stream)) {
                Ok(address) => self.backing = Some(Backing { start: arena.start, bytes, address, live: 0 }),
                Err(_) => self.refused = self.refused.again(plans),
            }
        }
        self.backing.as_mut()
    }

    /// A request that the driver serves.
    fn malloc_apart(&mut self, bytes: u64, stream: Stream, number: Option<u64>) -> Result<u64> {
        let given = match self.driver.alloc(bytes, stream) {
            Err(Error::OutOfMemory { .. }) => {
                self.retire_unless(|backing| backing.live > 0);
                let emptied = self.driver.synchronize(stream).and_then(|()| self.driver.trim());
                emptied.and_then(|()| self.driver.alloc(bytes, stream))
            }
            given => given,
        };
        match given {
            Ok(address) => {
                self.apart.insert(address, number);
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

    /// Takes back what the driver served.
    fn free_apart(&mut self, address: u64, stream: Stream) -> Result<()> {
        let number = self.apart.remove(&address).ok_or(Error::OutOfRange { address, bytes: 0 })?;
        let noted = number.map_or(Ok(()), |number| self.allocator.free(number));
        self.driver.free(address, stream)?;
        Ok(noted?)
    }

    /// What backs the arena is no longer wanted, unless it is as asked.
    fn retire_unless(&mut self, wanted: impl Fn(&Backing) -> bool) {
        if let Some(backing) = self.backing.take_if(|backing| !wanted(backing)) {
            self.retired.push(backing);
            // A failure is told by what comes next.
            let _ = self.release_retired();
        }
    }

    /// Gives back what backed arenas before and has no live block.
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
