/* What a framework asks of an allocator beside malloc and free. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef FIRMWARE
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#define MIB ((size_t)1 << 20)

/* Memory for allocators, one after the other. */
static void *range, *workspace;

static sublet_allocator_params small(void) {
    free(range);
    range = aligned_alloc(4096, MIB);
    CHECK(range != NULL);
    return (sublet_allocator_params){
        .struct_size = sizeof(sublet_allocator_params), .capacity = MIB, .range = range, .events = 200, .live = 50};
}

static sublet_allocator *make(const sublet_allocator_params *params) {
    sublet_layout layout;
    WORKS(sublet_allocator_workspace(params, &layout, &error));
    free(workspace);
    workspace = lend(layout);
    sublet_allocator *allocator = NULL;
    WORKS(sublet_allocator_create(params, workspace, layout.size, &allocator, &error));
    return allocator;
}

static void *take(sublet_allocator *allocator, size_t bytes) {
    void *pointer = NULL;
    WORKS(sublet_malloc(allocator, bytes, &pointer, &error));
    return pointer;
}

static sublet_statistics statistics_of(const sublet_allocator *allocator) {
    sublet_statistics statistics = {.struct_size = sizeof statistics};
    WORKS(sublet_stats(allocator, &statistics, &error));
    return statistics;
}

/* Blocks of odd sizes, each of which lives until two more have come. */
static void iteration(sublet_allocator *allocator) {
    void *live[22] = {NULL};
    WORKS(sublet_iteration_begin(allocator, &error));
    for (size_t i = 0; i < 20; ++i) {
        live[i] = take(allocator, 1000 * (i + 1) + 3);
        memset(live[i], (int)i, 1000 * (i + 1) + 3);
        if (i >= 2) {
            WORKS(sublet_free(allocator, live[i - 2], &error));
        }
    }
    WORKS(sublet_free(allocator, live[18], &error));
    WORKS(sublet_free(allocator, live[19], &error));
    WORKS(sublet_iteration_end(allocator, &error));
}

static size_t size_of(sublet_allocator *allocator, void *pointer) {
    size_t size = 0;
    WORKS(sublet_usable_size(allocator, pointer, &size, &error));
    return size;
}

static int32_t is_mine(sublet_allocator *allocator, void *pointer) {
    int32_t owns = 7;
    WORKS(sublet_owns(allocator, pointer, &owns, &error));
    return owns;
}

