#include "check.h"

/* Two blocks, the first of which is freed. */
static const sublet_row rows[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = 64},
    {.event = SUBLET_EVENT_WRITE, .block = 0, .op = 0, .op_kind = SUBLET_OP_KIND_FIRST},
    {.event = SUBLET_EVENT_MALLOC, .block = 1, .bytes = 32},
    {.event = SUBLET_EVENT_FREE, .block = 0},
};
#define ROWS COUNT(rows)

static sublet_trace trace_of(const sublet_row *its_rows, size_t row_count, size_t block_count) {
    return (sublet_trace){.struct_size = sizeof(sublet_trace), .rows = its_rows, .row_count = row_count,
                          .block_count = block_count};
}

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
        const sublet_trace trace = trace_of(broken, ROWS, 2);
        FAILS(faults[i].status, faults[i].index, 0, 0,
              sublet_lifetimes(&trace, workspace, size, blocks, NULL, COUNT(blocks), NULL, &error));
    }
    const sublet_row twice[] = {rows[0], rows[3], {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = 65}};
    sublet_trace trace = trace_of(twice, 3, 2);
    FAILS(SUBLET_STATUS_ROW_SIZE_CHANGED, 2, 0, 0,
          sublet_lifetimes(&trace, workspace, size, blocks, NULL, COUNT(blocks), NULL, &error));
    const sublet_row no_event[] = {rows[0], {.event = 6}};
    trace = trace_of(no_event, 2, 2);
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_VALUE, 1, 0, 6,
          sublet_lifetimes(&trace, workspace, size, blocks, NULL, COUNT(blocks), NULL, &error));
    const sublet_row no_kind[] = {rows[0], {.event = SUBLET_EVENT_READ, .op_kind = 3}};
    size_t residencies;
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_VALUE, 1, 0, 3, sublet_residencies(no_kind, 2, &residencies, &error));
}

