//! Looks up functions of the CUDA driver by their names, at run time. A driver that is missing, or too old to have a
//! function, is an error and does not end the program.
//!
//! The driver's functions return the numbers of errors here, and no enumeration: a newer driver may have errors that
//! this program does not know.

use std::ffi::c_uint;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::{Error, Result};

/// `F` is the type of a pointer to the function of this name.
pub(crate) unsafe fn function<F: Copy>(name: &'static str) -> Result<F> {
    static PRESENT: OnceLock<()> = OnceLock::new();
    // A library that is missing is searched for anew the next time: it may have been installed since.
    if PRESENT.get().is_none() {
        // SAFETY: loading the driver's library runs its initialisation, as every use of CUDA does.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        PRESENT.get_or_init(|| ());
    }
    // SAFETY: the library is there, so that this does not panic; the caller vouches for the type.
    let symbol = unsafe { sys::culib().get::<F>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| Error::MissingSymbol { name })
}

/// 0, or the number of an error.
pub(crate) type Code = c_uint;

/// [`Error::Lost`] if no call works in this context any more.
pub(crate) const fn check(call: &'static str, code: Code) -> Result<()> {
    match code {
        0 => Ok(()),
        // The errors: deinitialised; uncorrectable errors of memory or links; contained errors; the context is
        // destroyed; the faults of kernels, after which a context does nothing any more; and unknown.
        4 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999 => Err(Error::Lost { call, code }),
        _ => Err(Error::Driver { call, code }),
    }
}

/// 100: there is a driver, but no GPU.
pub(crate) const fn check_init(code: Code, ordinal: u32) -> Result<()> {
    if code == 100 { Err(Error::NoDevice { ordinal, count: 0 }) } else { check("cuInit", code) }
}

macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($field:ident: $name:literal ($($argument:ty),*);)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> std::ffi::c_uint,)*
        }

        impl $table {
            pub(crate) fn load() -> $crate::Result<Self> {
                Ok(Self {
                    // SAFETY: the types are those of cuda.h.
                    $($field: unsafe { $crate::driver::function($name)? },)*
                })
            }
        }
    };
}

pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_unavailable_is_not_lost() {
        // Another process has the GPU to itself, and may end.
        assert_eq!(check("cuCall", 46), Err(Error::Driver { call: "cuCall", code: 46 }));
        assert_eq!(check("cuCall", 719), Err(Error::Lost { call: "cuCall", code: 719 }));
        assert_eq!((check("cuCall", 0), check_init(0, 3)), (Ok(()), Ok(())));
        assert_eq!(check_init(100, 3), Err(Error::NoDevice { ordinal: 3, count: 0 }));
        assert_eq!(check_init(46, 3), Err(Error::Driver { call: "cuInit", code: 46 }));
    }
}