static void blocks_have_sizes_and_owners(void) {
    sublet_allocator_params params = small();
    sublet_allocator *allocator = make(&params);
    char *block = take(allocator, 100);
    CHECK(size_of(allocator, block) == 256 && is_mine(allocator, block) == 1 && is_mine(allocator, block + 5000) == 1);
    CHECK(is_mine(allocator, NULL) == 0 && is_mine(allocator, &params) == 0);
    sublet_statistics now = statistics_of(allocator);
    CHECK(now.live_blocks == 1 && now.live_bytes == 256 && now.held == MIB);
    size_t size = 7;
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 1, 0, (uintptr_t)block + 8,
          sublet_usable_size(allocator, block + 8, &size, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_usable_size(allocator, block, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_owns(allocator, block, NULL, &error));
    CHECK(size == 7);

    void *aligned = NULL;
    WORKS(sublet_malloc_aligned(allocator, 100, 4096, &aligned, &error));
    CHECK((uintptr_t)aligned % 4096 == 0 && aligned != NULL && size_of(allocator, aligned) == 256);
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 24, sublet_malloc_aligned(allocator, 1, 24, &aligned, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_malloc_aligned(allocator, 1, 8, NULL, &error));
    WORKS(sublet_free(allocator, aligned, &error));

    /* As long as the size fits into the block's place, it stays there; then it moves with its content. */
    memset(block, 0x5a, 256);
    void *moved = NULL;
    WORKS(sublet_realloc(allocator, block, 256, &moved, &error));
    CHECK(moved == block);
    WORKS(sublet_realloc(allocator, block, 3000, &moved, &error));
    CHECK(moved != block && size_of(allocator, moved) == 3072 && memcmp(moved, (char[4]){0x5a, 0x5a, 0x5a, 0x5a}, 4) == 0);
    CHECK(((char *)moved)[255] == 0x5a);
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 1, 0, (uintptr_t)block, sublet_realloc(allocator, block, 1, &aligned, &error));
    void *none = moved;
    CHECK(sublet_realloc(allocator, moved, 2 * MIB, &none, &error) == SUBLET_STATUS_OUT_OF_MEMORY && none == moved);
    WORKS(sublet_realloc(allocator, moved, 0, &none, &error));
    CHECK(none == NULL);
    WORKS(sublet_realloc(allocator, NULL, 10, &moved, &error));
    WORKS(sublet_realloc(allocator, moved, 0, &none, &error));
    now = statistics_of(allocator);
    CHECK(now.live_blocks == 0 && now.live_bytes == 0 && now.footprint > 0);
    WORKS(sublet_reset_peaks(allocator, &error));
    now = statistics_of(allocator);
    CHECK(now.footprint == 0 && now.fallback_peak == 0 && now.arena_peak == 0);

    /* A result must not lie in the memory of the allocator itself. */
    CHECK(sublet_malloc(allocator, 1, &moved, (sublet_error *)(void *)((char *)workspace + 64)) ==
          SUBLET_STATUS_OVERLAPPING_BUFFERS);
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 0, 0, 2, sublet_malloc(allocator, 1, (void **)workspace, &error));
    sublet_error over;
    CHECK(sublet_malloc(allocator, 1, (void **)(void *)&over.needed, &over) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
    sublet_allocator_destroy(allocator);
}

/* A plan goes out as text and comes in again; one for another alignment is placed anew. */
static void plans_go_from_one_to_another(void) {
    sublet_allocator_params params = small();
    sublet_allocator *allocator = make(&params);
    static char text[4096];
    size_t needed = 0;
    WORKS(sublet_export_plan(allocator, text, sizeof text, &needed, &error));
    CHECK(strcmp(text, "id,lower,upper,size,offset\n") == 0);
    iteration(allocator);
    uint64_t arena = statistics_of(allocator).arena_peak;
    WORKS(sublet_export_plan(allocator, NULL, 0, &needed, &error));
    CHECK(needed > 100 && needed < sizeof text);
    WORKS(sublet_export_plan(allocator, text, sizeof text, NULL, &error));
    CHECK(strlen(text) + 1 == needed);
    WORKS(sublet_forget(allocator, &error));
    CHECK(statistics_of(allocator).state == SUBLET_STATE_PROFILE);
    iteration(allocator);
    CHECK(statistics_of(allocator).plans == 2 && statistics_of(allocator).misses == 0);
    sublet_allocator_destroy(allocator);

    sublet_block blocks[20];
    uint64_t offsets[20];
    size_t count = 0;
    WORKS(sublet_plan_read(text, needed - 1, NULL, NULL, 0, &count, &error));
    CHECK(count == 20);
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 4, 20, 19, sublet_plan_read(text, needed - 1, blocks, offsets, 19, &count, &error));
    FAILS(SUBLET_STATUS_PLAN_TEXT, 21, 0, 0, sublet_plan_read(text, (size_t)(strrchr(text, ',') + 1 - text), blocks, offsets, 20, &count, &error));
    WORKS(sublet_plan_read(text, needed - 1, blocks, offsets, 20, &count, &error));
    sublet_layout layout;
    WORKS(sublet_verify_workspace(20, &layout, &error));
    void *scratch = lend(layout);
    sublet_certificate certificate = {.struct_size = sizeof certificate};
    WORKS(sublet_verify(blocks, 20, offsets, NULL, scratch, layout.size, &certificate, &error));
    CHECK(certificate.peak == arena);
    for (int odd = 0; odd < 2; ++odd) {
        params = small();
        allocator = make(&params);
        WORKS(sublet_adopt(allocator, blocks, 20, offsets, scratch, layout.size, &error));
        iteration(allocator);
        sublet_statistics done = statistics_of(allocator);
        CHECK(done.hits == 20 && done.misses == 0 && done.plans == 1);
        sublet_allocator_destroy(allocator);
        /* A plan that was made without an alignment. */
        for (size_t i = 0; i < 20; ++i) {
            blocks[i].size = 1000 * (i + 1) + 3;
        }
        sublet_layout placing;
        WORKS(sublet_place_workspace(20, NULL, &placing, &error));
        void *place = lend(placing);
        WORKS(sublet_place(blocks, 20, NULL, place, placing.size, offsets, NULL, &error));
        CHECK(odd == 1 || offsets[0] % 256 + offsets[1] % 256 + offsets[2] % 256 > 0);
        free(place);
    }
    free(scratch);
}

