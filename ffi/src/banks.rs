//! Placement in several banks of memory, such as on-chip SRAM and DRAM.

use core::ffi::c_void;
use core::mem::offset_of;

use sublet_core::place::banks::{self, Bank, Cost, Spot, Use};
use sublet_core::verify::{self, Violation};
use sublet_core::{Block, Constraints, Error, Workspace};

use crate::arguments::{Arguments, params, plain};
use crate::block::{self, sublet_block};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{Needed, sublet_layout};

/// A bank of memory, such as on-chip SRAM: one of several memories that blocks are placed in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_bank {
    /// The size of the bank of memory, in bytes.
    pub capacity: u64,
    /// The cost of each byte that is read or written in the bank of memory, in any unit that is the same for all banks.
    pub cost: u64,
    /// Every offset in the bank of memory must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
}

/// How much of a block is read and written, and which banks of memory it may lie in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_bank_use {
    /// How many bytes are read from the block and written to it while it is alive. A byte counts each time that it is
    /// read or written.
    pub touched: u64,
    /// The banks of memory that the block may lie in: bit k stands for bank k. 0 is all of them. If only a DMA engine
    /// can reach a bank, clear the bank's bit for every block that something else reads or writes.
    pub banks: u64,
}

/// Where a block is placed: its bank of memory, and its offset there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_spot {
    /// The number of the bank of memory that the block lies in: its index in `banks` of the sublet_banks_params.
    pub bank: u64,
    /// The offset of the block in its bank of memory, in bytes.
    pub offset: u64,
}

/// The banks of memory that blocks are placed in, and how the blocks are used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sublet_banks_params {
    /// Set this to sizeof(sublet_banks_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// How many banks of memory there are, at most 32.
    pub bank_count: u32,
    /// The banks of memory, `bank_count` of them.
    pub banks: *const sublet_bank,
    /// How much of each block is read and written, and which banks it may lie in: one entry for each block, in the
    /// order of the blocks.
    pub uses: *const sublet_bank_use,
}

/// What a placement in banks of memory costs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_banks_cost {
    /// Set this to sizeof(sublet_banks_cost): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// The sum, over all blocks, of the bytes touched times the cost of a byte in the block's bank of memory, in the
    /// unit of `cost` in a sublet_bank; UINT64_MAX if the sum does not fit into 64 bits.
    pub cost: u64,
    /// A lower bound on the cost of every placement, in the same unit as `cost`. If `cost` equals it, the placement is
    /// optimal. UINT64_MAX if the bound does not fit into 64 bits: then an equal `cost` proves nothing.
    pub lower_bound: u64,
}

plain!(sublet_bank, sublet_bank_use, sublet_spot, sublet_banks_params, sublet_banks_cost);
params! {
    sublet_banks_params { struct_size, bank_count, banks, uses }
    sublet_banks_cost { struct_size, reserved, cost, lower_bound }
}

impl From<Cost> for sublet_banks_cost {
    fn from(Cost { cost, lower_bound }: Cost) -> Self {
        let told = |cost: u128| u64::try_from(cost).unwrap_or(u64::MAX);
        Self { struct_size: 0, reserved: 0, cost: told(cost), lower_bound: told(lower_bound) }
    }
}

impl From<sublet_bank> for Bank {
    fn from(sublet_bank { capacity, cost, alignment }: sublet_bank) -> Self {
        Self { capacity, cost, alignment: alignment.max(1) }
    }
}

impl From<sublet_bank_use> for Use {
    fn from(sublet_bank_use { touched, banks }: sublet_bank_use) -> Self {
        // The bits above the 32 stand for no bank.
        let low = u32::try_from(banks & u64::from(u32::MAX)).unwrap_or(0);
        Self { touched, banks: if banks == 0 { u32::MAX } else { low } }
    }
}

fn needed(n: usize) -> Needed {
    let scratch = banks::workspace(n).max(verify::workspace(n));
    let given = Needed::workspace(scratch).and::<Block>(n).and::<Use>(n).and::<Bank>(banks::MOST_BANKS).and::<Spot>(n);
    given.and::<Block>(n).and::<u64>(n)
}

/// Verifies the plan of each bank; `members` and `offsets` have room for all blocks. An error names a block by its index
/// in its bank.
fn verify(
    (blocks, uses, banks): (&[Block], &[Use], &[Bank]),
    spots: &[Spot],
    (members, offsets): (&mut [Block], &mut [u64]),
    mut scratch: Workspace<'_>,
) -> Result<(), Error> {
    let refused = |block, offset| Error::Invalid(Violation::EndOverflow { block, offset });
    for ((block, use_), spot) in (0..).zip(uses).zip(spots) {
        if usize::try_from(spot.bank).is_ok_and(|k| k >= banks.len()) || use_.banks >> (spot.bank & 31) & 1 == 0 {
            return Err(refused(block, spot.offset));
        }
    }
    for (k, bank) in (0..).zip(banks) {
        let mut count = 0;
        let here = blocks.iter().zip(spots).filter(|(_, spot)| spot.bank == k);
        for ((to_block, to_offset), (&block, spot)) in members.iter_mut().zip(&mut *offsets).zip(here) {
            (*to_block, *to_offset) = (block, spot.offset);
            count += 1;
        }
        let constraints = Constraints { alignment: bank.alignment, capacity: Some(bank.capacity) };
        let (members, offsets) = (members.get(..count).unwrap_or_default(), offsets.get(..count).unwrap_or_default());
        verify::verify(members, offsets, &constraints, scratch.reborrow())?;
    }
    Ok(())
}

