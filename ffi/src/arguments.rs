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

/// Structs that pass parameters or results between C and the library. The first field is the size of the struct, in
/// bytes, in the version that the caller was compiled with. In every other field, 0 is the default.
///
/// # Safety
/// The first field is a `u32`, the size.
pub(crate) unsafe trait Params: Plain {}

/// The checks of the arguments of one call: which argument is checked next, and the memory of the arguments before it.
pub(crate) struct Arguments<'a> {
    /// The position of the argument that is checked next.
    position: u32,
    /// The memory of the arguments that were checked so far, which a later argument may overlap only if neither is
    /// written. Only the first `len` entries are in use.
    ranges: [Range; MOST],
    len: usize,
    lent: PhantomData<&'a mut ()>,
}

/// The most ranges of memory that can be noted while the arguments of one call are checked. One range is noted for each
/// array or struct that an argument points to, one for the call's error, and those of the call's handles.
const MOST: usize = 20;

/// In a failure, the number that stands for the argument `error` in place of its position.
pub(crate) const ERROR: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Range {
    begin: usize,
    end: usize,
    position: u32,
    written: bool,
}

/// The place where a single result of a call is written; empty if the caller does not want the result.
pub(crate) struct Out<'a, T>(Option<&'a mut T>);

impl<T> Out<'_, T> {
    pub(crate) fn set(self, value: T) {
        if let Some(to) = self.0 {
            *to = value;
        }
    }
}

/// The memory of the caller's struct for results; empty if the caller wants no results. The first field of the struct
/// is its size in the version that the caller was compiled with. Only so many bytes are written, so that later versions
/// can add fields.
pub(crate) struct Report<'a, T> {
    bytes: &'a mut [MaybeUninit<u8>],
    of: PhantomData<T>,
}

