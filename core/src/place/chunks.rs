//! Placement in several ranges of bounded length, no block across two, such that all ranges together are short.
//!
//! Problem: some devices give out no buffer longer than a limit (Vulkan: often 1 GiB). Blocks that need more are placed
//! in several buffers, the *chunks*. A chunk is as long as the highest end of a block in it, and at most as long as the
//! limit; a larger block gets a chunk as long as itself, rounded up to the alignment, which others may share. The sum of the lengths is to be least.
//! With one chunk this is dynamic storage allocation, which is NP-hard.
//!
//! Method:
//! 1. If one chunk is enough for the max load, all blocks are placed in one.
//! 2. Else blocks are dealt out by their loads alone, without offsets: one by one, the largest size first, or the
//!    largest product of size and lifetime first. A block goes to the chunk whose max load it does not raise, of these
//!    to the one that it fills best; if there is none, to the chunk, old or new, that grows least. This is vector bin
//!    packing by best fit decreasing, where the steps are the dimensions. Networks have max loads near one step at a
//!    time, which leaves this much freedom: the sum of the max loads is the max load of all in most of them.
//! 3. The blocks of each chunk are placed by a [`Solver`]. Steps 2 and 3 are repeated with noise on the sizes.
//!
//! Lower bound: the max load, or the highest end of a pinned block. Ties: the chunk of lower number, the block of lower
//! index. Cost: each deal takes O(chunks · sum of lifetimes), in maximal cliques; O(chunks · n) memory.

use libm::log2;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::banks::Spot;
use super::interval::Sweep;
use super::late_reuse;
use super::methods::{place as place_in_one, workspace_up_to};
use super::solver::{Options, Solver};
use super::support::prepare;
use crate::error::Buffer;
use crate::table::{at, count};
use crate::workspace::workspace;
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, sort, verify};

/// How long chunks may be, how many there may be, and how soon memory may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// No chunk is longer than this, in bytes, unless one of its blocks is; then it is no longer than that block.
    pub bytes: u64,
    /// The most chunks that there may be; above [`MOST_CHUNKS`] it counts as that.
    pub chunks: u32,
    /// Of placements of one length, one is wanted in which few blocks begin over memory that has died less than so many
    /// steps before; 0 asks for nothing.
    pub distance: u32,
}

/// The most chunks that are ever used.
pub const MOST_CHUNKS: u32 = 64;

/// What a placement in chunks takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// How many chunks have blocks: the chunks from 0 to `count` - 1.
    pub count: u32,
    /// The lengths of all chunks together, in bytes.
    pub total: u64,
    /// No placement takes less than this, in bytes.
    pub lower_bound: u64,
}

/// How many deals are tried whose sum of max loads is the least so far: each is then placed.
const PLACINGS: u32 = 8;
const DEALS: u32 = 4000;
/// The sizes of a deal with noise are multiplied by random factors from 1 to 2 to the power of this.
const NOISE: f64 = 0.5;

/// Length of the workspace that [`place`] needs for `n` blocks and this limit.
#[must_use]
pub const fn workspace(solver: Solver, n: usize, limit: Limit) -> WorkspaceLen {
    let chunks = most(n, limit);
    let own = Dealer::workspace(n, chunks).and(WorkspaceLen { words: n, indices: 3 * n });
    let each = workspace_up_to(solver, n).max(verify::workspace(n)).max(late_reuse::workspace(n));
    Sweep::workspace(n).max(own.and(each))
}

/// No more chunks than blocks are ever used.
const fn most(n: usize, limit: Limit) -> usize {
    let chunks = if limit.chunks < MOST_CHUNKS { limit.chunks } else { MOST_CHUNKS } as usize;
    if chunks < n { chunks } else { n }
}

