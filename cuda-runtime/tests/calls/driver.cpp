// A CUDA driver for tests that knows what ReLU's launches and the memory for PyTorch ask of it: device memory is the
// host's, and a kernel is run by the emulator before its launch returns.
//
// Environment: FAKE_WITHOUT_POOLS; FAKE_POOL, the error of making a pool; FAKE_POOL_MEMORY, the bytes that a pool gives
// out at once; FAKE_PEERS, where devices reach each other's memory; FAKE_ACCESS, the error of letting them; FAKE_MEMORY, bytes of the device; FAKE_FAIL, the number of the call that fails with
// FAKE_ERROR, after which every call fails if that is an error that sticks.
#include "../../kernels/emulate.cpp"

#include <map>
#include <stdlib.h>

typedef unsigned Code;
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906, RELAXED = 2 };
enum { INVALID_HANDLE = 400 };
enum { INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719 };

namespace {

struct Function {
    char name[64];
};

struct Properties {
    int allocation, handles, location, id;
    void *security;
    size_t most;
    unsigned char reserved[56];
};

std::map<u64, size_t> live;
size_t used, cached, high, open_to_peers;
u64 waited_for_all;
int pushed, context, pool, module, event;
unsigned capture_mode;
bool capturing;
long calls;
u64 threshold;
Code sticky;

long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

Code enter(bool in_context) {
    if (sticky) {
        return sticky;
    }
    if (++calls == setting("FAKE_FAIL", 0)) {
        Code error = (Code)setting("FAKE_ERROR", INVALID);
        sticky = error >= 700 ? error : 0;
        return error;
    }
    return in_context && pushed != 1 ? NO_CONTEXT : 0;
}

Code allocate(u64 *address, size_t bytes) {
    if (used + bytes > (size_t)setting("FAKE_MEMORY", 1L << 28)) {
        return OUT_OF_MEMORY;
    }
    *address = (u64)aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    live[*address] = bytes;
    used += bytes;
    cached -= cached < bytes ? cached : bytes;
    high = used + cached > high ? used + cached : high;
    return 0;
}

Code release(u64 address) {
    auto block = live.find(address);
    if (block == live.end()) {
        return INVALID;
    }
    used -= block->second;
    live.erase(block);
    free((void *)address);
    return 0;
}

/* The allocation around an address, from it on. */
emulated::Range around(u64 address) {
    auto block = live.upper_bound(address);
    if (block == live.begin()) {
        return {0, 0};
    }
    --block;
    return {block->first, block->first + block->second};
}

} // namespace

#define CALL(in_context)                                                                                               \
    if (Code code = enter(in_context)) {                                                                               \
        return code;                                                                                                   \
    }

