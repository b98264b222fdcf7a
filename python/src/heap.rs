//! Counts the bytes of the process's heap: now, and at most since a reset.
//!
//! PyTorch's allocator on the host keeps no count, and libraries such as oneDNN take memory beside it. So the slots
//! through which the loaded libraries call `malloc` and the like (their global offset tables) are pointed at functions
//! that count, and then do as before. Blocks of less than 1 KiB do not count. Slots stay as they are once they count:
//! blocks that are taken while they count and freed while they do not would be held for ever.
//!
//! A block costs two atomic additions. Only Linux with glibc on 64 bits has such slots; elsewhere [`heap_install`] says
//! that nothing is counted.

use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::prelude::*;

static NOW: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);
static MOST_SINCE_MARK: AtomicI64 = AtomicI64::new(0);
/// More bytes than this for the first time ring the alarm. It rings once.
static ALARM_AT: AtomicI64 = AtomicI64::new(i64::MAX);

/// Begins to count, and takes in the libraries that were loaded since. Returns whether the heap is counted.
#[pyfunction]
pub fn heap_install() -> bool {
    slots::install()
}

/// The bytes of the heap now, less those at the first call of [`heap_install`]; and the most of them since the last
/// [`heap_reset`].
#[pyfunction]
pub fn heap_bytes() -> (i64, i64) {
    (NOW.load(Ordering::Relaxed), MOST.load(Ordering::Relaxed))
}