/* A callback that is called when memory is short, and frees a block: it may call the allocator. */
struct reserve {
    sublet_allocator *allocator;
    void *block;
    int calls;
};

static int32_t make_room(void *context, size_t bytes) {
    struct reserve *reserve = context;
    reserve->calls += 1;
    void *block = reserve->block;
    reserve->block = NULL;
    return bytes > 0 && block != NULL && sublet_free(reserve->allocator, block, NULL) == SUBLET_STATUS_OK;
}

static void who_is_asked_makes_room(void) {
    struct reserve reserve = {NULL, NULL, 0};
    sublet_allocator_params params = small();
    params.out_of_memory = make_room;
    params.context = &reserve;
    sublet_allocator *allocator = reserve.allocator = make(&params);
    reserve.block = take(allocator, MIB);
    void *pointer = take(allocator, MIB / 2);
    CHECK(reserve.calls == 1 && pointer != NULL);
    CHECK(sublet_malloc(allocator, MIB, &pointer, &error) == SUBLET_STATUS_OUT_OF_MEMORY && reserve.calls == 2);
    sublet_allocator_destroy(allocator);
}

/* A callback that calls the allocator that it serves. */
static sublet_allocator *served;
static sublet_status answered;

static void *calls_back(void *context, size_t bytes, size_t alignment) {
    (void)context;
    if (served != NULL) {
        sublet_statistics statistics = {.struct_size = sizeof statistics};
        answered = sublet_stats(served, &statistics, NULL);
    }
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void frees(void *context, void *pointer, size_t bytes) {
    (void)context, (void)bytes;
    free(pointer);
}

static void callbacks_that_call_back_are_told(void) {
    sublet_allocator_params params = {
        .struct_size = sizeof params, .capacity = MIB, .alloc = calls_back, .free = frees, .events = 64, .live = 8};
    served = NULL;
    sublet_allocator *allocator = make(&params);
    served = allocator;
    void *pointer = take(allocator, 4 * MIB);
    CHECK(answered == SUBLET_STATUS_REENTRANT && pointer != NULL);
    CHECK(statistics_of(allocator).held == 4 * MIB);
    WORKS(sublet_free(allocator, pointer, &error));
    WORKS(sublet_trim(allocator, &error));
    CHECK(statistics_of(allocator).held == 0);
    sublet_allocator_destroy(allocator);
    served = NULL;
}

static void what_is_missing_is_named(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .events = 64, .live = 8};
    sublet_allocator *allocator = NULL;
    static uint64_t memory[8192];
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_allocator_params, capacity),
          sublet_allocator_create(&params, memory, sizeof memory, &allocator, &error));
    params.capacity = MIB;
    params.alloc = calls_back;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_allocator_params, free),
          sublet_allocator_create(&params, memory, sizeof memory, &allocator, &error));
    params.alloc = NULL;
    params.free = frees;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_allocator_params, alloc),
          sublet_allocator_create(&params, memory, sizeof memory, &allocator, &error));
    params = small();
    params.range = (char *)params.range + 64;
    params.events = 64;
    params.live = 8;
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 0, 256, offsetof(sublet_allocator_params, range),
          sublet_allocator_create(&params, memory, sizeof memory, &allocator, &error));
}

