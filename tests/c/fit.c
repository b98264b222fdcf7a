#include "check.h"

#define MIB ((uint64_t)1 << 20)
#define FIRST SUBLET_OP_KIND_FIRST

/* An activation that is read again after another has come and gone. */
static const sublet_row rows[] = {
    {.time_ns = 0, .event = SUBLET_EVENT_MALLOC, .block = 0, .op = 0, .op_kind = FIRST, .bytes = 8 * MIB},
    {.time_ns = 1000000, .event = SUBLET_EVENT_WRITE, .block = 0, .op = 0, .op_kind = FIRST},
    {.time_ns = 1000000, .event = SUBLET_EVENT_MALLOC, .block = 1, .op = 1, .op_kind = FIRST, .bytes = 8 * MIB},
    {.time_ns = 2000000, .event = SUBLET_EVENT_WRITE, .block = 1, .op = 1, .op_kind = FIRST},
    {.time_ns = 3000000, .event = SUBLET_EVENT_FREE, .block = 1},
    {.time_ns = 9000000, .event = SUBLET_EVENT_READ, .block = 0, .op = 2, .op_kind = FIRST},
    {.time_ns = 9000000, .event = SUBLET_EVENT_FREE, .block = 0},
};
#define ROWS COUNT(rows)
#define BLOCKS 2

static const sublet_operator repeatable[3] = {{.flags = 0}, {.flags = 0}, {.flags = 0}};
#define OPERATORS COUNT(repeatable)

static sublet_trace told(const sublet_operator *operators, size_t operator_count) {
    return (sublet_trace){.struct_size = sizeof(sublet_trace), .rows = rows, .row_count = ROWS, .operators = operators,
                          .operator_count = operator_count, .block_count = BLOCKS};
}

/* A fit's output, and its workspace. */
struct room {
    sublet_fit_output output;
    void *workspace;
    size_t size;
};

static struct room room_for(const sublet_trace *trace) {
    sublet_fit_lengths lengths;
    WORKS(sublet_fit_lengths_of(trace, &lengths, &error));
    CHECK(lengths.rows > ROWS && lengths.residencies >= BLOCKS);
    size_t r = lengths.rows, n = lengths.residencies;
    struct room room = {.output = {.struct_size = sizeof(sublet_fit_output), .row_capacity = r, .residency_capacity = n}};
    /* To ask for the size of the workspace, counts are enough. */
    sublet_layout layout;
    WORKS(sublet_fit_workspace(trace, &room.output, &layout, &error));
    room.output.rows = malloc(r * sizeof *room.output.rows);
    room.output.timings = malloc(r * sizeof *room.output.timings);
    room.output.blocks = malloc(n * sizeof *room.output.blocks);
    room.output.names = malloc(n * sizeof *room.output.names);
    room.output.offsets = malloc(n * sizeof *room.output.offsets);
    room.workspace = lend(layout);
    room.size = layout.size;
    return room;
}

static void released(struct room *room) {
    free(room->output.rows);
    free(room->output.timings);
    free(room->output.blocks);
    free(room->output.names);
    free(room->output.offsets);
    free(room->workspace);
}

static sublet_status fit(const sublet_trace *trace, uint64_t limit, const sublet_fit_params *params, struct room *room,
                         sublet_fitted *fitted) {
    return sublet_fit(trace, limit, params, room->workspace, room->size, &room->output, fitted, &error);
}

static void what_fits_is_proved(const sublet_trace *trace, const struct room *room, const sublet_fitted *fitted) {
    const sublet_schedule schedule = {.struct_size = sizeof schedule, .rows = room->output.rows,
                                      .row_count = fitted->row_count, .offsets = room->output.offsets,
                                      .residency_count = fitted->residency_count};
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(trace, &schedule, &layout, &error));
    void *workspace = lend(layout);
    sublet_verified verified = {.struct_size = sizeof verified};
    WORKS(sublet_verify_schedule(trace, &schedule, NULL, workspace, layout.size, NULL, &verified, &error));
    CHECK(verified.peak == fitted->peak && verified.run.time_ns == fitted->run.time_ns);
    free(workspace);
}

