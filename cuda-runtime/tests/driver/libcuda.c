/* A CUDA driver for tests: device memory is the host's, and streams are queues whose work is done when somebody waits, the
 * stream that was made last first, so that whatever is not ordered by events runs in the order nobody expects.
 *
 * Environment: FAKE_MEMORY, bytes of the device; FAKE_ROOM, the most addresses that are reserved at once; FAKE_FAIL, the number of the call that fails with FAKE_ERROR, after which
 * every call fails if that is an error that sticks; FAKE_INTEGRATED; FAKE_RDMA; FAKE_COUNT, a file to which is written at
 * exit: the calls, what is still in use, bytes in use, contexts that were pushed and not popped, and events with times.
 * Compiled with WITHOUT_VIRTUAL_MEMORY or WITHOUT_EVENTS it lacks functions, as older drivers do. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned code;
typedef uint64_t pointer;
typedef void (*host_function)(void *);

enum { INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600 };
enum { GRANULARITY = 1 << 16, TASKS = 1 << 16, STREAMS = 64 };

typedef struct { unsigned recorded, reached; int timed; } event;
typedef struct {
    enum { COPY, CALL, RECORD, WAIT } kind;
    void *to;
    const void *from;
    size_t bytes;
    host_function function;
    event *event;
    unsigned version;
} task;
typedef struct { task tasks[TASKS]; unsigned front, back; int alive; } stream;

static stream *streams[STREAMS];
static int stream_count;
static long calls, in_use, timed;
static _Atomic long pushed;
static size_t memory_used;
static code sticky;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static size_t memory_total(void) { return (size_t)setting("FAKE_MEMORY", 1L << 30); }

__attribute__((destructor)) static void report(void) {
    const char *name = getenv("FAKE_COUNT");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file) {
        fprintf(file, "%ld %ld %zu %ld %ld\n", calls, in_use, memory_used, pushed, timed);
        fclose(file);
    }
}

/* The function that was made to fail. */
static const char *failed = "";
const char *fake_failed(void) { return failed; }

/* Counts a call, and says whether it fails. */
static code enter(const char *function) {
    if (sticky) return sticky;
    if (++calls == setting("FAKE_FAIL", 0)) {
        code error = (code)setting("FAKE_ERROR", 719);
        if (error >= 700) sticky = error;
        failed = function;
        return error;
    }
    return 0;
}

#define ENTER do { code entered = enter(__func__); if (entered) return entered; } while (0)

static int is_ready(const task *t) { return t->kind != WAIT || t->event->reached >= t->version; }

/* Does one piece of work of the last stream that can go on. */
static int step(void) {
    for (int i = stream_count - 1; i >= 0; i--) {
        stream *s = streams[i];
        if (s->front == s->back || !is_ready(&s->tasks[s->front % TASKS])) continue;
        task t = s->tasks[s->front++ % TASKS];
        if (t.kind == COPY) memmove(t.to, t.from, t.bytes);
        if (t.kind == CALL) t.function(t.to);
        if (t.kind == RECORD && t.event->reached < t.version) t.event->reached = t.version;
        return 1;
    }
    return 0;
}

/* NULL and 1 (CU_STREAM_LEGACY) are the default stream. */
static stream *of(void *handle) {
    static stream *legacy;
    if ((uintptr_t)handle > 1) return handle;
    if (!legacy) streams[stream_count++] = legacy = calloc(1, sizeof(stream));
    return legacy;
}

static code push(void *handle, task t) {
    stream *s = of(handle);
    if (s->back - s->front == TASKS) return INVALID;
    s->tasks[s->back++ % TASKS] = t;
    return 0;
}

code cuInit(unsigned flags) { ENTER; return flags ? INVALID : 0; }
code cuDeviceGetCount(int *count) { ENTER; *count = 1; return 0; }
code cuDeviceGet(int *device, int ordinal) { ENTER; *device = ordinal; return 0; }
code cuDeviceGetAttribute(int *value, unsigned attribute, int device) {
    ENTER;
    (void)device;
    /* 115: pools of stream-ordered memory, which it has not. */
    *value = attribute == 18    ? (int)setting("FAKE_INTEGRATED", 0)
             : attribute == 110 ? (int)setting("FAKE_RDMA", 0)
                                : attribute != 115;
    return 0;
}

