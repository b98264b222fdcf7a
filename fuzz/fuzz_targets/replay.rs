//! The allocator that learns, with data in its blocks: whatever requests come, no live memory is handed out twice, the
//! data survive, and statistics add up; over one range of addresses, or over ranges that come and go. A recorder
//! records the same stream.
#![cfg_attr(fuzzing, no_main)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::Buffer;
use sublet_core::place::{Options, Solver};
use sublet_core::replay::{self, Allocator, Config, Memory, Range, Source, State, Statistics};
use sublet_core::trace::{Event, Row};
use sublet_core::trace::{OUTSIDE, Recorder};
use sublet_core::{Block, Constraints, Error, verify};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::stream::{Step, Stream};
use sublet_fuzz::{blocks, number, schedule};

#[derive(Debug)]
struct Input {
    config: Config,
    /// The bytes of addresses from which ranges are cut; `None`: there is only one range.
    space: Option<u64>,
    /// A step, and the blocks of a plan that is adopted before this step.
    adopted: Option<(usize, Vec<Block>)>,
    stream: Stream,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let count = |u: &mut Unstructured<'a>, most| -> Result<usize> {
            Ok(if u.ratio(31, 32)? { u.int_in_range(0..=most)? } else { usize::try_from(number(u)?).unwrap_or(0) })
        };
        let solvers: Vec<Solver> = Solver::all().collect();
        let config = Config {
            capacity: if u.ratio(7, 8)? { u.int_in_range(0..=4000)? } else { number(u)? },
            ranges: u.int_in_range(1..=4)?,
            alignment: if u.ratio(15, 16)? { 1 << u.int_in_range(0..=5)? } else { number(u)? },
            events: count(u, 64)?,
            live: count(u, 24)?,
            solver: *u.choose(&solvers)?,
            options: Options { work: 100, nodes: 20, seed: 1, ..Options::default() },
        };
        let adopted = if u.ratio(1, 8)? {
            let at = u.int_in_range(0..=60)?;
            let some = (0..u.int_in_range(0..=10)?).map(|_| blocks::block(u, false)).collect::<Result<Vec<_>>>()?;
            Some((at, some))
        } else {
            None
        };
        let space = if u.ratio(1, 3)? { Some(config.capacity.max(u.int_in_range(0..=8000)?)) } else { None };
        Ok(Self { config, space, adopted, stream: u.arbitrary()? })
    }
}

/// The most events, and the most live blocks, that memory is lent for. With more, the allocator has to be refused.
const MOST: usize = 1 << 10;

sublet_fuzz::target!(|input: Input| {
    let Input { config, space, adopted, stream: Stream(steps) } = input;
    record(&steps);
    if config.events > MOST || config.live > MOST {
        let nothing = Memory { blocks: &mut [], words: &mut [], indices: &mut [] };
        let refused = Allocator::new(&config, nothing).err();
        assert!(matches!(refused, Some(Error::TooManyBlocks { .. } | Error::BufferTooSmall { .. })), "{refused:?}");
        return;
    }
    let len = replay::memory(&config);
    let mut scratch = Scratch::of(sublet_core::WorkspaceLen { words: len.words, indices: len.indices });
    let mut blocks = vec![Block::new(9, 3, 7); len.blocks];
    let Scratch { words, indices } = &mut scratch;
    let raw = Shared(Rc::new(RefCell::new(Raw {
        grows: space.is_some(),
        space: space.unwrap_or(config.capacity),
        alignment: config.alignment,
        out: BTreeMap::new(),
        refused: 0,
    })));
    let space = space.unwrap_or(config.capacity);
    let allocator = Allocator::over(&config, Memory { blocks: &mut blocks, words, indices }, raw.clone());
    // A first range that is shorter than the alignment cannot be used.
    let usable = config.capacity == 0 || config.capacity >= config.alignment;
    assert_eq!(allocator.is_ok(), config.alignment.is_power_of_two() && usable);
    let Ok(allocator) = allocator else { return };
    let data = vec![0; usize::try_from(space).ok().filter(|&c| c <= 1 << 13).unwrap_or(0)];
    let (live, order) = (BTreeMap::new(), Vec::new());
    let mut held = Held { allocator, config, raw: raw.clone(), space, data, live, order, next: 1, asked: 0 };
    for (i, step) in steps.into_iter().enumerate() {
        if let Some((_, blocks)) = adopted.as_ref().filter(|(at, _)| *at == i) {
            held.adopt(blocks);
        }
        held.step(step);
    }
    while !held.order.is_empty() {
        held.step(Step::Free(0));
    }
    drop(held);
    assert!(raw.0.borrow().out.is_empty(), "all ranges have come back");
});

