//! Memory of the system, whose pages are taken only when they are first touched.

use core::ffi::c_void;

use crate::failure::Failure;
use crate::status::sublet_status as S;

/// All 0. Pages are taken when first touched, so more can be allocated than there is.
#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) fn alloc(bytes: usize, alignment: usize) -> Result<*mut c_void, Failure> {
    let none = Failure::new(S::NoRawMemory, 0, bytes as u64, 0);
    let page = page();
    let size = bytes.checked_next_multiple_of(page).filter(|&size| size > 0).ok_or(none)?;
    // A mapping begins at a page: for a larger alignment, more is mapped, and what is around it is unmapped.
    let more = if alignment > page { alignment } else { 0 };
    let whole = size.checked_add(more).ok_or(none)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new addresses, of nobody's.
    let mapped = unsafe { libc::mmap(core::ptr::null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(none);
    }
    if more == 0 {
        return Ok(mapped);
    }
    let before = mapped.addr().wrapping_neg() & (alignment - 1);
    let pointer = mapped.wrapping_byte_add(before);
    // SAFETY: parts of what was mapped, in whole pages; nobody uses them.
    unsafe {
        if before > 0 {
            libc::munmap(mapped, before);
        }
        if whole > before + size {
            libc::munmap(pointer.wrapping_byte_add(size), whole - before - size);
        }
    }
    Ok(pointer)
}

#[cfg(all(unix, any(feature = "std", test)))]
fn page() -> usize {
    // SAFETY: no pointer.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1 << 16)
}

/// The whole pages of these bytes go back to the system. They are a part of what `alloc` has returned, and what they
/// hold is not needed.
#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) unsafe fn discard(pointer: *mut c_void, bytes: usize) {
    let before = pointer.addr().wrapping_neg() & (page() - 1);
    let whole = bytes.saturating_sub(before) & !(page() - 1);
    let advice = if cfg!(target_os = "linux") { libc::MADV_DONTNEED } else { libc::MADV_FREE };
    if whole > 0 {
        // SAFETY: as promised. Where the system refuses, for pages that are locked, they stay.
        unsafe { libc::madvise(pointer.wrapping_byte_add(before), whole, advice) };
    }
}

/// How many of these bytes, the first of what `alloc` has returned, lie in pages that take memory.
#[cfg(all(target_os = "linux", any(feature = "std", test)))]
pub(crate) unsafe fn resident(pointer: *mut c_void, bytes: usize) -> usize {
    const AT_ONCE: usize = 1 << 10;
    let page = page();
    let pages = bytes.div_ceil(page);
    let mut is_there = [0; AT_ONCE];
    let mut count = 0;
    for first in (0..pages).step_by(AT_ONCE) {
        let some = AT_ONCE.min(pages - first);
        // SAFETY: pages of the mapping, and a byte for each.
        let told =
            unsafe { libc::mincore(pointer.wrapping_byte_add(first * page), some * page, is_there.as_mut_ptr()) };
        let some = is_there.get(..some).filter(|_| told == 0).unwrap_or_default();
        count += some.iter().filter(|&&byte| byte & 1 == 1).count();
    }
    count * page
}

#[cfg(all(not(target_os = "linux"), any(feature = "std", test)))]
pub(crate) const unsafe fn resident(_: *mut c_void, bytes: usize) -> usize {
    bytes
}

#[cfg(all(not(unix), any(feature = "std", test)))]
pub(crate) const unsafe fn discard(_: *mut c_void, _: usize) {}

/// `alloc` has returned `pointer` for `bytes` bytes.
#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) unsafe fn free(pointer: *mut c_void, bytes: usize, _: usize) {
    // SAFETY: as promised; the last page goes with the bytes.
    unsafe { libc::munmap(pointer, bytes) };
}

#[cfg(all(not(unix), any(feature = "std", test)))]
pub(crate) fn alloc(bytes: usize, alignment: usize) -> Result<*mut c_void, Failure> {
    let none = Failure::new(S::NoRawMemory, 0, bytes as u64, 0);
    let layout = std::alloc::Layout::from_size_align(bytes, alignment).map_err(|_| none)?;
    if bytes == 0 {
        return Err(none);
    }
    // SAFETY: the layout has bytes.
    let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
    if pointer.is_null() { Err(none) } else { Ok(pointer.cast()) }
}

/// `alloc` has returned `pointer` for these `bytes` and this `alignment`.
#[cfg(all(not(unix), any(feature = "std", test)))]
pub(crate) unsafe fn free(pointer: *mut c_void, bytes: usize, alignment: usize) {
    if let Ok(layout) = std::alloc::Layout::from_size_align(bytes, alignment) {
        // SAFETY: as promised.
        unsafe { std::alloc::dealloc(pointer.cast(), layout) };
    }
}

#[cfg(not(any(feature = "std", test)))]
pub(crate) const fn alloc(_: usize, _: usize) -> Result<*mut c_void, Failure> {
    Err(Failure::of(S::Unavailable))
}

#[cfg(not(any(feature = "std", test)))]
pub(crate) const unsafe fn discard(_: *mut c_void, _: usize) {}

#[cfg(not(any(feature = "std", test)))]
pub(crate) const unsafe fn resident(_: *mut c_void, bytes: usize) -> usize {
    bytes
}

#[cfg(not(any(feature = "std", test)))]
pub(crate) const unsafe fn free(_: *mut c_void, _: usize, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_alignment_is_had_and_what_there_is_is_zero() {
        for alignment in [1, 256, 1 << 12, 1 << 16, 1 << 21] {
            for bytes in [1, 4096, 100_000] {
                let pointer = alloc(bytes, alignment).unwrap();
                assert_eq!(pointer.addr() % alignment, 0);
                // SAFETY: so many bytes were taken, and all of them go back.
                unsafe {
                    let bytes = core::slice::from_raw_parts_mut(pointer.cast::<u8>(), bytes);
                    assert!(bytes.iter().all(|&byte| byte == 0));
                    bytes.fill(1);
                    free(pointer, bytes.len(), alignment);
                }
            }
        }
        assert!(alloc(0, 8).is_err() && alloc(usize::MAX, 8).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pages_that_are_discarded_take_no_memory() {
        let (page, pages) = (page(), 3000);
        let pointer = alloc(pages * page, 256).unwrap();
        // SAFETY: bytes of the mapping; then all go back.
        unsafe {
            assert_eq!(resident(pointer, pages * page), 0);
            pointer.cast::<u8>().write_bytes(1, pages * page);
            assert_eq!(resident(pointer, pages * page), pages * page);
            // The pages at both ends are not whole.
            discard(pointer.wrapping_byte_add(1), pages * page - 2);
            assert_eq!(resident(pointer, pages * page), 2 * page);
            assert_eq!((pointer.cast::<u8>().read(), pointer.cast::<u8>().add(page).read()), (1, 0));
            discard(pointer.wrapping_byte_add(1), page - 2);
            free(pointer, pages * page, 256);
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn addresses_cost_no_memory() {
        let bytes = 1 << 41;
        let pointer = alloc(bytes, 256).unwrap();
        // SAFETY: two of these bytes; then all go back.
        unsafe {
            pointer.cast::<u8>().write(1);
            pointer.cast::<u8>().add(bytes - 1).write(1);
            free(pointer, bytes, 256);
        }
    }
}