impl<T: Params> Report<'_, T> {
    /// Writes all fields but the first, the size. If the caller's struct is longer than this version's, its further
    /// fields become 0. Where pointers have 32 bits, a struct may have padding, whose bytes may be uninitialized: so
    /// all bytes are copied as they are, and none is read as a number.
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

    /// Begins the checks of a call's arguments. Notes the memory of `error`, unless that is NULL: the call writes there
    /// at its end, so that no argument that is checked later may share that memory.
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

    /// The position of the argument that is checked next.
    pub(crate) const fn position(&self) -> u32 {
        self.position
    }

    /// Returns the position of the argument to check now, and moves on to the one after it.
    pub(crate) const fn next(&mut self) -> u32 {
        self.position += 1;
        self.position - 1
    }

    /// Has `look` check the argument at `position`, out of turn. Then the checks go on with the argument that was the
    /// next one before this call.
    pub(crate) fn at<T>(&mut self, position: u32, look: impl FnOnce(&mut Self) -> T) -> T {
        let here = core::mem::replace(&mut self.position, position);
        let found = look(self);
        self.position = here;
        found
    }

    /// Has `look` check what a field of a struct points to. The struct is argument number `position`, and the field
    /// begins at its byte `at`. If the pointer in the field is NULL or misaligned, the failure names both; any other
    /// failure is that of `look`.
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

    /// Checks the next argument, `n`, a number of things such as blocks or rows, and returns it. Fails if `n` is so
    /// large that the size of a workspace, which is computed from `n`, could overflow.
    pub(crate) fn count(&mut self, n: usize) -> Result<usize, Failure> {
        self.skip();
        counted(n, self.position - 1)
    }

    /// Checks the next two arguments, the pointer and the length of an array that is read, and returns the array. The
    /// length must be so small that the size of a workspace that is computed from it cannot overflow.
    ///
    /// # Safety
    /// If `pointer` is not NULL and `len` is not 0, `len` values can be read there as long as `'a`.
    pub(crate) unsafe fn input<T: Plain>(&mut self, pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
        let holder = self.position + 1;
        counted(len, holder)?;
        // SAFETY: as promised.
        let slice = unsafe { self.input_of(pointer, len, holder)? };
        self.skip();
        Ok(slice)
    }

    /// Checks the next two arguments, the pointer and the length of an array that is written, and returns the array.
    ///
    /// # Safety
    /// If `pointer` is not NULL and `len` is not 0, `len` values can be written there as long as `'a`, by nobody else.
    pub(crate) unsafe fn output<T: Plain>(&mut self, pointer: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
        // SAFETY: as promised.
        let slice = unsafe { self.output_of(pointer, len, self.position + 1)? };
        self.skip();
        Ok(slice)
    }

    /// Checks the next argument, the pointer to an array of `len` values that is written, and returns the array. The
    /// length is held by argument number `holder`.
    ///
    /// # Safety
    /// If `pointer` is not NULL and `len` is not 0, `len` values can be written there as long as `'a`, by nobody else.
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

    /// Checks the next argument, the pointer to an array of `len` values that is written, and returns the array. If the
    /// pointer is NULL, the caller does not want the array, and an empty one is returned. Argument number `holder`
    /// holds the length.
    ///
    /// # Safety
    /// If `pointer` is not NULL and `len` is not 0, `len` values can be written there as long as `'a`, by nobody else.
    pub(crate) unsafe fn output_if_wanted<T: Plain>(
        &mut self,
        pointer: *mut T,
        len: usize,
        holder: u32,
    ) -> Result<&'a mut [T], Failure> {
        // SAFETY: as promised.
        unsafe { self.output_of(pointer, if pointer.is_null() { 0 } else { len }, holder) }
    }

    /// Checks the next argument, the pointer to an array of `len` values that is read, and returns the array. The
    /// length is held by argument number `holder`.
    ///
    /// # Safety
    /// If `pointer` is not NULL and `len` is not 0, `len` values can be read there as long as `'a`.
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

    /// Checks the next argument, a text that ends with a zero byte, and returns the value that stands beside this text
    /// in `names`; fails if the text is none of the names. The text is read up to the byte where it differs from all
    /// names, no further.
    ///
    /// # Safety
    /// If `pointer` is not NULL, the text can be read up to its zero.
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

    /// Checks the next argument, the pointer to one value, and reads the value.
    ///
    /// # Safety
    /// If `pointer` is not NULL, a value can be read there.
    pub(crate) unsafe fn value<T: Plain>(&mut self, pointer: *const T) -> Result<T, Failure> {
        self.look(pointer, 1, self.position, false)?;
        // SAFETY: `look` has found it aligned and not NULL; any bytes are a value.
        Ok(unsafe { pointer.read() })
    }

    /// Checks the next argument, the pointer to one value that is written if the call succeeds. Returns the place for
    /// the value.
    ///
    /// # Safety
    /// If `pointer` is not NULL, a value can be written there as long as `'a`, by nobody else.
    pub(crate) unsafe fn result<T: Plain>(&mut self, pointer: *mut T) -> Result<Out<'a, T>, Failure> {
        self.look(pointer, 1, self.position, true)?;
        // SAFETY: `look` has found it aligned and not NULL; the rest is promised.
        Ok(Out(unsafe { pointer.as_mut() }))
    }

    /// Checks the next argument, the pointer to one value that is written if the call succeeds. Returns the place for
    /// the value. If the pointer is NULL, the caller does not want the value, and the place is empty.
    ///
    /// # Safety
    /// If `pointer` is not NULL, a value can be written there as long as `'a`, by nobody else.
    pub(crate) unsafe fn optional<T: Plain>(&mut self, pointer: *mut T) -> Result<Out<'a, T>, Failure> {
        self.look(pointer, usize::from(!pointer.is_null()), self.position, true)?;
        // SAFETY: as in `result`.
        Ok(Out(unsafe { pointer.as_mut() }))
    }

    /// Checks the next argument, a pointer to parameters, and reads them; NULL gives the defaults. Fields that the
    /// caller's version of the struct lacks get their defaults; fields that this version lacks must be 0, their
    /// default.
    ///
    /// # Safety
    /// If `pointer` is not NULL, as many bytes can be read there as the first field says.
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

    /// Checks the next argument, a pointer to parameters, and reads them; fails if it is NULL. Fields that the caller's
    /// version of the struct lacks get their defaults; fields that this version lacks must be 0, their default.
    ///
    /// # Safety
    /// If `pointer` is not NULL, as many bytes can be read there as the first field says.
    pub(crate) unsafe fn given<T: Params>(&mut self, pointer: *const T) -> Result<T, Failure> {
        if pointer.is_null() {
            return Err(Failure::new(S::NullPointer, self.next(), 0, 0));
        }
        // SAFETY: as promised.
        unsafe { self.params(pointer) }
    }

    /// Checks the next argument, the pointer to a struct of results that is written if the call succeeds; it must not
    /// be NULL. The struct's first field is its size in bytes in the caller's version; only so many bytes are written.
    ///
    /// # Safety
    /// If `pointer` is not NULL, as many bytes as the first field says lie there. They can be read and written for as
    /// long as `'a`, and nobody else writes them in that time.
    pub(crate) unsafe fn report<T: Params>(&mut self, pointer: *mut T) -> Result<Report<'a, T>, Failure> {
        if pointer.is_null() {
            return Err(Failure::new(S::NullPointer, self.next(), 0, 0));
        }
        // SAFETY: as promised.
        unsafe { self.report_if_wanted(pointer) }
    }

    /// Checks the next argument, the pointer to a struct of results that is written if the call succeeds; NULL if the
    /// caller wants no results. The struct's first field is its size in the caller's version; only so many bytes are
    /// written.
    ///
    /// # Safety
    /// If `pointer` is not NULL, as many bytes as the first field says lie there. They can be read and written for as
    /// long as `'a`, and nobody else writes them in that time.
    pub(crate) unsafe fn report_if_wanted<T: Params>(&mut self, pointer: *mut T) -> Result<Report<'a, T>, Failure> {
        // SAFETY: as promised.
        let bytes = unsafe {
            let size = if pointer.is_null() { 0 } else { self.struct_size(pointer)? };
            self.output_of(pointer.cast::<MaybeUninit<u8>>(), size, self.position)?
        };
        Ok(Report { bytes, of: PhantomData })
    }

    /// Reads the first field of the caller's struct that is the next argument: the struct's size in bytes. Fails if the
    /// pointer is misaligned, or if the size is less than 4 bytes or more than 4096 ([`MOST_PARAMS`]).
    ///
    /// # Safety
    /// `pointer` is not NULL, and if it is aligned, the first field can be read there.
    unsafe fn struct_size<T: Params>(&self, pointer: *const T) -> Result<usize, Failure> {
        if !pointer.is_aligned() {
            return Err(Failure::new(S::MisalignedPointer, self.position, wide(align_of::<T>()), 0));
        }
        // SAFETY: not NULL, aligned, and the first field is there.
        let said = unsafe { pointer.cast::<u32>().read() };
        let size = usize::try_from(said).unwrap_or(usize::MAX);
        if size < size_of::<u32>() || size > MOST_PARAMS {
            return Err(Failure::new(S::StructSize, self.position, wide(MOST_PARAMS), said.into()));
        }
        Ok(size)
    }

    /// Checks the next two arguments, the pointer to a workspace and its size in bytes, and returns the workspace:
    /// memory that the caller lends. Fails if it has fewer bytes than `needed`.
    ///
    /// # Safety
    /// If `pointer` is not NULL, `size` bytes can be written there as long as `'a`, by nobody else.
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

    /// Notes that `memory` belongs to a handle, which is argument number `position`. No argument that is written may
    /// overlap `memory`. Fails if an argument that was checked before does so. If an argument that is checked later
    /// does so, the check of that argument fails.
    pub(crate) fn holds<T>(&mut self, position: u32, memory: &[T]) -> Result<(), Failure> {
        let range = memory.as_ptr_range();
        self.holds_range(position, (range.start.addr(), range.end.addr()))
    }

    /// Notes that the memory from address `begin` up to `end` belongs to a handle, which is argument number `position`.
    /// No argument that is written may overlap this memory. Fails if an argument that was checked before does so. If an
    /// argument that is checked later does so, the check of that argument fails.
    pub(crate) fn holds_range(&mut self, position: u32, (begin, end): (usize, usize)) -> Result<(), Failure> {
        self.take(Range { begin, end, position, written: false })
    }

    /// Notes the memory of an argument, for later checks. Fails if it overlaps with the memory of an argument that was
    /// checked before, and one of the two is written.
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

    /// Checks the next argument, a pointer to `len` values, which the call writes if `written`. Fails if the pointer is
    /// NULL or misaligned, if `len` values are more than can be addressed, or if they share memory with an argument
    /// that was checked before and one of the two is written. Returns whether `len` is more than 0; if not, the pointer
    /// may be anything. If the length is too large, the failure names argument number `holder`: the argument that holds
    /// the length, or the pointer itself if it leads to a single value or struct.
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

