#include "check.h"

/* Three blocks in chunks of 8 bytes: the first and the last share one. Then all in one chunk, and a large block's own. */
void test_chunks(void) {
    sublet_block blocks[] = {{.start = 0, .end = 2, .size = 6}, {.start = 1, .end = 3, .size = 5}, {.start = 2, .end = 4, .size = 6}};
    size_t n = COUNT(blocks);
    sublet_chunks_params params = {.struct_size = sizeof params, .solver = SUBLET_SOLVER_PORTFOLIO, .chunk_bytes = 8, .distance = 1};
    sublet_layout layout;
    WORKS(sublet_place_chunks_workspace(n, &params, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_spot spots[3];
    sublet_chunks chunks = {.struct_size = sizeof chunks};
    WORKS(sublet_place_chunks(blocks, n, &params, workspace, size, spots, &chunks, &error));
    CHECK(chunks.chunk_count == 2 && chunks.total == 11 && chunks.lower_bound == 11);
    CHECK(spots[0].bank == 0 && spots[1].bank == 1 && spots[2].bank == 0 && spots[2].offset == 0);

    blocks[1].size = 20;
    WORKS(sublet_place_chunks(blocks, n, &params, workspace, size, spots, &chunks, &error));
    CHECK(chunks.chunk_count == 2 && chunks.total == 26);
    params.most_chunks = 1;
    FAILS(SUBLET_STATUS_NO_BANK, 0, 6, 8, sublet_place_chunks(blocks, n, &params, workspace, size, spots, &chunks, &error));
    params.chunk_bytes = 0;
    params.alignment = 4;
    WORKS(sublet_place_chunks(blocks, n, &params, workspace, size, spots, NULL, &error));
    CHECK(spots[0].bank == 0 && spots[1].bank == 0 && spots[0].offset % 4 == 0 && spots[1].offset % 4 == 0);
    WORKS(sublet_place_chunks(NULL, 0, &params, workspace, size, NULL, &chunks, &error));
    CHECK(chunks.chunk_count == 0 && chunks.total == 0);

    params.solver = 1000;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 1000,
          sublet_place_chunks(blocks, n, &params, workspace, size, spots, &chunks, &error));
    params.solver = SUBLET_SOLVER_PORTFOLIO;
    blocks[1].size = 0;
    FAILS(SUBLET_STATUS_ZERO_SIZE, 1, 0, 0,
          sublet_place_chunks(blocks, n, &params, workspace, size, spots, &chunks, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0,
          sublet_place_chunks(blocks, n, &params, workspace, size, NULL, &chunks, &error));
    CHECK(sublet_place_chunks_workspace(SIZE_MAX, &params, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    free(workspace);
}
