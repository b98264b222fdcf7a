/* What is known of operators: which may run again, which work in place, which are ReLUs. */
#include "check.h"

enum { SIZE = 3200, BLOCKS = 5, MASK = BLOCKS + 1 };

#define MALLOC(when, number, by) \
    {.time_ns = (when), .event = SUBLET_EVENT_MALLOC, .block = (number), .bytes = SIZE, .op = (by), .op_kind = SUBLET_OP_KIND_FIRST}
#define ROW(when, what, number, by) \
    {.time_ns = (when), .event = SUBLET_EVENT_##what, .block = (number), .op = (by), .op_kind = SUBLET_OP_KIND_FIRST}
#define FREE(when, number) {.time_ns = (when), .event = SUBLET_EVENT_FREE, .block = (number)}

/* A ReLU, two operators of any kind, and the ReLU's gradient, which reads what the ReLU wrote. */
static const sublet_row original[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = SIZE},
    {.event = SUBLET_EVENT_WRITE, .block = 0},
    MALLOC(0, 1, 0), ROW(0, READ, 0, 0), ROW(100, WRITE, 1, 0), FREE(100, 0),
    MALLOC(100, 2, 1), ROW(100, READ, 1, 1), ROW(200, WRITE, 2, 1),
    MALLOC(200, 3, 2), ROW(200, READ, 2, 2), ROW(300, WRITE, 3, 2),
    MALLOC(300, 4, 3), ROW(300, READ, 3, 3), ROW(300, READ, 1, 3), ROW(400, WRITE, 4, 3), FREE(400, 1),
};

static const sublet_operator known[] = {
    {.flags = SUBLET_OPERATOR_IN_PLACE, .kind = SUBLET_OPERATOR_KIND_RELU},
    {.flags = 0, .kind = SUBLET_OPERATOR_KIND_OTHER},
    {.flags = 0, .kind = SUBLET_OPERATOR_KIND_OTHER},
    {.flags = SUBLET_OPERATOR_ONCE, .kind = SUBLET_OPERATOR_KIND_RELU_BACKWARD},
};

/* The ReLU writes over its input and leaves a bit for each element, which is all that its gradient reads. */
static const sublet_row in_place[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = SIZE},
    {.event = SUBLET_EVENT_WRITE, .block = 0},
    {.event = SUBLET_EVENT_MALLOC, .block = MASK, .bytes = SIZE / 32},
    ROW(0, READ, 0, 0), FREE(0, 0), MALLOC(0, 1, 0), ROW(100, WRITE, 1, 0), ROW(100, WRITE, MASK, 0),
    MALLOC(100, 2, 1), ROW(100, READ, 1, 1), ROW(200, WRITE, 2, 1), FREE(200, 1),
    MALLOC(200, 3, 2), ROW(200, READ, 2, 2), ROW(300, WRITE, 3, 2),
    MALLOC(300, 4, 3), ROW(300, READ, 3, 3), ROW(300, READ, MASK, 3), ROW(400, WRITE, 4, 3),
};
static const uint64_t in_place_offsets[] = {0, SIZE, 0, 3328, 6528, 9728};

/* The ReLU runs a second time, for its gradient. */
#define RERUN(what, number) \
    {.time_ns = 300, .event = SUBLET_EVENT_##what, .block = (number), .op = 0, .op_kind = SUBLET_OP_KIND_RERUN}
static const sublet_row again[] = {
    {.event = SUBLET_EVENT_MALLOC, .block = 0, .bytes = SIZE},
    {.event = SUBLET_EVENT_WRITE, .block = 0},
    MALLOC(0, 1, 0), ROW(0, READ, 0, 0), ROW(100, WRITE, 1, 0),
    MALLOC(100, 2, 1), ROW(100, READ, 1, 1), ROW(200, WRITE, 2, 1), FREE(200, 1),
    MALLOC(200, 3, 2), ROW(200, READ, 2, 2), ROW(300, WRITE, 3, 2),
    {.time_ns = 300, .event = SUBLET_EVENT_MALLOC, .block = 1, .bytes = SIZE}, RERUN(READ, 0), RERUN(WRITE, 1),
    MALLOC(300, 4, 3), ROW(300, READ, 3, 3), ROW(300, READ, 1, 3), ROW(400, WRITE, 4, 3), FREE(400, 1),
};
static const uint64_t again_offsets[] = {0, SIZE, 2 * SIZE, 3 * SIZE, SIZE, 4 * SIZE};

/* What the simulator and the verifier say of a rewritten trace with six residencies. */
static sublet_status judge(const sublet_operator *operators, size_t operator_count, const sublet_row *rewritten,
                           size_t row_count, const uint64_t *offsets, sublet_run *run) {
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(COUNT(original), operator_count, row_count, BLOCKS, 6, &layout, &error));
    void *workspace = lend(layout);
    sublet_status status =
        sublet_verify_schedule(original, COUNT(original), operators, operator_count, rewritten, row_count, BLOCKS,
                               offsets, 6, NULL, NULL, workspace, layout.size, NULL, run, NULL, &error);
    free(workspace);
    if (status == SUBLET_STATUS_OK) {
        sublet_run simulated = {.struct_size = sizeof simulated};
        sublet_error told;
        CHECK(sublet_simulate_workspace(COUNT(original), operator_count, row_count, BLOCKS, &layout, &told) ==
              SUBLET_STATUS_OK);
        workspace = lend(layout);
        CHECK(sublet_simulate(original, COUNT(original), operators, operator_count, rewritten, row_count, BLOCKS, NULL,
                              workspace, layout.size, NULL, &simulated, &told) == SUBLET_STATUS_OK);
        CHECK(memcmp(&simulated, run, sizeof simulated) == 0);
        free(workspace);
    }
    return status;
}