#ifndef FIRMWARE
/* Resident KiB of the process. */
static long resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long size = 0, pages = 0;
    CHECK(file != NULL && fscanf(file, "%ld %ld", &size, &pages) == 2);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A range larger than the machine's memory, and bookkeeping for 65536 events: only what is used is touched. */
static void memory_is_touched_as_it_is_used(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = (uint64_t)1 << 40};
    const char *preloaded = getenv("LD_PRELOAD");
    if (preloaded != NULL && strstr(preloaded, "vgpreload") != NULL) {
        return; /* Valgrind has no range as large as the default one. */
    }
    sublet_allocator *allocator = NULL;
    long before = resident();
    WORKS(sublet_allocator_create(&params, NULL, 0, &allocator, &error));
    long created = resident() - before;
    for (int i = 0; i < 3; ++i) {
        iteration(allocator);
    }
    long used = resident() - before;
    (void)created, (void)used; /* a sanitizer takes memory of its own, which would be counted */
#ifndef __SANITIZE_ADDRESS__
    CHECK(created <= 512 && used <= 4096);
#endif
    CHECK(statistics_of(allocator).state == SUBLET_STATE_REPLAY);
    sublet_allocator_destroy(allocator);
}

static int churning;

static void *churn(void *allocator) {
    void *pointer;
    while (__atomic_load_n(&churning, __ATOMIC_RELAXED)) {
        if (sublet_malloc(allocator, 1000, &pointer, NULL) == SUBLET_STATUS_OK) {
            (void)sublet_free(allocator, pointer, NULL);
        }
    }
    return NULL;
}

/* A process forks while other threads allocate: the allocator of the child works. */
static void children_allocate(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = MIB};
    sublet_allocator *allocator = NULL, *other = NULL;
    WORKS(sublet_allocator_create(&params, NULL, 0, &allocator, &error));
    WORKS(sublet_allocator_create(&params, NULL, 0, &other, &error));
    pthread_t threads[2];
    churning = 1;
    CHECK(pthread_create(&threads[0], NULL, churn, allocator) == 0);
    CHECK(pthread_create(&threads[1], NULL, churn, other) == 0);
    for (int i = 0; i < 12; ++i) {
        usleep(2000);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            void *pointer = NULL;
            int failed = sublet_malloc(allocator, 1000, &pointer, NULL) != SUBLET_STATUS_OK;
            failed |= sublet_malloc(other, 1000, &pointer, NULL) != SUBLET_STATUS_OK;
            failed |= sublet_free(other, pointer, NULL) != SUBLET_STATUS_OK;
            _exit(failed);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    __atomic_store_n(&churning, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; ++i) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    sublet_allocator_destroy(allocator);
    sublet_allocator_destroy(other);
}

/* Where addresses are limited, a range that is too large is refused, and a smaller one works. */
static void limited_addresses_are_told(void) {
#ifndef __SANITIZE_ADDRESS__
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {(rlim_t)1 << 30, (rlim_t)1 << 30};
        sublet_allocator_params params = {.struct_size = sizeof params, .capacity = (uint64_t)1 << 35};
        sublet_allocator *allocator = NULL;
        int failed = setrlimit(RLIMIT_AS, &limit) != 0;
        failed |= sublet_allocator_create(&params, NULL, 0, &allocator, &error) != SUBLET_STATUS_NO_RAW_MEMORY;
        failed |= error.needed != params.capacity;
        params.capacity = MIB;
        failed |= sublet_allocator_create(&params, NULL, 0, &allocator, &error) != SUBLET_STATUS_OK;
        _exit(failed);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}
#endif

void test_framework(void) {
    blocks_have_sizes_and_owners();
    plans_go_from_one_to_another();
    who_is_asked_makes_room();
    callbacks_that_call_back_are_told();
    what_is_missing_is_named();
#ifndef FIRMWARE
    memory_is_touched_as_it_is_used();
    children_allocate();
    limited_addresses_are_told();
#endif
    free(range);
    free(workspace);
    range = workspace = NULL;
}
