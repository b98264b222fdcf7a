/*
 * The words of device.h in C++ for the host, so that the kernels' own source runs where there is no GPU.
 *
 * A warp is 32 fibres. A lane runs until the warp votes or exchanges; when all 32 have come to the same vote, each gets
 * its answer. A lane that does not come, though others wait for it, is a fault: on a GPU it would hang or be undefined.
 * So is an access outside of what was lent, or at an address that is no multiple of its width. What is read and written
 * is counted.
 */
#pragma once

#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#define METHOD inline
#define DEVICE static inline
#define KERNEL extern "C" void

namespace emulated {

enum { WARP = 32, STACK = 1 << 16 };
enum Exchange { NOTHING, BALLOT, FROM_LANE, ACROSS, FINISHED };

struct Range {
    u64 begin, end;
    bool holds(u64 address, u64 bytes) const { return address >= begin && address <= end && bytes <= end - address; }
};

/* A launch: the memory that it may use, and what was found. Rust has the same struct. */
struct Launch {
    Range readable[2], writable[2];
    u64 bytes_read, bytes_written;
    /* The most bytes that a lane reads or writes at once. */
    u64 widest;
    const char *fault;
};

struct Lane {
    ucontext_t context;
    Exchange exchange;
    u32 says, argument, answer;
    alignas(16) unsigned char stack[STACK];
};

static Launch *launch;
static Lane lanes[WARP];
static ucontext_t scheduler;
static u32 current, block_index, warp_index;
static void (*body)();

static inline void fault(const char *what) {
    if (!launch->fault) {
        launch->fault = what;
    }
}

static inline u32 exchange(Exchange kind, u32 says, u32 argument) {
    Lane &lane = lanes[current];
    lane.exchange = kind;
    lane.says = says;
    lane.argument = argument;
    swapcontext(&lane.context, &scheduler);
    return lane.answer;
}

static inline void run_lane() {
    body();
    lanes[current].exchange = FINISHED;
    swapcontext(&lanes[current].context, &scheduler);
}

/* Answers what each lane asks of the others. Returns whether the lanes have more to run. */
static inline bool meet() {
    Exchange kind = lanes[0].exchange;
    u32 votes = 0;
    for (u32 l = 0; l < WARP; l++) {
        if (lanes[l].exchange != kind) {
            fault("not all lanes of a warp come to a vote");
            return false;
        }
        votes |= (u32)(lanes[l].says != 0) << l;
    }
    for (u32 l = 0; l < WARP; l++) {
        Lane &lane = lanes[l];
        lane.answer = kind == BALLOT ? votes : lanes[(kind == ACROSS ? l ^ lane.argument : lane.argument) % WARP].says;
    }
    return kind != FINISHED;
}

static inline void run_warp() {
    for (current = 0; current < WARP; current++) {
        Lane &lane = lanes[current];
        getcontext(&lane.context);
        lane.context.uc_stack.ss_sp = lane.stack;
        lane.context.uc_stack.ss_size = STACK;
        lane.context.uc_link = nullptr;
        makecontext(&lane.context, run_lane, 0);
    }
    do {
        for (current = 0; current < WARP; current++) {
            swapcontext(&scheduler, &lanes[current].context);
        }
    } while (meet());
}

/* Whether an access may be made; it is counted. */
static inline bool may(u64 address, u64 bytes, const Range (&ranges)[2], u64 &counted) {
    counted += bytes;
    launch->widest = bytes > launch->widest ? bytes : launch->widest;
    if (address % bytes != 0) {
        fault("an access that is not aligned");
    } else if (!ranges[0].holds(address, bytes) && !ranges[1].holds(address, bytes)) {
        fault("an access outside of the arrays");
    } else {
        return true;
    }
    return false;
}

} // namespace emulated

DEVICE u32 thread() { return emulated::warp_index * emulated::WARP + emulated::current; }
DEVICE u32 block() { return emulated::block_index; }
DEVICE u32 ballot(bool says) { return emulated::exchange(emulated::BALLOT, says, 0); }
DEVICE u32 from_lane(u32 says, u32 lane) { return emulated::exchange(emulated::FROM_LANE, says, lane); }
DEVICE u32 across(u32 says, u32 flipped) { return emulated::exchange(emulated::ACROSS, says, flipped); }

template <typename T> DEVICE T load(const T *from) {
    T value = {};
    if (emulated::may((u64)from, sizeof(T), emulated::launch->readable, emulated::launch->bytes_read)) {
        memcpy(&value, (const void *)from, sizeof(T));
    }
    return value;
}

template <typename T> DEVICE void store(T *to, T value) {
    if (emulated::may((u64)to, sizeof(T), emulated::launch->writable, emulated::launch->bytes_written)) {
        memcpy((void *)to, &value, sizeof(T));
    }
}

DEVICE float float_of(u32 bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
DEVICE u32 bits_of(float x) {
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

DEVICE float float_of_half(u32 bits) {
    u32 sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00) {
        return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    }
    /* The exponent's bias is 15, not 127; the product is exact, also of what is subnormal. */
    return float_of(sign | bits_of(float_of(magnitude << 13) * 0x1p112f));
}

DEVICE u32 half_of_float(float x) {
    u32 bits = bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7fffu;
    }
    /* From half a unit above the largest number on it is infinity. */
    if (magnitude >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (magnitude < 0x38800000u) {
        /* Subnormal: adding 0.5 leaves the last bit at 2^-24, and rounds as it has to. */
        return sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f));
    }
    return sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
}
