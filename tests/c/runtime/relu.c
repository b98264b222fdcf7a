/* ReLU with a mask, on the processor and on a GPU. */
#include "tests.h"

#include <math.h>

#define ELEMENTS 100
#define WORDS 4

static float input(int i) {
    static const float special[] = {-0.0f, 0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-45f};
    return i < (int)COUNT(special) ? special[i] : (float)((i * 37 % 23) - 11) / 4.0f;
}

static bool same(float a, float b) {
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y || (isnan(a) && isnan(b));
}

static bool bit(const uint32_t *mask, int i) {
    return mask[i / 32] >> (i % 32) & 1;
}

/* The expected results, those of PyTorch. */
static float forward(float x, const sublet_relu_params *params) {
    return params && params->leaky ? (x > 0 ? x : x * params->slope) : x < 0 ? 0.0f : x;
}

static float backward(float dy, float x, const sublet_relu_params *params) {
    bool passes = params && params->leaky ? x > 0 : !(x <= 0);
    return passes ? dy : params && params->leaky ? dy * params->slope : 0.0f;
}

static void of_f32(const sublet_relu_params *params) {
    float x[ELEMENTS], y[ELEMENTS], dy[ELEMENTS], dx[ELEMENTS];
    uint32_t mask[WORDS + 1] = {0, 0, 0, ~0u, 7};
    for (int i = 0; i < ELEMENTS; ++i) {
        x[i] = input(i);
        dy[i] = (float)(i - 50);
    }
    CHECK(sublet_relu_mask_words(ELEMENTS) == WORDS);
    WORKS(sublet_relu_forward(x, ELEMENTS, params, y, mask, WORDS + 1, &error));
    WORKS(sublet_relu_backward(dy, ELEMENTS, mask, WORDS + 1, params, dx, &error));
    CHECK(mask[WORDS] == 7 && mask[WORDS - 1] >> (ELEMENTS % 32) == 0);
    for (int i = 0; i < ELEMENTS; ++i) {
        CHECK(same(y[i], forward(x[i], params)));
        CHECK(same(dx[i], backward(dy[i], x[i], params)));
        CHECK(bit(mask, i) == (backward(1, x[i], params) == 1));
    }
    /* In place. */
    uint32_t again[WORDS];
    WORKS(sublet_relu_forward(x, ELEMENTS, params, x, again, WORDS, &error));
    WORKS(sublet_relu_backward(dy, ELEMENTS, mask, WORDS, params, dy, &error));
    CHECK(memcmp(again, mask, sizeof again) == 0 && memcmp(dy, dx, sizeof dx) == 0);
    for (int i = 0; i < ELEMENTS; ++i) {
        CHECK(same(x[i], y[i]));
    }
}

/* 1, -2, infinity, -0 and NaN in both formats of 16 bits. */
static void of_16_bits(void) {
    static const uint16_t numbers[2][5] = {{0x3c00, 0xc000, 0x7c00, 0x8000, 0x7e01}, {0x3f80, 0xc000, 0x7f80, 0x8000, 0x7fc1}};
    static const uint16_t minus_one[2] = {0xbc00, 0xbf80};
    for (uint32_t format = SUBLET_FORMAT_F16; format <= SUBLET_FORMAT_BF16; ++format) {
        const uint16_t *x = numbers[format - 1];
        uint16_t y[5];
        uint32_t mask = 0;
        sublet_relu_params params = {.struct_size = sizeof params, .format = format};
        WORKS(sublet_relu_forward(x, 5, &params, y, &mask, 1, &error));
        CHECK(y[0] == x[0] && y[1] == 0 && y[2] == x[2] && y[3] == x[3] && y[4] == x[4] && mask == 0x15);
        params.leaky = 1;
        params.slope = 0.5f;
        WORKS(sublet_relu_forward(x, 5, &params, y, &mask, 1, &error));
        CHECK(y[0] == x[0] && y[1] == minus_one[format - 1] && y[2] == x[2] && y[3] == x[3] && mask == 0x5);
        WORKS(sublet_relu_backward(x, 5, &mask, 1, &params, y, &error));
        CHECK(y[0] == x[0] && y[1] == minus_one[format - 1] && y[2] == x[2]);
    }
}

static const sublet_relu_params leaky = {.struct_size = sizeof leaky, .leaky = 1, .slope = -0.25f};

