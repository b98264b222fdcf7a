/*
 * ReLU and leaky ReLU that keep one bit of each element for the way back.
 *
 * Problem: backward needs to know of each element on which side of zero it was, and nothing else; keeping the
 * activation for that costs 32 times as much in f32, 16 times in f16 and bf16.
 * Papers: Jin et al. 2018 (Layrub), section 4.2, keeps a byte; Jain et al. 2018 (Gist) a bit.
 *
 * Values, in both directions, are those of PyTorch (src/relu/mod.rs has the table and its sources):
 *     relu   y = x < 0 ? 0 : x           bit = !(x <= 0)   dx = bit ? dy : 0
 *     leaky  y = x > 0 ? x : x * slope   bit = x > 0       dx = bit ? dy : dy * slope
 *
 * Mask: the bit of element i is bit i % 32 of the little-endian word i / 32. The bits after the last element are 0.
 *
 * Steps. A warp does one tile, which is four vectors of 16 bytes for each lane: 512 elements of 4 bytes or 1024 of 2,
 * that is 64 or 128 bytes of mask. Lane l loads the vectors l, 32 + l, 64 + l and 96 + l, so that the loads and stores
 * of a warp are whole lines, and gets 4 or 8 bits of each. Four neighbouring lanes are a group, and exchange bits: its
 * lane j then has the bits of all j-th vectors of the group. These 16 or 32 bits follow on each other in the mask, so
 * that the warp stores whole sectors of it.
 * Where an address is no multiple of 16, and in the last tile, a lane takes every 32nd element and the warp votes.
 *
 * Cost: each element is read and written once, and its bit written, or read, once: memory decides.
 * In place: a lane reads a tile's elements before it writes them, and nobody else's. Limits: 2^31 - 1 blocks.
 */
#include "device.h"

/* Elements as bits: of a vector, of which there are COUNT, and one after another in memory. */
struct F32 {
    typedef u32 bits;
    enum { COUNT = 4 };

    DEVICE float value(u32 x) { return float_of(x); }
    DEVICE u32 rounded(float x) { return bits_of(x); }
    DEVICE bool is_negative(u32 x) { return float_of(x) < 0; }
    DEVICE bool is_positive_or_nan(u32 x) { return !(float_of(x) <= 0); }
    DEVICE u32 get(vector16 v, u32 i) { return v[i]; }
    DEVICE void put(vector16 &v, u32 i, u32 x) { v[i] = x; }
};

/* Two formats of 16 bits: sign and magnitude, NaNs above INFINITE. */
template <u32 INFINITE> struct Two {
    typedef u16 bits;
    enum { COUNT = 8 };

    /* Between the least negative number and minus infinity, both included. */
    DEVICE bool is_negative(u32 x) { return ((x - 0x8001u) & 0xffffu) < INFINITE; }
    DEVICE bool is_positive_or_nan(u32 x) { return !is_negative(x) && (x & 0x7fffu) != 0; }
    DEVICE u32 get(vector16 v, u32 i) { return i % 2 ? v[i / 2] >> 16 : v[i / 2] & 0xffffu; }
    DEVICE void put(vector16 &v, u32 i, u32 x) { v[i / 2] = i % 2 ? v[i / 2] | x << 16 : x; }
};

struct F16 : Two<0x7c00> {
    DEVICE float value(u32 x) { return float_of_half(x); }
    DEVICE u32 rounded(float x) { return half_of_float(x); }
};

struct Bf16 : Two<0x7f80> {
    DEVICE float value(u32 x) { return float_of(x << 16); }
    /* To the nearest, ties to even; a NaN must not become infinite. */
    DEVICE u32 rounded(float x) {
        u32 bits = bits_of(x);
        return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    }
};

struct Relu {
    template <typename T> DEVICE u32 forward(u32 x, float) { return T::is_negative(x) ? 0 : x; }
    template <typename T> DEVICE bool bit(u32 x) { return T::is_positive_or_nan(x); }
    template <typename T> DEVICE u32 backward(u32 dy, bool bit, float) { return bit ? dy : 0; }
};

