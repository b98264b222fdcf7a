//! Placement in several banks of memory, such as on-chip SRAM and DRAM: which block lies in which bank, and where.
//!
//! Problem: banks of memory have a capacity and a cost for each byte that is read or written; a block has a number of
//! bytes that are read and written while it is alive. Which blocks lie in which bank, so that all fit and the sum of
//! bytes touched times cost is least? With one fast bank and one without limit, the choice of blocks is interval
//! scheduling with weights and resources (temporal knapsack), which is NP-hard. The placement within a bank is dynamic
//! storage allocation. `ExecuTorch`'s `banked_greedy` gives the fast bank to the blocks of highest priority as they
//! come.
//!
//! Steps:
//! 1. The *price* of a block in a bank is the bytes touched times the cost. The banks are filled one by one, the
//!    cheapest first. Each gets the set of blocks that saves most, compared with the next more costly bank. This choice
//!    only sees to it that the bytes alive at each step fit (`choice`). If the chosen blocks cannot be placed in the
//!    bank, one of them goes to a later bank: of the block that did not fit and those alive with it, the one that saves
//!    least for each byte. After that, all of this is done twice more with the large blocks alone.
//! 2. Another way: the blocks go one by one to the cheapest of their banks in which they can be placed beside those
//!    that are there. First come the blocks whose price would rise most, for each byte and step, in their next more
//!    costly bank; pinned blocks, then blocks that may lie in one bank alone, come before all others. Then the same is
//!    done with the largest blocks first.
//! 3. After each of these ways, each block is tried in cheaper banks again, until none moves: there may be room for it
//!    now. The cheapest of these placements is kept; one whose cost is the lower bound ends the search.
//!
//! Whether the blocks of a bank can be placed within its capacity is found by first fit: in the order of their begins;
//! then the largest first; then, up to 32 times, with the block that did not fit moved to the front. Pinned blocks
//! always come before all others.
//!
//! With at most 12 blocks, placements that cost less are then looked for by exact search (`exact`), which nearly always ends
//! with a proof that none costs less, or that there is none.
//!
//! Lower bound: the sum of the least prices of all blocks, plus the higher of two bounds on the *extra cost*, what is
//! paid beyond that sum. Both take the *fast* banks, those of least cost, as one bank. The first bound is the extra
//! cost with no block in the fast banks, less the most that a choice of blocks within the capacity of the fast banks
//! saves (`choice`). The second looks at each step alone. The bytes alive at the step beyond the capacity of the fast
//! banks must lie in other banks. This costs least if these are the bytes of the blocks whose price rises least for
//! each byte (a fractional knapsack).
//!
//! Cost: to try one block in one bank takes O(n² log n) time, since all blocks of the bank are placed anew. So each
//! time that all blocks are tried in cheaper banks takes O(n³ log n) time for each bank; it takes O(n banks) if each
//! block is in its cheapest bank already. There is no budget that could end the work early. Linear workspace.

mod choice;
mod exact;
mod lower_bound;

use self::choice::{Candidate, Excess, States, choose};
use self::lower_bound::lower_bound;
use super::support::align_up;
use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::workspace::workspace;
use crate::{Block, Error, Workspace, WorkspaceLen, block, sort};

/// A bank of memory, such as on-chip SRAM: one of several in which blocks can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// The size of the bank of memory, in bytes: no block in it ends above this.
    pub capacity: u64,
    /// The cost of each byte that is read from the bank of memory or written to it, in any unit that is the same for
    /// all banks.
    pub cost: u64,
    /// Every offset in the bank of memory is a multiple of this power of two, in bytes.
    pub alignment: u64,
}

/// How many bytes of a block are touched, and in which banks of memory it may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// How many bytes are read from the block and written to it while it is alive.
    pub touched: u64,
    /// The banks of memory in which the block may lie: bit k stands for bank k. If operators access the block, the bits
    /// of banks that only a DMA engine reaches must be 0.
    pub banks: u32,
}

/// Where a block lies: its bank of memory, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spot {
    /// The index of the bank of memory in which the block lies.
    pub bank: u32,
    /// The offset of the block in its bank of memory, in bytes.
    pub offset: u64,
}

/// What a placement in several banks of memory costs, and the least that any could cost, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// What the placement costs: the bytes that are read and written, each times the cost of a byte in its bank of
    /// memory ([`Bank::cost`]).
    pub cost: u128,
    /// A lower bound: no placement costs less than this. Like `cost`, it is in bytes times the unit of [`Bank::cost`].
    pub lower_bound: u128,
}

