//! The memory that the caller lends for one call: its length, and how it is divided.
//!
//! Functions of the crate `sublet_core` work on their own structs, and on scratch memory: a slice of words, of 8 bytes,
//! and one of indices, of 4 bytes. All these slices are cut from one piece of memory, in whole words of 8 bytes. So
//! each slice is aligned wherever it begins.

use core::convert::Infallible;
use core::mem::MaybeUninit;
use core::slice;

use sublet_core::{Workspace, WorkspaceLen};

/// The size and alignment of memory that the caller has to allocate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_layout {
    /// Length of the memory in bytes.
    pub size: usize,
    /// Alignment of the memory in bytes, a power of two; memory from malloc has it.
    pub alignment: usize,
}

crate::plain::plain!(sublet_layout);

/// From larger numbers, a workspace's size could overflow.
pub(crate) const MOST_COUNTED: usize = if usize::BITS < 64 { 1 << 17 } else { sublet_core::MAX_BLOCKS };

/// In words of 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    words: usize,
}

impl Needed {
    pub(crate) const NOTHING: Self = Self { words: 0 };

    pub(crate) const fn workspace(len: WorkspaceLen) -> Self {
        Self { words: len.words + len.indices.div_ceil(2) }
    }

    pub(crate) const fn and_workspace(self, len: WorkspaceLen) -> Self {
        Self { words: self.words + Self::workspace(len).words }
    }

    pub(crate) const fn and<T>(self, n: usize) -> Self {
        Self { words: self.words + words_of::<T>(n) }
    }

    pub(crate) const fn bytes(self) -> usize {
        self.words * size_of::<u64>()
    }

    pub(crate) const fn layout(self) -> sublet_layout {
        sublet_layout { size: self.bytes(), alignment: align_of::<u64>() }
    }
}

const fn words_of<T>(n: usize) -> usize {
    (n * size_of::<T>()).div_ceil(size_of::<u64>())
}

pub(crate) struct Room<'a> {
    words: &'a mut [u64],
}

impl<'a> Room<'a> {
    pub(crate) const fn new(words: &'a mut [u64]) -> Self {
        Self { words }
    }

    /// Empty where too little is left; debug builds then fail.
    pub(crate) fn slice<T: Copy, E>(
        &mut self,
        n: usize,
        mut make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<&'a mut [T], E> {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let words = words_of::<T>(n);
        debug_assert!(words <= self.words.len());
        let (front, back) = core::mem::take(&mut self.words).split_at_mut_checked(words).unwrap_or_default();
        self.words = back;
        let n = if front.is_empty() { 0 } else { n };
        let begin = front.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: the words hold n values, are aligned for them, and nobody else has them.
        let values = unsafe { slice::from_raw_parts_mut(begin, n) };
        for (i, value) in values.iter_mut().enumerate() {
            value.write(make(i)?);
        }
        // SAFETY: all have been written.
        Ok(unsafe { slice::from_raw_parts_mut(begin.cast::<T>(), n) })
    }

    pub(crate) fn fill<T: Copy>(&mut self, n: usize, value: T) -> &'a mut [T] {
        self.slice(n, |_| Ok::<T, Infallible>(value)).unwrap_or_else(|never| match never {})
    }

    /// The memory is all 0, and zeros are valid. None are written, to touch no page.
    pub(crate) unsafe fn zeros<T: Copy>(&mut self, n: usize) -> &'a mut [T] {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let (front, back) = core::mem::take(&mut self.words).split_at_mut_checked(words_of::<T>(n)).unwrap_or_default();
        self.words = back;
        let n = if front.is_empty() { 0 } else { n };
        // SAFETY: the words hold n values, are aligned for them, and nobody else has them; what they hold is promised.
        unsafe { slice::from_raw_parts_mut(front.as_mut_ptr().cast::<T>(), n) }
    }

    pub(crate) fn uninit<T>(&mut self) -> Option<&'a mut MaybeUninit<T>> {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let (front, back) = core::mem::take(&mut self.words).split_at_mut_checked(words_of::<T>(1))?;
        self.words = back;
        // SAFETY: the words hold the value, are aligned for it, and nobody else has them.
        Some(unsafe { &mut *front.as_mut_ptr().cast::<MaybeUninit<T>>() })
    }

    pub(crate) fn front(&mut self, len: WorkspaceLen) -> Workspace<'a> {
        let words = Needed::workspace(len).words;
        let (front, back) = core::mem::take(&mut self.words).split_at_mut_checked(words).unwrap_or_default();
        self.words = back;
        Room { words: front }.workspace(len)
    }

    /// `len.words` of 64 bits, all the rest of 32.
    pub(crate) fn parts(self, len: WorkspaceLen) -> (&'a mut [u64], &'a mut [u32]) {
        let (words, indices) = self.words.split_at_mut_checked(len.words).unwrap_or_default();
        // SAFETY: a word holds two indices, any bytes are one, and alignment only falls.
        let indices = unsafe { slice::from_raw_parts_mut(indices.as_mut_ptr().cast::<u32>(), indices.len() * 2) };
        (words, indices)
    }

    pub(crate) fn workspace(self, len: WorkspaceLen) -> Workspace<'a> {
        let (words, indices) = self.parts(len);
        Workspace::new(words, indices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_what_is_cut() {
        for n in 0..9 {
            let len = WorkspaceLen { words: n, indices: 3 * n };
            let needed = Needed::workspace(len).and::<[u64; 2]>(n).and::<u32>(n).and::<[u32; 3]>(n);
            let mut memory = vec![u64::MAX; needed.bytes() / 8];
            let mut room = Room::new(&mut memory);
            let pairs = room.slice(n, |i| Ok::<_, Infallible>([i as u64, 7])).unwrap();
            let single = room.slice(n, u32::try_from).unwrap();
            let triples = room.slice(n, |_| Ok::<_, Infallible>([1u32, 2, 3])).unwrap();
            let _ = room.workspace(len);
            assert!(pairs.iter().enumerate().all(|(i, p)| *p == [i as u64, 7]));
            assert!(single.iter().enumerate().all(|(i, s)| *s as usize == i));
            assert!(triples.iter().all(|t| *t == [1, 2, 3]) && triples.len() == n);
        }
    }

    #[test]
    fn a_value_that_cannot_be_made_ends_it() {
        let mut memory = [0; 4];
        let made = Room::new(&mut memory).slice(4, |i| if i < 2 { Ok(i as u64) } else { Err(i) });
        assert_eq!(made, Err(2));
    }
}