/// Gives every block a chunk, as the `bank` of its [`Spot`], and an offset there. The blocks of each chunk are placed by
/// `solver`, whose capacity is not used. `options.work` is the budget of the deals too, in blocks dealt. `parts` is
/// scratch memory for one block for each of `blocks`. The placement is verified.
///
/// # Errors
/// Those of [`place`](super::place()); [`Error::NoBank`] for a block that was left over, since no placement in so few
/// chunks was found; [`Error::BufferTooSmall`] also if `parts` or `spots` is not as long as `blocks`.
///
/// ```
/// use sublet_core::place::chunks::{self, Limit};
/// use sublet_core::place::{Options, Solver, banks::Spot};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 6), Block::new(1, 3, 5), Block::new(2, 4, 6)];
/// let limit = Limit { bytes: 8, chunks: 4, distance: 0 };
/// let len = chunks::workspace(Solver::Portfolio, 3, limit);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let (mut parts, mut spots) = ([Block::default(); 3], [Spot::default(); 3]);
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let options = Options::default();
/// let found = chunks::place(Solver::Portfolio, &blocks, limit, &options, scratch, &mut parts, &mut spots)?;
/// assert_eq!((found.count, found.total, found.lower_bound), (2, 11, 11));
/// assert_eq!(spots.map(|spot| spot.bank), [0, 1, 0]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    solver: Solver,
    blocks: &[Block],
    limit: Limit,
    options: &Options,
    mut scratch: Workspace<'_>,
    parts: &mut [Block],
    spots: &mut [Spot],
) -> Result<Chunks, Error> {
    let n = blocks.len();
    for got in [parts.len(), spots.len()] {
        if got != n {
            return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: n, got });
        }
    }
    let options = Options { constraints: Constraints { capacity: None, ..options.constraints }, ..*options };
    scratch.check(workspace(solver, n, limit))?;
    let offsets = scratch.words(n).into_slice();
    let lower_bound = prepare(blocks, &options, WorkspaceLen::NONE, &mut scratch.reborrow(), offsets)?.lower_bound;
    let mut scratch = scratch.reborrow();
    let mut dealer = Dealer::lend(n, most(n, limit), blocks, limit, options.constraints.alignment, &mut scratch);
    let mut placed = Placer { solver, blocks, options, limit, parts, offsets };
    let mut best = Chunks { count: 0, total: if n == 0 { 0 } else { u64::MAX }, lower_bound };
    let mut left_over = None;
    let mut random = SplitMix64::seed_from_u64(options.seed);
    let (mut work, mut placings) = (0u64, 0);
    for deal in 0..DEALS {
        if best.total <= lower_bound || placings == PLACINGS || deal > 2 && work > options.work {
            break;
        }
        work += n as u64;
        if deal == 1 {
            dealer.find_cliques(&mut scratch)?;
        }
        let dealt = match deal {
            0 => dealer.all_in_one(lower_bound),
            1 | 2 => dealer.deal(deal == 2, |_| 0.0),
            _ => dealer.deal(deal % 2 == 0, |_| NOISE * unit(&mut random)),
        };
        match dealt {
            Err(block) => left_over = left_over.or(block),
            // All in one again are the same blocks, and get the same placement.
            Ok(total) if total < best.total && (deal == 0 || dealer.used > 1) => {
                placings += 1;
                let found = placed.place(&dealer, &mut scratch)?;
                if let Some(total) = found.filter(|&total| total < best.total) {
                    best = Chunks { count: dealer.used, total, lower_bound };
                    placed.tell(&dealer, spots);
                }
            }
            Ok(_) => (),
        }
    }
    if best.total == u64::MAX {
        let block = left_over.unwrap_or_default();
        return Err(Error::NoBank { block, size: at(blocks, block).size, most: limit.bytes, proved: false });
    }
    Ok(best)
}

workspace! {
    /// Deals blocks out to chunks by their loads.
    struct Dealer<'a>(n, chunks; given: &'a [Block], within: Limit, least_alignment: u64) {
        tables {
            /// By block: its first maximal clique, and one past its last.
            low: u32[n],
            high: u32[n],
            /// By chunk and clique.
            load: u64[n * chunks],
            /// By chunk: its max load, and its largest block.
            top: u64[chunks],
            largest: u64[chunks],
            chunk: u32[n],
            key: u64[n],
            order: u32[n],
            aside: u32[n],
        }
        state {
            blocks: &'a [Block] = given,
            limit: Limit = within,
            alignment: u64 = least_alignment,
            cliques: u32 = 0,
            most: u32 = u32::try_from(chunks).unwrap_or(u32::MAX),
            used: u32 = 0,
        }
    }
}