/// The most banks of memory that are used; further banks in the caller's list are left out.
pub const MOST_BANKS: usize = 32;

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
enum Way {
    /// Smaller blocks than the capacity over this take part only if they may lie in no later bank; with 0, all take
    /// part.
    Choice(u64),
    Loss,
    Size,
}

/// Small blocks are left out since many alive together have more combinations than the search can look at.
const WAYS: [Way; 5] = [Way::Choice(0), Way::Choice(64), Way::Choice(16), Way::Loss, Way::Size];

const TRIES: u32 = 32;

/// Length of the workspace of [`place`] for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let own = Packing::workspace(n).and(WorkspaceLen { words: n.div_ceil(64), indices: 3 * n });
    own.and(States::workspace(n).max(exact::workspace(n)))
}

/// Gives every block a bank of memory and an offset there, and writes both to `spots`. `uses` and `spots` have an entry
/// for each block. Returns the cost of the placement.
///
/// # Errors
/// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; [`Error::Alignment`] for a bank whose alignment is not a
/// power of two; [`Error::SizeOverflow`] where sizes, rounded up to the largest of these alignments, add up to more
/// than 64 bits can hold, or costs to more than 128 bits can; [`Error::NoBank`] for a block that was left over, since
/// no placement of all blocks was found, which with at most 12 blocks proves as a rule that there is none; [`Error::BufferTooSmall`] if the workspace is shorter than [`workspace`] says,
/// or `uses` or `spots` does not have one entry for each block.
///
/// ```
/// use sublet_core::place::banks::{self, Bank, Spot, Use};
/// use sublet_core::{Block, Workspace};
/// let banks = [Bank { capacity: 8, cost: 1, alignment: 1 }, Bank { capacity: 64, cost: 4, alignment: 1 }];
/// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
/// let uses = [Use { touched: 100, banks: 3 }, Use { touched: 10, banks: 3 }];
/// let len = banks::workspace(2);
/// let (mut words, mut indices, mut spots) = (vec![0; len.words], vec![0; len.indices], [Spot::default(); 2]);
/// let found = banks::place(&blocks, &uses, &banks, Workspace::new(&mut words, &mut indices), &mut spots)?;
/// assert_eq!((found.cost, found.lower_bound), (140, 140));
/// assert_eq!(spots, [Spot { bank: 0, offset: 0 }, Spot { bank: 1, offset: 0 }]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    uses: &[Use],
    banks: &[Bank],
    mut scratch: Workspace<'_>,
    spots: &mut [Spot],
) -> Result<Cost, Error> {
    if let Some(bank) = banks.iter().find(|b| !b.alignment.is_power_of_two()) {
        return Err(Error::Alignment { block: None, alignment: bank.alignment });
    }
    block::check(blocks, 1)?;
    for got in [uses.len(), spots.len()] {
        if got != blocks.len() {
            return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got });
        }
    }
    scratch.check(workspace(blocks.len()))?;
    let banks = banks.get(..MOST_BANKS).unwrap_or(banks);
    check_sums(blocks, uses, banks)?;
    if let Some(block) = (0..count(blocks)).find(|&i| at(blocks, i).size > most_room(uses, banks, i)) {
        return Err(left_over(blocks, uses, banks, block, true));
    }
    let n = blocks.len();
    let scratch = &mut scratch.reborrow();
    let lower_bound = lower_bound(blocks, uses, banks, &mut scratch.reborrow());
    let mut packing = Packing::lend(n, blocks, uses, banks, scratch);
    let [mut by_loss, mut by_size, mut best] = [(); 3].map(|()| scratch.indices(n));
    sort::identity(&mut by_loss, count(blocks));
    sort::by_key(&mut by_loss, count(blocks), &mut packing.aside, |i| !loss(blocks, uses, banks, i));
    sort::identity(&mut by_size, count(blocks));
    sort::by_key(&mut by_size, count(blocks), &mut packing.aside, |i| !at(blocks, i).size);
    for order in [&mut by_loss, &mut by_size] {
        sort::by_key(order, count(blocks), &mut packing.aside, |i| at(blocks, i).pin.is_none().into());
    }
    let mut least: Option<u128> = None;
    let mut refused = None;
    for way in WAYS {
        match packing.fill(way, [&by_loss, &by_size], scratch) {
            Ok(cost) if least.is_none_or(|least| cost < least) => {
                least = Some(cost);
                best.copy_from(&packing.bank);
            }
            Ok(_) => {}
            Err(block) => refused = refused.or(block),
        }
        if least == Some(lower_bound) {
            break;
        }
    }
    let few = n <= exact::MOST_BLOCKS && least != Some(lower_bound);
    let decided = few.then(|| exact::decide(&mut packing, least, &by_loss, scratch.reborrow()));
    let is_proved = decided.is_some_and(|decided| decided.is_proved);
    let better = decided.and_then(|decided| decided.cost);
    least = better.or(least);
    if let (None, Some(block)) = (least, refused) {
        return Err(left_over(blocks, uses, banks, block, is_proved));
    }
    let lower_bound = least.filter(|_| is_proved).unwrap_or(lower_bound);
    if better.is_none() {
        packing.bank.copy_from(&best);
        for k in 0..count(banks) {
            // It succeeds: these blocks have been placed in this bank before, in the same way.
            let _ = packing.pack(k);
        }
    }
    let mut cost = 0;
    for (i, spot) in (0..).zip(spots) {
        *spot = Spot { bank: packing.bank[i], offset: packing.offset[i] };
        cost += packing.price(i, spot.bank);
    }
    Ok(Cost { cost, lower_bound })
}