/// Tells in `layout` the workspace that sublet_place_banks needs for `block_count` blocks. Its size is linear in the
/// number of blocks.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_place_banks_workspace(
    block_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let n = arguments.count(block_count)?;
        Ok(needed(n))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Gives every block a bank of memory and an offset in it, so that blocks that are alive together share no address of a
/// bank. Keeps the cost low: the sum, over all blocks, of the bytes touched times the cost of a byte in the block's
/// bank.
///
/// `spots` has room for one spot for each block. `cost` may be NULL. The plan of each bank is verified before it is
/// returned. SUBLET_STATUS_NO_BANK: no placement was found in which all blocks fit; SUBLET_STATUS_NO_BANK_FITS: it is proved
/// that there is none. Up to 12 blocks, placements are decided exactly, as a rule.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_place_banks(
    blocks: *const sublet_block,
    block_count: usize,
    params: *const sublet_banks_params,
    workspace: *mut c_void,
    workspace_size: usize,
    spots: *mut sublet_spot,
    cost: *mut sublet_banks_cost,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, params) = unsafe { (arguments.input(blocks, block_count)?, arguments.params(params)?) };
        let bank_count = usize::try_from(params.bank_count).unwrap_or(usize::MAX);
        if bank_count > banks::MOST_BANKS {
            return Err(Failure::new(S::LengthOverflow, 2, banks::MOST_BANKS as u64, params.bank_count.into()));
        }
        let [to_banks, to_uses] = [offset_of!(sublet_banks_params, banks), offset_of!(sublet_banks_params, uses)];
        // SAFETY: as above.
        let (given, uses, mut room, spots, cost) = unsafe {
            (
                arguments.field(2, to_banks, |a| a.input_of(params.banks, bank_count, 2))?,
                arguments.field(2, to_uses, |a| a.input_of(params.uses, block_count, 1))?,
                arguments.workspace(workspace, workspace_size, needed(block_count))?,
                arguments.output_of(spots, block_count, 1)?,
                arguments.report_if_wanted(cost)?,
            )
        };
        let blocks = block::blocks(&mut room, blocks)?;
        let missing = || Failure::of(S::Unnamed);
        let given = room.slice(bank_count, |k| given.get(k).map(|&b| Bank::from(b)).ok_or_else(missing))?;
        let uses = room.slice(block_count, |i| uses.get(i).map(|&u| Use::from(u)).ok_or_else(missing))?;
        let found = room.fill(block_count, Spot::default());
        let members = room.fill(block_count, Block::new(0, 1, 1));
        let offsets = room.fill(block_count, 0);
        let mut scratch = room.workspace(banks::workspace(block_count).max(verify::workspace(block_count)));
        let told = banks::place(blocks, uses, given, scratch.reborrow(), found)?;
        verify((blocks, uses, given), found, (members, offsets), scratch)?;
        for (to, spot) in spots.iter_mut().zip(found) {
            *to = sublet_spot { bank: spot.bank.into(), offset: spot.offset };
        }
        cost.set(told.into());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_that_is_wrong_does_not_leave() {
        let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8), Block::new(2, 4, 8)];
        let uses = [Use { touched: 1, banks: 3 }, Use { touched: 1, banks: 1 }, Use { touched: 1, banks: 3 }];
        let banks = [Bank { capacity: 16, cost: 1, alignment: 1 }, Bank { capacity: 8, cost: 1, alignment: 4 }];
        let check = |spots: [(u32, u64); 3]| {
            let spots = spots.map(|(bank, offset)| Spot { bank, offset });
            let len = verify::workspace(3);
            let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
            let (mut members, mut offsets) = ([Block::new(0, 1, 1); 3], [0; 3]);
            let scratch = Workspace::new(&mut words, &mut indices);
            verify((&blocks, &uses, &banks), &spots, (&mut members, &mut offsets), scratch)
        };
        assert_eq!(check([(1, 0), (0, 0), (1, 0)]), Ok(()));
        assert_eq!(check([(0, 8), (0, 0), (0, 8)]), Ok(()));
        let wrong = [
            [(0, 7), (0, 0), (0, 8)],  // They share an address in the first bank.
            [(1, 0), (0, 4), (0, 8)],  // In the first bank, but not its first two blocks.
            [(1, 1), (0, 0), (0, 8)],  // Misaligned, and above the capacity.
            [(0, 9), (0, 0), (1, 0)],  // Above the capacity.
            [(0, 8), (1, 0), (0, 8)],  // In a bank that is not the block's.
            [(0, 8), (0, 0), (2, 0)],  // In a bank that does not exist.
            [(0, 8), (0, 0), (33, 0)], // The same, where a shift would wrap.
        ];
        for spots in wrong {
            assert!(check(spots).is_err(), "{spots:?}");
        }
    }
}
