//! Functions of the CUDA driver by name: a driver that is missing, or too old for one, is an error and not the end.

use std::fmt;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

/// Why the driver did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no CUDA driver on this machine.
    NoDriver,
    /// The driver is too old: it has no function of this name.
    MissingFunction {
        /// The function.
        name: &'static str,
    },
    /// A function has failed.
    Call {
        /// The function.
        name: &'static str,
        /// The `CUresult`.
        code: u32,
    },
}

impl Failure {
    /// Whether it was memory that was missing (`CUDA_ERROR_OUT_OF_MEMORY`).
    #[must_use]
    pub const fn is_out_of_memory(self) -> bool {
        matches!(self, Self::Call { code: 2, .. })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => write!(f, "there is no CUDA driver on this machine"),
            Self::MissingFunction { name } => write!(f, "the CUDA driver is too old: it has no {name}"),
            Self::Call { name, code } => write!(f, "{name} has failed with the CUDA error {code}"),
        }
    }
}

impl std::error::Error for Failure {}

/// A function of the driver's library.
///
/// # Safety
/// `F` is a pointer to functions of the type that the one of this name has.
pub(crate) unsafe fn function<F: Copy>(name: &'static str) -> Result<F, Failure> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: loading the driver's library runs its initialisation, as every use of CUDA does.
    if !*PRESENT.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(Failure::NoDriver);
    }
    // SAFETY: the library is there, so that this does not panic; the caller vouches for the type.
    let symbol = unsafe { sys::culib().get::<F>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| Failure::MissingFunction { name })
}

/// What a function has returned, as a result.
pub(crate) const fn done(name: &'static str, result: CUresult) -> Result<(), Failure> {
    match result as u32 {
        0 => Ok(()),
        code => Err(Failure::Call { name, code }),
    }
}

/// A struct of functions of the driver: each field is a function, by its name in the library.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($field:ident: $name:literal ($($argument:ty),*);)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        struct $table {
            $($field: unsafe extern "C" fn($($argument),*) -> cudarc::driver::sys::CUresult,)*
        }

        impl $table {
            fn load() -> Result<Self, $crate::driver::Failure> {
                Ok(Self {
                    // SAFETY: the types are those of cuda.h.
                    $($field: unsafe { $crate::driver::function($name)? },)*
                })
            }
        }
    };
}

pub(crate) use functions;