fn check_sums(blocks: &[Block], uses: &[Use], banks: &[Bank]) -> Result<(), Error> {
    let alignment = banks.iter().fold(1, |most, bank| bank.alignment.max(most));
    let (mut sizes, mut prices): (u64, u128) = (0, 0);
    for i in 0..count(blocks) {
        let highest = allowed(uses, banks, i).map(|k| price(uses, banks, i, k)).max().unwrap_or(0);
        let size = at(blocks, i).size.checked_next_multiple_of(alignment).and_then(|size| sizes.checked_add(size));
        let (Some(size), Some(price)) = (size, prices.checked_add(highest)) else {
            return Err(Error::SizeOverflow { block: i });
        };
        (sizes, prices) = (size, price);
    }
    Ok(())
}

workspace! {
    struct Packing<'a>(n; given: &'a [Block], uses_of: &'a [Use], all: &'a [Bank]) {
        tables {
            bank: u32[n],
            offset: u64[n],
            order: u32[n],
            aside: u32[n],
            forbidden: [u64; 2][n],
        }
        state {
            blocks: &'a [Block] = given,
            uses: &'a [Use] = uses_of,
            banks: &'a [Bank] = all,
        }
    }
}

impl Packing<'_> {
    fn price(&self, i: u32, bank: u32) -> u128 {
        price(self.uses, self.banks, i, bank)
    }

    /// The error is the block that was left over; with [`Way::Choice`] none is named.
    fn fill(
        &mut self,
        way: Way,
        [by_loss, by_size]: [&Table<'_, u32>; 2],
        scratch: &mut Workspace<'_>,
    ) -> Result<u128, Option<u32>> {
        self.bank.fill(NOWHERE);
        match way {
            Way::Choice(parts) => self.by_choice(parts, scratch).ok_or(None)?,
            Way::Loss => self.admit_all(by_loss).map_err(Some)?,
            Way::Size => self.admit_all(by_size).map_err(Some)?,
        }
        // A bank may have been full of blocks that have left it since: all blocks are tried again.
        let mut again = true;
        while again {
            again = false;
            for &i in by_loss.first(count(self.blocks)) {
                again |= self.promote(i);
            }
        }
        Ok((0..count(self.blocks)).map(|i| self.price(i, self.bank[i])).sum())
    }

    fn by_choice(&mut self, parts: u64, scratch: &mut Workspace<'_>) -> Option<()> {
        let (n, blocks, uses, banks) = (count(self.blocks), self.blocks, self.uses, self.banks);
        let most: u128 =
            (0..n).map(|i| allowed(uses, banks, i).map(|k| price(uses, banks, i, k)).max().unwrap_or(0)).sum();
        let shift = shift(most);
        let mut last = None;
        while let Some(way) = (0..count(banks)).map(|k| (bank(banks, k).cost, k)).filter(|&k| last < Some(k)).min() {
            last = Some(way);
            let k = way.1;
            let Bank { capacity, alignment, .. } = bank(banks, k);
            let candidate = |i: u32| {
                let later = || allowed(uses, banks, i).filter(|&o| Some((bank(banks, o).cost, o)) > last);
                let costlier = later().filter(|&o| bank(banks, o).cost > way.0).map(|o| price(uses, banks, i, o)).min();
                let gain = costlier.map_or(0, |costlier| (costlier - price(uses, banks, i, k)) >> shift);
                let b = at(blocks, i);
                let (gain, size) = (u64::try_from(gain).unwrap_or(0), align_up(b.size, alignment));
                Candidate { start: b.start, end: b.end, size, gain, forced: later().next().is_none() }
            };
            let mut free = 0;
            for i in 0..n {
                let open = self.bank[i] == NOWHERE && allowed(uses, banks, i).any(|o| o == k);
                let Candidate { size, gain, forced, .. } = candidate(i);
                if open && (forced || gain > 0 && size >= capacity.checked_div(parts).unwrap_or(0)) {
                    self.order[free] = i;
                    free += 1;
                }
            }
            sort::by_key(&mut self.order, free, &mut self.aside, |i| at(blocks, i).start.into());
            let mut scratch = scratch.reborrow();
            let mut taken = scratch.words(blocks.len().div_ceil(64));
            let room = capacity.checked_next_multiple_of(alignment).unwrap_or(capacity);
            choose(self.order.first(free), candidate, room, Excess::Dropped, scratch, &mut taken).gain?;
            for place in 0..free {
                if taken[place / 64] >> (place % 64) & 1 == 1 {
                    self.bank[self.order[place]] = k;
                }
            }
            while let Err(left) = self.pack(k) {
                let near = |&i: &u32| self.bank[i] == k && (i == left || at(blocks, i).collides(&at(blocks, left)));
                let rate = |i: u32| (u128::from(candidate(i).gain) << 32).checked_div(at(blocks, i).size.into());
                let free = (0..n).filter(near).filter(|&i| !candidate(i).forced);
                let victim = free.min_by_key(|&i| rate(i))?;
                self.bank[victim] = NOWHERE;
            }
        }
        (0..n).all(|i| self.bank[i] != NOWHERE).then_some(())
    }

    fn admit_all(&mut self, order: &Table<'_, u32>) -> Result<(), u32> {
        let mut all = order.first(count(self.blocks)).iter();
        all.find(|&&i| !self.move_below(i, u128::MAX)).map_or(Ok(()), |&i| Err(i))
    }

    fn promote(&mut self, i: u32) -> bool {
        let now = self.price(i, self.bank[i]);
        self.move_below(i, now)
    }

    /// The block stays if the others cannot be placed without it: first fit may fail with fewer blocks.
    fn move_below(&mut self, i: u32, most: u128) -> bool {
        let before = self.bank[i];
        let mut last: Option<(u128, u32)> = None;
        loop {
            let next = allowed(self.uses, self.banks, i).map(|k| (self.price(i, k), k));
            let next = next.filter(|&way| way.0 < most && last.is_none_or(|last| way > last)).min();
            let Some(way) = next else {
                self.bank[i] = before;
                return false;
            };
            self.bank[i] = way.1;
            if self.has_room(i) && self.pack(way.1).is_ok() && (before == NOWHERE || self.pack(before).is_ok()) {
                return true;
            }
            last = Some(way);
        }
    }

    fn has_room(&self, i: u32) -> bool {
        let (n, b, k) = (count(self.blocks), at(self.blocks, i), self.bank[i]);
        let beside = || (0..n).filter(|&j| self.bank[j] == k).map(|j| at(self.blocks, j)).filter(|o| o.collides(&b));
        let load = |step: u32| beside().filter(|o| o.start <= step && step < o.end).map(|o| o.size).sum::<u64>();
        beside().all(|o| load(o.start.max(b.start)) <= bank(self.banks, k).capacity)
    }

    fn pack(&mut self, k: u32) -> Result<(), u32> {
        let (mut members, blocks) = (0, self.blocks);
        for i in 0..count(blocks) {
            if self.bank[i] == k {
                self.order[members] = i;
                members += 1;
            }
        }
        let keys: [&dyn Fn(u32) -> u64; 2] = [&|i| at(blocks, i).start.into(), &|i| !at(blocks, i).size];
        let mut left = Ok(());
        for key in keys {
            sort::by_key(&mut self.order, members, &mut self.aside, key);
            sort::by_key(&mut self.order, members, &mut self.aside, |i| at(blocks, i).pin.is_none().into());
            left = self.first_fit(k, members);
            if left.is_ok() {
                return Ok(());
            }
        }
        for _ in 0..TRIES {
            let Err(place) = left else { return Ok(()) };
            let pins = (0..place).find(|&p| at(blocks, self.order[p]).pin.is_none()).unwrap_or(place);
            let moved = self.order[place];
            for p in (pins..place).rev() {
                self.order[p + 1] = self.order[p];
            }
            self.order[pins] = moved;
            left = self.first_fit(k, members);
        }
        left.map_err(|place| self.order[place])
    }

    fn first_fit(&mut self, k: u32, members: u32) -> Result<(), u32> {
        let mut placed = 0;
        while placed < members {
            let i = self.order[placed];
            let offset = self.lowest(k, i, placed).ok_or(placed)?;
            self.put(i, offset, &mut placed);
        }
        Ok(())
    }

    fn put(&mut self, i: u32, offset: u64, placed: &mut u32) {
        self.offset[i] = offset;
        self.order[*placed] = i;
        *placed += 1;
    }

    /// The lowest offset, or the pin, that bank `k` has for the block beside the first `placed` of `order`.
    fn lowest(&mut self, k: u32, i: u32, placed: u32) -> Option<u64> {
        let (Bank { capacity, alignment, .. }, b) = (bank(self.banks, k), at(self.blocks, i));
        let alignment = alignment.max(b.alignment);
        let mut near = 0;
        for &other in self.order.first(placed) {
            let o = at(self.blocks, other);
            if b.collides(&o) {
                self.forbidden[near] = [self.offset[other], self.offset[other] + o.size];
                near += 1;
            }
        }
        sort::in_place(&mut self.forbidden, near);
        let mut offset = b.pin.unwrap_or(0);
        for &[begin, end] in self.forbidden.first(near) {
            if begin >= offset + b.size {
                break;
            }
            if end > offset {
                offset = align_up(end, alignment);
            }
        }
        let fits = offset.checked_add(b.size).is_some_and(|end| end <= capacity);
        let may = b.pin.is_none_or(|pin| pin == offset && pin & (alignment - 1) == 0);
        (fits && may).then_some(offset)
    }
}

