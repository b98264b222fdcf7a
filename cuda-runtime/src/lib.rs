//! Plans that run: one arena, a compute stream, and a stream for the copies each way.

pub mod backend;
pub mod cuda;
mod error;
pub mod host;
pub mod integrated;
pub mod measure;
mod pinned;
mod program;
mod run;
#[cfg(target_os = "linux")]
pub mod storage;
mod tier;
mod waits;

pub use backend::Backend;
pub use error::{Error, Memory, Result, StorageOperation};
pub use program::{ALIGNMENT, Operand, Part, Program};
pub use run::{Launch, Runtime};
