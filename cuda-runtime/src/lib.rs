//! Plans that run: one arena, a compute stream, and a stream for the copies each way.
//!
//! A schedule that [`sublet_core::verify`] has accepted becomes a [`Program`]: its operators and copies as steps on
//! three streams, with the fewest waits between them. A [`Runtime`] reserves what the program needs on a [`Backend`]
//! and runs iterations: the caller launches its kernels, operator by operator, and the runtime does the copies beside
//! them. There are two backends: [`cuda`], a GPU by its driver, and [`host`], the host as a device, on which everything
//! runs and is tested with real bytes where there is no GPU.
//!
//! # What is waited for
//!
//! Between the streams there are events, and nothing else: no stream, and no device, is waited for as a whole. A step
//! waits for the last step on another stream that wrote what it uses, or uses what it writes, be it a block, the block
//! that had these bytes of the arena before, or a copy on the host. What follows from other waits is left out, so that
//! without any one of them some order of the streams would compute something else: the tests show that, wait by wait.
//! Iterations overlap: the next one's copies begin while the last one computes.
//!
//! # When a step is another
//!
//! A program runs the operators that were recorded, and no others. Where the next step is another one, because the
//! batch changes, or the network is evaluated, or a better plan has been found, the runtime goes over to another
//! program between two iterations ([`Runtime::replan`]): what persists is kept, the arena grows where it is, and
//! programs can take turns. A step that turns out to be another when it is under way cannot be completed, and what it
//! has updated cannot be taken back: it is ended as after an error.
//!
//! # Errors
//!
//! Everything that a device can say is an [`Error`], nothing panics. After an error of an iteration the streams are
//! waited for and the arena can be used again ([`Runtime::restart`]), unless the device is lost; then whatever was in
//! use is given back when it is dropped.
//!
//! # Example
//!
//! ```
//! use sublet_core::simulate::{Device, Timing};
//! use sublet_core::trace::{Event, Op, Recorded, Row, liveness::Residency};
//! use sublet_core::verify::schedule::{self, Room};
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
//! let len = schedule::workspace(recorded.rows.len(), 1, 2);
//! let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
//! let (mut timings, mut blocks, mut names) = ([Timing::default(); 7], [Block::default(); 2], [Residency::default(); 2]);
//! let verified = schedule::schedule(
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
