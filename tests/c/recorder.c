#include "check.h"

/* A second free of a block is found by the functions that take the rows. */
static void a_second_free_is_recorded(void) {
    sublet_layout layout;
    WORKS(sublet_recorder_workspace(4, &layout, &error));
    void *workspace = lend(layout);
    sublet_recorder *recorder = NULL;
    WORKS(sublet_recorder_create(4, workspace, layout.size, &recorder, &error));
    uint32_t block = 7;
    WORKS(sublet_recorder_malloc(recorder, 0, 64, &block, &error));
    WORKS(sublet_recorder_free(recorder, 1, block, &error));
    WORKS(sublet_recorder_free(recorder, 2, block, &error));
    sublet_row rows[4];
    size_t count = 0, blocks = 0;
    WORKS(sublet_recorder_rows(recorder, rows, COUNT(rows), &count, &blocks, &error));
    free(workspace);
    const sublet_trace trace = {.struct_size = sizeof trace, .rows = rows, .row_count = count, .block_count = blocks};
    size_t residencies = 0;
    WORKS(sublet_residencies(rows, count, &residencies, &error));
    WORKS(sublet_lifetimes_workspace(&trace, residencies, &layout, &error));
    workspace = lend(layout);
    sublet_block found;
    sublet_residency name;
    FAILS(SUBLET_STATUS_ROW_FREE_WITHOUT_MALLOC, 2, 0, 0,
          sublet_lifetimes(&trace, workspace, layout.size, &found, &name, 1, &residencies, &error));
    free(workspace);
}

void test_recorder(void) {
    a_second_free_is_recorded();
    enum { CAPACITY = 6 };
    sublet_layout layout;
    WORKS(sublet_recorder_workspace(CAPACITY, &layout, &error));
    void *workspace = lend(layout);
    sublet_recorder *recorder = NULL;
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, layout.size, 8,
          sublet_recorder_create(CAPACITY, workspace, 8, &recorder, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_recorder_create(CAPACITY, workspace, layout.size, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_recorder_workspace(CAPACITY, NULL, &error));
    WORKS(sublet_recorder_create(CAPACITY, workspace, layout.size, &recorder, &error));

    uint32_t block = 7, outside = 7, second = 7;
    WORKS(sublet_recorder_begin_op(recorder, &error));
    WORKS(sublet_recorder_malloc(recorder, 0, 4096, &block, &error));
    WORKS(sublet_recorder_write(recorder, 10, block, &error));
    WORKS(sublet_recorder_interrupt(recorder, &error));
    WORKS(sublet_recorder_interrupt(recorder, &error));
    WORKS(sublet_recorder_resume(recorder, &error)); /* from the inner one */
    WORKS(sublet_recorder_malloc(recorder, 11, 64, &outside, &error));
    WORKS(sublet_recorder_free(recorder, 11, outside, &error));
    WORKS(sublet_recorder_resume(recorder, &error));
    WORKS(sublet_recorder_begin_op(recorder, &error));
    WORKS(sublet_recorder_malloc(recorder, 12, 32, &second, &error));
    WORKS(sublet_recorder_read(recorder, 12, block, &error));
    WORKS(sublet_recorder_end_op(recorder, &error));
    WORKS(sublet_recorder_free(recorder, 13, block, &error));
    CHECK(block == 0 && second == 1 && outside == SUBLET_OUTSIDE);

    FAILS(SUBLET_STATUS_ROW_ZERO_SIZE, 5, 0, 0, sublet_recorder_malloc(recorder, 13, 0, &block, &error));
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_BLOCK, 5, 0, 0, sublet_recorder_free(recorder, 13, 2, &error));
    FAILS(SUBLET_STATUS_ROW_TIME_BACKWARDS, 5, 0, 0, sublet_recorder_read(recorder, 12, second, &error));
    WORKS(sublet_recorder_free(recorder, 14, second, &error));
    FAILS(SUBLET_STATUS_RECORD_FULL, 0, 7, 6, sublet_recorder_malloc(recorder, 15, 8, &block, &error));
    CHECK(block == 0);

    /* It goes on in a larger one. */
    sublet_layout more;
    WORKS(sublet_recorder_workspace(CAPACITY + 2, &more, &error));
    void *room = lend(more);
    sublet_recorder *larger = NULL;
    FAILS(SUBLET_STATUS_RECORD_FULL, 0, 7, 6,
          sublet_recorder_hand_over(recorder, CAPACITY, room, more.size, &larger, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 2, more.size, layout.size,
          sublet_recorder_hand_over(recorder, CAPACITY + 2, room, layout.size, &larger, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0,
          sublet_recorder_hand_over(recorder, CAPACITY + 2, room, more.size, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0,
          sublet_recorder_hand_over(NULL, CAPACITY + 2, room, more.size, &larger, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 2, 0, 0,
          sublet_recorder_hand_over(recorder, 1, workspace, layout.size, &larger, &error));
    CHECK(sublet_recorder_hand_over(recorder, SIZE_MAX, room, more.size, &larger, &error) ==
              SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1 && larger == NULL);
    WORKS(sublet_recorder_hand_over(recorder, CAPACITY + 2, room, more.size, &larger, &error));
    memset(workspace, 0xa5, layout.size);
    free(workspace);
    workspace = room;
    WORKS(sublet_recorder_malloc(larger, 15, 8, &block, &error));
    CHECK(block == 2);
    WORKS(sublet_recorder_free(larger, 15, 2, &error));
    FAILS(SUBLET_STATUS_RECORD_FULL, 0, 9, 8, sublet_recorder_read(larger, 15, 1, &error));
    recorder = larger;

    sublet_row rows[CAPACITY + 2];
    size_t row_count = 0, block_count = 0;
    WORKS(sublet_recorder_rows(recorder, NULL, 0, &row_count, &block_count, &error));
    CHECK(row_count == CAPACITY + 2 && block_count == 3);
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 1, 8, 5, sublet_recorder_rows(recorder, rows, 5, NULL, NULL, &error));
    WORKS(sublet_recorder_rows(recorder, rows, CAPACITY + 2, NULL, NULL, &error));
    CHECK(rows[0].event == SUBLET_EVENT_MALLOC && rows[0].bytes == 4096 && rows[0].op_kind == SUBLET_OP_KIND_FIRST);
    CHECK(rows[3].event == SUBLET_EVENT_READ && rows[3].block == 0 && rows[3].op == 1 && rows[3].time_ns == 12);
    CHECK(rows[5].event == SUBLET_EVENT_FREE && rows[5].block == 1 && rows[5].op_kind == SUBLET_OP_KIND_NONE);

    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_malloc(NULL, 0, 1, &block, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_recorder_malloc(recorder, 0, 1, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_free(NULL, 0, 0, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_read(NULL, 0, 0, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_write(NULL, 0, 0, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_begin_op(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_end_op(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_interrupt(NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_recorder_resume(NULL, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 0, 8, 0,
          sublet_recorder_rows(ODD(recorder), rows, CAPACITY + 2, NULL, NULL, &error));
    free(workspace);
}