static int the_context;
static _Thread_local void *current[8];
static _Thread_local int current_count;
code cuDevicePrimaryCtxRetain(void **context, int device) { ENTER; (void)device; in_use++; *context = &the_context; return 0; }
code cuDevicePrimaryCtxRelease_v2(int device) { (void)device; in_use--; return sticky; }
code cuCtxGetCurrent(void **context) { *context = current_count ? current[current_count - 1] : NULL; return 0; }
code cuCtxPushCurrent_v2(void *context) { current[current_count++] = context; pushed++; return 0; }
code cuCtxPopCurrent_v2(void **context) { *context = current[--current_count]; pushed--; return 0; }

/* Every call but those above needs the context. */
#define ENTER_CONTEXT do { if (!current_count || current[current_count - 1] != &the_context) return 201; ENTER; } while (0)

code cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER_CONTEXT;
    *total = memory_total();
    *free_bytes = *total - memory_used;
    return 0;
}

static void *allocated[1024];
static size_t allocated_bytes[1024];
code cuMemAlloc_v2(pointer *address, size_t bytes) {
    ENTER_CONTEXT;
    if (bytes > memory_total() - memory_used) return OUT_OF_MEMORY;
    for (int i = 0; i < 1024; i++) if (!allocated[i]) {
        allocated[i] = calloc(1, bytes);
        allocated_bytes[i] = bytes;
        memory_used += bytes;
        in_use++;
        *address = (pointer)(uintptr_t)allocated[i];
        return 0;
    }
    return OUT_OF_MEMORY;
}
code cuMemFree_v2(pointer address) {
    for (int i = 0; i < 1024; i++) if (allocated[i] == (void *)(uintptr_t)address) {
        free(allocated[i]);
        allocated[i] = NULL;
        memory_used -= allocated_bytes[i];
        in_use--;
        return sticky;
    }
    return INVALID;
}
code cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    ENTER_CONTEXT;
    if (flags & ~7u) return INVALID;
    *start = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    in_use++;
    return 0;
}
code cuMemFreeHost(void *start) { free(start); in_use--; return sticky; }

code cuStreamCreate(void **handle, unsigned flags) {
    ENTER_CONTEXT;
    if (flags != 1 || stream_count == STREAMS) return INVALID;
    streams[stream_count] = calloc(1, sizeof(stream));
    *handle = streams[stream_count++];
    in_use++;
    return 0;
}
code cuStreamDestroy_v2(void *handle) { (void)handle; in_use--; return sticky; }
code cuEventCreate(void **handle, unsigned flags) {
    ENTER_CONTEXT;
    event *e = calloc(1, sizeof(event));
    e->timed = flags == 0;
    timed += e->timed;
    *handle = e;
    in_use++;
    return 0;
}
code cuEventDestroy_v2(void *handle) { (void)handle; in_use--; return sticky; }
#ifndef WITHOUT_EVENTS
code cuEventRecord(void *handle, void *to) {
    ENTER_CONTEXT;
    event *e = handle;
    return push(to, (task){.kind = RECORD, .event = e, .version = ++e->recorded});
}
#endif
code cuStreamWaitEvent(void *waiting, void *handle, unsigned flags) {
    ENTER_CONTEXT;
    if (flags) return INVALID;
    event *e = handle;
    return push(waiting, (task){.kind = WAIT, .event = e, .version = e->recorded});
}
code cuEventSynchronize(void *handle) {
    ENTER_CONTEXT;
    event *e = handle;
    unsigned version = e->recorded;
    while (e->reached < version) if (!step()) return INVALID;
    return 0;
}
code cuEventElapsedTime(float *ms, void *from, void *to) {
    ENTER_CONTEXT;
    event *a = from, *b = to;
    if (!a->timed || !b->timed) return 400;
    if (!a->reached || !b->reached) return NOT_READY;
    *ms = 0.5f;
    return 0;
}
static code copy(void *to, const void *from, size_t bytes, void *on) {
    return push(on, (task){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}
code cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t bytes, void *on) { ENTER_CONTEXT; return copy(to, (void *)(uintptr_t)from, bytes, on); }
code cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *on) { ENTER_CONTEXT; return copy((void *)(uintptr_t)to, from, bytes, on); }
code cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *on) { ENTER_CONTEXT; return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, on); }
code cuLaunchHostFunc(void *on, host_function function, void *data) {
    ENTER_CONTEXT;
    return push(on, (task){.kind = CALL, .function = function, .to = data});
}

