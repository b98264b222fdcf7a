//! The memory of a host that stands in for a device: the memory of the device, and the pinned memory. Pinned memory is
//! the host's side of copies to and from the device.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// In bytes. Files can be read past the page cache.
const PAGE: usize = 4096;

/// Fills freed memory, so that tests notice work that uses it later.
const POISON: u8 = 0xdb;

#[derive(Debug)]
pub(super) struct Allocation {
    start: NonNull<u8>,
    bytes: usize,
    /// More is allocated than is used, so that the memory can begin at a page.
    whole: NonNull<u8>,
    layout: Layout,
    /// It goes back to the system when all work that uses it is done.
    is_given_back: AtomicBool,
}

// SAFETY: it is an address and a length; who reads or writes says why nobody else does at the same time.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?.max(1);
        // Allocated at a page, the allocator would write the zeros itself, and so touch memory that nobody uses. Pages
        // from the system are zeros when they are first touched.
        let layout = Layout::from_size_align(bytes.checked_add(PAGE)?, align_of::<u64>()).ok()?;
        // SAFETY: the layout has at least one byte.
        let whole = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skipped = whole.addr().get().next_multiple_of(PAGE) - whole.addr().get();
        // SAFETY: less than a page, which there is more of.
        let start = unsafe { whole.add(skipped) };
        Some(Self { start, bytes, whole, layout, is_given_back: AtomicBool::new(false) })
    }

    /// Fills the `used` bytes with [`POISON`]. Work on them from now on makes the device fail.
    pub(super) fn give_back(&self, used: u64) {
        self.is_given_back.store(true, Ordering::SeqCst);
        let used = usize::try_from(used).map_or(self.bytes, |used| used.min(self.bytes));
        // SAFETY: within the allocation. Work that is still under way there is the fault that this is to show.
        unsafe { self.start.write_bytes(POISON, used) };
    }

    pub(super) fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    pub(super) const fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes
    }

    /// `at` is at most the length in bytes.
    pub(super) const unsafe fn at(&self, at: usize) -> *mut u8 {
        // SAFETY: within the allocation, as promised.
        unsafe { self.start.as_ptr().add(at) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { dealloc(self.whole.as_ptr(), self.layout) };
    }
}

/// Keeps the allocation.
#[derive(Clone, Debug)]
pub(super) struct Range {
    memory: std::sync::Arc<Allocation>,
    at: usize,
    bytes: usize,
}

impl Range {
    pub(super) fn new(memory: &std::sync::Arc<Allocation>, at: u64, bytes: u64) -> Option<Self> {
        let (at, bytes) = (usize::try_from(at).ok()?, usize::try_from(bytes).ok()?);
        (at.checked_add(bytes)? <= memory.len()).then(|| Self { memory: memory.clone(), at, bytes })
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.address() + self.at as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(super) fn is_given_back(&self) -> bool {
        self.memory.is_given_back.load(Ordering::SeqCst)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.address(), other.address());
        a < b + other.bytes() && b < a + self.bytes()
    }

    /// They have the same length and share no byte. Nobody writes this, or uses `to`, meanwhile.
    pub(super) unsafe fn copy_to(&self, to: &Self) {
        debug_assert_eq!(self.bytes, to.bytes);
        // SAFETY: both lie within their allocations and do not overlap; nobody else is there, as promised.
        unsafe { std::ptr::copy_nonoverlapping(self.memory.at(self.at), to.memory.at(to.at), self.bytes) };
    }

    /// Nobody writes these bytes as long as the slice lives.
    pub(super) unsafe fn read<'a>(&self) -> &'a [u8] {
        // SAFETY: within the allocation; the rest is promised.
        unsafe { std::slice::from_raw_parts(self.memory.at(self.at), self.bytes) }
    }

    /// Nobody else uses these bytes as long as the slice lives.
    pub(super) unsafe fn write<'a>(&self) -> &'a mut [u8] {
        // SAFETY: within the allocation; the rest is promised.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at(self.at), self.bytes) }
    }
}