extern "C" {
Code cuInit(unsigned flags) {
    CALL(false);
    return flags == 0 ? 0 : INVALID;
}
Code cuDeviceGetCount(int *count) {
    CALL(false);
    *count = 2;
    return 0;
}
Code cuDeviceGet(int *device, int ordinal) {
    CALL(false);
    *device = ordinal + 10;
    return 0;
}
Code cuDeviceGetAttribute(int *value, unsigned attribute, int device) {
    CALL(false);
    *value = attribute == 115 && device >= 10 && !getenv("FAKE_WITHOUT_POOLS");
    return 0;
}
Code cuDevicePrimaryCtxRetain(void **to, int device) {
    CALL(false);
    *to = &context;
    return device >= 10 ? 0 : INVALID;
}
Code cuCtxPushCurrent_v2(void *given) {
    CALL(false);
    pushed += given == &context;
    return given == &context ? 0 : INVALID;
}
Code cuCtxPopCurrent_v2(void **popped) {
    *popped = &context;
    pushed--;
    return 0;
}
/* A stream that has been destroyed, of which a real driver says so if it is lucky. */
#define ALIVE(stream)                                                                                                  \
    if (stream == (void *)0xdead) {                                                                                    \
        return INVALID_HANDLE;                                                                                         \
    }
Code cuStreamSynchronize(void *stream) {
    CALL(true);
    ALIVE(stream);
    return 0;
}
u64 fake_waited_for_all() { return waited_for_all; }
u64 fake_open_to_peers() { return open_to_peers; }
Code cuCtxSynchronize() {
    CALL(true);
    waited_for_all++;
    return capturing ? CAPTURE_UNSUPPORTED : 0;
}
Code cuCtxGetCurrent(void **current) {
    *current = &context;
    return 0;
}
/* The stream 0xca is captured while FAKE_CAPTURE is set; then the default stream, 0, cannot even be asked. */
Code cuStreamIsCapturing(void *stream, unsigned *status) {
    CALL(true);
    ALIVE(stream);
    capturing = getenv("FAKE_CAPTURE");
    *status = capturing && stream == (void *)0xca;
    return capturing && !stream ? CAPTURE_IMPLICIT : 0;
}
Code cuThreadExchangeStreamCaptureMode(unsigned *mode) {
    CALL(true);
    unsigned before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}
Code cuEventCreate(void **to, unsigned flags) {
    CALL(true);
    *to = &event;
    return flags == 2 ? 0 : INVALID;
}
Code cuEventDestroy_v2(void *given) {
    CALL(true);
    return given == &event ? 0 : INVALID;
}
Code cuEventRecord(void *given, void *stream) {
    CALL(true);
    ALIVE(stream);
    return given == &event ? 0 : INVALID;
}
Code cuStreamWaitEvent(void *stream, void *given, unsigned flags) {
    CALL(true);
    ALIVE(stream);
    return given == &event && flags == 0 ? 0 : INVALID;
}
Code cuMemGetInfo_v2(size_t *free, size_t *total) {
    CALL(true);
    *total = (size_t)setting("FAKE_MEMORY", 1L << 28);
    *free = *total - used;
    return 0;
}
Code cuMemAlloc_v2(u64 *address, size_t bytes) {
    CALL(true);
    if (capturing && capture_mode != RELAXED) {
        return CAPTURE_UNSUPPORTED;
    }
    return allocate(address, bytes);
}
Code cuMemFree_v2(u64 address) {
    CALL(true);
    return release(address);
}
Code cuMemPoolCreate(void **to, const Properties *properties) {
    CALL(true);
    *to = &pool;
    bool good = properties->allocation == 1 && properties->handles == 0 && properties->location == 1 &&
                (properties->id == 0 || properties->id == 1) && !properties->security && properties->most == 0;
    return good ? (Code)setting("FAKE_POOL", 0) : (Code)INVALID;
}
Code cuMemPoolDestroy(void *given) { return given == &pool ? 0 : INVALID; }
Code cuDeviceCanAccessPeer(int *can, int device, int peer) {
    CALL(false);
    *can = getenv("FAKE_PEERS") && device != peer;
    return device >= 10 && peer >= 10 ? 0 : INVALID;
}
struct Access {
    int location, id, flags;
};
Code cuMemPoolSetAccess(void *given, const Access *access, size_t count) {
    CALL(true);
    bool good = given == &pool && count == 1 && access->location == 1 && access->flags == 3 &&
                (access->id == 0 || access->id == 1);
    open_to_peers += count;
    return good ? (Code)setting("FAKE_ACCESS", 0) : (Code)INVALID;
}
Code cuMemPoolSetAttribute(void *, unsigned attribute, void *value) {
    CALL(true);
    memcpy(&threshold, value, sizeof threshold);
    return attribute == 4 ? 0 : INVALID;
}
Code cuMemPoolGetAttribute(void *, unsigned attribute, void *value) {
    CALL(true);
    u64 bytes = attribute == 6 ? high : used + cached;
    memcpy(value, &bytes, sizeof bytes);
    return attribute == 5 || attribute == 6 ? 0 : INVALID;
}
Code cuMemPoolTrimTo(void *given, size_t kept) {
    CALL(true);
    cached = 0;
    return given == &pool && kept == 0 ? 0 : INVALID;
}
Code cuMemAllocFromPoolAsync(u64 *address, size_t bytes, void *given, void *) {
    CALL(true);
    if (used + bytes > (size_t)setting("FAKE_POOL_MEMORY", 1L << 40)) {
        return OUT_OF_MEMORY;
    }
    return given == &pool && threshold == ~0ull ? allocate(address, bytes) : (Code)INVALID;
}
Code cuMemFreeAsync(u64 address, void *stream) {
    CALL(true);
    ALIVE(stream);
    size_t bytes = live.count(address) ? live[address] : 0;
    Code code = release(address);
    cached += code ? 0 : bytes;
    return code;
}
Code cuModuleLoadData(void **to, const char *ptx) {
    CALL(false);
    *to = &module;
    return strncmp(ptx, "//\n// Generated by LLVM NVPTX", 29) == 0 ? 0 : INVALID;
}
Code cuModuleUnload(void *given) {
    if (pushed != 1) {
        abort();
    }
    CALL(true);
    return given == &module ? 0 : INVALID;
}
Code cuModuleGetFunction(void **to, void *given, const char *name) {
    CALL(false);
    for (const Named &named : KERNELS_BY_NAME) {
        if (given == &module && strcmp(named.name, name) == 0) {
            *to = (void *)named.name;
            return 0;
        }
    }
    return NOT_FOUND;
}
Code cuLaunchKernel(const char *kernel, unsigned blocks, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                    unsigned threads_z, unsigned shared, void *, void **arguments, void **extra) {
    CALL(false);
    if (y != 1 || z != 1 || threads_y != 1 || threads_z != 1 || shared != 0 || extra) {
        return INVALID;
    }
    u64 in = *(u64 *)arguments[0], out = *(u64 *)arguments[1], mask = *(u64 *)arguments[2];
    emulated::Launch launch = {};
    bool forward = strstr(kernel, "forward");
    launch.readable[0] = around(in);
    launch.writable[0] = around(out);
    (forward ? launch.writable : launch.readable)[1] = around(mask);
    emulate(kernel, blocks, threads, (void *)in, (void *)out, (u32 *)mask, *(u64 *)arguments[3], *(float *)arguments[4],
            &launch);
    return launch.fault ? LAUNCH_FAILED : 0;
}
}