impl Dealer<'_> {
    fn find_cliques(&mut self, scratch: &mut Workspace<'_>) -> Result<(), Error> {
        self.cliques = Sweep::new(self.blocks, scratch.reborrow())?.clique_ranges(&mut self.low, &mut self.high);
        Ok(())
    }

    /// The error is a block that is left over; `None` where it is known only that one is.
    fn all_in_one(&mut self, max_load: u64) -> Result<u64, Option<u32>> {
        let largest = self.blocks.iter().map(|b| b.size).max().unwrap_or(0);
        if max_load > self.limit.bytes.max(largest) || self.most == 0 {
            return Err(None);
        }
        self.chunk.fill(0);
        self.largest[0] = largest;
        self.used = 1;
        Ok(max_load)
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a score")]
    fn deal(&mut self, by_area: bool, mut noise: impl FnMut(u32) -> f64) -> Result<u64, Option<u32>> {
        let n = count(self.blocks);
        for (i, b) in (0..).zip(self.blocks) {
            let width = if by_area { log2(f64::from(b.width())) } else { 0.0 };
            self.key[i] = !(((log2(b.size as f64) + width + noise(i)) * (1u64 << 40) as f64) as u64);
        }
        sort::identity(&mut self.order, n);
        sort::by_key(&mut self.order, n, &mut self.aside, |i| self.key[i]);
        self.load.fill(0);
        self.top.fill(0);
        self.largest.fill(0);
        self.used = 0;
        for rank in 0..n {
            let i = self.order[rank];
            let chunk = self.chunk_for(i).ok_or(Some(i))?;
            self.used = self.used.max(chunk + 1);
            self.chunk[i] = chunk;
            let size = self.size(i);
            for load in self.load.range_mut(chunk * self.cliques + self.low[i], chunk * self.cliques + self.high[i]) {
                *load += size;
                self.top[chunk] = self.top[chunk].max(*load);
            }
            self.largest[chunk] = self.largest[chunk].max(size);
        }
        Ok(self.top.first(self.used).iter().sum())
    }

    /// Offsets are aligned: a block takes its size rounded up, but for one that is the topmost.
    fn size(&self, i: u32) -> u64 {
        let size = at(self.blocks, i).size;
        size.checked_next_multiple_of(self.alignment).unwrap_or(size)
    }

    fn chunk_for(&self, i: u32) -> Option<u32> {
        let size = self.size(i);
        let mut best = None;
        for chunk in 0..self.most.min(self.used + 1) {
            let alive = self.load.range(chunk * self.cliques + self.low[i], chunk * self.cliques + self.high[i]);
            let end = alive.iter().max().map_or(0, |load| load + size);
            if end > self.limit.bytes.max(self.largest[chunk]).max(size) {
                continue;
            }
            let (grows, spare) = (end.saturating_sub(self.top[chunk]), self.top[chunk].saturating_sub(end));
            if best.is_none_or(|(least, _)| (grows, spare) < least) {
                best = Some(((grows, spare), chunk));
            }
        }
        best.map(|(_, chunk)| chunk)
    }
}

/// Places the blocks of each chunk.
struct Placer<'a> {
    solver: Solver,
    blocks: &'a [Block],
    options: Options,
    limit: Limit,
    /// The blocks, chunk by chunk, and their offsets.
    parts: &'a mut [Block],
    offsets: &'a mut [u64],
}

impl Placer<'_> {
    /// The length of all chunks; `None` if one would be longer than its limit.
    fn place(&mut self, dealer: &Dealer<'_>, scratch: &mut Workspace<'_>) -> Result<Option<u64>, Error> {
        let (mut total, mut begin) = (0u64, 0);
        for chunk in 0..dealer.used {
            let mut end = begin;
            for (_, b) in (0..).zip(self.blocks).filter(|&(i, _)| dealer.chunk[i] == chunk) {
                if let Some(part) = self.parts.get_mut(end) {
                    *part = *b;
                }
                end += 1;
            }
            let parts = self.parts.get(begin..end).unwrap_or_default();
            let offsets = self.offsets.get_mut(begin..end).unwrap_or_default();
            let peak = place_in_one(self.solver, parts, &self.options, scratch.reborrow(), offsets)?.peak;
            if peak > self.limit.bytes.max(dealer.largest[chunk]) {
                return Ok(None);
            }
            late_reuse::spread(parts, self.limit.distance, &self.options.constraints, scratch.reborrow(), offsets)?;
            verify::verify(parts, offsets, &self.options.constraints, scratch.reborrow())?;
            total = total.saturating_add(peak);
            begin = end;
        }
        Ok(Some(total))
    }

    fn tell(&self, dealer: &Dealer<'_>, spots: &mut [Spot]) {
        let mut offsets = self.offsets.iter();
        for chunk in 0..dealer.used {
            for (_, spot) in (0..).zip(&mut *spots).filter(|&(i, _)| dealer.chunk[i] == chunk) {
                *spot = Spot { bank: chunk, offset: offsets.next().copied().unwrap_or_default() };
            }
        }
    }
}

/// A random number in [0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn unit(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