/// A source of ranges: cuts them from the addresses below `space`, each at the lowest place where it fits. `out` are
/// the ranges that the allocator has now: their bytes, by their first address.
struct Raw {
    grows: bool,
    space: u64,
    alignment: u64,
    out: BTreeMap<u64, u64>,
    refused: u32,
}

#[derive(Clone)]
struct Shared(Rc<RefCell<Raw>>);

impl Source for Shared {
    fn grows(&self) -> bool {
        self.0.borrow().grows
    }

    fn take(&mut self, bytes: u64) -> Option<Range> {
        let mut raw = self.0.borrow_mut();
        let mut begin = Some(0u64);
        for (&other, &length) in &raw.out {
            if begin.is_none_or(|begin| begin.saturating_add(bytes) <= other) {
                break;
            }
            begin = (other + length).checked_next_multiple_of(raw.alignment);
        }
        let fits = |&begin: &u64| begin.checked_add(bytes).is_some_and(|end| end <= raw.space);
        let Some(begin) = begin.filter(fits) else {
            raw.refused += 1;
            return None;
        };
        raw.out.insert(begin, bytes);
        Some(Range { begin, bytes })
    }

    fn give_back(&mut self, range: Range) {
        assert_eq!(self.0.borrow_mut().out.remove(&range.begin), Some(range.bytes), "as it was given, once");
    }
}

/// The allocator, and what it has handed out.
struct Held<'a> {
    allocator: Allocator<'a, Shared>,
    config: Config,
    raw: Shared,
    /// The end of the addresses that ranges are cut from.
    space: u64,
    /// The memory at these addresses; empty if it would be too large.
    data: Vec<u8>,
    /// The live blocks, by address: their bytes, and the byte that they are filled with.
    live: BTreeMap<u64, (u64, u8)>,
    order: Vec<u64>,
    next: u8,
    asked: u64,
}