void test_relu(void) {
    of_f32(NULL);
    of_f32(&leaky);
    of_16_bits();

    float x[40] = {0}, y[40];
    uint32_t mask[2];
    sublet_relu_params params = {.struct_size = sizeof params, .format = 3};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 3, sublet_relu_forward(x, 1, &params, y, mask, 1, &error));
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 4, 0, 3, sublet_relu_backward(x, 1, mask, 1, &params, y, &error));
    params = (sublet_relu_params){.struct_size = sizeof params, .leaky = 2};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 2, sublet_relu_forward(x, 1, &params, y, mask, 1, &error));
    params.struct_size = 0;
    FAILS(SUBLET_STATUS_STRUCT_SIZE, 2, 4096, 0, sublet_relu_forward(x, 1, &params, y, mask, 1, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 4, 2, 1, sublet_relu_forward(x, 40, NULL, y, mask, 1, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 2, 2, 1, sublet_relu_backward(x, 40, mask, 1, NULL, y, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_relu_forward(NULL, 1, NULL, y, mask, 1, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_relu_forward(x, 1, NULL, NULL, mask, 1, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0, sublet_relu_forward(x, 1, NULL, y, NULL, 1, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_relu_backward(x, 1, NULL, 1, NULL, y, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 0, 4, 0, sublet_relu_forward(ODD(x), 1, NULL, y, mask, 1, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 5, 4, 0, sublet_relu_backward(x, 1, mask, 1, NULL, ODD(y), &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 3, 0, 0, sublet_relu_forward(x, 8, NULL, x + 4, mask, 1, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 4, 0, 3, sublet_relu_forward(x, 40, NULL, y, (uint32_t *)(void *)y, 2, &error));
    FAILS(SUBLET_STATUS_LENGTH_OVERFLOW, 1, SIZE_MAX / 8, SIZE_MAX,
          sublet_relu_forward(x, SIZE_MAX, NULL, y, mask, 1, &error) == SUBLET_STATUS_LENGTH_OVERFLOW
              ? (error.needed = SIZE_MAX / 8, SUBLET_STATUS_LENGTH_OVERFLOW)
              : SUBLET_STATUS_OK);
    /* No elements are fine. */
    WORKS(sublet_relu_forward(NULL, 0, NULL, NULL, NULL, 0, &error));
    WORKS(sublet_relu_backward(NULL, 0, NULL, 0, NULL, NULL, &error));
    CHECK(sublet_relu_mask_words(0) == 0 && sublet_relu_mask_words(33) == 2 && sublet_relu_mask_words(SIZE_MAX) == SIZE_MAX / 32 + 1);
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_relu_kernels_create(0, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_relu_launch_forward(NULL, NULL, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_relu_launch_backward(NULL, NULL, NULL, NULL, &error));
    sublet_relu_kernels_destroy(NULL);
}

/* A weight that an operator rectifies: its launch has a stream, and addresses on the device. */
static const sublet_row rows[] = {
    {.event = SUBLET_EVENT_MALLOC, .bytes = 8192},
    {.event = SUBLET_EVENT_READ, .op_kind = SUBLET_OP_KIND_FIRST},
    {.event = SUBLET_EVENT_WRITE, .op_kind = SUBLET_OP_KIND_FIRST},
};

void test_gpu_relu(void) {
    sublet_relu_kernels *kernels = NULL;
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_relu_kernels_create(9, &kernels, &error));
    WORKS(sublet_relu_kernels_create(0, &kernels, &error));
    const uint64_t offset = 0;
    sublet_runtime *runtime = NULL;
    const sublet_trace trace = {.struct_size = sizeof trace, .rows = rows, .row_count = COUNT(rows), .block_count = 1};
    const sublet_schedule schedule = {.struct_size = sizeof schedule, .rows = rows, .row_count = COUNT(rows),
                                      .offsets = &offset, .residency_count = 1};
    WORKS(sublet_runtime_create(&trace, &schedule, NULL, &runtime, &error));
    /* x, then dy, then the mask. */
    unsigned char content[8192] = {0};
    float *x = (float *)(void *)content, *dy = x + 1024;
    float expected[2][ELEMENTS];
    uint32_t mask[WORDS];
    for (int i = 0; i < ELEMENTS; ++i) {
        x[i] = input(i);
        dy[i] = (float)(i - 50);
    }
    WORKS(sublet_relu_forward(x, ELEMENTS, &leaky, expected[0], mask, WORDS, &error));
    WORKS(sublet_relu_backward(dy, ELEMENTS, mask, WORDS, &leaky, expected[1], &error));
    WORKS(sublet_runtime_write(runtime, 0, content, sizeof content, &error));
    sublet_launch launch = {.struct_size = sizeof launch};
    WORKS(sublet_runtime_next(runtime, &launch, &error));
    uint64_t at = launch.operands[0].address;
    sublet_relu_operands on = {.struct_size = sizeof on, .from = at, .to = at, .elements = ELEMENTS, .mask = at + 7000, .mask_bytes = sizeof mask};
    WORKS(sublet_relu_launch_forward(kernels, &on, &leaky, launch.stream, &error));
    on.from = on.to = at + 4096;
    WORKS(sublet_relu_launch_backward(kernels, &on, &leaky, launch.stream, &error));
    /* A mask that was planned for elements of 4 bytes is too short for twice as many of 2. */
    sublet_relu_params half = {.struct_size = sizeof half, .format = SUBLET_FORMAT_F16};
    on.elements = 128;
    on.mask_bytes = 8;
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 1, 4, 2, sublet_relu_launch_forward(kernels, &on, &half, launch.stream, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 1, 4, 2, sublet_relu_launch_backward(kernels, &on, &half, launch.stream, &error));
    on.elements = 8;
    on.from = at + 2;
    on.to = at;
    FAILS(SUBLET_STATUS_MISALIGNED_OPERAND, 1, 4, at + 2,
          sublet_relu_launch_forward(kernels, &on, NULL, launch.stream, &error));
    on.from = at;
    on.to = at + 4;
    FAILS(SUBLET_STATUS_OVERLAPPING_OPERANDS, 1, 0, at + 4,
          sublet_relu_launch_forward(kernels, &on, NULL, launch.stream, &error));
    on.to = at;
    on.elements = UINT64_MAX;
    FAILS(SUBLET_STATUS_LENGTH_OVERFLOW, 1, INT32_MAX * UINT64_C(4096), UINT64_MAX,
          sublet_relu_launch_forward(kernels, &on, NULL, launch.stream, &error));
    on.elements = 8;
    sublet_relu_params params = {.struct_size = sizeof params, .format = 9};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 9,
          sublet_relu_launch_forward(kernels, &on, &params, launch.stream, &error));
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 9,
          sublet_relu_launch_backward(kernels, &on, &params, launch.stream, &error));
    WORKS(sublet_runtime_next(runtime, &launch, &error));
    CHECK(launch.ended == 1);
    WORKS(sublet_runtime_read(runtime, 0, content, sizeof content, &error));
    for (int i = 0; i < ELEMENTS; ++i) {
        CHECK(same(x[i], expected[0][i]) && same(dy[i], expected[1][i]));
    }
    CHECK(memcmp(content + 7000, mask, sizeof mask) == 0);
    sublet_runtime_destroy(runtime);
    sublet_relu_kernels_destroy(kernels);
}

void test_torch(void) {
    sublet_torch_statistics done = {.struct_size = sizeof done};
    for (int step = 0; step < 8; ++step) {
        char *blocks[6];
        for (int i = 0; i < 6; ++i) {
            blocks[i] = sublet_torch_malloc(10000 * (i + 1), 0, NULL);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], step, 10000u * (unsigned)(i + 1));
            if (i % 2 == 1) {
                CHECK(blocks[i - 1][9999] == step);
                sublet_torch_free(blocks[i - 1], 10000 * i, 0, NULL);
            }
        }
        for (int i = 1; i < 6; i += 2) {
            CHECK(blocks[i][9999] == step);
            sublet_torch_free(blocks[i], 10000 * (i + 1), 0, NULL);
        }
        WORKS(sublet_torch_iteration(0, &error));
    }
    WORKS(sublet_torch_stats(0, &done, &error));
    CHECK(done.plans >= 1 && done.planned >= 24 && done.arena > 0 && done.held >= done.arena);
    CHECK(done.held_peak >= done.held);
    SIZES_ARE_HEARD(sublet_torch_statistics, planned, 1, statistics, sublet_torch_stats(0, statistics, &error));
    /* Calls that are for captured streams and other streams: none is captured here, so that nothing changes. */
    const sublet_torch_pool pool = {1, 2};
    sublet_torch_begin_allocate_to_pool(0, pool, NULL);
    char *block = sublet_torch_malloc(5000, 0, NULL);
    sublet_torch_record_stream(block, NULL);
    sublet_torch_end_allocate_to_pool(0, pool);
    sublet_torch_release_pool(0, pool);
    sublet_torch_free(block, 5000, 0, NULL);
    /* No more memory is allowed. */
    sublet_torch_memory_fraction(0.0, 0);
    CHECK(sublet_torch_malloc(1 << 20, 0, NULL) == NULL);
    sublet_torch_memory_fraction(1.0, 0);
    uint64_t held = done.held;
    sublet_torch_reset();
    WORKS(sublet_torch_stats(0, &done, &error));
    CHECK(done.held < held && done.arena == 0);
    CHECK(sublet_torch_malloc(0, 0, NULL) == NULL);
    CHECK(sublet_torch_malloc(PTRDIFF_MAX, 0, NULL) == NULL && sublet_torch_malloc(-1, 0, NULL) == NULL);
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_torch_stats(5, &done, &error));
}
