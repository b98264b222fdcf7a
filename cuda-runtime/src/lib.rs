//! Plans that run: one arena, a compute stream, and a stream for the copies each way.

pub mod backend;
pub mod cuda;
mod driver;
mod error;
pub mod host;
pub mod integrated;
pub mod measure;
mod pinned;
mod program;
pub mod relu;
mod run;
#[cfg(target_os = "linux")]
pub mod storage;
mod tier;
pub mod torch;
mod waits;

pub use backend::{Backend, MemoryInfo};
pub use error::{Error, Memory, Result, StorageOperation};
pub use program::{ALIGNMENT, Operand, Part, Program};
pub use run::{Launch, Runtime};
