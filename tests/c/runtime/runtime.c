/* Plans on the host as a device: what is copied where, and what is refused. */
#include "tests.h"

#define BYTES 512
#define FIRST SUBLET_OP_KIND_FIRST

/* A weight is doubled, then copied to the host while another one is doubled in its place. */
static const sublet_row original[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = BYTES},
    {.event = SUBLET_EVENT_MALLOC, .block = 1, .bytes = BYTES},
    {.event = SUBLET_EVENT_READ, .block = 0, .op = 0, .op_kind = FIRST},
    {.event = SUBLET_EVENT_WRITE, .block = 0, .op = 0, .op_kind = FIRST},
    {.event = SUBLET_EVENT_READ, .block = 1, .op = 1, .op_kind = FIRST},
    {.event = SUBLET_EVENT_WRITE, .block = 1, .op = 1, .op_kind = FIRST},
};
static const sublet_row rewritten[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = BYTES},
    {.event = SUBLET_EVENT_READ, .block = 0, .op = 0, .op_kind = FIRST},
    {.event = SUBLET_EVENT_WRITE, .block = 0, .op = 0, .op_kind = FIRST},
    {.event = SUBLET_EVENT_SWAP_OUT, .block = 0},
    {.event = SUBLET_EVENT_FREE, .block = 0},
    {.event = SUBLET_EVENT_MALLOC, .block = 1, .bytes = BYTES},
    {.event = SUBLET_EVENT_SWAP_IN, .block = 1},
    {.event = SUBLET_EVENT_READ, .block = 1, .op = 1, .op_kind = FIRST},
    {.event = SUBLET_EVENT_WRITE, .block = 1, .op = 1, .op_kind = FIRST},
    {.event = SUBLET_EVENT_SWAP_OUT, .block = 1},
    {.event = SUBLET_EVENT_FREE, .block = 1},
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = BYTES},
    {.event = SUBLET_EVENT_SWAP_IN, .block = 0},
};
#define ORIGINAL COUNT(original)
#define REWRITTEN COUNT(rewritten)
static const uint64_t offsets[] = {0, 0, 0}, apart[] = {0, BYTES};

static const sublet_runtime_params on_host = {.struct_size = sizeof on_host, .on_host = 1, .memory = 2 * BYTES};

static const sublet_trace trace = {.struct_size = sizeof trace, .rows = original, .row_count = ORIGINAL, .block_count = 2};

static sublet_schedule schedule(const sublet_row *rows, size_t row_count, const uint64_t *where, size_t residencies) {
    return (sublet_schedule){.struct_size = sizeof(sublet_schedule), .rows = rows, .row_count = row_count,
                             .offsets = where, .residency_count = residencies};
}

static sublet_status create(const sublet_runtime_params *params, const uint64_t *where, size_t residencies,
                            sublet_runtime **runtime) {
    const sublet_schedule plan = schedule(rewritten, REWRITTEN, where, residencies);
    return sublet_runtime_create(&trace, &plan, params, runtime, &error);
}

static void doubled(void *data) {
    unsigned char *bytes = data;
    for (int i = 0; i < BYTES; ++i) {
        bytes[i] = (unsigned char)(2 * bytes[i]);
    }
}

static void iterate(sublet_runtime *runtime) {
    sublet_launch launch = {.struct_size = sizeof launch};
    for (uint32_t k = 0; k < 3; ++k) {
        WORKS(sublet_runtime_next(runtime, &launch, &error));
        CHECK(launch.ended == (k == 2));
        if (k < 2) {
            CHECK(launch.operand_count == 1 && launch.op == k && launch.op_kind == FIRST && launch.mask_only == 0);
            const sublet_operand *operand = launch.operands;
            CHECK(operand->block == k && operand->read == 1 && operand->write == 1 && operand->mask == 0);
            CHECK(operand->bytes == BYTES && launch.stream == NULL);
            WORKS(sublet_runtime_call(runtime, doubled, (void *)(uintptr_t)operand->address, &error));
        }
    }
}

static void holds(sublet_runtime *runtime, uint32_t block, unsigned char value) {
    unsigned char content[BYTES] = {0};
    WORKS(sublet_runtime_read(runtime, block, content, BYTES, &error));
    for (int i = 0; i < BYTES; ++i) {
        CHECK(content[i] == value);
    }
}

