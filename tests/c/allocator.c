#include "check.h"

#include <pthread.h>

#define MIB ((size_t)1 << 20)

#ifdef FIRMWARE
/* Memory for the allocators, one after the other: firmware has no system that gives memory. */
static void *lent_range, *lent_workspace;
#endif

static sublet_status try_create(const sublet_allocator_params *params, sublet_allocator **allocator) {
#ifdef FIRMWARE
    sublet_allocator *none = NULL;
    CHECK(sublet_allocator_create(params, NULL, 0, &none, NULL) != SUBLET_STATUS_OK && none == NULL);
    sublet_allocator_params own = *params;
    if (own.alloc == NULL && own.range == NULL && own.capacity <= MIB) {
        free(lent_range);
        own.range = lent_range = aligned_alloc(256, own.capacity);
    }
    sublet_layout layout;
    CHECK(sublet_allocator_workspace(&own, &layout, NULL) == SUBLET_STATUS_OK);
    free(lent_workspace);
    lent_workspace = lend(layout);
    return sublet_allocator_create(&own, lent_workspace, layout.size, allocator, &error);
#else
    return sublet_allocator_create(params, NULL, 0, allocator, &error);
#endif
}

static sublet_allocator *create(const sublet_allocator_params *params) {
    sublet_allocator *allocator = NULL;
    WORKS(try_create(params, &allocator));
    CHECK(allocator != NULL);
    return allocator;
}

static void *take(sublet_allocator *allocator, size_t bytes) {
    void *pointer = NULL;
    WORKS(sublet_malloc(allocator, bytes, &pointer, &error));
    CHECK(pointer != NULL && (uintptr_t)pointer % 256 == 0);
    return pointer;
}

static sublet_statistics statistics_of(const sublet_allocator *allocator) {
    sublet_statistics statistics = {.struct_size = sizeof statistics};
    WORKS(sublet_stats(allocator, &statistics, &error));
    return statistics;
}

/* The blocks of an iteration, filled when they come and looked at when they go: sharing would be seen. */
static void scaled(sublet_allocator *allocator, unsigned char mark, size_t scale) {
    static const size_t unscaled[] = {1000, 5000, 300, 8192, 64, 5000, 70000, 12};
    size_t sizes[COUNT(unscaled)];
    for (size_t i = 0; i < COUNT(sizes); ++i) {
        sizes[i] = scale * unscaled[i];
    }
    unsigned char *live[3] = {NULL, NULL, NULL};
    size_t bytes[3] = {0, 0, 0};
    for (size_t i = 0; i < COUNT(sizes) + 3; ++i) {
        size_t slot = i % 3;
        if (live[slot] != NULL) {
            for (size_t b = 0; b < bytes[slot]; ++b) {
                CHECK(live[slot][b] == (unsigned char)(mark + bytes[slot]));
            }
            WORKS(sublet_free(allocator, live[slot], &error));
            live[slot] = NULL;
        }
        if (i < COUNT(sizes)) {
            live[slot] = take(allocator, sizes[i]);
            bytes[slot] = sizes[i];
            memset(live[slot], (unsigned char)(mark + sizes[i]), sizes[i]);
        }
    }
}

static void iteration(sublet_allocator *allocator, unsigned char mark) { scaled(allocator, mark, 1); }