impl Held<'_> {
    fn step(&mut self, step: Step) {
        let before = (self.allocator.statistics(), self.allocator.state());
        let begins = u64::from(matches!(step, Step::Begin));
        match step {
            Step::Malloc(bytes) => self.malloc(bytes),
            Step::Free(which) if !self.order.is_empty() => self.free(usize::from(which) % self.order.len()),
            Step::Free(_) => {}
            Step::FreeStray(address) if self.live.contains_key(&address) => {}
            Step::FreeStray(address) => {
                assert_eq!(self.allocator.free(address), Err(Error::NotAllocated { address }));
                assert_eq!((self.allocator.statistics(), self.allocator.state()), before);
            }
            Step::Interrupt => self.allocator.interrupt(),
            Step::Resume => self.allocator.resume(),
            Step::Begin => self.allocator.begin_iteration(),
            Step::End => match self.allocator.end_iteration() {
                Ok(()) | Err(Error::OutOfMemory { .. } | Error::SizeOverflow { .. }) => {}
                Err(Error::BufferTooSmall { buffer: Buffer::Events, needed, got }) => {
                    assert!(needed > got && got == self.config.events);
                }
                // More blocks may be live than the allocator has room for.
                Err(e) => assert!(matches!(e, Error::BufferTooSmall { buffer: Buffer::Live, .. }), "{e}"),
            },
        }
        let Statistics { hits, misses, plans, arena_peak, fallback_peak, footprint, held, unended } =
            self.allocator.statistics();
        assert!(hits >= before.0.hits && misses >= before.0.misses && hits + misses <= self.asked);
        assert!((before.0.unended..=before.0.unended + begins).contains(&unended));
        assert!(plans >= before.0.plans && plans - before.0.plans <= 1);
        assert!(arena_peak <= footprint && fallback_peak <= footprint && footprint <= self.space);
        assert!(plans > 0 || (hits, misses, arena_peak) == (0, 0, 0));
        assert!(self.allocator.state() == State::Profile || plans > 0);
        let raw = self.raw.0.borrow();
        assert_eq!(raw.out.values().sum::<u64>(), held);
        assert!(raw.out.len() <= self.config.ranges);
        let inside = |(&a, &(bytes, _))| raw.out.range(..=a).next_back().is_some_and(|(b, n)| a + bytes <= b + n);
        assert!(self.live.iter().all(inside), "{:?} in {:?}", self.live, raw.out);
        let end = self.live.last_key_value().map_or(0, |(address, (bytes, _))| address + bytes);
        assert!(raw.grows || end <= footprint);
    }

    fn malloc(&mut self, bytes: u64) {
        self.asked += 1;
        let before = (self.allocator.statistics(), self.allocator.state());
        let (alignment, refused) = (self.config.alignment, self.raw.0.borrow().refused);
        match self.allocator.malloc(bytes) {
            Ok(address) => {
                assert!(address.is_multiple_of(alignment) && bytes > 0);
                // Sizes are rounded up to the alignment, so that no other block begins within the rounded size.
                let size = bytes.next_multiple_of(alignment);
                assert!(address + size <= self.space);
                let below = self.live.range(..address + size).next_back();
                assert!(below.is_none_or(|(other, (held, _))| other + held <= address), "{address} {bytes} {below:?}");
                self.fill(address, bytes);
            }
            Err(Error::ZeroSize { .. }) => {
                assert_eq!(bytes, 0);
                assert_eq!((self.allocator.statistics(), self.allocator.state()), before);
            }
            Err(Error::OutOfMemory { needed, largest }) => {
                assert!(largest < needed);
                if self.raw.grows() {
                    let raw = self.raw.0.borrow();
                    let size = bytes.checked_next_multiple_of(alignment);
                    assert!(raw.refused > refused || raw.out.len() == self.config.ranges || size.is_none());
                    return;
                }
                let most = self.largest_hole();
                // A block whose request was smaller than planned has the bytes that were planned.
                assert!(largest <= most && (bytes > most || before.0.hits > 0), "{bytes} in {most}");
            }
            Err(Error::BufferTooSmall { buffer: Buffer::Live, .. }) => {
                assert!(self.live.len() >= self.config.live, "{} are live", self.live.len());
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn free(&mut self, which: usize) {
        let address = self.order.remove(which);
        self.check(address);
        self.live.remove(&address);
        assert_eq!(self.allocator.free(address), Ok(()));
        assert_eq!(self.allocator.free(address), Err(Error::NotAllocated { address }));
    }

    /// Asserts that the block still holds what was written into it.
    fn check(&self, address: u64) {
        let (bytes, pattern) = self.live[&address];
        if !self.data.is_empty() {
            let range = address as usize..(address + bytes) as usize;
            assert!(self.data[range].iter().all(|&b| b == pattern), "{address} {bytes}");
        }
    }

    fn fill(&mut self, address: u64, bytes: u64) {
        if !self.data.is_empty() {
            self.data[address as usize..(address + bytes) as usize].fill(self.next);
        }
        self.live.insert(address, (bytes, self.next));
        self.order.push(address);
        self.next = self.next.wrapping_add(1).max(1);
    }

    /// The length, in bytes, of the longest range of addresses without a live block that begins at an aligned address.
    fn largest_hole(&self) -> u64 {
        let alignment = self.config.alignment;
        let (mut largest, mut end) = (0, 0);
        let last = self.config.capacity / alignment * alignment;
        for (&address, &(bytes, _)) in self.live.iter().chain([(&last, &(0, 0))]) {
            largest = largest.max(address.saturating_sub(end));
            end = address + bytes.next_multiple_of(alignment);
        }
        largest
    }

    /// Has the allocator adopt a plan in which these blocks lie one above the other; it may refuse.
    fn adopt(&mut self, blocks: &[Block]) {
        let blocks: Vec<Block> = blocks.iter().map(|b| Block { pin: None, ..*b }).collect();
        let stack = blocks.iter().scan(0, |top: &mut u64, b| {
            let offset = top.next_multiple_of(b.alignment.max(8));
            *top = offset + b.size;
            Some(offset)
        });
        let offsets: Vec<u64> = stack.collect();
        let mut scratch = Scratch::of(verify::workspace(blocks.len()));
        let plan = verify::verify(&blocks, &offsets, &Constraints::NONE, scratch.lend()).expect("they are stacked");
        let _ = self.allocator.adopt(&plan);
    }
}

/// Records the stream as rows, in buffers that become full again and again, so that the recorder is handed over to the
/// next.
fn record(steps: &[Step]) {
    let mut memory: Vec<Vec<Row>> = (1..12).map(|k| vec![Row::default(); (1 << k) - 2]).collect();
    let mut buffers = memory.iter_mut();
    let mut recorder = Recorder::new(buffers.next().expect("there are some").as_mut_slice());
    let mut live: Vec<(u64, u32)> = Vec::new();
    let mut expected = Vec::new();
    let mut interruptions = 0u32;
    for (time, &step) in (0u64..).zip(steps) {
        let mut call = |recorder: &mut Recorder<&mut [Row]>| match step {
            Step::Malloc(bytes) => recorder.malloc(time, bytes).map(|block| live.push((bytes, block))),
            Step::Free(which) if !live.is_empty() => {
                let at = usize::from(which) % live.len();
                recorder.free(time, live[at].1).map(|()| {
                    live.remove(at);
                })
            }
            Step::FreeStray(address) if address > 1 << 16 => recorder.read(time, (1 << 16) + 1),
            _ => Ok(()),
        };
        let mut done = call(&mut recorder);
        while let Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed, got }) = done {
            assert_eq!((needed, got), (recorder.rows().len() + 1, recorder.rows().len()));
            recorder =
                recorder.hand_over(buffers.next().expect("it is long enough").as_mut_slice()).expect("it is longer");
            done = call(&mut recorder);
        }
        match step {
            Step::Malloc(0) if interruptions == 0 => assert!(matches!(done, Err(Error::Row { .. }))),
            Step::FreeStray(address) if address > 1 << 16 => assert!(matches!(done, Err(Error::Row { .. }))),
            _ => assert_eq!(done, Ok(())),
        }
        match step {
            Step::Malloc(bytes) if bytes > 0 && interruptions == 0 => expected.push((Event::Malloc, bytes)),
            Step::Interrupt => {
                recorder.interrupt();
                interruptions += 1;
            }
            Step::Resume => {
                recorder.resume();
                interruptions = interruptions.saturating_sub(1);
            }
            Step::Begin => {
                recorder.begin_op();
            }
            Step::End => recorder.end_op(),
            _ => {}
        }
    }
    let rows = recorder.rows();
    assert!(schedule::well_formed(rows, recorder.block_count() as usize) && schedule::recorded(rows));
    let mallocs = rows.iter().filter(|r| r.event == Event::Malloc);
    assert!(mallocs.clone().map(|r| (r.event, r.bytes)).eq(expected));
    assert!(mallocs.map(|r| r.block).eq(0..recorder.block_count()));
    let alive = live.iter().filter(|(_, block)| *block != OUTSIDE).count();
    assert_eq!(rows.len(), 2 * recorder.block_count() as usize - alive);
}
