//! Checks pointers and lengths from C, in the order of the arguments, before anything is written. Arguments are known
//! by their position in the C function, counted from 0. Most methods of [`Arguments`] check the next argument, or the
//! next two where that is said.
//!
//! A pointer must be aligned and, unless its length is 0, not NULL. A length must be one that can be addressed. Memory
//! that is written must not be part of another argument. Whether a pointer leads to memory at all is up to the caller:
//! nobody can check it.
//!
//! Memory that is lent for outputs may hold anything: this crate and `sublet_core` write it before they read it.

use core::ffi::{c_char, c_void};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::slice;

use crate::failure::{Failure, sublet_error, wide};
pub(crate) use crate::plain::{Plain, plain};
use crate::status::sublet_status as S;
use crate::workspace::Room;

/// The first field is a `u32`: the struct's size in the caller's version. Other fields default to 0.
pub(crate) unsafe trait Params: Plain {
    /// Where each field begins and ends, in bytes.
    const FIELDS: &[(usize, usize)];
}

/// Implements [`Params`]; fails to compile unless all fields are named.
macro_rules! params {
    ($($t:ident { $first:ident $(, $field:ident)* })*) => { $(
        const _: fn($t) = |$t { $first: _ $(, $field: _)* }| ();
        const _: fn(&$t) -> &u32 = |params| &params.$first;
        // SAFETY: the first field is a `u32`.
        unsafe impl $crate::arguments::Params for $t {
            const FIELDS: &[(usize, usize)] = &[$({
                let begin = core::mem::offset_of!($t, $field);
                (begin, begin + $crate::arguments::bytes_of(|params: &$t| &params.$field))
            }),*];
        }
    )* };
}
pub(crate) use params;

pub(crate) const fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

pub(crate) struct Arguments<'a> {
    position: u32,
    /// Two ranges may overlap only if neither is written. The first `len` are in use.
    ranges: [Range; MOST],
    len: usize,
    lent: PhantomData<&'a mut ()>,
}

const MOST: usize = 20;

/// In a failure, stands for the argument `error` in place of its position.
pub(crate) const ERROR: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Range {
    begin: usize,
    end: usize,
    position: u32,
    written: bool,
}

/// Empty if the caller does not want the result.
pub(crate) struct Out<'a, T>(Option<&'a mut T>);

impl<T> Out<'_, T> {
    pub(crate) fn set(self, value: T) {
        if let Some(to) = self.0 {
            *to = value;
        }
    }
}

/// The first field is the size in the caller's version: only so many bytes are written.
pub(crate) struct Report<'a, T> {
    bytes: &'a mut [MaybeUninit<u8>],
    of: PhantomData<T>,
}

impl<T: Params> Report<'_, T> {
    /// Copies bytes as they are: padding may be uninitialized.
    pub(crate) fn set(self, value: T) {
        // SAFETY: `value` has this many bytes, which may hold anything, and outlives the slice.
        let from = unsafe { slice::from_raw_parts((&raw const value).cast::<MaybeUninit<u8>>(), size_of::<T>()) };
        let from = from.iter().copied().chain(core::iter::repeat(MaybeUninit::new(0)));
        self.bytes.iter_mut().zip(from).skip(size_of::<u32>()).for_each(|(to, byte)| *to = byte);
    }
}

impl<'a> Arguments<'a> {
    pub(crate) const fn new() -> Self {
        let none = Range { begin: 0, end: 0, position: 0, written: false };
        Self { position: 0, ranges: [none; MOST], len: 0, lent: PhantomData }
    }

    /// The call writes `error` at its end: no argument may share its memory.
    pub(crate) fn beside(error: *const sublet_error) -> Self {
        let mut arguments = Self::new();
        if !error.is_null() {
            let end = error.addr().saturating_add(size_of::<sublet_error>());
            arguments.note(Range { begin: error.addr(), end, position: ERROR, written: true });
        }
        arguments
    }

    /// Skips an argument that is neither a pointer nor a length.
    pub(crate) const fn skip(&mut self) {
        self.position += 1;
    }

    pub(crate) const fn position(&self) -> u32 {
        self.position
    }

    pub(crate) const fn next(&mut self) -> u32 {
        self.position += 1;
        self.position - 1
    }

    /// Out of turn: then the checks go on where they were.
    pub(crate) fn at<T>(&mut self, position: u32, look: impl FnOnce(&mut Self) -> T) -> T {
        let here = core::mem::replace(&mut self.position, position);
        let found = look(self);
        self.position = here;
        found
    }