static void networks_fit(struct room *room) {
    const sublet_trace unknown = told(NULL, 0), known = told(repeatable, OPERATORS), most = told(repeatable, OPERATORS - 1);
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    /* By swapping, if nothing is known of the operators and nothing else is asked for. */
    WORKS(fit(&unknown, 8 * MIB, NULL, room, &fitted));
    CHECK(fitted.original_peak == 16 * MIB && fitted.peak == 8 * MIB && fitted.residency_count == 3);
    CHECK(fitted.run.time_ns > 1.05 * (double)fitted.run.original_ns); /* the second operator waits for the copy */
    CHECK(room->output.names[2].block == 0 && room->output.names[2].ordinal == 1);
    CHECK(room->output.blocks[2].size == 8 * MIB && room->output.timings[fitted.row_count - 1].end > 9e6);
    what_fits_is_proved(&unknown, room, &fitted);

    /* The first operator reads nothing: it is recomputed in no time. */
    const sublet_fit_params recompute = {.struct_size = sizeof recompute, .means = SUBLET_MEANS_RECOMPUTE};
    WORKS(fit(&unknown, 8 * MIB, &recompute, room, &fitted));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns == 9e6 && fitted.run.swapped_bytes == 0);
    what_fits_is_proved(&unknown, room, &fitted);
    /* The same by default if all operators are described; not if one is missing, or must not run again. */
    WORKS(fit(&known, 8 * MIB, NULL, room, &fitted));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns == 9e6 && fitted.run.swapped_bytes == 0);
    what_fits_is_proved(&unknown, room, &fitted);
    WORKS(fit(&most, 8 * MIB, NULL, room, &fitted));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns > 9e6 && fitted.run.swapped_bytes == 16 * MIB);
    sublet_operator once[OPERATORS];
    memcpy(once, repeatable, sizeof once);
    once[0].flags = SUBLET_OPERATOR_ONCE;
    const sublet_trace random = told(once, OPERATORS);
    WORKS(fit(&random, 8 * MIB, NULL, room, &fitted));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns > 9e6 && fitted.run.swapped_bytes == 16 * MIB);
    what_fits_is_proved(&unknown, room, &fitted);
    FAILS(SUBLET_STATUS_IMPOSSIBLE_LIMIT, 0, 16 * MIB, 8 * MIB, fit(&random, 8 * MIB, &recompute, room, &fitted));
    once[1].kind = 3;
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 1, 0, 3, fit(&random, 8 * MIB, NULL, room, &fitted));

    const sublet_fit_params quick = {.struct_size = sizeof quick, .work = 100, .seed = 3};
    WORKS(fit(&unknown, 8 * MIB, &quick, room, &fitted));
    CHECK(fitted.peak <= 8 * MIB);
    what_fits_is_proved(&unknown, room, &fitted);
    /* Arrays that are NULL are not written. */
    struct room bare = *room;
    bare.output.timings = NULL;
    bare.output.blocks = NULL;
    bare.output.names = NULL;
    WORKS(fit(&unknown, UINT64_MAX, NULL, &bare, &fitted));
    CHECK(fitted.peak == 16 * MIB && fitted.run.swapped_bytes == 0 && fitted.row_count == ROWS);
}

/* Two values are made, and then read one after the other: each could be read before the next is made. */
static const sublet_row crossed[] = {
    {.time_ns = 0, .event = SUBLET_EVENT_MALLOC, .block = 0, .op = 0, .op_kind = FIRST, .bytes = 8 * MIB},
    {.time_ns = 1000000, .event = SUBLET_EVENT_WRITE, .block = 0, .op = 0, .op_kind = FIRST},
    {.time_ns = 1000000, .event = SUBLET_EVENT_MALLOC, .block = 1, .op = 1, .op_kind = FIRST, .bytes = 8 * MIB},
    {.time_ns = 2000000, .event = SUBLET_EVENT_WRITE, .block = 1, .op = 1, .op_kind = FIRST},
    {.time_ns = 3000000, .event = SUBLET_EVENT_READ, .block = 0, .op = 2, .op_kind = FIRST},
    {.time_ns = 3000000, .event = SUBLET_EVENT_FREE, .block = 0},
    {.time_ns = 4000000, .event = SUBLET_EVENT_READ, .block = 1, .op = 3, .op_kind = FIRST},
    {.time_ns = 4000000, .event = SUBLET_EVENT_FREE, .block = 1},
};

