//! Where an allocator's ranges of addresses come from: the caller's own range, the caller's functions, or the system.
//! Blocks get their addresses from these ranges.

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;

use sublet_core::replay::{Config, Range, Source};

use super::sublet_allocator_params;
use crate::failure::Failure;
use crate::lock::Caller;
use crate::status::sublet_status as S;
use crate::system;

pub(super) struct Raw {
    lent: Option<Range>,
    lent_in_use: bool,
    alignment: usize,
    /// `None`: ranges are memory of the system.
    callbacks: Option<Callbacks>,
    /// Calls of a thread that is in one of the caller's functions are refused.
    caller: &'static Caller,
}

#[derive(Clone, Copy)]
struct Callbacks {
    alloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
    context: *mut c_void,
}

// SAFETY: the header says that any thread may call them, with this context.
unsafe impl Send for Callbacks {}

impl Raw {
    pub(super) fn new(
        params: &sublet_allocator_params,
        config: &Config,
        caller: &'static Caller,
    ) -> Result<Self, Failure> {
        let missing = |at: usize| Failure::new(S::MissingField, 0, 0, at as u64);
        let capacity = |possible: u64| {
            let at = offset_of!(sublet_allocator_params, capacity) as u64;
            Failure::new(S::FieldOutOfRange, 0, possible, at)
        };
        let bytes = usize::try_from(config.capacity).ok().filter(|&bytes| bytes <= MOST_BYTES);
        let bytes = bytes.ok_or_else(|| capacity(MOST_BYTES as u64))?;
        let alignment = usize::try_from(config.alignment).ok().filter(|a| a.is_power_of_two());
        let alignment = alignment.ok_or(Failure::new(S::Alignment, u32::MAX, 0, config.alignment))?;
        let callbacks = match (params.alloc, params.free) {
            (Some(alloc), Some(free)) => Some(Callbacks { alloc, free, context: params.context }),
            (None, None) => None,
            (Some(_), None) => return Err(missing(offset_of!(sublet_allocator_params, free))),
            (None, Some(_)) => return Err(missing(offset_of!(sublet_allocator_params, alloc))),
        };
        // Without callbacks there is never another range than the first.
        if bytes == 0 && (callbacks.is_none() || !params.range.is_null()) {
            return Err(missing(offset_of!(sublet_allocator_params, capacity)));
        }
        if bytes > 0 && bytes < alignment {
            return Err(capacity(config.alignment));
        }
        let lent = if params.range.is_null() {
            None
        } else {
            if params.range.addr() & (alignment - 1) != 0 {
                let at = offset_of!(sublet_allocator_params, range) as u64;
                return Err(Failure::new(S::MisalignedField, 0, config.alignment, at));
            }
            let room = usize::MAX - params.range.addr();
            if bytes > room {
                return Err(capacity(room as u64));
            }
            Some(Range { begin: params.range.expose_provenance() as u64, bytes: config.capacity })
        };
        Ok(Self { lent, lent_in_use: false, alignment, callbacks, caller })
    }
}

/// The largest distance by which a pointer can be moved.
const MOST_BYTES: usize = isize::MAX.cast_unsigned();

impl Raw {
    const fn is_systems(&self) -> bool {
        self.callbacks.is_none() && self.lent.is_none()
    }
}

fn parts(range: Range) -> (*mut c_void, usize) {
    let bytes = usize::try_from(range.bytes).unwrap_or(0);
    (ptr::with_exposed_provenance_mut(usize::try_from(range.begin).unwrap_or(0)), bytes)
}

impl Source for Raw {
    fn grows(&self) -> bool {
        self.callbacks.is_some()
    }

    fn take(&mut self, bytes: u64) -> Option<Range> {
        if let Some(lent) = self.lent.filter(|lent| !self.lent_in_use && bytes <= lent.bytes) {
            self.lent_in_use = true;
            return Some(lent);
        }
        let size = usize::try_from(bytes).ok().filter(|&size| size <= MOST_BYTES)?;
        let pointer = match self.callbacks {
            Some(Callbacks { alloc, context, .. }) => {
                // SAFETY: the header asks for a function that takes these and returns.
                self.caller.during(|| unsafe { alloc(context, size, self.alignment) })
            }
            None => system::alloc(size, self.alignment).ok()?,
        };
        (!pointer.is_null()).then(|| Range { begin: pointer.expose_provenance() as u64, bytes })
    }

    fn discard(&mut self, range: Range) {
        if self.is_systems() {
            let (pointer, bytes) = parts(range);
            // SAFETY: a part of what `system::alloc` gave, in which no block lies.
            unsafe { system::discard(pointer, bytes) };
        }
    }

    fn resident(&self, range: Range, touched: u64) -> u64 {
        if !self.is_systems() {
            return range.bytes;
        }
        let (pointer, bytes) = parts(Range { bytes: touched, ..range });
        // SAFETY: the first bytes of what `system::alloc` gave.
        unsafe { system::resident(pointer, bytes) as u64 }
    }

    fn give_back(&mut self, range: Range) {
        if self.lent_in_use && self.lent == Some(range) {
            self.lent_in_use = false;
            return;
        }
        let (pointer, size) = parts(range);
        match self.callbacks {
            // SAFETY: the caller's `alloc` gave the pointer; this is its `free`, called once.
            Some(Callbacks { free, context, .. }) => self.caller.during(|| unsafe { free(context, pointer, size) }),
            // SAFETY: given by `system::alloc` with these, once.
            None => unsafe { system::free(pointer, size, self.alignment) },
        }
    }
}

/// Freed on drop. `None` if the caller has lent the memory.
pub(super) struct SystemMemory(pub(super) Option<(*mut c_void, usize)>);

// SAFETY: nobody uses it before it goes back.
unsafe impl Send for SystemMemory {}
// SAFETY: it is only looked at when it goes back.
unsafe impl Sync for SystemMemory {}

impl Drop for SystemMemory {
    fn drop(&mut self) {
        if let Some((pointer, bytes)) = self.0.take() {
            // SAFETY: given by `system::alloc` with these, once.
            unsafe { system::free(pointer, bytes, align_of::<u64>()) };
        }
    }
}