static void told_iterations_are_planned_and_replayed(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .events = 100, .live = 50};
    sublet_allocator *allocator = create(&params);
    CHECK(statistics_of(allocator).state == SUBLET_STATE_PROFILE);
    for (unsigned char i = 0; i < 4; ++i) {
        WORKS(sublet_iteration_begin(allocator, &error));
        iteration(allocator, i);
        WORKS(sublet_iteration_end(allocator, &error));
    }
    sublet_statistics done = statistics_of(allocator);
    CHECK(done.state == SUBLET_STATE_REPLAY && done.plans == 1 && done.hits == 24 && done.misses == 0);
    CHECK(done.arena_peak < 90000);

    /* Requests within an interruption are no part of the plan, also after an inner interruption has ended. */
    WORKS(sublet_iteration_begin(allocator, &error));
    WORKS(sublet_interrupt(allocator, &error));
    WORKS(sublet_interrupt(allocator, &error));
    WORKS(sublet_resume(allocator, &error));
    void *beside = take(allocator, 4000);
    WORKS(sublet_resume(allocator, &error));
    WORKS(sublet_resume(allocator, &error)); /* there is no interruption to end */
    iteration(allocator, 9);
    WORKS(sublet_iteration_end(allocator, &error));
    done = statistics_of(allocator);
    CHECK(done.hits == 32 && done.misses == 0 && done.plans == 1 && done.unended == 0);
    WORKS(sublet_free(allocator, beside, &error));

    /* What is begun anew before its end is counted. */
    for (int i = 0; i < 3; ++i) {
        WORKS(sublet_iteration_begin(allocator, &error));
    }
    WORKS(sublet_iteration_end(allocator, &error));
    CHECK(statistics_of(allocator).unended == 2);
    sublet_allocator_destroy(allocator);
}

static void iterations_that_nobody_tells_are_found(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB};
    sublet_allocator *allocator = create(&params);
    for (unsigned char i = 0; i < 20; ++i) {
        iteration(allocator, i);
    }
    sublet_statistics done = statistics_of(allocator);
    CHECK(done.state == SUBLET_STATE_REPLAY && done.hits >= 8 * 16 && done.misses == 0);
    sublet_allocator_destroy(allocator);
}

struct raw {
    int given, taken;
    size_t bytes, alignment;
    void *memory;
};

static void *raw_alloc(void *context, size_t bytes, size_t alignment) {
    struct raw *raw = context;
    raw->given += 1;
    raw->bytes = bytes;
    raw->alignment = alignment;
    raw->memory = aligned_alloc(alignment, bytes);
    return raw->memory;
}

static void raw_free(void *context, void *pointer, size_t bytes) {
    struct raw *raw = context;
    raw->taken += 1;
    CHECK(pointer == raw->memory && bytes == raw->bytes);
    free(pointer);
}

static void *raw_none(void *context, size_t bytes, size_t alignment) {
    (void)context, (void)bytes, (void)alignment;
    return NULL;
}

/* Memory from callbacks, then from the caller's arena; the bookkeeping lies in the caller's memory. */
static void the_range_comes_from_anywhere(void) {
    struct raw raw = {0, 0, 0, 0, NULL};
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .alignment = 4096, .events = 64,
                                      .live = 8, .alloc = raw_alloc, .free = raw_free, .context = &raw};
    sublet_allocator *allocator = create(&params);
    CHECK(raw.given == 1 && raw.bytes == MIB && raw.alignment == 4096);
    void *pointer = take(allocator, 1);
    CHECK((uintptr_t)pointer % 4096 == 0 && pointer == raw.memory);
    sublet_allocator_destroy(allocator);
    CHECK(raw.taken == 1);

    allocator = (sublet_allocator *)&params;
    params.alloc = raw_none;
    FAILS(SUBLET_STATUS_NO_RAW_MEMORY, 0, MIB, 0, try_create(&params, &allocator));
    CHECK(allocator == (sublet_allocator *)&params);
    params.free = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_allocator_params, free), try_create(&params, &allocator));

    /* If the allocator cannot be made, the callback gets its memory back. */
    params.alloc = raw_alloc;
    params.free = raw_free;
    params.alignment = 96;
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 96, try_create(&params, &allocator));
    CHECK(raw.given == raw.taken);

    static unsigned char arena[65536 + 256];
    unsigned char *aligned = arena + (256 - (uintptr_t)arena % 256);
    params = (sublet_allocator_params){.struct_size = sizeof params, .capacity = 65536, .range = aligned, .events = 64, .live = 8};
    sublet_layout layout;
    /* About 340 bytes an event, as the header says. */
    sublet_allocator_params large = {.struct_size = sizeof large, .capacity = MIB, .events = 100000, .live = 1};
    WORKS(sublet_allocator_workspace(&large, &layout, &error));
    CHECK(layout.size / large.events >= 305 && layout.size / large.events <= 370);
    WORKS(sublet_allocator_workspace(&params, &layout, &error));
    void *workspace = lend(layout);
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, layout.size, layout.size - 8,
          sublet_allocator_create(&params, workspace, layout.size - 8, &allocator, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 1, 8, 0,
          sublet_allocator_create(&params, ODD(workspace), layout.size, &allocator, &error));
    WORKS(sublet_allocator_create(&params, workspace, layout.size, &allocator, &error));
    CHECK(take(allocator, 100) == aligned);
    sublet_allocator_destroy(allocator);
    free(workspace);
    params.range = aligned + 1;
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 0, 256, offsetof(sublet_allocator_params, range), try_create(&params, &allocator));
}