struct Leaky {
    template <typename T> DEVICE u32 forward(u32 x, float slope) { return backward<T>(x, bit<T>(x), slope); }
    template <typename T> DEVICE bool bit(u32 x) { return T::value(x) > 0; }
    template <typename T> DEVICE u32 backward(u32 dy, bool bit, float slope) {
        return bit ? dy : T::rounded(T::value(dy) * slope);
    }
};

/* The bits of a lane's vectors, or of a group's: four fields of COUNT bits. */
template <typename T> struct Fields;
template <> struct Fields<F32> {
    typedef u16 stored;
    enum { LOW = 0x0f0f, LOW_PAIR = 0x00ff };
};
template <> struct Fields<F16> {
    typedef u32 stored;
    enum { LOW = 0x00ff00ff, LOW_PAIR = 0x0000ffff };
};
template <> struct Fields<Bf16> : Fields<F16> {};

/* Four lanes with four fields each: lane j gets the j-th field of each. It is its own inverse. */
template <typename T> DEVICE u32 transposed(u32 fields, u32 lane) {
    const u32 low = Fields<T>::LOW, low_pair = Fields<T>::LOW_PAIR, width = T::COUNT;
    u32 other = across(fields, 1);
    fields = lane & 1 ? (fields & low << width) | (other >> width & low) : (fields & low) | (other & low) << width;
    other = across(fields, 2);
    return lane & 2 ? (fields & low_pair << 2 * width) | (other >> 2 * width & low_pair)
                    : (fields & low_pair) | (other & low_pair) << 2 * width;
}

/* BATCH: where a lane takes single elements, how many it loads before it uses the first of them. */
enum { LANES = 32, VECTORS = 4, BATCH = 8 };

/* The elements that one warp does. */
template <typename T> struct Tile {
    typedef typename T::bits bits;
    typedef typename Fields<T>::stored stored;
    enum { ELEMENTS = LANES * VECTORS * T::COUNT, WORDS = ELEMENTS / 32 };

    u64 begin, left;
    u32 lane;

    DEVICE Tile of(u64 n) {
        u64 begin = ((u64)block() * (256 / LANES) + thread() / LANES) * ELEMENTS;
        return Tile{begin, begin < n ? n - begin : 0, thread() % LANES};
    }

    METHOD bool is_whole(const void *from, const void *to) const {
        return left >= ELEMENTS && (((u64)from | (u64)to) & 15) == 0;
    }

    /* The index in the mask of the 16 or 32 bits that this lane has after `transposed`. */
    METHOD u64 field() const {
        return begin / (4 * T::COUNT) + (lane % 4) * (LANES / 4) + lane / 4;
    }
};

template <typename T, typename Kind>
DEVICE void forward(const typename T::bits *x, typename T::bits *y, u32 *mask, u64 n, float slope) {
    typedef Tile<T> Tile;
    Tile tile = Tile::of(n);
    if (tile.left == 0) {
        return;
    }
    if (tile.is_whole(x, y)) {
        const vector16 *from = (const vector16 *)(x + tile.begin) + tile.lane;
        vector16 *to = (vector16 *)(y + tile.begin) + tile.lane;
        vector16 v[VECTORS];
#pragma unroll
        for (u32 i = 0; i < VECTORS; i++) {
            v[i] = load(from + LANES * i);
        }
        u32 fields = 0;
#pragma unroll
        for (u32 i = 0; i < VECTORS; i++) {
            vector16 result = {};
#pragma unroll
            for (u32 k = 0; k < T::COUNT; k++) {
                u32 element = T::get(v[i], k);
                fields |= (u32)Kind::template bit<T>(element) << (i * T::COUNT + k);
                T::put(result, k, Kind::template forward<T>(element, slope));
            }
            store(to + LANES * i, result);
        }
        fields = transposed<T>(fields, tile.lane);
        store((typename Tile::stored *)mask + tile.field(), (typename Tile::stored)fields);
        return;
    }
    u32 word = 0;
#pragma unroll 1
    for (u32 first = 0; first < Tile::WORDS; first += BATCH) {
        u32 elements[BATCH] = {};
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = (first + k) * 32 + tile.lane;
            if (i < tile.left) {
                elements[k] = load(x + tile.begin + i);
            }
        }
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = (first + k) * 32 + tile.lane;
            u32 bits = ballot(i < tile.left && Kind::template bit<T>(elements[k]));
            word = tile.lane == first + k ? bits : word;
            if (i < tile.left) {
                store(y + tile.begin + i, (typename T::bits)Kind::template forward<T>(elements[k], slope));
            }
        }
    }
    if (tile.lane < Tile::WORDS && tile.lane * 32 < tile.left) {
        store(mask + tile.begin / 32 + tile.lane, word);
    }
}

