/* Counts the heap's bytes in blocks of 1 KiB and more: now, and at most since the last reset. For LD_PRELOAD.
 *     cc -O2 -shared -fPIC heap.c -o libheap.so */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), __libc_free(void *);

enum { LEAST = 1024 };
static atomic_llong now, most;

long long memcount_now(void) { return now; }
long long memcount_peak(void) { return most; }
void memcount_reset(void) { most = atomic_load(&now); }

static size_t counted(void *block) {
    size_t bytes = block ? malloc_usable_size(block) : 0;
    return bytes < LEAST ? 0 : bytes;
}

static void *began(void *block) {
    long long bytes = (long long)counted(block);
    if (bytes) {
        long long total = atomic_fetch_add(&now, bytes) + bytes, seen = most;
        while (total > seen && !atomic_compare_exchange_weak(&most, &seen, total)) { }
    }
    return block;
}

void *malloc(size_t bytes) { return began(__libc_malloc(bytes)); }
void *calloc(size_t count, size_t bytes) { return began(__libc_calloc(count, bytes)); }
void *memalign(size_t alignment, size_t bytes) { return began(__libc_memalign(alignment, bytes)); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    void *made = memalign(alignment, bytes);
    if (!made) return ENOMEM;
    *block = made;
    return 0;
}

void free(void *block) {
    now -= (long long)counted(block);
    __libc_free(block);
}

void *realloc(void *block, size_t bytes) {
    long long before = (long long)counted(block);
    void *made = __libc_realloc(block, bytes);
    if (made || !bytes) {
        now -= before;
        began(made);
    }
    return made;
}
