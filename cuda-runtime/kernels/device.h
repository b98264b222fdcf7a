/*
 * The few words of CUDA C that the kernels use, for clang without the headers of the CUDA toolkit (build.sh):
 *
 *     clang++-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx60 -nocudainc
 *
 * Any other compiler gets emulate.h in their place, which defines them in C++ for the host: a warp is 32 fibres there.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* 16 bytes: the widest load of a thread. */
typedef u32 vector16 __attribute__((vector_size(16)));

#ifdef __CUDA__

#define METHOD __attribute__((device, always_inline))
#define DEVICE static METHOD
#define KERNEL extern "C" __attribute__((global, launch_bounds(256))) void

DEVICE u32 thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 block() { return __nvvm_read_ptx_sreg_ctaid_x(); }

/* Bit l: what lane l of the warp says; every lane takes part. */
DEVICE u32 ballot(bool says) { return __nvvm_vote_ballot_sync(0xffffffffu, says); }

/* What the lane with this number, or with this number's bits flipped, says; every lane takes part. */
DEVICE u32 from_lane(u32 says, u32 lane) { return __nvvm_shfl_sync_idx_i32(0xffffffffu, says, lane, 31); }
DEVICE u32 across(u32 says, u32 flipped) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, says, flipped, 31); }

template <typename T> DEVICE T load(const T *from) { return *from; }
template <typename T> DEVICE void store(T *to, T value) { *to = value; }

DEVICE float float_of(u32 bits) { return __builtin_bit_cast(float, bits); }
DEVICE u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }

/* Binary16 from and to binary32, to the nearest, ties to even; a NaN stays one. */
DEVICE float float_of_half(u32 bits) {
    float x;
    u16 half = (u16)bits;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}
DEVICE u32 half_of_float(float x) {
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

#else
#include "emulate.h"
#endif
