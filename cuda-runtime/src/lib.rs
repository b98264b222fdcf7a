//! Runs plans on a device: all blocks lie in one arena, kernels run on a compute stream, and copies on one stream for
//! each direction.
//!
//! A schedule that [`sublet_core::verify`] has accepted becomes a [`Program`]: its operators and copies as steps on
//! three streams, with the fewest waits between them. A [`Runtime`] reserves what the program needs on a [`Backend`]
//! and runs iterations: the caller launches its kernels, operator by operator, and the runtime does the copies beside
//! them. There are two backends: [`cuda`], a GPU through its driver, and [`host`], the host as a device, on which
//! everything runs and is tested with real bytes where there is no GPU.
//!
//! # What is waited for
//!
//! Streams wait for events of each other, never for a whole stream or device; where blocks are swapped to a disk, they
//! wait for the disk too. A step that uses bytes waits for the last step on another stream that wrote them. A step that
//! writes bytes also waits for the steps on other streams that used them before. These bytes may be a block, another
//! block that lay there in the arena before, or a copy on the host. A wait that follows from other waits is left out.
//! Each wait that remains is needed: without it, some order of the streams would compute something else. The tests show
//! this for each wait. With [`Pace::Simulated`] there are further waits, so that copies begin as in the simulation.
//! Iterations overlap: copies of the next iteration begin while the present one computes.
//!
//! # When the next iteration is another
//!
//! A program runs the operators that were recorded, and no others. If the batch changes, the network is evaluated and
//! not trained, or a better plan has been found, the runtime changes to another program between two iterations
//! ([`Runtime::replan`]). The values of persistent blocks (weights and their state, which pass from one iteration to
//! the next) are kept, the arena grows without moving where the device can do that, and programs can take turns. If an
//! iteration turns out to need other operators when it is under way, it cannot be completed, and the blocks that it has
//! updated cannot be restored: the caller ends it as after an error, by [`Runtime::restart`].
//!
//! # Errors
//!
//! Every failure of a device is returned as an [`Error`]; nothing panics. After an error in an iteration,
//! [`Runtime::restart`] waits for the streams, and then the arena can be used again. If the device is lost, a restart
//! fails; what the runtime holds is freed when the runtime is dropped.
//!
//! # Example
//!
//! ```
//! use sublet_core::simulate::{Device, Timing};
//! use sublet_core::trace::{Event, Op, Recorded, Row, liveness::Residency};
//! use sublet_core::verify::{self, Room};
//! use sublet_core::{Block, Constraints, Workspace};
//! use sublet_cuda::host::{HostBackend, Mode, Operand, Options};
//! use sublet_cuda::{ALIGNMENT, Error, Program, Runtime};
//!
//! // A weight that every iteration doubles, and that is away for a while.
//! let row = |event, op| Row { event, op, block: 0, bytes: if event == Event::Malloc { 256 } else { 0 }, time_ns: 0 };
//! let recorded = [row(Event::Malloc, Op::None), row(Event::Read, Op::First(0)), row(Event::Write, Op::First(0))];
//! let [malloc, read, write] = recorded;
//! let [out, free, back] = [Event::SwapOut, Event::Free, Event::SwapIn].map(|event| row(event, Op::None));
//! let swapped = [malloc, read, write, out, free, malloc, back];
//! let recorded = Recorded::new(&recorded, 1);
//! let len = verify::schedule_workspace(recorded.rows.len(), 1, 2);
//! let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
//! let (mut timings, mut blocks, mut names) = ([Timing::default(); 7], [Block::default(); 2], [Residency::default(); 2]);
//! let verified = verify::schedule(
//!     &recorded,
//!     &swapped,
//!     &[0, 0],
//!     (&Device::symmetric(12e9), true),
//!     &Constraints::NONE,
//!     Workspace::new(&mut words, &mut indices),
//!     Room { timings: &mut timings, blocks: &mut blocks, names: &mut names },
//! )?;
//!
//! let host = HostBackend::new(Options::new(Mode::Threads { paced: false, delays: None }, 1 << 20));
//! let mut runtime = Runtime::new(host.clone(), Program::new(&recorded, &verified, ALIGNMENT)?)?;
//! runtime.write(0, &[1; 256])?;
//! for _ in 0..3 {
//!     runtime.iterate(|next| {
//!         assert_eq!(next.op, Op::First(0));
//!         let weight = Operand { address: next.address(0).unwrap_or(0), bytes: 256, write: true };
//!         host.launch(next.stream, 0.0, &[weight], |slices| {
//!             for byte in slices[0].bytes_mut() {
//!                 *byte *= 2;
//!             }
//!         })
//!     })?;
//! }
//! let mut weight = [0; 256];
//! runtime.read(0, &mut weight)?;
//! assert_eq!(weight, [8; 256]);
//! # Ok::<(), Error>(())
//! ```

pub mod backend;
pub mod cuda;
mod driver;
mod error;
pub mod host;
pub mod integrated;
pub mod measure;
mod moves;
mod pace;
mod pinned;
mod program;
pub mod relu;
mod replan;
mod run;
#[cfg(target_os = "linux")]
mod spill;
mod step;
#[cfg(target_os = "linux")]
pub mod storage;
mod tier;
pub mod torch;
mod waits;

pub use backend::{Backend, MemoryInfo};
pub use error::{Error, Memory, Result, StorageOperation};
pub use pace::Pace;
pub use program::Program;
pub use run::{Launch, Runtime};
pub use step::{ALIGNMENT, Operand, Part};