static void operators_run_in_another_order(void) {
    const sublet_operator once = {.flags = SUBLET_OPERATOR_ONCE};
    const sublet_operator free = {.flags = SUBLET_OPERATOR_ONCE | SUBLET_OPERATOR_UNORDERED};
    const sublet_operator fixed[] = {once, once, once, once}, moving[] = {free, free, free, free};
    sublet_trace trace = {.struct_size = sizeof(sublet_trace), .rows = crossed, .row_count = COUNT(crossed),
                          .operators = moving, .operator_count = COUNT(moving), .block_count = BLOCKS};
    struct room room = room_for(&trace);
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    const sublet_fit_params order = {.struct_size = sizeof order, .means = SUBLET_MEANS_ORDER};
    WORKS(fit(&trace, 8 * MIB, &order, &room, &fitted));
    CHECK(fitted.original_peak == 16 * MIB && fitted.peak == 8 * MIB && fitted.run.time_ns == 4e6);
    CHECK(room.output.rows[2].op == 2 && room.output.rows[2].event == SUBLET_EVENT_READ);
    what_fits_is_proved(&trace, &room, &fitted);
    /* Operators keep their order if they are not SUBLET_OPERATOR_UNORDERED, or the means do not have ORDER. */
    const sublet_fit_params recompute = {.struct_size = sizeof recompute, .means = SUBLET_MEANS_RECOMPUTE};
    FAILS(SUBLET_STATUS_IMPOSSIBLE_LIMIT, 0, 16 * MIB, 8 * MIB, fit(&trace, 8 * MIB, &recompute, &room, &fitted));
    trace.operators = fixed;
    FAILS(SUBLET_STATUS_IMPOSSIBLE_LIMIT, 0, 16 * MIB, 8 * MIB, fit(&trace, 8 * MIB, &order, &room, &fitted));
    released(&room);
}

