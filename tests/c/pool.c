#include "check.h"

void test_pool(void) {
    sublet_layout layout;
    WORKS(sublet_pool_workspace(4, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_pool *pool = NULL;
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 24, sublet_pool_create(4096, 24, 4, workspace, size, &pool, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 3, size, size - 8,
          sublet_pool_create(4096, 64, 4, workspace, size - 8, &pool, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0, sublet_pool_create(4096, 64, 4, workspace, size, NULL, &error));
    CHECK(pool == NULL);
    WORKS(sublet_pool_create(4096, 64, 4, workspace, size, &pool, &error));

    uint64_t a = 7, b = 7, c = 7;
    WORKS(sublet_pool_malloc(pool, 1000, &a, &error));
    WORKS(sublet_pool_malloc(pool, 100, &b, &error));
    WORKS(sublet_pool_free(pool, a, &error));
    WORKS(sublet_pool_malloc(pool, 50, &c, &error)); /* into the hole, which fits it better */
    CHECK(a == 0 && b == 1024 && c == 0);
    sublet_pool_usage usage = {.struct_size = sizeof usage};
    WORKS(sublet_pool_stats(pool, &usage, &error));
    CHECK(usage.live == 128 + 64 && usage.blocks == 2 && usage.peak == 1024 + 128 && usage.footprint == 1024 + 128);

    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 0, 0, 64, sublet_pool_free(pool, 64, &error));
    c = 7;
    FAILS(SUBLET_STATUS_OUT_OF_MEMORY, 0, 4096, 4096 - 1152, sublet_pool_malloc(pool, 4096, &c, &error));
    CHECK(c == 7);
    FAILS(SUBLET_STATUS_ZERO_SIZE, 0, 0, 0, sublet_pool_malloc(pool, 0, &c, &error));
    CHECK(sublet_pool_malloc(pool, UINT64_MAX, &c, &error) == SUBLET_STATUS_OUT_OF_MEMORY);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_pool_malloc(NULL, 1, &c, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_pool_malloc(pool, 1, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_pool_free(NULL, 1, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_pool_stats(pool, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_pool_workspace(4, NULL, &error));
    free(workspace);
}