/* A callback that gives memory up to a limit, and counts the ranges that are not given back. */
struct system {
    size_t most, out, largest;
    int count, refused;
};

static void *system_alloc(void *context, size_t bytes, size_t alignment) {
    struct system *system = context;
    if (system->out + bytes > system->most) {
        system->refused += 1;
        return NULL;
    }
    system->out += bytes;
    system->count += 1;
    system->largest = bytes > system->largest ? bytes : system->largest;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void system_free(void *context, void *pointer, size_t bytes) {
    struct system *system = context;
    CHECK(pointer != NULL && system->count > 0 && system->out >= bytes);
    system->out -= bytes;
    system->count -= 1;
    /* Nothing may use it any more: it is spoiled. */
    memset(pointer, 0xdd, bytes);
    free(pointer);
}

static void ranges_come_and_go(void) {
    struct system system = {.most = 64 * MIB};
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB / 4, .events = 100, .live = 50,
                                      .alloc = system_alloc, .free = system_free, .context = &system};
    sublet_allocator *allocator = create(&params);
    CHECK(system.count == 1 && system.out == MIB / 4 && statistics_of(allocator).held == MIB / 4);
    /* A block that stays alive while the plans change. */
    unsigned char *kept = take(allocator, 3000);
    memset(kept, 0x5a, 3000);
    uint64_t plans = 0;
    for (size_t scale = 1; scale <= 64; scale *= 4) {
        for (unsigned char i = 0; i < 14; ++i) {
            WORKS(sublet_iteration_begin(allocator, &error));
            scaled(allocator, i, scale);
            WORKS(sublet_iteration_end(allocator, &error));
        }
        sublet_statistics done = statistics_of(allocator);
        plans += 1;
        CHECK(done.state == SUBLET_STATE_REPLAY && done.plans == plans && done.held == system.out);
        /* Two ranges: that of the arena, and that of the block that is kept. */
        CHECK(system.count <= 2 && system.out <= done.arena_peak + 2 * MIB);
    }
    CHECK(statistics_of(allocator).arena_peak > 4 * MIB && system.refused == 0);
    for (size_t i = 0; i < 3000; ++i) {
        CHECK(kept[i] == 0x5a);
    }

    /* With a limit, all memory within it is used before a request fails. */
    system.most = system.out + MIB / 2;
    WORKS(sublet_interrupt(allocator, &error));
    void *beside = take(allocator, MIB / 2);
    CHECK(system.refused == 0 || system.out == system.most);
    void *pointer = NULL;
    CHECK(sublet_malloc(allocator, 64 * MIB, &pointer, &error) == SUBLET_STATUS_OUT_OF_MEMORY && pointer == NULL);
    WORKS(sublet_free(allocator, beside, &error));
    WORKS(sublet_resume(allocator, &error));
    WORKS(sublet_iteration_begin(allocator, &error));
    scaled(allocator, 3, 64);
    WORKS(sublet_iteration_end(allocator, &error));
    CHECK(statistics_of(allocator).plans == plans && statistics_of(allocator).state == SUBLET_STATE_REPLAY);
    sublet_allocator_destroy(allocator);
    CHECK(system.count == 0 && system.out == 0);

    /* Beside a range of the caller's, which is never given back. */
    static unsigned char arena[65536 + 256];
    unsigned char *aligned = arena + (256 - (uintptr_t)arena % 256);
    system.most = 64 * MIB;
    params.capacity = 65536;
    params.range = aligned;
    allocator = create(&params);
    CHECK(system.count == 0 && take(allocator, 65536) == aligned && system.count == 0);
    pointer = take(allocator, 1);
    CHECK(system.count == 1 && system.out == MIB);
    WORKS(sublet_free(allocator, aligned, &error));
    WORKS(sublet_free(allocator, pointer, &error));
    for (int i = 0; i < 9; ++i) {
        WORKS(sublet_iteration_begin(allocator, &error));
        WORKS(sublet_iteration_end(allocator, &error));
    }
    CHECK(system.count == 0 && statistics_of(allocator).held == 0);
    CHECK(take(allocator, 65536) == aligned);
    sublet_allocator_destroy(allocator);

    /* There is no plan at first. */
    params.capacity = 0;
    params.range = NULL;
    allocator = create(&params);
    CHECK(system.count == 0);
    take(allocator, 5);
    CHECK(system.count == 1);
    sublet_allocator_destroy(allocator);
    CHECK(system.count == 0);
}