code cuStreamSynchronize(void *on) {
    ENTER_CONTEXT;
    (void)on;
    while (step()) {}
    return 0;
}
code cuCtxSynchronize(void) {
    ENTER_CONTEXT;
    while (step()) {}
    return 0;
}
/* Nothing is captured here. */
code cuStreamIsCapturing(void *on, unsigned *status) { ENTER_CONTEXT; (void)on; *status = 0; return 0; }
code cuThreadExchangeStreamCaptureMode(unsigned *mode) {
    static _Thread_local unsigned current_mode;
    unsigned before = current_mode;
    current_mode = *mode;
    *mode = before;
    return 0;
}
/* What kernels are, with kernels.cpp beside this. */
unsigned fake_call(void *on, host_function function, void *data) {
    ENTER_CONTEXT;
    return push(on, (task){.kind = CALL, .function = function, .to = data});
}

#ifndef WITHOUT_VIRTUAL_MEMORY
typedef struct { int type, handle_types, location, id; void *meta; unsigned char flags[8]; } properties;
code cuMemGetAllocationGranularity(size_t *granularity, const properties *wanted, unsigned option) {
    ENTER_CONTEXT;
    if (wanted->type != 1 || wanted->location != 1 || option > 1) return INVALID;
    *granularity = GRANULARITY;
    return 0;
}
code cuMemAddressReserve(pointer *address, size_t bytes, size_t alignment, pointer fixed, unsigned long long flags) {
    ENTER_CONTEXT;
    if (bytes % GRANULARITY || alignment || fixed || flags) return INVALID;
    if (bytes > (size_t)setting("FAKE_ROOM", 1L << 45)) return OUT_OF_MEMORY;
    void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return OUT_OF_MEMORY;
    in_use++;
    *address = (pointer)(uintptr_t)start;
    return 0;
}
code cuMemAddressFree(pointer address, size_t bytes) { munmap((void *)(uintptr_t)address, bytes); in_use--; return sticky; }
/* A handle is its size; it lives until it is released and no longer mapped. */
code cuMemCreate(unsigned long long *handle, size_t bytes, const properties *wanted, unsigned long long flags) {
    ENTER_CONTEXT;
    if (bytes % GRANULARITY || wanted->type != 1 || flags) return INVALID;
    if (wanted->flags[1] != setting("FAKE_RDMA", 0)) return INVALID;
    if (bytes > memory_total() - memory_used) return OUT_OF_MEMORY;
    memory_used += bytes;
    in_use++;
    *handle = bytes;
    return 0;
}
static size_t mapped_bytes;
code cuMemMap(pointer address, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) {
    ENTER_CONTEXT;
    if (offset || flags || bytes != handle || !address) return INVALID;
    mapped_bytes = bytes;
    in_use++;
    return 0;
}
code cuMemRelease(unsigned long long handle) {
    in_use--;
    if (mapped_bytes != handle) memory_used -= handle;
    mapped_bytes = 0;
    return sticky;
}
code cuMemUnmap(pointer address, size_t bytes) {
    mprotect((void *)(uintptr_t)address, bytes, PROT_NONE);
    memory_used -= bytes;
    in_use--;
    return sticky;
}
typedef struct { int location, id, flags; } access_description;
code cuMemSetAccess(pointer address, size_t bytes, const access_description *access, size_t count) {
    ENTER_CONTEXT;
    if (count != 1 || access->location != 1 || access->flags != 3) return INVALID;
    return mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) ? INVALID : 0;
}
#endif
