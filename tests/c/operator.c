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

static sublet_trace told(const sublet_operator *operators, size_t operator_count) {
    return (sublet_trace){.struct_size = sizeof(sublet_trace), .rows = original, .row_count = COUNT(original),
                          .operators = operators, .operator_count = operator_count, .block_count = BLOCKS};
}

/* What the simulator and the verifier say of a rewritten trace with six residencies. */
static sublet_status judge(const sublet_operator *operators, size_t operator_count, const sublet_row *rewritten,
                           size_t row_count, const uint64_t *offsets, sublet_run *run) {
    const sublet_trace trace = told(operators, operator_count);
    const sublet_schedule schedule = {.struct_size = sizeof schedule, .rows = rewritten, .row_count = row_count,
                                      .offsets = offsets, .residency_count = 6};
    sublet_verified verified = {.struct_size = sizeof verified};
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(&trace, &schedule, &layout, &error));
    void *workspace = lend(layout);
    sublet_status status =
        sublet_verify_schedule(&trace, &schedule, NULL, workspace, layout.size, NULL, &verified, &error);
    free(workspace);
    if (status == SUBLET_STATUS_OK) {
        sublet_error told_error;
        CHECK(sublet_simulate_workspace(&trace, &schedule, &layout, &told_error) == SUBLET_STATUS_OK);
        workspace = lend(layout);
        CHECK(sublet_simulate(&trace, &schedule, workspace, layout.size, NULL, run, &told_error) == SUBLET_STATUS_OK);
        verified.run.struct_size = sizeof *run;
        CHECK(memcmp(&verified.run, run, sizeof *run) == 0);
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
    /* An operator of which nothing is known may run again, but may neither work in place nor leave a mask. */
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
    const sublet_operator flags[] = {{.flags = 0}, {.flags = 8}}, kind[] = {{.kind = 3}}, element[] = {{.element = 3}};
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 1, 0, 8, judge(flags, 2, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 0, 0, 3, judge(kind, 1, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 0, 0, 3, judge(element, 1, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_trace, operators),
          judge(NULL, 1, again, COUNT(again), again_offsets, &run));
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 0, 4, offsetof(sublet_trace, operators),
          judge(ODD(known), 1, again, COUNT(again), again_offsets, &run));

    sublet_layout layout, more;
    const sublet_schedule same = {.struct_size = sizeof same, .rows = original, .row_count = COUNT(original)};
    const sublet_trace none = told(NULL, 0), many = told(NULL, 100), wrong = told(kind, 1), most = told(known, SIZE_MAX);
    WORKS(sublet_simulate_workspace(&none, &same, &layout, &error));
    WORKS(sublet_simulate_workspace(&many, &same, &more, &error));
    CHECK(more.size > layout.size);
    void *workspace = lend(more);
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 0, 0, 3,
          sublet_simulate(&wrong, &same, workspace, more.size, NULL, &run, &error));
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_trace, operators),
          sublet_simulate(&many, &same, workspace, more.size, NULL, &run, &error));
    CHECK(sublet_simulate(&most, &same, workspace, layout.size, NULL, &run, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 0);
    CHECK(sublet_simulate_workspace(&most, &same, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW && error.index == 0);
    free(workspace);
}

void test_operator(void) {
    flags_are_heard();
    wrong_operators();
}