/* Asserts that sublet_allocator_create refuses the number in this field, and tells the nearest possible one. */
static bool is_out_of_range(const sublet_allocator_params *params, size_t field, uint64_t nearest) {
    sublet_allocator *allocator = NULL;
    sublet_status status = try_create(params, &allocator);
    return status == SUBLET_STATUS_FIELD_OUT_OF_RANGE && error.status == status && error.index == 0 &&
           error.got == field && error.needed == nearest && allocator == NULL;
}

static void numbers_out_of_range_are_named(sublet_allocator_params right) {
    const uint64_t most = SIZE_MAX > UINT32_MAX ? (1 << 28) - 1 : 1 << 20;
    sublet_layout layout;
    sublet_allocator_params params = right;
    params.events = most + 1;
    FAILS(SUBLET_STATUS_FIELD_OUT_OF_RANGE, 0, most, offsetof(sublet_allocator_params, events),
          sublet_allocator_workspace(&params, &layout, &error));
    params = right;
    params.live = UINT64_MAX;
    FAILS(SUBLET_STATUS_FIELD_OUT_OF_RANGE, 0, most, offsetof(sublet_allocator_params, live),
          sublet_allocator_workspace(&params, &layout, &error));

    params = right;
    params.range = (void *)4096;
    params.capacity = UINT64_MAX;
    CHECK(is_out_of_range(&params, offsetof(sublet_allocator_params, capacity), SIZE_MAX / 2));
    params.capacity = 255;
    CHECK(is_out_of_range(&params, offsetof(sublet_allocator_params, capacity), 256));
    params.alignment = 4096;
    params.capacity = 4095;
    CHECK(is_out_of_range(&params, offsetof(sublet_allocator_params, capacity), 4096));
    params.range = (void *)(SIZE_MAX - 4095);
    params.capacity = 8192;
    CHECK(is_out_of_range(&params, offsetof(sublet_allocator_params, capacity), 4095));
}

