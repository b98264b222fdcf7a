//! A view of a file in the `FlatBuffers` format, with every bound checked.

use crate::failure::{InputError, Place};

/// The bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat<'a> {
    pub(crate) bytes: &'a [u8],
    file: &'a str,
}

/// A table of the format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatTable<'a> {
    flat: Flat<'a>,
    /// Where the table begins in the file.
    pub(crate) at: usize,
    /// Where the table's vtable begins in the file.
    vtable: usize,
    /// How long the vtable is, in bytes.
    vtable_len: usize,
}

/// A vector of the format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatVector<'a> {
    flat: Flat<'a>,
    /// Where its elements begin in the file.
    pub(crate) at: usize,
    /// How many elements it has.
    pub(crate) len: usize,
}

impl<'a> Flat<'a> {
    /// `file` is what messages call it.
    pub(crate) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self { bytes, file }
    }

    /// The error of a byte with this message.
    pub(crate) fn fault(self, at: usize, message: impl Into<String>) -> InputError {
        InputError { file: self.file.into(), place: Some(Place::Byte(at)), message: message.into() }
    }

    /// The table that the file begins with.
    pub(crate) fn root(self) -> Result<FlatTable<'a>, InputError> {
        self.table_at(self.follow(0)?)
    }

    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], InputError> {
        let found = at.checked_add(N).and_then(|end| self.bytes.get(at..end)).and_then(|b| b.try_into().ok());
        found.ok_or_else(|| self.fault(at.min(self.bytes.len()), "the file ends before what should be here"))
    }

    fn u16(self, at: usize) -> Result<u16, InputError> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(self, at: usize) -> Result<u32, InputError> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(self, at: usize) -> Result<i32, InputError> {
        self.array(at).map(i32::from_le_bytes)
    }

    /// The position to which the distance at a byte leads.
    pub(crate) fn follow(self, at: usize) -> Result<usize, InputError> {
        let distance = self.u32(at)? as usize;
        let to = at.checked_add(distance).filter(|&to| distance > 0 && to < self.bytes.len());
        to.ok_or_else(|| self.fault(at, format!("a distance of {distance} bytes leads out of the file")))
    }

    fn table_at(self, at: usize) -> Result<FlatTable<'a>, InputError> {
        let back = i64::from(self.i32(at)?);
        let vtable = i64::try_from(at).ok().and_then(|at| at.checked_sub(back)).and_then(|v| usize::try_from(v).ok());
        let vtable = vtable.ok_or_else(|| self.fault(at, "a table has its vtable outside of the file"))?;
        let vtable_len = usize::from(self.u16(vtable)?);
        if vtable_len < 4 || vtable.checked_add(vtable_len).is_none_or(|end| end > self.bytes.len()) {
            return Err(self.fault(vtable, "a vtable reaches beyond the end of the file"));
        }
        Ok(FlatTable { flat: self, at, vtable, vtable_len })
    }
}

impl<'a> FlatTable<'a> {
    /// Where a field lies; none where the table has the default.
    pub(crate) fn field(self, number: usize) -> Result<Option<usize>, InputError> {
        let slot = 4 + 2 * number;
        if slot + 2 > self.vtable_len {
            return Ok(None);
        }
        let distance = usize::from(self.flat.u16(self.vtable + slot)?);
        Ok((distance > 0).then_some(self.at + distance))
    }

    /// Whether a field with this number or a higher one is set.
    pub(crate) fn has_fields_from(self, number: usize) -> Result<bool, InputError> {
        for number in number..(self.vtable_len / 2).saturating_sub(2) {
            if self.field(number)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn u8(self, number: usize) -> Result<u8, InputError> {
        self.field(number)?.map_or(Ok(0), |at| self.flat.array::<1>(at).map(|[byte]| byte))
    }

    pub(crate) fn i32(self, number: usize, default: i32) -> Result<i32, InputError> {
        self.field(number)?.map_or(Ok(default), |at| self.flat.i32(at))
    }

    pub(crate) fn u32(self, number: usize) -> Result<u32, InputError> {
        self.field(number)?.map_or(Ok(0), |at| self.flat.u32(at))
    }

    pub(crate) fn u64(self, number: usize) -> Result<u64, InputError> {
        self.field(number)?.map_or(Ok(0), |at| self.flat.array(at).map(u64::from_le_bytes))
    }

    /// Whether `bytes` bytes from `position` on are in the file.
    pub(crate) fn holds(self, position: u64, bytes: u64) -> bool {
        position.checked_add(bytes).is_some_and(|end| end <= self.flat.bytes.len() as u64)
    }

    pub(crate) fn table(self, number: usize) -> Result<Option<FlatTable<'a>>, InputError> {
        let Some(at) = self.field(number)? else { return Ok(None) };
        self.flat.table_at(self.flat.follow(at)?).map(Some)
    }

    /// A vector whose elements have `size` bytes; one that is not there has no elements.
    pub(crate) fn vector(self, number: usize, size: usize) -> Result<FlatVector<'a>, InputError> {
        let Some(at) = self.field(number)? else { return Ok(FlatVector { flat: self.flat, at: 0, len: 0 }) };
        let at = self.flat.follow(at)?;
        let len = self.flat.u32(at)? as usize;
        let fits = len
            .checked_mul(size)
            .and_then(|bytes| bytes.checked_add(at + 4))
            .is_some_and(|end| end <= self.flat.bytes.len());
        if !fits {
            return Err(self.flat.fault(at, format!("a vector of {len} elements reaches beyond the end of the file")));
        }
        Ok(FlatVector { flat: self.flat, at: at + 4, len })
    }

    /// The bytes of a string, or of a vector of bytes.
    pub(crate) fn bytes(self, number: usize) -> Result<&'a [u8], InputError> {
        let vector = self.vector(number, 1)?;
        Ok(self.flat.bytes.get(vector.at..vector.at + vector.len).unwrap_or_default())
    }
}

impl<'a> FlatVector<'a> {
    /// The tables of a vector of tables.
    pub(crate) fn tables(self) -> impl ExactSizeIterator<Item = Result<FlatTable<'a>, InputError>> {
        (0..self.len).map(move |i| self.table(i))
    }

    pub(crate) fn table(self, index: usize) -> Result<FlatTable<'a>, InputError> {
        self.flat.table_at(self.flat.follow(self.at + 4 * index)?)
    }

    /// The elements of a vector of `i32`.
    pub(crate) fn ints(self) -> impl ExactSizeIterator<Item = Result<i32, InputError>> {
        (0..self.len).map(move |i| self.flat.i32(self.at + 4 * i))
    }
}