template <typename T, typename Kind>
DEVICE void backward(const typename T::bits *dy, typename T::bits *dx, const u32 *mask, u64 n, float slope) {
    typedef Tile<T> Tile;
    Tile tile = Tile::of(n);
    if (tile.left == 0) {
        return;
    }
    if (tile.is_whole(dy, dx)) {
        const vector16 *from = (const vector16 *)(dy + tile.begin) + tile.lane;
        vector16 *to = (vector16 *)(dx + tile.begin) + tile.lane;
        u32 fields = load((const typename Tile::stored *)mask + tile.field());
        vector16 v[VECTORS];
#pragma unroll
        for (u32 i = 0; i < VECTORS; i++) {
            v[i] = load(from + LANES * i);
        }
        fields = transposed<T>(fields, tile.lane);
#pragma unroll
        for (u32 i = 0; i < VECTORS; i++) {
            vector16 result = {};
#pragma unroll
            for (u32 k = 0; k < T::COUNT; k++) {
                bool bit = fields >> (i * T::COUNT + k) & 1;
                T::put(result, k, Kind::template backward<T>(T::get(v[i], k), bit, slope));
            }
            store(to + LANES * i, result);
        }
        return;
    }
    bool has_word = tile.lane < Tile::WORDS && tile.lane * 32 < tile.left;
    u32 word = has_word ? load(mask + tile.begin / 32 + tile.lane) : 0;
#pragma unroll 1
    for (u32 first = 0; first < Tile::WORDS; first += BATCH) {
        u32 elements[BATCH] = {};
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = (first + k) * 32 + tile.lane;
            if (i < tile.left) {
                elements[k] = load(dy + tile.begin + i);
            }
        }
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = (first + k) * 32 + tile.lane;
            bool bit = from_lane(word, first + k) >> tile.lane & 1;
            if (i < tile.left) {
                store(dx + tile.begin + i, (typename T::bits)Kind::template backward<T>(elements[k], bit, slope));
            }
        }
    }
}

#define KERNELS(name, Kind, type, T)                                                                                   \
    KERNEL sublet_##name##_forward_##type(const T::bits *x, T::bits *y, u32 *mask, u64 n, float slope) {               \
        forward<T, Kind>(x, y, mask, n, slope);                                                                        \
    }                                                                                                                  \
    KERNEL sublet_##name##_backward_##type(const T::bits *dy, T::bits *dx, const u32 *mask, u64 n, float slope) {      \
        backward<T, Kind>(dy, dx, mask, n, slope);                                                                     \
    }

KERNELS(relu, Relu, f32, F32)
KERNELS(relu, Relu, f16, F16)
KERNELS(relu, Relu, bf16, Bf16)
KERNELS(leaky_relu, Leaky, f32, F32)
KERNELS(leaky_relu, Leaky, f16, F16)
KERNELS(leaky_relu, Leaky, bf16, Bf16)