/// Lets the most bytes be those of now.
#[pyfunction]
pub fn heap_reset() {
    MOST.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The bytes of the heap now, and the most of them since the last call of this function.
#[pyfunction]
pub fn heap_mark() -> (i64, i64) {
    let now = NOW.load(Ordering::Relaxed);
    (now, MOST_SINCE_MARK.swap(now, Ordering::Relaxed))
}

/// Sets at how many bytes [`heap_on_alarm`]'s function is called; `None` for never.
#[pyfunction]
#[pyo3(signature = (at))]
pub fn heap_alarm(at: Option<i64>) {
    ALARM_AT.store(at.unwrap_or(i64::MAX), Ordering::Relaxed);
}

/// Sets the function that the alarm calls. It runs in Python's main thread, as soon as the operator that has taken the
/// memory returns to Python.
#[pyfunction]
pub fn heap_on_alarm(function: Py<PyAny>) {
    alarm::set(function);
}

fn began(bytes: i64) {
    let total = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    for most in [&MOST, &MOST_SINCE_MARK] {
        if total > most.load(Ordering::Relaxed) {
            most.fetch_max(total, Ordering::Relaxed);
        }
    }
    if total > ALARM_AT.load(Ordering::Relaxed) && ALARM_AT.swap(i64::MAX, Ordering::Relaxed) != i64::MAX {
        alarm::ring();
    }
}

fn ended(bytes: i64) {
    NOW.fetch_sub(bytes, Ordering::Relaxed);
}

mod alarm {
    use std::ffi::{c_int, c_void};
    use std::ptr;
    use std::sync::Mutex;

    use pyo3::prelude::*;

    static FUNCTION: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

    pub fn set(function: Py<PyAny>) {
        *FUNCTION.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(function);
    }

    #[cold]
    pub fn ring() {
        // SAFETY: may be called from any thread, with or without Python's lock; it does not allocate.
        unsafe { pyo3::ffi::Py_AddPendingCall(Some(call), ptr::null_mut()) };
    }

    extern "C" fn call(_: *mut c_void) -> c_int {
        Python::attach(|py| {
            let held = FUNCTION.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let function = held.as_ref().map(|function| function.clone_ref(py));
            drop(held);
            if let Some(Err(error)) = function.map(|function| function.call0(py)) {
                error.write_unraisable(py, None);
            }
        });
        0
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod slots {
    pub fn install() -> bool {
        false
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits")]
mod slots {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::ptr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use libc::{Elf64_Sym, PROT_READ, PROT_WRITE, dl_phdr_info, size_t};

    use super::{began, ended};

    /// Smaller blocks do not count.
    const LEAST: usize = 1024;

    /// The relocations whose slot holds the address of a function: of a call, of a variable, in a table.
    #[cfg(target_arch = "x86_64")]
    const KINDS: [u64; 3] = [CALL, 6, 1];
    #[cfg(target_arch = "x86_64")]
    const CALL: u64 = 7;
    #[cfg(target_arch = "aarch64")]
    const KINDS: [u64; 3] = [CALL, 1025, 257];
    #[cfg(target_arch = "aarch64")]
    const CALL: u64 = 1026;

    /// Tags of a library's dynamic section.
    const DT_PLTRELSZ: usize = 2;
    const DT_STRTAB: usize = 5;
    const DT_SYMTAB: usize = 6;
    const DT_RELA: usize = 7;
    const DT_RELASZ: usize = 8;
    const DT_JMPREL: usize = 23;

    #[repr(C)]
    struct Dyn {
        tag: i64,
        value: usize,
    }

    #[repr(C)]
    struct Rela {
        offset: usize,
        info: u64,
        addend: i64,
    }

    fn counted(block: *mut c_void) -> i64 {
        // SAFETY: the block is null or comes from the allocator of this process.
        let bytes = if block.is_null() { 0 } else { unsafe { libc::malloc_usable_size(block) } };
        if bytes < LEAST { 0 } else { bytes.cast_signed() as i64 }
    }

    fn given(block: *mut c_void) -> *mut c_void {
        let bytes = counted(block);
        if bytes > 0 {
            began(bytes);
        }
        block
    }

    // SAFETY of all eight: the arguments are those of the function of the same name, which this library calls by a slot
    // of its own that is left as it was.
    unsafe extern "C" fn malloc(bytes: size_t) -> *mut c_void {
        given(unsafe { libc::malloc(bytes) })
    }
    unsafe extern "C" fn calloc(count: size_t, bytes: size_t) -> *mut c_void {
        given(unsafe { libc::calloc(count, bytes) })
    }
    unsafe extern "C" fn memalign(alignment: size_t, bytes: size_t) -> *mut c_void {
        given(unsafe { libc::memalign(alignment, bytes) })
    }
    unsafe extern "C" fn aligned_alloc(alignment: size_t, bytes: size_t) -> *mut c_void {
        given(unsafe { libc::aligned_alloc(alignment, bytes) })
    }
    unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int {
        let status = unsafe { libc::posix_memalign(block, alignment, bytes) };
        if status == 0 {
            given(unsafe { *block });
        }
        status
    }
    unsafe extern "C" fn free(block: *mut c_void) {
        ended(counted(block));
        unsafe { libc::free(block) }
    }
    unsafe extern "C" fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void {
        let before = counted(block);
        let made = unsafe { libc::realloc(block, bytes) };
        if !made.is_null() || bytes == 0 {
            ended(before);
        }
        given(made)
    }
    unsafe extern "C" fn reallocarray(block: *mut c_void, count: size_t, bytes: size_t) -> *mut c_void {
        let before = counted(block);
        let made = unsafe { libc::reallocarray(block, count, bytes) };
        if !made.is_null() || count == 0 || bytes == 0 {
            ended(before);
        }
        given(made)
    }

    /// A function of the heap: its name, its address, and that of the one that counts.
    type Function = (&'static CStr, usize, usize);

    fn functions() -> [Function; 8] {
        macro_rules! function {
            ($name:ident, $text:literal) => {
                ($text, libc::$name as *const () as usize, $name as *const () as usize)
            };
        }
        [
            function!(malloc, c"malloc"),
            function!(calloc, c"calloc"),
            function!(realloc, c"realloc"),
            function!(free, c"free"),
            function!(memalign, c"memalign"),
            function!(aligned_alloc, c"aligned_alloc"),
            function!(posix_memalign, c"posix_memalign"),
            function!(reallocarray, c"reallocarray"),
        ]
    }

    /// How many libraries had ever been loaded when the slots were last set.
    static LOADED: Mutex<u64> = Mutex::new(0);

    pub fn install() -> bool {
        let mut seen = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut loaded = 0_u64;
        // SAFETY: the callback gets the address of `loaded`, and ends before this function does.
        unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut loaded).cast()) };
        if *seen != loaded {
            let mut table = functions();
            // SAFETY: as above, for the table.
            unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut table).cast()) };
            *seen = loaded;
        }
        true
    }

    unsafe extern "C" fn count(info: *mut dl_phdr_info, _: size_t, loaded: *mut c_void) -> c_int {
        // SAFETY: the loader gives what it says of a library; `install` gives a place for the number.
        unsafe { *loaded.cast::<u64>() = (*info).dlpi_adds };
        1
    }

    /// The part of a library that the loader has made read-only.
    struct Sealed {
        begin: usize,
        end: usize,
        page: usize,
    }

    unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: size_t, table: *mut c_void) -> c_int {
        // SAFETY: the loader gives a loaded library's headers, whose addresses are valid while its callback runs; its
        // dynamic section has been relocated. `install` gives the table.
        unsafe {
            let (info, table) = (&*info, &*table.cast::<[Function; 8]>());
            let base = info.dlpi_addr as usize;
            let name = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) }.to_bytes();
            let is_own = |address: usize| (address.wrapping_sub(base)) < span(info);
            let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
            let is_loaders =
                [&b"ld-linux"[..], b"linux-vdso"].iter().any(|own| name.windows(own.len()).any(|part| part == *own));
            if is_own(visit as *const () as usize) || is_loaders {
                return 0;
            }
            let mut sealed = Sealed { begin: 0, end: 0, page };
            let mut entry: *const Dyn = ptr::null();
            for header in std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) {
                let begin = base.wrapping_add(header.p_vaddr as usize);
                if header.p_type == libc::PT_DYNAMIC {
                    entry = ptr::with_exposed_provenance(begin);
                } else if header.p_type == libc::PT_GNU_RELRO {
                    sealed = Sealed { begin: begin & !(page - 1), end: begin + header.p_memsz as usize, page };
                }
            }
            let mut values = [0; 24];
            while !entry.is_null() && (*entry).tag != 0 {
                if let Some(value) = usize::try_from((*entry).tag).ok().and_then(|tag| values.get_mut(tag)) {
                    *value = (*entry).value;
                }
                entry = entry.add(1);
            }
            let at = |tag: usize| values[tag];
            if at(DT_SYMTAB) == 0 || at(DT_STRTAB) == 0 {
                return 0;
            }
            for (table_at, bytes) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
                let rows: *const Rela = ptr::with_exposed_provenance(at(table_at));
                for i in 0..at(bytes) / size_of::<Rela>() {
                    let row = &*rows.add(i);
                    let kind = row.info & 0xffff_ffff;
                    if !KINDS.contains(&kind) {
                        continue;
                    }
                    let symbol =
                        &*ptr::with_exposed_provenance::<Elf64_Sym>(at(DT_SYMTAB)).add((row.info >> 32) as usize);
                    // A library may have a function of such a name of its own.
                    if symbol.st_shndx != 0 {
                        continue;
                    }
                    let called =
                        CStr::from_ptr(ptr::with_exposed_provenance::<c_char>(at(DT_STRTAB) + symbol.st_name as usize));
                    if let Some(&(_, before, counts)) = table.iter().find(|(name, ..)| *name == called) {
                        let slot = ptr::with_exposed_provenance_mut::<AtomicUsize>(base.wrapping_add(row.offset));
                        // A variable may hold something else by now. The slot of a call may not be bound yet.
                        let holds = (*slot).load(Ordering::Relaxed);
                        if holds != counts && (kind == CALL || holds == before) {
                            point(slot, counts, &sealed);
                        }
                    }
                }
            }
        }
        0
    }

    /// The bytes from a library's base to the end of its last segment.
    unsafe fn span(info: &dl_phdr_info) -> usize {
        // SAFETY: of the caller.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        loaded.map(|header| (header.p_vaddr + header.p_memsz) as usize).max().unwrap_or(0)
    }

    /// Points a slot at a function; not if it is read-only and stays so.
    unsafe fn point(slot: *mut AtomicUsize, function: usize, sealed: &Sealed) {
        let address = slot.addr();
        let page = slot.map_addr(|address| address & !(sealed.page - 1)).cast::<c_void>();
        let is_sealed = (sealed.begin..sealed.end).contains(&address);
        // SAFETY: the slot is one of a loaded library, and its page is that of the slot.
        unsafe {
            if is_sealed && libc::mprotect(page, sealed.page, PROT_READ | PROT_WRITE) != 0 {
                return;
            }
            (*slot).store(function, Ordering::Release);
            if is_sealed {
                libc::mprotect(page, sealed.page, PROT_READ);
            }
        }
    }
}
