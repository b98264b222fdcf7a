//! Placement in several banks of memory, such as on-chip SRAM and DRAM.

use core::ffi::c_void;
use core::mem::offset_of;

use sublet_core::Block;
use sublet_core::place::banks::{self, Bank, Cost, Spot, Use};

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
    Needed::workspace(banks::workspace(n)).and::<Block>(n).and::<Use>(n).and::<Bank>(banks::MOST_BANKS).and::<Spot>(n)
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
/// `spots` has room for one spot for each block. `cost` may be NULL. SUBLET_STATUS_NO_BANK: no placement was found in
/// which all blocks fit. For each bank, sublet_verify can prove that its blocks with their offsets are a valid plan.
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
        let scratch = room.workspace(banks::workspace(block_count));
        let told = banks::place(blocks, uses, given, scratch, found)?;
        for (to, spot) in spots.iter_mut().zip(found) {
            *to = sublet_spot { bank: spot.bank.into(), offset: spot.offset };
        }
        cost.set(told.into());
        Ok(())
    })
}
