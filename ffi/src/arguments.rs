//! Pointers and lengths from C: looked at once, in the order of the arguments, before anything is written.
//!
//! A pointer must be aligned and, unless its length is 0, not NULL; a length must be one that can be addressed; and
//! memory that is written must be no other argument's. What a pointer points to must be there: that, C cannot tell.
//!
//! Memory that is lent for outputs may hold anything; it is written before it is read, here and in `core`.

use core::ffi::{c_char, c_void};
use core::marker::PhantomData;
use core::slice;

use crate::error::Failure;
use crate::status::sublet_status as S;
use crate::workspace::Room;

/// Types of which any bytes are a value: integers, reals, pointers, and `repr(C)` structs of them.
///
/// # Safety
/// No bytes may be invalid; alignment is at most that of `u64`.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: made of integers, reals and pointers alone.
        unsafe impl $crate::arguments::Plain for $t {}
    )* };
}
pub(crate) use plain;

// SAFETY: a pointer may hold anything as long as nobody follows it.
unsafe impl<T> Plain for *mut T {}
// SAFETY: as above.
unsafe impl<T> Plain for *const T {}

plain!(u8, i8, u32, i32, u64, usize, crate::error::sublet_error);

/// Plain structs that begin with their own size in bytes as the caller knows it; all zeros are the defaults.
///
/// # Safety
/// The first field is a `u32`, the size.
pub(crate) unsafe trait Params: Plain {}

/// The arguments of one call, as far as they have been looked at.
pub(crate) struct Arguments<'a> {
    /// How many have been looked at.
    position: u32,
    /// What memory they are.
    ranges: [Range; MOST],
    len: usize,
    lent: PhantomData<&'a mut ()>,
}

/// The most pointers that a function takes.
const MOST: usize = 16;

#[derive(Clone, Copy, Default)]
struct Range {
    begin: usize,
    end: usize,
    position: u32,
    written: bool,
}

/// Where a scalar result goes; or nowhere, if the caller does not want it.
pub(crate) struct Out<'a, T>(Option<&'a mut T>);

impl<T> Out<'_, T> {
    pub(crate) fn set(self, value: T) {
        if let Some(to) = self.0 {
            *to = value;
        }
    }
}

impl<'a> Arguments<'a> {
    pub(crate) const fn new() -> Self {
        let none = Range { begin: 0, end: 0, position: 0, written: false };
        Self { position: 0, ranges: [none; MOST], len: 0, lent: PhantomData }
    }

    /// An argument that is neither a pointer nor a length that counts here.
    pub(crate) const fn skip(&mut self) {
        self.position += 1;
    }

    /// A number of things that the workspace grows with.
    pub(crate) fn count(&mut self, n: usize) -> Result<usize, Failure> {
        self.skip();
        counted(n, self.position - 1)
    }

    /// An array that is read, and whose length the workspace grows with: two arguments, pointer and length.
    ///
    /// # Safety
    /// If it is not NULL and `len` is not 0, `len` values can be read there as long as `'a`.
    pub(crate) unsafe fn input<T: Plain>(&mut self, pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
        counted(len, self.position + 1)?;
        let there = self.look(pointer, len, false)?;
        self.skip();
        // SAFETY: `look` has found it aligned, not NULL and of a length that can be addressed; the values are the caller's promise.
        Ok(if there { unsafe { slice::from_raw_parts(pointer, len) } } else { &[] })
    }

    /// An array that is written: two arguments, pointer and length.
    ///
    /// # Safety
    /// If it is not NULL and `len` is not 0, `len` values can be written there as long as `'a`, by nobody else.
    pub(crate) unsafe fn output<T: Plain>(&mut self, pointer: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
        // SAFETY: as promised.
        let slice = unsafe { self.output_of(pointer, len)? };
        self.skip();
        Ok(slice)
    }

    /// An array that is written, whose length another argument has told: one argument.
    ///
    /// # Safety
    /// As for `output`.
    pub(crate) unsafe fn output_of<T: Plain>(&mut self, pointer: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
        let there = self.look(pointer, len, true)?;
        // SAFETY: as in `input`; that nobody else looks at it is known of the other arguments, and else the caller's promise.
        Ok(if there { unsafe { slice::from_raw_parts_mut(pointer, len) } } else { &mut [] })
    }

