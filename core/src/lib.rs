#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "tests count small things"))]
//! Plans the memory of a deep network before the network runs. The planner itself allocates no memory.
//!
//! A deep network's iterations repeat: the same blocks are allocated, read, written and freed in the same order. From
//! one recorded iteration this crate gives every block an address, and proves that the plan is valid. Blocks that are
//! never alive together may share an address.
//!
//! # The way data flows
//!
//! ```text
//! rows ──► rewrite ──► rows ──► trace::liveness ──► blocks ──► place ──► offsets ──► verify ──► VerifiedPlan
//!          (less memory)        (lifetimes)                    (where)               (the proof)
//! ```
//!
//! - [`trace`]: the rows of a recorded iteration (one malloc, free, read, write or copy each), and the lifetimes that
//!   they give to blocks;
//! - [`place`]: an offset for every block, by one of several methods or by the best of them;
//! - [`rewrite`]: passes that turn a trace into one that needs less memory, by swap (copying a block to the host and
//!   back), recomputation, in-place reuse (an output takes the memory of an input) and masks (one bit for each element
//!   in place of a ReLU's input); [`simulate`] tells how long any trace takes on a device;
//! - [`verify`]: accepts a plan or names the constraint that it breaks; only a plan that it accepts becomes a
//!   [`VerifiedPlan`]. With the planners it shares only the code that checks blocks, indexes tables and sorts indices;
//! - [`Planner`]: placement and verification for at most N blocks, in memory of its own;
//! - [`replay`]: a plan at run time. [`Allocator`] records the requests of a framework, finds the iteration that
//!   repeats, plans it, answers each request from the plan, and serves from a pool what the plan does not cover;
//! - [`network`]: plans for frameworks that allocate each tensor once and keep it: which tensor's storage to bind to
//!   which offset before each operator;
//! - `owned`, with the feature `alloc`: functions that allocate their own workspace and return vectors.
//!
//! # Words
//!
//! A *block* is one allocation: size, alignment, lifetime. A *step* is a position in a trace; lifetimes are half-open,
//! `[start, end)`. The *load* is the bytes that are alive at a step; the *max load* is the highest load, and no
//! placement has a lower *peak*, the highest end of a block. The *ratio* is peak over max load; 1 is the proven
//! optimum.
//!
//! # What this crate does not do
//!
//! It does not read clocks or files, or start threads. Outside `owned` it does not allocate either. The caller lends
//! all memory: inputs and outputs as slices, scratch as a [`Workspace`] whose length a `workspace` function returns.
//! Only a [`Planner`] and a [`Recorder`] hold arrays of their own. No function panics, on any input, and results are
//! the same on every platform.
//!
//! # Example
//!
//! ```
//! use sublet_core::place::{self, Options, Solver};
//! use sublet_core::{Block, Workspace, verify};
//!
//! // Three tensors; the first and the last are never alive together.
//! let blocks = [Block::new(0, 2, 4096), Block::new(1, 3, 8192), Block::new(2, 4, 4096)];
//! let len = place::workspace_of(Solver::Auto, blocks.len()).max(verify::workspace(blocks.len()));
//! let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
//! let mut scratch = Workspace::new(&mut words, &mut indices);
//!
//! let mut offsets = [0; 3];
//! let options = Options::default();
//! place::place(Solver::Auto, &blocks, &options, scratch.reborrow(), &mut offsets)?;
//! let plan = verify::verify(&blocks, &offsets, &options.constraints, scratch)?;
//! assert!(plan.is_optimal());
//! assert_eq!(plan.peak(), 12_288);
//! # Ok::<(), sublet_core::Error>(())
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(test)]
#[macro_use]
extern crate std;

mod block;
mod error;
mod hash;
mod heap;
mod id;
mod list;
pub mod network;
#[cfg(feature = "alloc")]
pub mod owned;
pub mod place;
mod planner;
pub mod replay;
pub mod rewrite;
mod sort;
mod table;
mod timing;
pub mod trace;
pub mod verify;
mod violation;
mod workspace;

pub use block::{Block, Constraints, MAX_BLOCKS, Overlap, check as check_blocks, check_count};
pub use error::{AccessFault, Buffer, Error, RowFault};
pub use planner::Planner;
pub use replay::{Allocator, Pool, Replay};
pub use timing::simulate;
pub use verify::{VerifiedPlan, VerifiedSchedule};
pub use workspace::{Workspace, WorkspaceLen};

/// Records the mallocs, frees, reads and writes of one iteration as a trace of at most N rows, which lie in the
/// recorder's own array. To record into memory that the caller lends, use [`trace::Recorder`].
///
/// ```
/// let mut recorder = sublet_core::Recorder::<4>::fixed();
/// recorder.begin_op();
/// let block = recorder.malloc(0, 4096)?;
/// recorder.free(10, block)?;
/// assert_eq!((recorder.rows().len(), recorder.block_count()), (2, 1));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub type Recorder<const N: usize> = trace::Recorder<[trace::Row; N]>;