void test_runtime(void) {
    for (uint32_t pace = 0; pace < 2; ++pace) {
        sublet_runtime_params params = on_host;
        params.as_simulated = pace;
        sublet_runtime *runtime = NULL;
        WORKS(create(&params, offsets, 3, &runtime));
        unsigned char content[BYTES];
        memset(content, 3, BYTES);
        WORKS(sublet_runtime_write(runtime, 0, content, BYTES, &error));
        WORKS(sublet_runtime_write(runtime, 1, content, BYTES, &error));
        iterate(runtime);
        iterate(runtime);
        WORKS(sublet_runtime_measure(runtime, &error));
        iterate(runtime);
        holds(runtime, 0, 24);
        holds(runtime, 1, 24);
        sublet_measured measured = {.struct_size = sizeof measured};
        WORKS(sublet_runtime_measured(runtime, &measured, &error));
        CHECK(measured.time_ns > 0 && measured.simulated_ns > 0 && measured.stalled_ns >= 0);
        CHECK(measured.simulated_stalled_ns > 0 && measured.out_bandwidth > 0 && measured.in_bandwidth > 0);

        /* Both at once, in an arena twice as large, at the same address; then as before. */
        uint64_t begin = NOTHING, size = NOTHING, later = NOTHING;
        WORKS(sublet_runtime_arena(runtime, &begin, &size, &error));
        CHECK(size == BYTES);
        const sublet_schedule both = schedule(original, ORIGINAL, apart, 2), one_by_one = schedule(rewritten, REWRITTEN, offsets, 3);
        WORKS(sublet_runtime_replan(runtime, &trace, &both, NULL, &error));
        WORKS(sublet_runtime_arena(runtime, &later, &size, &error));
        CHECK(later == begin && size == 2 * BYTES);
        iterate(runtime);
        holds(runtime, 0, 48);
        /* The blocks change their numbers, and the content of one is not defined. */
        const uint32_t changed[] = {1, 0}, one[] = {1, UINT32_MAX};
        memset(content, 5, BYTES);
        WORKS(sublet_runtime_write(runtime, 1, content, BYTES, &error));
        WORKS(sublet_runtime_replan(runtime, &trace, &one_by_one, changed, &error));
        holds(runtime, 0, 5);
        holds(runtime, 1, 48);
        WORKS(sublet_runtime_replan(runtime, &trace, &one_by_one, one, &error));
        holds(runtime, 0, 48);
        WORKS(sublet_runtime_write(runtime, 1, content, BYTES, &error));
        iterate(runtime);
        WORKS(sublet_runtime_finish(runtime, &error));
        holds(runtime, 0, 96);
        holds(runtime, 1, 10);
        sublet_runtime_destroy(runtime);
    }
    sublet_runtime_destroy(NULL);
}

