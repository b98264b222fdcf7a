#include "check.h"

void test_bound(void) {
    const sublet_block blocks[] = {{.start = 0, .end = 2, .size = 3}, {.start = 1, .end = 3, .size = 5}};
    size_t n = COUNT(blocks);
    sublet_layout layout;
    WORKS(sublet_lower_bound_workspace(n, &layout, &error));
    void *workspace = lend(layout);
    uint64_t bound = 0;
    WORKS(sublet_lower_bound(blocks, n, NULL, workspace, layout.size, &bound, &error));
    CHECK(bound == 8); /* the max load */
    sublet_constraints constraints = {.struct_size = sizeof constraints, .alignment = 8};
    WORKS(sublet_lower_bound(blocks, n, &constraints, workspace, layout.size, &bound, &error));
    CHECK(bound == 11); /* 5 at 0, 3 at 8 */

    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0, sublet_lower_bound(blocks, n, NULL, workspace, layout.size, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_lower_bound(NULL, n, NULL, workspace, layout.size, &bound, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 3, layout.size, 0,
          sublet_lower_bound(blocks, n, NULL, workspace, 0, &bound, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 3,
          sublet_lower_bound(blocks, n, NULL, workspace, layout.size, workspace, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_lower_bound_workspace(n, NULL, &error));
    CHECK(sublet_lower_bound_workspace(SIZE_MAX / 2, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    constraints.alignment = 12;
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 12,
          sublet_lower_bound(blocks, n, &constraints, workspace, layout.size, &bound, &error));
    CHECK(bound == 11);
    WORKS(sublet_lower_bound(NULL, 0, NULL, NULL, 0, &bound, &error));
    CHECK(bound == 0);
    free(workspace);
}