static void faults_of_a_fit_are_told(struct room *room) {
    const sublet_trace trace = told(repeatable, OPERATORS);
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    sublet_fit_params params = {.struct_size = sizeof params, .means = 1u << 31};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 1u << 31, fit(&trace, 8 * MIB, &params, room, &fitted));
    params = (sublet_fit_params){.struct_size = sizeof params, .reserved = 7};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 7, fit(&trace, 8 * MIB, &params, room, &fitted));
    FAILS(SUBLET_STATUS_IMPOSSIBLE_LIMIT, 0, 8 * MIB, 8 * MIB - 1, fit(&trace, 8 * MIB - 1, NULL, room, &fitted));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, fit(NULL, 8 * MIB, NULL, room, &fitted));
    FAILS(SUBLET_STATUS_NULL_POINTER, 6, 0, 0, fit(&trace, 8 * MIB, NULL, room, NULL));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0,
          sublet_fit(&trace, 8 * MIB, NULL, room->workspace, room->size, NULL, &fitted, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 3, room->size, room->size / 2,
          sublet_fit(&trace, 8 * MIB, NULL, room->workspace, room->size / 2, &room->output, &fitted, &error));
    SIZES_ARE_HEARD(sublet_fitted, row_count, 6, result, fit(&trace, 8 * MIB, NULL, room, result));

    struct room broken = *room;
    size_t r = room->output.row_capacity, n = room->output.residency_capacity;
    broken.output.row_capacity = r - 1;
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 5, r, r - 1, fit(&trace, 8 * MIB, NULL, &broken, &fitted));
    broken = *room;
    broken.output.residency_capacity = n - 1;
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 5, n, n - 1, fit(&trace, 8 * MIB, NULL, &broken, &fitted));
    broken = *room;
    broken.output.offsets = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 5, 0, offsetof(sublet_fit_output, offsets),
          fit(&trace, 8 * MIB, NULL, &broken, &fitted));
    broken = *room;
    broken.output.rows = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 5, 0, offsetof(sublet_fit_output, rows),
          fit(&trace, 8 * MIB, NULL, &broken, &fitted));
    const size_t pointers[] = {offsetof(sublet_fit_output, rows), offsetof(sublet_fit_output, timings),
                               offsetof(sublet_fit_output, offsets), offsetof(sublet_fit_output, blocks),
                               offsetof(sublet_fit_output, names)};
    for (size_t i = 0; i < COUNT(pointers); ++i) {
        broken = *room;
        void *const odd = ODD(room->output.rows), *const used = room->workspace;
        memcpy((char *)&broken.output + pointers[i], &odd, sizeof odd);
        FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 5, i == 4 ? 4 : 8, pointers[i], fit(&trace, 8 * MIB, NULL, &broken, &fitted));
        memcpy((char *)&broken.output + pointers[i], &used, sizeof used);
        FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 3, fit(&trace, 8 * MIB, NULL, &broken, &fitted));
    }
    broken = *room;
    broken.output.names = (sublet_residency *)broken.output.offsets;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 5, fit(&trace, 8 * MIB, NULL, &broken, &fitted));
    sublet_fit_params neither = {.struct_size = sizeof neither, .keep_persistent = 2};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 2, fit(&trace, 8 * MIB, &neither, room, &fitted));
    broken = *room;
    broken.output.reserved = 1;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 5, 0, 1, fit(&trace, 8 * MIB, NULL, &broken, &fitted));

    sublet_row copied[ROWS];
    memcpy(copied, rows, sizeof rows);
    copied[4].event = SUBLET_EVENT_SWAP_OUT;
    sublet_trace other = trace;
    other.rows = copied;
    FAILS(SUBLET_STATUS_ROW_NOT_RECORDED, 4, 0, 0, fit(&other, 8 * MIB, NULL, room, &fitted));
    sublet_layout layout;
    sublet_fit_lengths lengths;
    copied[0].event = 9;
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_VALUE, 0, 0, 9, sublet_fit_lengths_of(&other, &lengths, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_fit_lengths_of(&trace, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_fit_workspace(&trace, &room->output, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_fit_workspace(&trace, NULL, &layout, &error));
    other = trace;
    other.block_count = SIZE_MAX;
    CHECK(sublet_fit_lengths_of(&other, &lengths, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    CHECK(sublet_fit_workspace(&other, &room->output, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 0);
    broken = *room;
    broken.output.row_capacity = SIZE_MAX;
    CHECK(sublet_fit_workspace(&trace, &broken.output, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
}

static void swaps_without_overhead_have_a_bound(void) {
    sublet_device device = {.struct_size = sizeof device, .in_bandwidth = -1.0};
    const sublet_trace trace = told(NULL, 0);
    sublet_trace wrong = trace;
    wrong.device = &device;
    sublet_layout layout;
    WORKS(sublet_load_without_overhead_workspace(&trace, &layout, &error));
    void *workspace = lend(layout);
    uint64_t load = 0;
    WORKS(sublet_load_without_overhead(&trace, workspace, layout.size, &load, &error));
    CHECK(load == 16 * MIB); /* the second block is allocated when the first has just been written */
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0,
          sublet_load_without_overhead(&trace, workspace, layout.size, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, layout.size, 0,
          sublet_load_without_overhead(&trace, workspace, 0, &load, &error));
    FAILS(SUBLET_STATUS_DEVICE, 0, 0, 0,
          sublet_load_without_overhead(&wrong, workspace, layout.size, &load, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_load_without_overhead_workspace(&trace, NULL, &error));
    free(workspace);
}

void test_fit(void) {
    const sublet_trace trace = told(repeatable, OPERATORS);
    struct room room = room_for(&trace);
    networks_fit(&room);
    faults_of_a_fit_are_told(&room);
    released(&room);
    operators_run_in_another_order();
    swaps_without_overhead_have_a_bound();
}