void test_wrong_runtime(void) {
    sublet_runtime *runtime = NULL;
    const uint64_t odd[] = {0, 8, 0}, over[] = {0, 256, 0};
    FAILS(SUBLET_STATUS_PLAN_MISALIGNED, 1, 256, 8, create(&on_host, odd, 3, &runtime));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 1, 3, 2, create(&on_host, offsets, 2, &runtime));
    FAILS(SUBLET_STATUS_MISSING_FIELD, 1, 0, offsetof(sublet_schedule, offsets), create(&on_host, NULL, 3, &runtime));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, create(&on_host, offsets, 3, NULL));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 3, 8, 0, create(&on_host, offsets, 3, ODD(&runtime)));
    const sublet_schedule one_by_one = schedule(rewritten, REWRITTEN, offsets, 3);
    sublet_trace wrong_trace = trace;
    wrong_trace.rows = ODD(original);
    wrong_trace.row_count = 2;
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 0, 8, offsetof(sublet_trace, rows),
          sublet_runtime_create(&wrong_trace, &one_by_one, &on_host, &runtime, &error));
    const sublet_schedule nothing = schedule(NULL, REWRITTEN, offsets, 3), empty = schedule(rewritten, 0, NULL, 0);
    FAILS(SUBLET_STATUS_MISSING_FIELD, 1, 0, offsetof(sublet_schedule, rows),
          sublet_runtime_create(&trace, &nothing, &on_host, &runtime, &error));
    CHECK(sublet_runtime_create(&trace, &empty, &on_host, &runtime, &error) == SUBLET_STATUS_ROW_ACCESSES_MISSING);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_runtime_create(NULL, &one_by_one, &on_host, &runtime, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_runtime_create(&trace, NULL, &on_host, &runtime, &error));
    sublet_runtime_params params = on_host;
    params.on_host = 2;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 2, create(&params, offsets, 3, &runtime));
    params = on_host;
    params.as_simulated = 3;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 3, create(&params, offsets, 3, &runtime));
    params = on_host;
    params.struct_size = 3;
    FAILS(SUBLET_STATUS_STRUCT_SIZE, 2, 4096, 3, create(&params, offsets, 3, &runtime));
    params = on_host;
    params.folder = "/no/such/folder";
    FAILS(SUBLET_STATUS_STORAGE, 0, 0, 2, create(&params, offsets, 3, &runtime));
    params = on_host;
    params.memory = BYTES - 1;
    FAILS(SUBLET_STATUS_OUT_OF_MEMORY, 0, BYTES, 0, create(&params, offsets, 3, &runtime));
    sublet_device device = {.struct_size = sizeof device, .flags = 2};
    wrong_trace = trace;
    wrong_trace.device = &device;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 0, 0, 2,
          sublet_runtime_create(&wrong_trace, &one_by_one, &on_host, &runtime, &error));
    CHECK(runtime == NULL);

    WORKS(create(&on_host, offsets, 3, &runtime));
    unsigned char content[BYTES] = {7};
    FAILS(SUBLET_STATUS_NOT_PERSISTENT, 0, 0, 8, sublet_runtime_write(runtime, 0, content, 8, &error));
    FAILS(SUBLET_STATUS_NOT_PERSISTENT, 2, 0, BYTES, sublet_runtime_read(runtime, 2, content, BYTES, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_runtime_write(runtime, 0, NULL, BYTES, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_runtime_read(runtime, 0, NULL, BYTES, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_runtime_next(runtime, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_runtime_call(runtime, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_runtime_measured(runtime, NULL, &error));
    sublet_measured measured = {.struct_size = sizeof measured};
    FAILS(SUBLET_STATUS_INTERRUPTED, 0, 0, 0, sublet_runtime_measured(runtime, &measured, &error));
    WORKS(sublet_runtime_arena(runtime, NULL, NULL, &error));
    uint64_t address = NOTHING;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 2, 0, 1, sublet_runtime_arena(runtime, &address, &address, &error));
    CHECK(address == NOTHING);

    /* A plan that is too large for the device, one that is invalid, and one with blocks that did not exist before. */
    static sublet_row more[ORIGINAL];
    memcpy(more, original, sizeof original);
    more[0].bytes = 2 * BYTES;
    const uint64_t far_apart[] = {0, 2 * BYTES};
    sublet_trace larger = trace;
    larger.rows = more;
    const sublet_schedule large = schedule(more, ORIGINAL, far_apart, 2), overlapping = schedule(original, ORIGINAL, over, 2);
    FAILS(SUBLET_STATUS_NOT_PERSISTENT, 0, 0, 2 * BYTES, sublet_runtime_replan(runtime, &larger, &large, NULL, &error));
    const uint32_t none[] = {UINT32_MAX, UINT32_MAX}, wrong[] = {0, 9};
    FAILS(SUBLET_STATUS_OUT_OF_MEMORY, 0, 3 * BYTES, 0, sublet_runtime_replan(runtime, &larger, &large, none, &error));
    FAILS(SUBLET_STATUS_NOT_PERSISTENT, 9, 0, BYTES,
          sublet_runtime_replan(runtime, &trace, &one_by_one, wrong, &error));
    FAILS(SUBLET_STATUS_PLAN_OVERLAP, 0, 1, 1, sublet_runtime_replan(runtime, &trace, &overlapping, NULL, &error));
    larger.rows = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 1, 0, offsetof(sublet_trace, rows),
          sublet_runtime_replan(runtime, &larger, &one_by_one, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_runtime_replan(runtime, &trace, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_runtime_replan(NULL, &trace, &one_by_one, NULL, &error));
    /* The old plan goes on. */
    memset(content, 1, BYTES);
    WORKS(sublet_runtime_write(runtime, 0, content, BYTES, &error));
    WORKS(sublet_runtime_write(runtime, 1, content, BYTES, &error));
    iterate(runtime);
    holds(runtime, 0, 2);

    sublet_launch launch = {.struct_size = sizeof launch};
    WORKS(sublet_runtime_next(runtime, &launch, &error));
    FAILS(SUBLET_STATUS_INTERRUPTED, 0, 0, 0, sublet_runtime_measure(runtime, &error));
    FAILS(SUBLET_STATUS_INTERRUPTED, 0, 0, 0, sublet_runtime_write(runtime, 0, content, BYTES, &error));
    FAILS(SUBLET_STATUS_INTERRUPTED, 0, 0, 0,
          sublet_runtime_replan(runtime, &trace, &one_by_one, NULL, &error));
    WORKS(sublet_runtime_restart(runtime, &error));
    WORKS(sublet_runtime_measure(runtime, &error));
    sublet_runtime_destroy(runtime);

    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_runtime_finish(NULL, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 0, 8, 0, sublet_runtime_restart(ODD(&address), &error));
}

/* Results for callers with an older and a newer version of the struct. */
void test_sizes_of_results(void) {
    sublet_runtime *runtime = NULL;
    WORKS(create(&on_host, offsets, 3, &runtime));
    SIZES_ARE_HEARD(sublet_launch, ended, 1, launch, sublet_runtime_next(runtime, launch, &error));
    WORKS(sublet_runtime_restart(runtime, &error));
    WORKS(sublet_runtime_measure(runtime, &error));
    iterate(runtime);
    SIZES_ARE_HEARD(sublet_measured, simulated_ns, 1, measured, sublet_runtime_measured(runtime, measured, &error));
    sublet_runtime_destroy(runtime);
}

void test_arena(uint32_t on) {
    sublet_arena *arena = NULL;
    sublet_runtime_params params = {.struct_size = sizeof params, .on_host = on};
    uint64_t begin = NOTHING, size = NOTHING, room = 1 << 20;
    WORKS(sublet_arena_create(1 << 16, room, &params, &arena, &error));
    WORKS(sublet_arena_range(arena, &begin, &size, &error));
    CHECK(size == 1 << 16 && begin != 0);
    unsigned char *bytes = (unsigned char *)(uintptr_t)begin;
    memset(bytes, 5, 1 << 16);
    WORKS(sublet_arena_grow(arena, 1 << 18, &error));
    uint64_t later = NOTHING;
    WORKS(sublet_arena_range(arena, &later, &size, &error));
    CHECK(size == 1 << 18 && later == begin && bytes[0] == 5 && bytes[(1 << 16) - 1] == 5 && bytes[1 << 16] == 0);
    bytes[(1 << 18) - 1] = 1;
    FAILS(SUBLET_STATUS_CANNOT_GROW, 0, room + 1, room, sublet_arena_grow(arena, room + 1, &error));
    WORKS(sublet_arena_grow(arena, 1, &error));
    WORKS(sublet_arena_range(arena, NULL, NULL, &error));
    sublet_arena_destroy(arena);
    sublet_arena_destroy(NULL);

    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_arena_create(1, 1, &params, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_arena_grow(NULL, 1, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_arena_range(NULL, NULL, NULL, &error));
    params.on_host = 2;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 2, sublet_arena_create(1, 1, &params, &arena, &error));
    if (on) {
        params.on_host = 1;
        params.memory = 100;
        FAILS(SUBLET_STATUS_OUT_OF_MEMORY, 0, 101, 0, sublet_arena_create(101, 101, &params, &arena, &error));
    }
}

void test_gpu_runtime(void) {
    sublet_runtime *runtime = NULL;
    sublet_runtime_params params = {.struct_size = sizeof params, .gpu = 7};
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, create(&params, offsets, 3, &runtime));
    WORKS(create(NULL, offsets, 3, &runtime));
    sublet_launch launch = {.struct_size = sizeof launch};
    WORKS(sublet_runtime_next(runtime, &launch, &error));
    CHECK(launch.stream != NULL && launch.operand_count == 1);
    sublet_runtime_destroy(runtime);
}

/* Calls that need a GPU fail, because there is none. */
void test_without_gpu(void) {
    sublet_runtime *runtime = NULL;
    sublet_status status = create(NULL, offsets, 3, &runtime);
    if (status == SUBLET_STATUS_OK) {
        sublet_runtime_destroy(runtime);
        fputs("skipped: what is told without a GPU; there is one\n", stderr);
        return;
    }
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, create(NULL, offsets, 3, &runtime));
    sublet_relu_kernels *kernels = NULL;
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_relu_kernels_create(0, &kernels, &error));
    sublet_arena *arena = NULL;
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_arena_create(1, 1, NULL, &arena, &error));
    sublet_torch_statistics statistics = {.struct_size = sizeof statistics};
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_torch_stats(0, &statistics, &error));
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_torch_iteration(0, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_torch_stats(0, NULL, &error));
    CHECK(sublet_torch_malloc(10, 0, NULL) == NULL && sublet_torch_malloc(-1, -1, NULL) == NULL);
    sublet_torch_free(NULL, 0, 0, NULL);
    CHECK(runtime == NULL && kernels == NULL && arena == NULL);
}
