#include "check.h"

/* Two blocks, the first of which is freed. */
static const sublet_row rows[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = 64},
    {.event = SUBLET_EVENT_WRITE, .block = 0, .op = 0, .op_kind = SUBLET_OP_KIND_FIRST},
    {.event = SUBLET_EVENT_MALLOC, .block = 1, .bytes = 32},
    {.event = SUBLET_EVENT_FREE, .block = 0},
};
#define ROWS COUNT(rows)

static void every_fault_has_its_status(void *workspace, size_t size) {
    static const struct {
        size_t row;
        sublet_row instead;
        sublet_status status;
        uint32_t index;
    } faults[] = {
        {1, {.event = SUBLET_EVENT_FREE, .block = 1}, SUBLET_STATUS_ROW_FREE_WITHOUT_MALLOC, 1},
        {1, {.event = SUBLET_EVENT_READ, .block = 1}, SUBLET_STATUS_ROW_ACCESS_WITHOUT_MALLOC, 1},
        {1, {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = 64}, SUBLET_STATUS_ROW_ALLOCATED_TWICE, 1},
        {2, {.event = SUBLET_EVENT_MALLOC, .block = 1, .bytes = 0}, SUBLET_STATUS_ROW_ZERO_SIZE, 2},
        {2, {.event = SUBLET_EVENT_MALLOC, .block = 2, .bytes = 1}, SUBLET_STATUS_ROW_UNKNOWN_BLOCK, 2},
        {0, {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = 64, .time_ns = 1}, SUBLET_STATUS_ROW_TIME_BACKWARDS, 1},
    };
    sublet_block blocks[3];
    for (size_t i = 0; i < COUNT(faults); ++i) {
        sublet_row broken[ROWS];
        memcpy(broken, rows, sizeof broken);
        broken[faults[i].row] = faults[i].instead;
        FAILS(faults[i].status, faults[i].index, 0, 0,
              sublet_lifetimes(broken, ROWS, 2, workspace, size, blocks, NULL, COUNT(blocks), NULL, &error));
    }
    const sublet_row again[] = {rows[0], rows[3], {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = 65}};
    FAILS(SUBLET_STATUS_ROW_SIZE_CHANGED, 2, 0, 0,
          sublet_lifetimes(again, 3, 2, workspace, size, blocks, NULL, COUNT(blocks), NULL, &error));
    const sublet_row no_event[] = {rows[0], {.event = 6}};
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_VALUE, 1, 0, 6,
          sublet_lifetimes(no_event, 2, 2, workspace, size, blocks, NULL, COUNT(blocks), NULL, &error));
    const sublet_row no_kind[] = {rows[0], {.event = SUBLET_EVENT_READ, .op_kind = 3}};
    size_t residencies;
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_VALUE, 1, 0, 3, sublet_residencies(no_kind, 2, &residencies, &error));
}

void test_trace(void) {
    size_t residencies = 0;
    WORKS(sublet_residencies(rows, ROWS, &residencies, &error));
    CHECK(residencies == 2);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_residencies(NULL, ROWS, &residencies, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_residencies(rows, ROWS, NULL, &error));

    sublet_layout layout;
    WORKS(sublet_lifetimes_workspace(ROWS, 2, 3, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_block blocks[4];
    sublet_residency names[3];
    size_t count = 0;
    memset(blocks, 7, sizeof blocks);
    WORKS(sublet_lifetimes(rows, ROWS, 2, workspace, size, blocks, names, 3, &count, &error));
    CHECK(count == 2 && blocks[0].start == 0 && blocks[0].end == 3 && blocks[0].size == 64);
    CHECK(blocks[1].start == 2 && blocks[1].end == 4 && blocks[1].size == 32 && blocks[1].flags == 0);
    CHECK(blocks[2].start == 0x07070707 && names[1].block == 1 && names[1].ordinal == 0);
    WORKS(sublet_lifetimes(rows, ROWS, 2, workspace, size, blocks, NULL, 2, NULL, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 5, 2, 1,
          sublet_lifetimes(rows, ROWS, 2, workspace, size, blocks, names, 1, &count, &error));
    every_fault_has_its_status(workspace, size);

    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0,
          sublet_lifetimes(rows, ROWS, 2, workspace, size, NULL, names, 3, &count, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 3, size, size - 1,
          sublet_lifetimes(rows, ROWS, 2, workspace, size - 1, blocks, names, 3, &count, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 6, 0, 5,
          sublet_lifetimes(rows, ROWS, 2, workspace, size, blocks, (sublet_residency *)blocks, 3, &count, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 3, 0, 0,
          sublet_lifetimes(workspace, 2, 2, workspace, size, blocks, names, 3, &count, &error));
    CHECK(sublet_lifetimes(rows, ROWS, SIZE_MAX, workspace, size, blocks, names, 3, &count, &error) ==
              SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 2);
    CHECK(sublet_lifetimes(rows, ROWS, 2, workspace, size, blocks, names, SIZE_MAX, &count, &error) ==
              SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 7);
    CHECK(sublet_lifetimes_workspace(1, SIZE_MAX, 1, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_lifetimes_workspace(1, 1, 1, NULL, &error));
    WORKS(sublet_lifetimes(NULL, 0, 0, NULL, 0, NULL, NULL, 0, &count, &error));
    CHECK(count == 0);
    free(workspace);
}