fn left_over(blocks: &[Block], uses: &[Use], banks: &[Bank], block: u32, proved: bool) -> Error {
    Error::NoBank { block, size: at(blocks, block).size, most: most_room(uses, banks, block), proved }
}

fn most_room(uses: &[Use], banks: &[Bank], i: u32) -> u64 {
    allowed(uses, banks, i).map(|k| bank(banks, k).capacity).max().unwrap_or(0)
}

fn shift(most: u128) -> u32 {
    (u128::BITS - most.leading_zeros()).saturating_sub(63)
}

/// For each byte and step, with 16 fraction bits; `u64::MAX` if only one bank is allowed.
fn loss(blocks: &[Block], uses: &[Use], banks: &[Bank], i: u32) -> u64 {
    let prices = || allowed(uses, banks, i).map(|k| price(uses, banks, i, k));
    let least = prices().min().unwrap_or(0);
    let Some(next) = prices().filter(|&p| p > least).min() else {
        // One that may lie nowhere else comes first.
        return if prices().count() == 1 { u64::MAX } else { 0 };
    };
    let b = at(blocks, i);
    let room = u128::from(b.size) * u128::from(b.width());
    u64::try_from(((next - least).min(u128::MAX >> 16) << 16).checked_div(room).unwrap_or(0)).unwrap_or(u64::MAX - 1)
}

fn bank(banks: &[Bank], k: u32) -> Bank {
    let place = usize::try_from(k).unwrap_or(usize::MAX);
    banks.get(place).copied().unwrap_or(Bank { capacity: 0, cost: 0, alignment: 1 })
}

fn use_of(uses: &[Use], i: u32) -> Use {
    let place = usize::try_from(i).unwrap_or(usize::MAX);
    uses.get(place).copied().unwrap_or(Use { touched: 0, banks: 0 })
}

fn allowed(uses: &[Use], banks: &[Bank], i: u32) -> impl Iterator<Item = u32> {
    let mask = use_of(uses, i).banks;
    (0..count(banks)).filter(move |&k| mask >> k & 1 == 1)
}

fn price(uses: &[Use], banks: &[Bank], i: u32, k: u32) -> u128 {
    u128::from(use_of(uses, i).touched) * u128::from(bank(banks, k).cost)
}

#[cfg(test)]
mod tests;