    /// A NULL or misaligned pointer is told by `position` and `at`, the field's byte.
    pub(crate) fn field<T>(
        &mut self,
        position: u32,
        at: usize,
        look: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.at(position, look).map_err(|failure| match failure.status {
            S::NullPointer => Failure::new(S::MissingField, position, 0, wide(at)),
            S::MisalignedPointer => Failure::new(S::MisalignedField, position, failure.needed, wide(at)),
            _ => failure,
        })
    }

    /// From a larger `n`, the size of a workspace could overflow.
    pub(crate) fn count(&mut self, n: usize) -> Result<usize, Failure> {
        self.skip();
        counted(n, self.position - 1)
    }

    /// If `pointer` is not NULL, `len` values can be read there for `'a`.
    pub(crate) unsafe fn input<T: Plain>(&mut self, pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
        let holder = self.position + 1;
        counted(len, holder)?;
        // SAFETY: as promised.
        let slice = unsafe { self.input_of(pointer, len, holder)? };
        self.skip();
        Ok(slice)
    }

    /// If `pointer` is not NULL, `len` values can be written there for `'a`, by nobody else.
    pub(crate) unsafe fn output<T: Plain>(&mut self, pointer: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
        // SAFETY: as promised.
        let slice = unsafe { self.output_of(pointer, len, self.position + 1)? };
        self.skip();
        Ok(slice)
    }

