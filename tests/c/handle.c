#include "check.h"

#define NO_HANDLE(call) FAILS(SUBLET_STATUS_NOT_A_HANDLE, 0, 0, 0, call)

/* The library sees from the first bytes of a handle's memory what the handle is, as long as that memory is there. */
void test_handle(void) {
    sublet_layout layout;
    WORKS(sublet_pool_workspace(10, &layout, &error));
    void *memory = lend(layout);
    sublet_pool *pool = NULL;
    WORKS(sublet_pool_create(1000, 1, 10, memory, layout.size, &pool, &error));
    void *pointer = NULL;
    uint64_t address = 0;
    uint32_t number = 0;
    NO_HANDLE(sublet_malloc((sublet_allocator *)pool, 10, &pointer, &error));
    NO_HANDLE(sublet_free((sublet_allocator *)pool, &layout, &error));
    NO_HANDLE(sublet_iteration_begin((sublet_allocator *)pool, &error));
    NO_HANDLE(sublet_replay_malloc((sublet_replay *)pool, 10, &address, &error));
    NO_HANDLE(sublet_recorder_read((sublet_recorder *)pool, 0, 0, &error));
    NO_HANDLE(sublet_detector_push((sublet_detector *)pool, 0, 8, 0, &number, NULL, &error));
    sublet_allocator_destroy((sublet_allocator *)pool);
    WORKS(sublet_pool_malloc(pool, 10, &address, &error));
    /* No result may be written into the memory of the handle. */
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 2, 0, 0, sublet_pool_malloc(pool, 10, (uint64_t *)(void *)pool, &error));
    CHECK(sublet_pool_malloc(pool, 10, &address, (sublet_error *)(void *)pool) == SUBLET_STATUS_OVERLAPPING_BUFFERS);
    WORKS(sublet_pool_malloc(pool, 10, &address, &error));
    free(memory);

    static uint64_t range[512 / 8 * 256 / 8];
    uintptr_t begin = ((uintptr_t)range + 255) / 256 * 256;
    sublet_allocator_params params = {
        .struct_size = sizeof params, .capacity = 1024, .range = (void *)begin, .events = 100, .live = 10};
    WORKS(sublet_allocator_workspace(&params, &layout, &error));
    memory = lend(layout);
    sublet_allocator *allocator = NULL;
    WORKS(sublet_allocator_create(&params, memory, layout.size, &allocator, &error));
    WORKS(sublet_malloc(allocator, 100, &pointer, &error));
    NO_HANDLE(sublet_pool_free((sublet_pool *)(void *)allocator, 0, &error));
    sublet_allocator_destroy(allocator);
    NO_HANDLE(sublet_malloc(allocator, 100, &pointer, &error));
    NO_HANDLE(sublet_free(allocator, pointer, &error));
    sublet_allocator_destroy(allocator);
    free(memory);
}