/* Pointers in a struct are checked as those in arguments are. */
static void fields_are_judged(void *workspace, size_t size) {
    sublet_block blocks[3];
    sublet_layout layout;
#define REFUSED(status, needed, got, trace) \
    FAILS(status, 0, needed, got, sublet_lifetimes(trace, workspace, size, blocks, NULL, 3, NULL, &error))
    REFUSED(SUBLET_STATUS_NULL_POINTER, 0, 0, NULL);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_lifetimes_workspace(NULL, 3, &layout, &error));
    REFUSED(SUBLET_STATUS_MISALIGNED_POINTER, 8, 0, (const sublet_trace *)ODD(blocks));
    sublet_trace trace = trace_of(rows, ROWS, 2);
    trace.struct_size = 0;
    REFUSED(SUBLET_STATUS_STRUCT_SIZE, 4096, 0, &trace);
    FAILS(SUBLET_STATUS_STRUCT_SIZE, 0, 4096, 0, sublet_lifetimes_workspace(&trace, 3, &layout, &error));
    trace.struct_size = 4097;
    REFUSED(SUBLET_STATUS_STRUCT_SIZE, 4096, 4097, &trace);
    trace = trace_of(rows, ROWS, 2);
    trace.reserved = 5;
    REFUSED(SUBLET_STATUS_UNKNOWN_VALUE, 0, 5, &trace);
    trace = trace_of(NULL, ROWS, 2);
    REFUSED(SUBLET_STATUS_MISSING_FIELD, 0, offsetof(sublet_trace, rows), &trace);
    trace = trace_of(ODD(rows), 2, 2);
    REFUSED(SUBLET_STATUS_MISALIGNED_FIELD, 8, offsetof(sublet_trace, rows), &trace);
    trace = trace_of(rows, ROWS, 2);
    trace.operator_count = 1;
    REFUSED(SUBLET_STATUS_MISSING_FIELD, 0, offsetof(sublet_trace, operators), &trace);
    trace.operators = ODD(rows);
    REFUSED(SUBLET_STATUS_MISALIGNED_FIELD, 4, offsetof(sublet_trace, operators), &trace);
    trace = trace_of(rows, ROWS, 2);
    trace.device = ODD(rows);
    REFUSED(SUBLET_STATUS_MISALIGNED_FIELD, 8, offsetof(sublet_trace, device), &trace);
    sublet_device device = {.struct_size = 3};
    trace.device = &device;
    REFUSED(SUBLET_STATUS_STRUCT_SIZE, 4096, 3, &trace);
    device = (sublet_device){.struct_size = sizeof device, .flags = 2};
    REFUSED(SUBLET_STATUS_UNKNOWN_VALUE, 0, 2, &trace);
    /* The struct of an older caller ends before `device`: what follows it is not read. */
    trace.struct_size = offsetof(sublet_trace, device);
    WORKS(sublet_lifetimes(&trace, workspace, size, blocks, NULL, 3, NULL, &error));
    /* The struct of a newer caller has more fields: they have to be 0. */
    struct {
        sublet_trace trace;
        uint32_t more[2];
    } newer = {trace_of(rows, ROWS, 2), {0, 0}};
    newer.trace.struct_size = sizeof newer;
    WORKS(sublet_lifetimes(&newer.trace, workspace, size, blocks, NULL, 3, NULL, &error));
    newer.more[1] = 1;
    CHECK(sublet_lifetimes(&newer.trace, workspace, size, blocks, NULL, 3, NULL, &error) == SUBLET_STATUS_UNKNOWN_FIELD &&
          error.index == 0 && error.got >= sizeof(sublet_trace) + 4);
    /* The output must overlap neither the arrays that are read nor the struct itself. */
    trace = trace_of(rows, ROWS, 2);
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 3, 0, 0,
          sublet_lifetimes(&trace, workspace, size, (sublet_block *)(void *)&trace, NULL, 1, NULL, &error));
    const sublet_trace over = trace_of(workspace, 2, 2);
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 1, 0, 0,
          sublet_lifetimes(&over, workspace, size, blocks, NULL, 3, NULL, &error));
    const size_t counts[] = {offsetof(sublet_trace, row_count), offsetof(sublet_trace, operator_count),
                             offsetof(sublet_trace, block_count)};
    for (size_t i = 0; i < COUNT(counts); ++i) {
        trace = trace_of(rows, ROWS, 2);
        memset((char *)&trace + counts[i], 0xff, sizeof(size_t));
        CHECK(sublet_lifetimes(&trace, workspace, size, blocks, NULL, 3, NULL, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
        CHECK(error.index == 0 && error.got == SIZE_MAX);
        CHECK(sublet_lifetimes_workspace(&trace, 1, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW && error.index == 0);
    }
#undef REFUSED
}

void test_trace(void) {
    size_t residencies = 0;
    WORKS(sublet_residencies(rows, ROWS, &residencies, &error));
    CHECK(residencies == 2);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_residencies(NULL, ROWS, &residencies, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_residencies(rows, ROWS, NULL, &error));

    const sublet_trace trace = trace_of(rows, ROWS, 2);
    sublet_layout layout;
    WORKS(sublet_lifetimes_workspace(&trace, 3, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_block blocks[4];
    sublet_residency names[3];
    size_t count = 0;
    memset(blocks, 7, sizeof blocks);
    WORKS(sublet_lifetimes(&trace, workspace, size, blocks, names, 3, &count, &error));
    CHECK(count == 2 && blocks[0].start == 0 && blocks[0].end == 3 && blocks[0].size == 64);
    CHECK(blocks[1].start == 2 && blocks[1].end == 4 && blocks[1].size == 32 && blocks[1].flags == 0);
    CHECK(blocks[2].start == 0x07070707 && names[1].block == 1 && names[1].ordinal == 0);
    WORKS(sublet_lifetimes(&trace, workspace, size, blocks, NULL, 2, NULL, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 3, 2, 1,
          sublet_lifetimes(&trace, workspace, size, blocks, names, 1, &count, &error));
    every_fault_has_its_status(workspace, size);
    fields_are_judged(workspace, size);

    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0,
          sublet_lifetimes(&trace, workspace, size, NULL, names, 3, &count, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, size, size - 1,
          sublet_lifetimes(&trace, workspace, size - 1, blocks, names, 3, &count, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 4, 0, 3,
          sublet_lifetimes(&trace, workspace, size, blocks, (sublet_residency *)blocks, 3, &count, &error));
    CHECK(sublet_lifetimes(&trace, workspace, size, blocks, names, SIZE_MAX, &count, &error) ==
              SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 5);
    CHECK(sublet_lifetimes_workspace(&trace, SIZE_MAX, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_lifetimes_workspace(&trace, 1, NULL, &error));
    const sublet_trace none = trace_of(NULL, 0, 0);
    WORKS(sublet_lifetimes(&none, NULL, 0, NULL, NULL, 0, &count, &error));
    CHECK(count == 0);
    free(workspace);
}