    /// As `output`, with the length in argument number `holder`.
    pub(crate) unsafe fn output_of<T: Plain>(
        &mut self,
        pointer: *mut T,
        len: usize,
        holder: u32,
    ) -> Result<&'a mut [T], Failure> {
        let there = self.look(pointer, len, holder, true)?;
        // SAFETY: as in `input_of`; that nobody else looks at it is known of the other arguments, and else the caller's
        // promise.
        Ok(if there { unsafe { slice::from_raw_parts_mut(pointer, len) } } else { &mut [] })
    }

    /// As `output_of`; NULL gives an empty array.
    pub(crate) unsafe fn output_if_wanted<T: Plain>(
        &mut self,
        pointer: *mut T,
        len: usize,
        holder: u32,
    ) -> Result<&'a mut [T], Failure> {
        // SAFETY: as promised.
        unsafe { self.output_of(pointer, if pointer.is_null() { 0 } else { len }, holder) }
    }

    /// As `input`, with the length in argument number `holder`.
    pub(crate) unsafe fn input_of<T: Plain>(
        &mut self,
        pointer: *const T,
        len: usize,
        holder: u32,
    ) -> Result<&'a [T], Failure> {
        let there = self.look(pointer, len, holder, false)?;
        // SAFETY: `look` has found it aligned, not NULL and of a length that can be addressed; the values are the
        // caller's promise.
        Ok(if there { unsafe { slice::from_raw_parts(pointer, len) } } else { &[] })
    }

    /// The text is read up to the byte where it differs from all names.
    pub(crate) unsafe fn name<T>(
        &mut self,
        pointer: *const c_char,
        mut names: impl Iterator<Item = (&'static str, T)>,
    ) -> Result<T, Failure> {
        let position = self.position;
        self.look(pointer, 1, position, false)?;
        let is = |name: &str| {
            let mut expected = name.bytes().chain([0]).enumerate();
            // SAFETY: what is before the byte is the name's, so that no zero is before it.
            expected.all(|(i, byte)| unsafe { pointer.add(i).read() }.to_ne_bytes() == [byte])
        };
        names.find(|(name, _)| is(name)).map(|(_, value)| value).ok_or(Failure::new(S::UnknownName, position, 0, 0))
    }

    pub(crate) unsafe fn value<T: Plain>(&mut self, pointer: *const T) -> Result<T, Failure> {
        self.look(pointer, 1, self.position, false)?;
        // SAFETY: `look` has found it aligned and not NULL; any bytes are a value.
        Ok(unsafe { pointer.read() })
    }

    pub(crate) unsafe fn result<T: Plain>(&mut self, pointer: *mut T) -> Result<Out<'a, T>, Failure> {
        self.look(pointer, 1, self.position, true)?;
        // SAFETY: `look` has found it aligned and not NULL; the rest is promised.
        Ok(Out(unsafe { pointer.as_mut() }))
    }

    /// NULL gives an empty place.
    pub(crate) unsafe fn optional<T: Plain>(&mut self, pointer: *mut T) -> Result<Out<'a, T>, Failure> {
        self.look(pointer, usize::from(!pointer.is_null()), self.position, true)?;
        // SAFETY: as in `result`.
        Ok(Out(unsafe { pointer.as_mut() }))
    }

    /// NULL gives the defaults. Fields that this version lacks must be 0.
    pub(crate) unsafe fn params<T: Params>(&mut self, pointer: *const T) -> Result<T, Failure> {
        let position = self.position;
        let known = size_of::<T>();
        // SAFETY: any bytes are a `Plain`.
        let mut params: T = unsafe { core::mem::zeroed() };
        if pointer.is_null() {
            self.skip();
            return Ok(params);
        }
        // SAFETY: as promised.
        let size = unsafe { self.struct_size(pointer)? };
        // SAFETY: `size` bytes can be read, as promised.
        let bytes = unsafe { self.input_of(pointer.cast::<u8>(), size, position)? };
        if let Some(field) = (known..size).find(|&i| bytes.get(i).is_some_and(|&b| b != 0)) {
            return Err(Failure::new(S::UnknownField, position, 0, wide(field)));
        }
        // SAFETY: no more than the bytes of either side; any bytes are a `Plain`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut params).cast(), size.min(known)) };
        Ok(params)
    }

    /// As `params`, but fails at NULL.
    pub(crate) unsafe fn given<T: Params>(&mut self, pointer: *const T) -> Result<T, Failure> {
        if pointer.is_null() {
            return Err(Failure::new(S::NullPointer, self.next(), 0, 0));
        }
        // SAFETY: as promised.
        unsafe { self.params(pointer) }
    }

    /// If `pointer` is not NULL, as many bytes as the first field says are written by nobody else for `'a`.
    pub(crate) unsafe fn report<T: Params>(&mut self, pointer: *mut T) -> Result<Report<'a, T>, Failure> {
        if pointer.is_null() {
            return Err(Failure::new(S::NullPointer, self.next(), 0, 0));
        }
        // SAFETY: as promised.
        unsafe { self.report_if_wanted(pointer) }
    }

    /// As `report`; NULL if no results are wanted.
    pub(crate) unsafe fn report_if_wanted<T: Params>(&mut self, pointer: *mut T) -> Result<Report<'a, T>, Failure> {
        // SAFETY: as promised.
        let bytes = unsafe {
            let size = if pointer.is_null() { 0 } else { self.struct_size(pointer)? };
            self.output_of(pointer.cast::<MaybeUninit<u8>>(), size, self.position)?
        };
        Ok(Report { bytes, of: PhantomData })
    }

    /// In bytes, 4 to [`MOST_PARAMS`]. `pointer` is not NULL.
    unsafe fn struct_size<T: Params>(&self, pointer: *const T) -> Result<usize, Failure> {
        if !pointer.is_aligned() {
            return Err(Failure::new(S::MisalignedPointer, self.position, wide(align_of::<T>()), 0));
        }
        // SAFETY: not NULL, aligned, and the first field is there.
        let said = unsafe { pointer.cast::<u32>().read() };
        let size = usize::try_from(said).unwrap_or(usize::MAX);
        let cut = T::FIELDS.iter().find(|&&(begin, end)| begin < size && size < end);
        let possible = if let Some(&(_, end)) = cut { end } else { size.clamp(size_of::<u32>(), MOST_PARAMS) };
        if size != possible {
            let needed = if cut.is_some() { possible } else { MOST_PARAMS };
            return Err(Failure::new(S::StructSize, self.position, wide(needed), said.into()));
        }
        Ok(size)
    }

    /// If `pointer` is not NULL, `size` bytes can be written there for `'a`, by nobody else.
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

    /// `memory` belongs to a handle: no written argument may overlap it, before or after.
    pub(crate) fn holds<T>(&mut self, position: u32, memory: &[T]) -> Result<(), Failure> {
        let range = memory.as_ptr_range();
        self.holds_range(position, (range.start.addr(), range.end.addr()))
    }

    pub(crate) fn holds_range(&mut self, position: u32, (begin, end): (usize, usize)) -> Result<(), Failure> {
        self.take(Range { begin, end, position, written: false })
    }

    fn take(&mut self, range: Range) -> Result<(), Failure> {
        let known = self.ranges.get(..self.len).unwrap_or_default();
        let shared = |r: &&Range| (r.written || range.written) && r.begin < range.end && range.begin < r.end;
        if let Some(other) = known.iter().find(shared) {
            return Err(Failure::new(S::OverlappingBuffers, range.position, 0, other.position.into()));
        }
        self.note(range);
        Ok(())
    }

    fn note(&mut self, range: Range) {
        if let Some(free) = self.ranges.get_mut(self.len) {
            *free = range;
            self.len += 1;
        }
    }

    /// Returns whether `len` is more than 0; if not, the pointer may be anything.
    fn look<T>(&mut self, pointer: *const T, len: usize, holder: u32, written: bool) -> Result<bool, Failure> {
        let position = self.next();
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
            return Err(Failure::new(S::LengthOverflow, holder, wide(most), wide(len)));
        }
        self.take(Range { begin, end: begin + len * size_of::<T>(), position, written })?;
        Ok(true)
    }
}

