#include "check.h"

void test_verify(void) {
    sublet_block blocks[] = {
        {.start = 0, .end = 2, .size = 8}, {.start = 1, .end = 3, .size = 8}, {.start = 2, .end = 4, .size = 8}};
    size_t n = COUNT(blocks);
    sublet_layout layout;
    WORKS(sublet_verify_workspace(n, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_certificate certificate = {.struct_size = sizeof certificate};
    sublet_constraints constraints = {.struct_size = sizeof constraints};

    WORKS(sublet_verify(blocks, n, (uint64_t[]){0, 8, 0}, NULL, workspace, size, &certificate, &error));
    CHECK(certificate.peak == 16 && certificate.max_load == 16);
    CHECK(sublet_verify(blocks, n, (uint64_t[]){0, 8, 0}, NULL, workspace, size, NULL, NULL) == SUBLET_STATUS_OK);

    /* Every constraint, broken. */
    certificate.peak = 1;
    FAILS(SUBLET_STATUS_PLAN_OVERLAP, 1, 2, 2,
          sublet_verify(blocks, n, (uint64_t[]){0, 8, 9}, NULL, workspace, size, &certificate, &error));
    CHECK(certificate.peak == 1);
    FAILS(SUBLET_STATUS_PLAN_END_OVERFLOW, 0, 0, UINT64_MAX,
          sublet_verify(blocks, n, (uint64_t[]){UINT64_MAX, 8, 0}, NULL, workspace, size, &certificate, &error));
    constraints.capacity = 15;
    FAILS(SUBLET_STATUS_PLAN_OVER_CAPACITY, 1, 16, 15,
          sublet_verify(blocks, n, (uint64_t[]){0, 8, 0}, &constraints, workspace, size, &certificate, &error));
    constraints.capacity = 0;
    constraints.alignment = 16;
    FAILS(SUBLET_STATUS_PLAN_MISALIGNED, 1, 16, 8,
          sublet_verify(blocks, n, (uint64_t[]){0, 8, 0}, &constraints, workspace, size, &certificate, &error));
    blocks[2].flags = SUBLET_BLOCK_PINNED;
    blocks[2].pin = 32;
    FAILS(SUBLET_STATUS_PLAN_MOVED, 2, 32, 0,
          sublet_verify(blocks, n, (uint64_t[]){0, 8, 0}, NULL, workspace, size, &certificate, &error));

    uint64_t offsets[] = {0, 8, 32};
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0,
          sublet_verify(blocks, n, NULL, NULL, workspace, size, &certificate, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 2, 8, 0,
          sublet_verify(blocks, n - 1, ODD(offsets), NULL, workspace, size, &certificate, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 4, size, size - 8,
          sublet_verify(blocks, n, offsets, NULL, workspace, size - 8, &certificate, &error));
    *(uint32_t *)offsets = sizeof certificate;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 6, 0, 2,
          sublet_verify(blocks, n, offsets, NULL, workspace, size, (sublet_certificate *)offsets, &error));
    offsets[0] = 0;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 4, 0, 0,
          sublet_verify(workspace, 1, offsets, NULL, workspace, size, &certificate, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_verify_workspace(n, NULL, &error));
    CHECK(sublet_verify_workspace(SIZE_MAX, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    WORKS(sublet_verify(NULL, 0, NULL, NULL, NULL, 0, &certificate, &error));
    CHECK(certificate.peak == 0 && certificate.max_load == 0);
    free(workspace);
}