static void wrong_arguments(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = 16384, .events = 16, .live = 2};
    sublet_allocator *allocator = create(&params);
    void *a = NULL, *b = &a;
    /* 0 bytes are NULL, and NULL is nothing. */
    WORKS(sublet_malloc(allocator, 0, &b, &error));
    CHECK(b == NULL);
    WORKS(sublet_free(allocator, NULL, &error));
    sublet_allocator_destroy(NULL);

    a = take(allocator, 1024);
    b = &a;
    FAILS(SUBLET_STATUS_OUT_OF_MEMORY, 0, 16128, 15360, sublet_malloc(allocator, 16000, &b, &error));
    CHECK(b == &a);
    CHECK(sublet_malloc(allocator, SIZE_MAX, &b, &error) == SUBLET_STATUS_OUT_OF_MEMORY);
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 1, 0, (uintptr_t)a + 256, sublet_free(allocator, (char *)a + 256, &error));
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 1, 0, (uintptr_t)a + 1, sublet_free(allocator, (char *)a + 1, &error));
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 1, 0, (uintptr_t)&a, sublet_free(allocator, &a, &error));
    WORKS(sublet_free(allocator, a, &error));
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 1, 0, (uintptr_t)a, sublet_free(allocator, a, &error));

    /* At least as many blocks as were asked for. */
    void *many[64];
    int held = 0;
    sublet_status status = SUBLET_STATUS_OK;
    while (held < 64 && (status = sublet_malloc(allocator, 1, &many[held], &error)) == SUBLET_STATUS_OK) {
        held += 1;
    }
    CHECK(status == SUBLET_STATUS_TOO_MANY_LIVE && held >= 2);
    while (held > 0) {
        WORKS(sublet_free(allocator, many[--held], &error));
    }

    /* An iteration of more events than were asked for goes on without a plan. */
    WORKS(sublet_iteration_begin(allocator, &error));
    for (int i = 0; i < 9; ++i) {
        WORKS(sublet_free(allocator, take(allocator, 8), &error));
    }
    FAILS(SUBLET_STATUS_TOO_MANY_EVENTS, 0, 18, 16, sublet_iteration_end(allocator, &error));
    WORKS(sublet_free(allocator, take(allocator, 8), &error));

    sublet_statistics statistics = {.struct_size = sizeof statistics};
    char *odd = ODD(allocator);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_malloc(NULL, 1, &a, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 0, 8, 0, sublet_malloc((void *)odd, 1, &a, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_malloc(allocator, 1, NULL, &error));
    void *two[2];
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 2, 8, 0, sublet_malloc(allocator, 1, ODD(two), &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_free(NULL, a, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_iteration_begin(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_iteration_end(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_interrupt(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_resume(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_trace_begin(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_trace_end(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_export_trace(NULL, NULL, 0, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_stats(NULL, &statistics, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_stats(allocator, NULL, &error));
    sublet_allocator_destroy(allocator);

    sublet_layout layout;
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, try_create(&params, NULL));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_allocator_workspace(&params, NULL, &error));
    params.solver = UINT32_MAX;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 0, 0, UINT32_MAX, sublet_allocator_workspace(&params, &layout, &error));
    params.solver = 0;
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_allocator_create(NULL, NULL, 0, &allocator, &error));
    numbers_out_of_range_are_named(params);
}

/* A request that is smaller than planned gets the place of the planned one, and counts with the size of that. */
static void a_smaller_batch_keeps_the_plan(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .events = 64, .live = 8};
    sublet_allocator *allocator = create(&params);
    for (int i = 0; i < 4; ++i) {
        WORKS(sublet_iteration_begin(allocator, &error));
        void *block = take(allocator, i < 2 ? 2048 : 1000);
        sublet_statistics now = statistics_of(allocator);
        CHECK(now.live_bytes == 2048 && now.live_blocks == 1);
        WORKS(sublet_free(allocator, block, &error));
        WORKS(sublet_iteration_end(allocator, &error));
    }
    sublet_statistics done = statistics_of(allocator);
    CHECK(done.state == SUBLET_STATE_REPLAY && done.plans == 1 && done.hits == 3 && done.arena_peak == 2048);
    sublet_allocator_destroy(allocator);
}

/* A plan that was made elsewhere is followed from its first request on. A plan of no blocks is none. */
static void a_plan_is_adopted(void) {
    const sublet_block blocks[] = {
        {.start = 0, .end = 2, .size = 256}, {.start = 1, .end = 4, .size = 512}, {.start = 3, .end = 5, .size = 256}};
    uint64_t offsets[] = {0, 256, 0};
    size_t n = COUNT(blocks);
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = 4096, .events = 16, .live = 4};
    sublet_allocator *allocator = create(&params);
    sublet_layout layout;
    WORKS(sublet_verify_workspace(n, &layout, &error));
    void *workspace = lend(layout);
    WORKS(sublet_adopt(allocator, blocks, n, offsets, workspace, layout.size, &error));
    for (int i = 0; i < 3; ++i) {
        WORKS(sublet_iteration_begin(allocator, &error));
        char *first = take(allocator, 256), *second = take(allocator, 512);
        CHECK(second == first + 256);
        WORKS(sublet_free(allocator, first, &error));
        char *third = take(allocator, 256);
        CHECK(third == first);
        WORKS(sublet_free(allocator, second, &error));
        WORKS(sublet_free(allocator, third, &error));
        WORKS(sublet_iteration_end(allocator, &error));
    }
    sublet_statistics done = statistics_of(allocator);
    CHECK(done.hits == 9 && done.misses == 0 && done.plans == 1 && done.arena_peak == 768);

    offsets[2] = 255;
    FAILS(SUBLET_STATUS_PLAN_OVERLAP, 1, 3, 2, sublet_adopt(allocator, blocks, n, offsets, workspace, layout.size, &error));
    offsets[2] = 128;
    offsets[1] = 512;
    /* An offset that is no multiple of the alignment: the blocks are placed anew. */
    WORKS(sublet_adopt(allocator, blocks, n, offsets, workspace, layout.size, &error));
    CHECK(statistics_of(allocator).plans == 2);
    /* Iterations were marked: a request outside of one is not served from the plan. */
    uint64_t hits = statistics_of(allocator).hits;
    WORKS(sublet_free(allocator, take(allocator, 256), &error));
    CHECK(statistics_of(allocator).hits == hits);
    WORKS(sublet_iteration_begin(allocator, &error));
    WORKS(sublet_free(allocator, take(allocator, 256), &error));
    CHECK(statistics_of(allocator).hits == hits + 1);
    WORKS(sublet_iteration_end(allocator, &error));
    WORKS(sublet_adopt(allocator, NULL, 0, NULL, workspace, layout.size, &error));
    done = statistics_of(allocator);
    CHECK(done.state == SUBLET_STATE_PROFILE && done.plans == 3);
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_adopt(allocator, NULL, n, offsets, workspace, layout.size, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_adopt(NULL, blocks, n, offsets, workspace, layout.size, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 4, layout.size, 8,
          sublet_adopt(allocator, blocks, n, offsets, workspace, 8, &error));
    free(workspace);
    sublet_allocator_destroy(allocator);
}

#ifdef FIRMWARE
static void a_trace_is_exported(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .events = 64, .live = 8};
    sublet_allocator *allocator = create(&params);
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_trace_begin(allocator, &error));
    WORKS(sublet_trace_end(allocator, &error));
    FAILS(SUBLET_STATUS_UNAVAILABLE, 0, 0, 0, sublet_export_trace(allocator, NULL, 0, NULL, &error));
    sublet_allocator_destroy(allocator);
}
#else
static void a_trace_is_exported(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .events = 64, .live = 8};
    sublet_allocator *allocator = create(&params);
    void *before = take(allocator, 16);
    WORKS(sublet_trace_begin(allocator, &error));
    void *a = take(allocator, 1000), *b = take(allocator, 5);
    WORKS(sublet_free(allocator, before, &error));
    WORKS(sublet_free(allocator, a, &error));
    WORKS(sublet_trace_end(allocator, &error));
    WORKS(sublet_free(allocator, b, &error));

    size_t needed = 0, again = 0;
    WORKS(sublet_export_trace(allocator, NULL, 0, &needed, &error));
    char *text = malloc(needed);
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 1, needed, needed - 1,
          sublet_export_trace(allocator, text, needed - 1, &again, &error));
    CHECK(again == needed && strlen(text) == needed - 2);
    WORKS(sublet_export_trace(allocator, text, needed, &again, &error));
    CHECK(again == needed && strlen(text) == needed - 1);
    /* The times differ from run to run: they are not looked at. */
    unsigned long long times[3];
    int end = 0;
    CHECK(sscanf(text, "time_ns,event,block,bytes,op\n%llu,malloc,0,1000,\n%llu,malloc,1,5,\n%llu,free,0,,\n%n", &times[0],
                 &times[1], &times[2], &end) == 3);
    CHECK((size_t)end == strlen(text) && times[0] <= times[1] && times[1] <= times[2]);
    free(text);
    sublet_allocator_destroy(allocator);
}
#endif