pub(crate) fn counted(n: usize, position: u32) -> Result<usize, Failure> {
    let most = crate::workspace::MOST_COUNTED;
    if n > most { Err(Failure::new(S::LengthOverflow, position, wide(most), wide(n))) } else { Ok(n) }
}

const MOST_PARAMS: usize = 4096;

/// The first field is the size, all others are 0.
#[cfg(test)]
pub(crate) fn sized<T: Params>() -> T {
    // SAFETY: any bytes are a value of such a type, and it begins with its size.
    unsafe {
        let mut value: T = core::mem::zeroed();
        (&raw mut value).cast::<u32>().write(u32::try_from(size_of::<T>()).unwrap());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(arguments: &mut Arguments<'_>, begin: *mut u64, words: usize, written: bool) -> Result<(), Failure> {
        // SAFETY: within the array of the test.
        unsafe {
            if written {
                arguments.output_of(begin, words, 0).map(drop)
            } else {
                arguments.input_of(begin, words, 0).map(drop)
            }
        }
    }

    #[test]
    fn what_is_written_is_no_other_arguments() {
        let mut memory = [0u64; 8];
        let begin = (&raw mut memory).cast::<u64>();
        for code in 0..4 * 6 * 6 {
            let (written, at) = ([code & 1 == 1, code & 2 == 2], [code / 4 % 6, code / 24]);
            let mut arguments = Arguments::new();
            arguments.skip();
            look(&mut arguments, begin.wrapping_add(at[0]), 2, written[0]).unwrap();
            let second = look(&mut arguments, begin.wrapping_add(at[1]), 2, written[1]);
            let shared = at[0].abs_diff(at[1]) < 2 && (written[0] || written[1]);
            let refused = Err(Failure::new(S::OverlappingBuffers, 2, 0, 1));
            assert_eq!(second, if shared { refused } else { Ok(()) }, "{at:?} {written:?}");
        }
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Padded {
        struct_size: u32,
        first: u64,
        second: u32,
    }

    plain!(Padded);
    params! { Padded { struct_size, first, second } }

    #[test]
    fn a_struct_does_not_end_within_a_field() {
        for size in 4..40 {
            let params = Padded { struct_size: size, first: 0, second: 0 };
            let mut memory = [params; 2];
            memory[1] = Padded { struct_size: 0, first: 0, second: 0 };
            // SAFETY: memory of the test, which is as long as its first field says.
            let read = unsafe { Arguments::new().params(memory.as_ptr()) };
            let end = [8..16, 16..20].into_iter().find(|field| field.start < size && size < field.end);
            let refused = end.map(|field| Failure::new(S::StructSize, 0, field.end.into(), size.into()));
            assert_eq!(read.err(), refused, "{size}");
        }
    }

    #[repr(align(8))]
    struct Aligned([u32; 10]);

    #[test]
    fn results_are_written_as_far_as_the_caller_knows_them() {
        let known = Padded { struct_size: 5, first: u64::MAX, second: 0x0101_0101 };
        for size in [4, 16, 20, 24, 32] {
            let mut memory = Aligned([0x0707_0707_u32; 10]);
            memory.0[0] = size;
            // SAFETY: memory of the test, which is as long as its first field says.
            let report = unsafe { Arguments::new().report((&raw mut memory).cast::<Padded>()) };
            report.unwrap().set(known);
            let word = |at: u32, value: u32| if at < size { value } else { 0x0707_0707 };
            let memory = &memory.0;
            assert_eq!(memory[0], size);
            assert_eq!(memory[2..5], [word(8, u32::MAX), word(8, u32::MAX), word(16, 0x0101_0101)], "{size}");
            assert_eq!(memory[6..], [word(24, 0), word(28, 0), 0x0707_0707, 0x0707_0707], "{size}");
        }
    }
}
