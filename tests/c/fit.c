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

static void what_fits_is_proved(const sublet_row *rewritten, const uint64_t *offsets, const sublet_fitted *fitted) {
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(ROWS, 0, fitted->row_count, BLOCKS, fitted->residency_count, &layout, &error));
    void *workspace = lend(layout);
    sublet_run run = {.struct_size = sizeof run};
    sublet_certificate certificate = {.struct_size = sizeof certificate};
    WORKS(sublet_verify_schedule(rows, ROWS, NULL, 0, rewritten, fitted->row_count, BLOCKS, offsets, fitted->residency_count, NULL,
                                 NULL, workspace, layout.size, NULL, &run, &certificate, &error));
    CHECK(certificate.peak == fitted->peak && run.time_ns == fitted->run.time_ns);
    free(workspace);
}

void test_fit(void) {
    sublet_fit_lengths lengths;
    WORKS(sublet_fit_lengths_of(rows, ROWS, BLOCKS, &lengths, &error));
    CHECK(lengths.rows > ROWS && lengths.residencies >= BLOCKS);
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_fit_lengths_of(rows, ROWS, BLOCKS, NULL, &error));
    CHECK(sublet_fit_lengths_of(rows, ROWS, SIZE_MAX, &lengths, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    sublet_row unknown = {.event = 9};
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_VALUE, 0, 0, 9, sublet_fit_lengths_of(&unknown, 1, BLOCKS, &lengths, &error));

    sublet_layout layout;
    size_t r = lengths.rows, s = lengths.residencies;
    WORKS(sublet_fit_workspace(ROWS, OPERATORS, BLOCKS, r, s, &layout, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0, sublet_fit_workspace(ROWS, OPERATORS, BLOCKS, r, s, NULL, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_row *rewritten = malloc(r * sizeof *rewritten);
    sublet_timing *timings = malloc(r * sizeof *timings);
    sublet_block *blocks = malloc(s * sizeof *blocks);
    sublet_residency *names = malloc(s * sizeof *names);
    uint64_t *offsets = malloc(s * sizeof *offsets);
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    /* By swapping, if nothing is known of the operators and nothing else is asked for. */
    WORKS(sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, &fitted, &error));
    CHECK(fitted.original_peak == 16 * MIB && fitted.peak == 8 * MIB && fitted.residency_count == 3);
    CHECK(fitted.run.time_ns > 1.05 * (double)fitted.run.original_ns); /* the second operator waits for the copy */
    CHECK(names[2].block == 0 && names[2].ordinal == 1 && blocks[2].size == 8 * MIB);
    CHECK(timings[fitted.row_count - 1].end > 9e6);
    what_fits_is_proved(rewritten, offsets, &fitted);

    /* The first operator reads nothing: it runs again in no time. */
    sublet_fit_params again = {.struct_size = sizeof again, .means = SUBLET_MEANS_RECOMPUTE};
    WORKS(sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, &again, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, &fitted, &error));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns == 9e6 && fitted.run.swapped_bytes == 0);
    what_fits_is_proved(rewritten, offsets, &fitted);
    /* So it does unasked where all operators are told, but not where they may not. */
    WORKS(sublet_fit(rows, ROWS, repeatable, OPERATORS, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings,
                     r, blocks, names, offsets, s, &fitted, &error));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns == 9e6 && fitted.run.swapped_bytes == 0);
    what_fits_is_proved(rewritten, offsets, &fitted);
    WORKS(sublet_fit(rows, ROWS, repeatable, OPERATORS - 1, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten,
                     timings, r, blocks, names, offsets, s, &fitted, &error));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns > 9e6 && fitted.run.swapped_bytes == 16 * MIB);
    sublet_operator once[OPERATORS];
    memcpy(once, repeatable, sizeof once);
    once[0].flags = SUBLET_OPERATOR_ONCE;
    WORKS(sublet_fit(rows, ROWS, once, OPERATORS, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r,
                     blocks, names, offsets, s, &fitted, &error));
    CHECK(fitted.peak == 8 * MIB && fitted.run.time_ns > 9e6 && fitted.run.swapped_bytes == 16 * MIB);
    what_fits_is_proved(rewritten, offsets, &fitted);
    FAILS(SUBLET_STATUS_OVER_LIMIT, 0, 16 * MIB, 8 * MIB,
          sublet_fit(rows, ROWS, once, OPERATORS, BLOCKS, 8 * MIB, NULL, &again, workspace, size, rewritten, timings, r,
                     blocks, names, offsets, s, &fitted, &error));
    once[1].kind = 3;
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 1, 0, 3,
          sublet_fit(rows, ROWS, once, OPERATORS, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r,
                     blocks, names, offsets, s, &fitted, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0,
          sublet_fit(rows, ROWS, NULL, OPERATORS, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r,
                     blocks, names, offsets, s, &fitted, &error));
    CHECK(sublet_fit_workspace(ROWS, SIZE_MAX, BLOCKS, r, s, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
    again.means = 1u << 31;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 7, 0, 1u << 31,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, &again, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, &fitted, &error));

    /* What is not wanted is not written. */
    WORKS(sublet_fit(rows, ROWS, NULL, 0, BLOCKS, UINT64_MAX, NULL, NULL, workspace, size, rewritten, NULL, r, NULL, NULL,
                     offsets, s, &fitted, &error));
    CHECK(fitted.peak == 16 * MIB && fitted.run.swapped_bytes == 0 && fitted.row_count == ROWS);

    for (uint32_t policy = SUBLET_POLICY_AUTO; policy <= SUBLET_POLICY_BAYES; ++policy) {
        sublet_fit_params params = {.struct_size = sizeof params, .policy = policy, .work = 100, .seed = 3};
        WORKS(sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, &params, workspace, size, rewritten, timings, r, blocks,
                         names, offsets, s, &fitted, &error));
        CHECK(fitted.peak <= 8 * MIB);
        what_fits_is_proved(rewritten, offsets, &fitted);
    }

    sublet_fit_params params = {.struct_size = sizeof params, .policy = 7};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 7, 0, 7,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, &params, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, &fitted, &error));
    FAILS(SUBLET_STATUS_OVER_LIMIT, 0, 8 * MIB, 8 * MIB - 1,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB - 1, NULL, NULL, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, &fitted, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 10, r, r - 1,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r - 1, blocks, names,
                     offsets, s, &fitted, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 15, s, s - 1,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s - 1, &fitted, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 15, 0, 0,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r, blocks, names,
                     NULL, s, &fitted, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 17, 0, 0,
          sublet_fit(rows, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 8, size, size / 2,
          sublet_fit(rows, ROWS, repeatable, OPERATORS, BLOCKS, 8 * MIB, NULL, NULL, workspace, size / 2, rewritten, timings,
                     r, blocks, names, offsets, s, &fitted, &error));
    sublet_row copied[ROWS];
    memcpy(copied, rows, sizeof rows);
    copied[4].event = SUBLET_EVENT_SWAP_OUT;
    FAILS(SUBLET_STATUS_ROW_NOT_RECORDED, 4, 0, 0,
          sublet_fit(copied, ROWS, NULL, 0, BLOCKS, 8 * MIB, NULL, NULL, workspace, size, rewritten, timings, r, blocks, names,
                     offsets, s, &fitted, &error));

    sublet_layout bound_layout;
    WORKS(sublet_load_without_overhead_workspace(ROWS, BLOCKS, &bound_layout, &error));
    void *bound_workspace = lend(bound_layout);
    uint64_t load = 0;
    WORKS(sublet_load_without_overhead(rows, ROWS, BLOCKS, NULL, bound_workspace, bound_layout.size, &load, &error));
    CHECK(load == 16 * MIB); /* the second block is allocated when the first has just been written */
    FAILS(SUBLET_STATUS_NULL_POINTER, 6, 0, 0,
          sublet_load_without_overhead(rows, ROWS, BLOCKS, NULL, bound_workspace, bound_layout.size, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 4, bound_layout.size, 0,
          sublet_load_without_overhead(rows, ROWS, BLOCKS, NULL, bound_workspace, 0, &load, &error));
    sublet_device device = {.struct_size = sizeof device, .in_bandwidth = -1.0};
    FAILS(SUBLET_STATUS_DEVICE, 0, 0, 0,
          sublet_load_without_overhead(rows, ROWS, BLOCKS, &device, bound_workspace, bound_layout.size, &load, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_load_without_overhead_workspace(ROWS, BLOCKS, NULL, &error));

    free(bound_workspace);
    free(offsets);
    free(names);
    free(blocks);
    free(timings);
    free(rewritten);
    free(workspace);
}
