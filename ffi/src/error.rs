//! Writes an error as a sentence into the caller's memory.

use core::ffi::c_char;
use core::fmt::{self, Write};

use crate::arguments::Out;
use crate::boundary::boundary;
pub use crate::failure::sublet_error;
pub(crate) use crate::failure::{Failure, wide};
use crate::status::{sublet_status, sublet_status as S};

/// Writes what an error says as a sentence, ended by a zero byte.
///
/// `needed`, which may be NULL, receives the bytes that the whole sentence takes with its zero byte. If `capacity` is
/// less, the sentence is cut, still ended by a zero byte, and the status is SUBLET_STATUS_BUFFER_TOO_SMALL. With a
/// capacity of 0 only `needed` is written, and the call succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_format_error(
    error: *const sublet_error,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> sublet_status {
    boundary(core::ptr::null_mut(), |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (error, buffer, needed) =
            unsafe { (arguments.value(error)?, arguments.output(buffer, capacity)?, arguments.optional(needed)?) };
        let mut text = Text { buffer, len: 0 };
        // Writing to a `Text` does not fail.
        let _ = write!(text, "{error}");
        text.finish(1, needed)
    })
}

/// Text that does not fit is left out, but counted.
pub(crate) struct Text<'a> {
    pub(crate) buffer: &'a mut [c_char],
    pub(crate) len: usize,
}

impl Text<'_> {
    /// `needed` gets the whole length with the zero. An empty buffer is not too short.
    pub(crate) fn finish(self, position: u32, needed: Out<'_, usize>) -> Result<(), Failure> {
        let capacity = self.buffer.len();
        let len = self.end();
        needed.set(len);
        if capacity > 0 && capacity < len {
            return Err(Failure::new(S::BufferTooSmall, position, wide(len), wide(capacity)));
        }
        Ok(())
    }

    fn end(self) -> usize {
        let last = self.buffer.len().saturating_sub(1).min(self.len);
        if let Some(zero) = self.buffer.get_mut(last) {
            *zero = 0;
        }
        self.len.saturating_add(1)
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for (to, from) in self.buffer.iter_mut().skip(self.len).zip(s.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        self.len = self.len.saturating_add(s.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_always_ended() {
        for capacity in 0..8 {
            let mut buffer = [1; 8];
            let mut text = Text { buffer: buffer.get_mut(..capacity).unwrap(), len: 0 };
            text.write_str("ab").and(text.write_str("cde")).unwrap();
            assert_eq!(text.end(), 6);
            let whole = b"abcde".map(|b| c_char::from_ne_bytes([b]));
            let kept = capacity.saturating_sub(1).min(5);
            assert_eq!(buffer[..kept], whole[..kept]);
            assert!(capacity == 0 || buffer[kept] == 0);
            assert!(buffer[capacity.max(kept + 1).min(8)..].iter().all(|&b| b == 1));
        }
    }
}
