/* Two plans of one model, from two headers in one program, on a microcontroller with two memories: every tensor lies where
 * the header says, in a fast or in a slow memory, and the operators run in the header's order on the header's tensors.
 * What comes out is compared with a run in which every tensor has memory of its own. Stands in for firmware that has
 * kernels of its own; here these are a few lines each, on whole numbers in place of the model's. */

#include <stdint.h>

#include "first.h"
#include "second.h"

/* Semihosting: the emulator prints, and ends. */
static uint32_t call(uint32_t what, const void *with) {
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void print(const char *text) { (void)call(0x04u, text); }

static void leave(uint32_t status) {
    const uint32_t block[2] = {0x20026u, status};
    (void)call(0x20u, block);
}

static int same(const char *a, const char *b) {
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* Weights that the model's stand in for: any will do, as long as both runs have the same. */
static int32_t weight(uint32_t operation, uint32_t row, uint32_t column) {
    return (int32_t)((operation * 7u + row * 3u + column * 5u) % 11u) - 5;
}

/* One operator on tensors of pixels with two channels. An output may lie over an input: a pixel is read before it is
 * written. Returns whether the operator is known. */
static int operate(const char *kind, uint32_t number, const int32_t *a, const int32_t *b, int32_t *out, uint32_t cells) {
    for (uint32_t i = 0; i + 1u < cells; i += 2u) {
        const int32_t x = a[i], y = a[i + 1u];
        if (same(kind, "CONV_2D")) {
            out[i] = x * weight(number, 0, 0) + y * weight(number, 0, 1) + weight(number, 0, 2);
            out[i + 1u] = x * weight(number, 1, 0) + y * weight(number, 1, 1) + weight(number, 1, 2);
        } else if (same(kind, "DEPTHWISE_CONV_2D")) {
            out[i] = x * weight(number, 0, 0) + weight(number, 0, 2);
            out[i + 1u] = y * weight(number, 1, 1) + weight(number, 1, 2);
        } else if (same(kind, "RELU")) {
            out[i] = x > 0 ? x : 0;
            out[i + 1u] = y > 0 ? y : 0;
        } else if (same(kind, "ADD")) {
            const int32_t u = b[i], v = b[i + 1u];
            out[i] = x + u;
            out[i + 1u] = y + v;
        } else if (same(kind, "RESHAPE")) {
            out[i] = x;
            out[i + 1u] = y;
        } else {
            return 0;
        }
    }
    return 1;
}

static void fill(int32_t *input, uint32_t cells) {
    for (uint32_t i = 0; i < cells; i++) {
        input[i] = (int32_t)(i * i % 23u) - 11;
    }
}

/* Memory of its own for each tensor. */
#define MOST_CELLS 128u
static int32_t apart[FIRST_TENSORS][MOST_CELLS];

/* The run of a plan, and one with memory of its own for each tensor; whether the outputs are equal. */
#define RUNS(lower, UPPER)                                                                                             \
    static int32_t *lower##_at(int32_t t, int planned) {                                                               \
        if (t < 0 || lower##_tensors[t].offset < 0) {                                                                  \
            return (int32_t *)0;                                                                                       \
        }                                                                                                              \
        return planned ? (int32_t *)(void *)&lower##_memories[lower##_tensors[t].bank][lower##_tensors[t].offset]     \
                       : apart[t];                                                                                     \
    }                                                                                                                  \
    static int lower##_run(int planned) {                                                                              \
        const uint32_t image = lower##_inputs[0];                                                                      \
        fill(lower##_at((int32_t)image, planned), lower##_tensors[image].bytes / 4u);                                  \
        for (uint32_t o = 0; o < UPPER##_OPERATORS; o++) {                                                             \
            const int32_t *const own = &lower##_operands[lower##_spans[o].first];                                      \
            const uint32_t reads = lower##_spans[o].reads;                                                             \
            const int32_t to = own[reads];                                                                             \
            const int32_t *const b = reads > 1u ? lower##_at(own[1], planned) : (int32_t *)0;                          \
            if (!operate(lower##_kinds[o], lower##_operators[o], lower##_at(own[0], planned), b,                       \
                         lower##_at(to, planned), lower##_tensors[to].bytes / 4u)) {                                   \
                return 0;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        return 1;                                                                                                      \
    }                                                                                                                  \
    static int lower##_is_right(void) {                                                                                \
        const int32_t out = (int32_t)lower##_outputs[0];                                                               \
        if (!lower##_run(0) || !lower##_run(1)) {                                                                      \
            return 0;                                                                                                  \
        }                                                                                                              \
        for (uint32_t i = 0; i < lower##_tensors[out].bytes / 4u; i++) {                                               \
            if (lower##_at(out, 1)[i] != lower##_at(out, 0)[i]) {                                                      \
                return 0;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        return 1;                                                                                                      \
    }

RUNS(first, FIRST)
RUNS(second, SECOND)

static int banks_used(void) {
    uint32_t used = 0;
    for (uint32_t t = 0; t < FIRST_TENSORS; t++) {
        used |= first_tensors[t].offset >= 0 ? 1u << first_tensors[t].bank : 0u;
    }
    return used == 3u;
}

void reset(void);
void reset(void) {
    const int first = first_is_right(), second = second_is_right(), both = banks_used();
    print(first ? "first: equal\n" : "first: differs\n");
    print(second ? "second: equal\n" : "second: differs\n");
    print(both ? "both memories are used\n" : "one memory is not used\n");
    leave(first && second && both ? 0u : 1u);
    for (;;) {
    }
}

extern uint32_t stack_top;
__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {&stack_top, (const void *)reset};