/* The functions of the user that the allocator calls must not destroy it: it goes on when they return. */
struct destroys {
    sublet_allocator *allocator;
    sublet_status status;
    int calls;
};

static void *alloc_destroys(void *context, size_t bytes, size_t alignment) {
    struct destroys *own = context;
    own->calls += 1;
    if (own->allocator != NULL) {
        own->status = sublet_allocator_destroy(own->allocator);
    }
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void free_destroys(void *context, void *pointer, size_t bytes) {
    struct destroys *own = context;
    (void)bytes;
    own->calls += 1;
    own->status = sublet_allocator_destroy(own->allocator);
    free(pointer);
}

static int32_t room_destroys(void *context, size_t bytes) {
    struct destroys *own = context;
    (void)bytes;
    own->status = sublet_allocator_destroy(own->allocator);
    return own->calls++ == 0;
}

static void who_is_called_cannot_destroy_it(void) {
    struct destroys own = {NULL, SUBLET_STATUS_OK, 0};
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .events = 64, .live = 8,
                                      .alloc = alloc_destroys, .free = free_destroys, .context = &own};
    sublet_allocator *allocator = create(&params);
    own.allocator = allocator;
    WORKS(sublet_free(allocator, take(allocator, 4 * MIB), &error));
    CHECK(own.calls > 1 && own.status == SUBLET_STATUS_REENTRANT);
    own.calls = 0;
    /* It is destroyed already when its ranges are freed. */
    CHECK(sublet_allocator_destroy(allocator) == SUBLET_STATUS_OK);
    CHECK(own.calls > 0 && own.status == SUBLET_STATUS_NOT_A_HANDLE);

    own = (struct destroys){NULL, SUBLET_STATUS_OK, 0};
    params = (sublet_allocator_params){.struct_size = sizeof params, .capacity = MIB, .events = 64, .live = 8,
                                       .out_of_memory = room_destroys, .context = &own};
    own.allocator = allocator = create(&params);
    void *pointer = NULL;
    FAILS(SUBLET_STATUS_OUT_OF_MEMORY, 0, 2 * MIB, MIB, sublet_malloc(allocator, 2 * MIB, &pointer, &error));
    CHECK(own.calls == 2 && own.status == SUBLET_STATUS_REENTRANT);
    WORKS(sublet_free(allocator, take(allocator, MIB), &error));
    CHECK(sublet_allocator_destroy(allocator) == SUBLET_STATUS_OK);
    CHECK(sublet_allocator_destroy(NULL) == SUBLET_STATUS_OK);
}