/// Returns `n`, a length that is argument number `position`. Fails if it is so large that the size of a workspace,
/// which is computed from it, could overflow.
pub(crate) fn counted(n: usize, position: u32) -> Result<usize, Failure> {
    let most = crate::workspace::MOST_COUNTED;
    if n > most { Err(Failure::new(S::LengthOverflow, position, wide(most), wide(n))) } else { Ok(n) }
}

/// The most bytes that a struct of parameters or results may have. The struct's first field says how many it has; a
/// longer struct is refused.
const MOST_PARAMS: usize = 4096;

/// A struct of parameters or results, for tests: its first field is set to its size, and all other fields are 0.
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

    /// Checks the next of `arguments`, which points to `words` words of 8 bytes from `begin` on: as memory that the
    /// call writes if `written`, otherwise as memory that it reads.
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

    /// The checks refuse two arguments if and only if they have a word of memory in common and one of them is written.
    /// Two arguments of which one ends where the other begins have none in common. All pairs in a small array of words
    /// are tried.
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

    /// A struct of results with padding, as one may have where pointers have 32 bits.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Padded {
        struct_size: u32,
        first: u64,
        second: u32,
    }

    plain!(Padded);
    // SAFETY: it begins with its size.
    unsafe impl Params for Padded {}

    #[repr(align(8))]
    struct Aligned([u32; 10]);

    /// All fields of a struct of results but its size are written, as far as the caller's version has them. Fields that
    /// only the caller's version has become 0. Padding need not hold anything.
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