static void flags_are_heard(void) {
    sublet_run run = {.struct_size = sizeof run};
    WORKS(judge(known, COUNT(known), in_place, COUNT(in_place), in_place_offsets, &run));
    CHECK(run.time_ns == 400.0 && run.recomputed_ns == 0);
    WORKS(judge(known, COUNT(known), again, COUNT(again), again_offsets, &run));
    CHECK(run.time_ns == 500.0 && run.recomputed_ns == 100);
    /* Of whom nothing is known may run again, but neither work in place nor leave a mask. */
    WORKS(judge(NULL, 0, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_ROW_INSIDE_OPERATOR, 4, 0, 0,
          judge(NULL, 0, in_place, COUNT(in_place), in_place_offsets, &run));

    sublet_operator other[COUNT(known)];
    memcpy(other, known, sizeof other);
    other[0].flags = SUBLET_OPERATOR_IN_PLACE | SUBLET_OPERATOR_ONCE;
    FAILS(SUBLET_STATUS_ROW_MAY_NOT_RERUN, 13, 0, 0,
          judge(other, COUNT(other), again, COUNT(again), again_offsets, &run));
    other[0].kind = SUBLET_OPERATOR_KIND_OTHER;
    FAILS(SUBLET_STATUS_ROW_MASK_ELSEWHERE, 7, 0, 0,
          judge(other, COUNT(other), in_place, COUNT(in_place), in_place_offsets, &run));

    uint64_t apart[COUNT(in_place_offsets)];
    memcpy(apart, in_place_offsets, sizeof apart);
    apart[2] = 12928;
    FAILS(SUBLET_STATUS_ROW_NOT_IN_PLACE, 5, 0, 0,
          judge(known, COUNT(known), in_place, COUNT(in_place), apart, &run));
    sublet_row small[COUNT(in_place)];
    memcpy(small, in_place, sizeof small);
    small[2].bytes -= 1;
    FAILS(SUBLET_STATUS_ROW_MASK_TOO_SMALL, 2, 0, 0,
          judge(known, COUNT(known), small, COUNT(small), in_place_offsets, &run));

    /* Elements of 2 bytes take a mask of twice as many. */
    memcpy(other, known, sizeof other);
    other[0].element = 2;
    FAILS(SUBLET_STATUS_ROW_MASK_TOO_SMALL, 2, 0, 0,
          judge(other, COUNT(other), in_place, COUNT(in_place), in_place_offsets, &run));
    uint64_t wide[COUNT(in_place_offsets)];
    for (size_t i = 0; i < COUNT(wide); i++) wide[i] = in_place_offsets[i] + (i < 3 ? 0 : SIZE);
    memcpy(small, in_place, sizeof small);
    small[2].bytes = SIZE / 16;
    WORKS(judge(other, COUNT(other), small, COUNT(small), wide, &run));
    other[0].element = 8;
    WORKS(judge(other, COUNT(other), in_place, COUNT(in_place), in_place_offsets, &run));
}

static void wrong_operators(void) {
    sublet_run run = {.struct_size = sizeof run};
    const sublet_operator flags[] = {{.flags = 0}, {.flags = 4}}, kind[] = {{.kind = 3}}, element[] = {{.element = 3}};
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 1, 0, 4, judge(flags, 2, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 0, 0, 3, judge(kind, 1, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 0, 0, 3, judge(element, 1, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, judge(NULL, 1, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 2, 4, 0,
          judge(ODD(known), 1, again, COUNT(again), again_offsets, &run));

    sublet_layout layout, more;
    size_t n = COUNT(original);
    WORKS(sublet_simulate_workspace(n, 0, n, BLOCKS, &layout, &error));
    WORKS(sublet_simulate_workspace(n, 100, n, BLOCKS, &more, &error));
    CHECK(more.size > layout.size);
    void *workspace = lend(more);
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 0, 0, 3,
          sublet_simulate(original, n, kind, 1, original, n, BLOCKS, NULL, workspace, more.size, NULL, &run, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0,
          sublet_simulate(original, n, NULL, 1, original, n, BLOCKS, NULL, workspace, layout.size, NULL, &run, &error));
    CHECK(sublet_simulate(original, n, known, SIZE_MAX, original, n, BLOCKS, NULL, workspace, layout.size, NULL, &run,
                          &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 3);
    CHECK(sublet_simulate_workspace(n, SIZE_MAX, n, BLOCKS, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
    CHECK(sublet_verify_schedule_workspace(n, SIZE_MAX, n, BLOCKS, 6, &layout, &error) ==
              SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
    free(workspace);
}

void test_operator(void) {
    flags_are_heard();
    wrong_operators();
}