static void *worker(void *allocator) {
    for (int i = 0; i < 3000; ++i) {
        size_t bytes = 16 + (size_t)i % 7 * 100;
        unsigned char *pointer = NULL;
        if (sublet_malloc(allocator, bytes, (void **)&pointer, NULL) != SUBLET_STATUS_OK) {
            return NULL;
        }
        unsigned char mark = (unsigned char)(uintptr_t)&bytes + (unsigned char)i;
        memset(pointer, mark, bytes);
        for (size_t b = 0; b < bytes; ++b) {
            if (pointer[b] != mark) {
                return NULL;
            }
        }
        if (sublet_free(allocator, pointer, NULL) != SUBLET_STATUS_OK) {
            return NULL;
        }
    }
    return allocator;
}

static void threads_share_it(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB, .events = 1000, .live = 100};
    sublet_allocator *allocator = create(&params);
    /* Alone for so long that it enters without the lock; then with others. */
    CHECK(worker(allocator) == allocator);
    pthread_t threads[4];
    for (size_t t = 0; t < COUNT(threads); ++t) {
        CHECK(pthread_create(&threads[t], NULL, worker, allocator) == 0);
    }
    for (size_t t = 0; t < COUNT(threads); ++t) {
        void *done = NULL;
        CHECK(pthread_join(threads[t], &done) == 0 && done == allocator);
    }
    /* No block is alive, so that one block may take all memory. */
    WORKS(sublet_free(allocator, take(allocator, MIB), &error));
    sublet_allocator_destroy(allocator);
}

void test_allocator(void) {
    told_iterations_are_planned_and_replayed();
    iterations_that_nobody_tells_are_found();
    the_range_comes_from_anywhere();
    ranges_come_and_go();
    wrong_arguments();
    a_smaller_batch_keeps_the_plan();
    a_plan_is_adopted();
    a_trace_is_exported();
    who_is_called_cannot_destroy_it();
    threads_share_it();
}
