//! Placement in several ranges of memory of bounded length, where a device gives out no longer ones.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::place::Options;
use sublet_core::place::banks::Spot;
use sublet_core::place::chunks::{self, Chunks, Limit};

use crate::arguments::{Arguments, params, plain};
use crate::banks::sublet_spot;
use crate::block::{self, sublet_block};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::place::{check_count, solver};
use crate::status::sublet_status;
use crate::workspace::{Needed, sublet_layout};

/// The options of sublet_place_chunks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sublet_chunks_params {
    /// Set this to sizeof(sublet_chunks_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// The sublet_solver that is to place the blocks of each chunk.
    pub solver: u32,
    /// Every offset must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
    /// The most bytes of a chunk: no chunk is longer, unless one of its blocks is; then it is as long as that block,
    /// rounded up to the alignment. 0 is no limit: all blocks are placed in one chunk.
    pub chunk_bytes: u64,
    /// The most chunks that there may be; 0 stands for 16, and more than 64 for 64.
    pub most_chunks: u32,
    /// Among placements of one length, one is wanted in which few blocks begin over memory that has died less than so
    /// many steps before: such blocks keep operators from running side by side. 0 asks for nothing.
    pub distance: u32,
    /// The budget `work` of the sublet_place_params, for each chunk and for dealing out the blocks; 0 is the default.
    pub work: u64,
    /// The budget `nodes` of the sublet_place_params, for each chunk; 0 is the default.
    pub nodes: u64,
}

/// How long a placement in chunks is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_chunks {
    /// Set this to sizeof(sublet_chunks): the library sees from it which fields the struct has in the caller's version.
    pub struct_size: u32,
    /// How many chunks have blocks; their numbers begin at 0.
    pub chunk_count: u32,
    /// The bytes of all chunks together; the length of a chunk is the highest end of a block in it.
    pub total: u64,
    /// A lower bound on the bytes of all chunks together, in every placement.
    pub lower_bound: u64,
}

plain!(sublet_chunks_params, sublet_chunks);
params! {
    sublet_chunks_params { struct_size, solver, alignment, chunk_bytes, most_chunks, distance, work, nodes }
    sublet_chunks { struct_size, chunk_count, total, lower_bound }
}

impl From<Chunks> for sublet_chunks {
    fn from(Chunks { count, total, lower_bound }: Chunks) -> Self {
        Self { struct_size: 0, chunk_count: count, total, lower_bound }
    }
}

impl sublet_chunks_params {
    fn options(&self) -> Options {
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        let usual = Options::default();
        Options {
            constraints: block::constraints(self.alignment, 0),
            work: or(self.work, usual.work),
            nodes: or(self.nodes, usual.nodes),
            ..usual
        }
    }

    const fn limit(&self) -> Limit {
        Limit {
            bytes: if self.chunk_bytes == 0 { u64::MAX } else { self.chunk_bytes },
            chunks: match (self.chunk_bytes, self.most_chunks) {
                (0, _) => 1,
                (_, 0) => 16,
                (_, most) => most,
            },
            distance: self.distance,
        }
    }
}

fn needed(params: &sublet_chunks_params, n: usize) -> Result<Needed, Failure> {
    let solver = solver(params.solver, 2)?;
    check_count(solver, n, 1)?;
    let len = chunks::workspace(solver, n, params.limit());
    Ok(Needed::workspace(len).and::<Block>(n).and::<Block>(n).and::<Spot>(n))
}

/// Tells in `layout` how large a workspace sublet_place_chunks needs for `block_count` blocks and the parameters
/// `params`, which may be NULL. Its size is that of sublet_place_workspace, and one word more for each block and chunk.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_place_chunks_workspace(
    block_count: usize,
    params: *const sublet_chunks_params,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let n = arguments.count(block_count)?;
        // SAFETY: the header asks for params that are as long as they say.
        needed(&unsafe { arguments.params(params)? }, n)
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Gives every block a chunk of memory and an offset in it, so that blocks that are alive together share no address,
/// and all chunks together are short. For devices that give out no buffer above some length, such as many GPUs under
/// Vulkan. The placement is verified.
///
/// `params` may be NULL. `spots` has room for one spot for each block, whose `bank` is the number of its chunk.
/// `chunks` may be NULL. SUBLET_STATUS_NO_BANK: no placement in so few chunks was found.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_place_chunks(
    blocks: *const sublet_block,
    block_count: usize,
    params: *const sublet_chunks_params,
    workspace: *mut c_void,
    workspace_size: usize,
    spots: *mut sublet_spot,
    chunks: *mut sublet_chunks,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, params) = unsafe { (arguments.input(blocks, block_count)?, arguments.params(params)?) };
        let needed = needed(&params, block_count)?;
        // SAFETY: as above.
        let (mut room, spots, chunks) = unsafe {
            (
                arguments.workspace(workspace, workspace_size, needed)?,
                arguments.output_of(spots, block_count, 1)?,
                arguments.report_if_wanted(chunks)?,
            )
        };
        let solver = solver(params.solver, 2)?;
        let blocks = block::blocks(&mut room, blocks)?;
        let parts = room.fill(block_count, Block::default());
        let found = room.fill(block_count, Spot::default());
        let scratch = room.workspace(chunks::workspace(solver, block_count, params.limit()));
        let told = chunks::place(solver, blocks, params.limit(), &params.options(), scratch, parts, found)?;
        for (to, spot) in spots.iter_mut().zip(found) {
            *to = sublet_spot { bank: spot.bank.into(), offset: spot.offset };
        }
        chunks.set(told.into());
        Ok(())
    })
}