    /// An array that is written if the caller wants it, whose length another argument has told: one argument.
    ///
    /// # Safety
    /// As for `output`.
    pub(crate) unsafe fn output_if_wanted<T: Plain>(
        &mut self,
        pointer: *mut T,
        len: usize,
    ) -> Result<&'a mut [T], Failure> {
        // SAFETY: as promised.
        unsafe { self.output_of(pointer, if pointer.is_null() { 0 } else { len }) }
    }

    /// An array that is read, whose length another argument has told: one argument.
    ///
    /// # Safety
    /// As for `input`.
    pub(crate) unsafe fn input_of<T: Plain>(&mut self, pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
        let there = self.look(pointer, len, false)?;
        // SAFETY: as in `input`.
        Ok(if there { unsafe { slice::from_raw_parts(pointer, len) } } else { &[] })
    }

    /// Which of some names a text ended by a zero is. It is read up to where it differs from all of them, no further.
    ///
    /// # Safety
    /// If it is not NULL, it can be read up to its zero.
    pub(crate) unsafe fn name<T>(
        &mut self,
        pointer: *const c_char,
        mut names: impl Iterator<Item = (&'static str, T)>,
    ) -> Result<T, Failure> {
        let position = self.position;
        self.look(pointer, 1, false)?;
        let is = |name: &str| {
            let mut expected = name.bytes().chain([0]).enumerate();
            // SAFETY: what is before the byte is the name's, so that no zero is before it.
            expected.all(|(i, byte)| unsafe { pointer.add(i).read() }.to_ne_bytes() == [byte])
        };
        names.find(|(name, _)| is(name)).map(|(_, value)| value).ok_or(Failure::new(S::UnknownName, position, 0, 0))
    }

    /// An array that is read, which a struct holds: the last argument that was looked at.
    ///
    /// # Safety
    /// As for `input`.
    pub(crate) unsafe fn held<T: Plain>(&mut self, pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
        self.position -= 1;
        counted(len, self.position)?;
        // SAFETY: as promised.
        unsafe { self.input_of(pointer, len) }
    }

    /// A value that is read.
    ///
    /// # Safety
    /// If it is not NULL, it can be read.
    pub(crate) unsafe fn value<T: Plain>(&mut self, pointer: *const T) -> Result<T, Failure> {
        self.look(pointer, 1, false)?;
        // SAFETY: `look` has found it aligned and not NULL; any bytes are a value.
        Ok(unsafe { pointer.read() })
    }

    /// A value that is written on success.
    ///
    /// # Safety
    /// If it is not NULL, it can be written as long as `'a`, by nobody else.
    pub(crate) unsafe fn result<T: Plain>(&mut self, pointer: *mut T) -> Result<Out<'a, T>, Failure> {
        self.look(pointer, 1, true)?;
        // SAFETY: `look` has found it aligned and not NULL; the rest is promised.
        Ok(Out(unsafe { pointer.as_mut() }))
    }

    /// A value that is written on success if the caller wants it.
    ///
    /// # Safety
    /// As for `result`.
    pub(crate) unsafe fn optional<T: Plain>(&mut self, pointer: *mut T) -> Result<Out<'a, T>, Failure> {
        self.look(pointer, usize::from(!pointer.is_null()), true)?;
        // SAFETY: as in `result`.
        Ok(Out(unsafe { pointer.as_mut() }))
    }

    /// Parameters; NULL is the defaults. A caller that knows fewer fields leaves the others at their defaults; one that
    /// knows more must have left them so.
    ///
    /// # Safety
    /// If it is not NULL, as many bytes can be read as its first field says.
    pub(crate) unsafe fn params<T: Params>(&mut self, pointer: *const T) -> Result<T, Failure> {
        let position = self.position;
        let known = size_of::<T>();
        // SAFETY: any bytes are a `Plain`.
        let mut params: T = unsafe { core::mem::zeroed() };
        if pointer.is_null() {
            self.skip();
            return Ok(params);
        }
        if !pointer.is_aligned() {
            return Err(Failure::new(S::MisalignedPointer, position, wide(align_of::<T>()), 0));
        }
        // SAFETY: not NULL, aligned, and the first field is there.
        let said = unsafe { pointer.cast::<u32>().read() };
        let size = usize::try_from(said).unwrap_or(usize::MAX);
        if size < size_of::<u32>() || size > MOST_PARAMS {
            return Err(Failure::new(S::StructSize, position, wide(MOST_PARAMS), said.into()));
        }
        // SAFETY: `size` bytes can be read, as promised.
        let bytes = unsafe { self.input_of(pointer.cast::<u8>(), size)? };
        if let Some(field) = (known..size).find(|&i| bytes.get(i).is_some_and(|&b| b != 0)) {
            return Err(Failure::new(S::UnknownField, position, 0, wide(field)));
        }
        // SAFETY: no more than the bytes of either side; any bytes are a `Plain`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut params).cast(), size.min(known)) };
        Ok(params)
    }

    /// The workspace: two arguments, pointer and bytes. It must have as many as `needed`.
    ///
    /// # Safety
    /// If it is not NULL, `size` bytes can be written there as long as `'a`, by nobody else.
    pub(crate) unsafe fn workspace(
        &mut self,
        pointer: *mut c_void,
        size: usize,
        needed: crate::workspace::Needed,
    ) -> Result<Room<'a>, Failure> {
        let position = self.position;
        if size < needed.bytes() {
            return Err(Failure::new(S::WorkspaceTooSmall, position, wide(needed.bytes()), wide(size)));
        }
        // SAFETY: fewer bytes than promised; words are as aligned as anything that is cut from it.
        let words = unsafe { self.output(pointer.cast::<u64>(), needed.bytes() / size_of::<u64>())? };
        Ok(Room::new(words))
    }

    /// What a handle, the argument at this position, has in memory: no other argument is written there.
    pub(crate) fn holds<T>(&mut self, position: u32, memory: &[T]) {
        let range = memory.as_ptr_range();
        self.note(Range { begin: range.start.addr(), end: range.end.addr(), position, written: false });
    }

    fn note(&mut self, range: Range) {
        if let Some(free) = self.ranges.get_mut(self.len) {
            *free = range;
            self.len += 1;
        }
    }

    /// Looks at one pointer to `len` values; whether there is anything.
    fn look<T>(&mut self, pointer: *const T, len: usize, written: bool) -> Result<bool, Failure> {
        let position = self.position;
        self.position += 1;
        if len == 0 {
            return Ok(false);
        }
        if pointer.is_null() {
            return Err(Failure::new(S::NullPointer, position, 0, 0));
        }
        if !pointer.is_aligned() {
            return Err(Failure::new(S::MisalignedPointer, position, wide(align_of::<T>()), 0));
        }
        let begin = pointer.addr();
        let most = usize::try_from(isize::MAX).unwrap_or(usize::MAX).min(usize::MAX - begin) / size_of::<T>();
        if len > most {
            return Err(Failure::new(S::LengthOverflow, position + 1, wide(most), wide(len)));
        }
        let range = Range { begin, end: begin + len * size_of::<T>(), position, written };
        let known = self.ranges.get(..self.len).unwrap_or_default();
        let shared = |r: &&Range| (r.written || written) && r.begin < range.end && range.begin < r.end;
        if let Some(other) = known.iter().find(shared) {
            return Err(Failure::new(S::OverlappingBuffers, position, 0, other.position.into()));
        }
        self.note(range);
        Ok(true)
    }
}

/// Bounds the lengths that workspaces grow with, so that their sizes can be counted.
pub(crate) fn counted(n: usize, position: u32) -> Result<usize, Failure> {
    let most = crate::workspace::MOST_COUNTED;
    if n > most { Err(Failure::new(S::LengthOverflow, position, wide(most), wide(n))) } else { Ok(n) }
}

/// Longer parameters are no parameters.
const MOST_PARAMS: usize = 4096;

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
