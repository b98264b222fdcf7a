/* Rewritten traces: their time, and the proof that they compute the same. */
#include "check.h"

#define FIRST SUBLET_OP_KIND_FIRST

static const sublet_row original[] = {
    {.event = SUBLET_EVENT_MALLOC, .bytes = 12000},
    {.event = SUBLET_EVENT_WRITE, .op = 0, .op_kind = FIRST},
    {.event = SUBLET_EVENT_READ, .op = 1, .op_kind = FIRST, .time_ns = 9000},
};
static const sublet_row rewritten[] = {
    {.event = SUBLET_EVENT_MALLOC, .bytes = 12000},
    {.event = SUBLET_EVENT_WRITE, .op = 0, .op_kind = FIRST},
    {.event = SUBLET_EVENT_SWAP_OUT}, /* 10 us and 12,000 bytes at 12 GB/s: 11 us */
    {.event = SUBLET_EVENT_FREE},
    {.event = SUBLET_EVENT_MALLOC, .bytes = 12000},
    {.event = SUBLET_EVENT_SWAP_IN},
    {.event = SUBLET_EVENT_READ, .op = 1, .op_kind = FIRST, .time_ns = 9000},
};
#define ORIGINAL COUNT(original)
#define REWRITTEN COUNT(rewritten)

static const uint64_t offsets[] = {0, 64};
static const sublet_trace trace = {.struct_size = sizeof trace, .rows = original, .row_count = ORIGINAL, .block_count = 1};
static const sublet_schedule schedule = {.struct_size = sizeof schedule, .rows = rewritten, .row_count = REWRITTEN,
                                         .offsets = offsets, .residency_count = 2};

/* The same trace on a device. */
static sublet_trace on(const sublet_device *device) {
    sublet_trace changed = trace;
    changed.device = device;
    return changed;
}

static void timed(void) {
    sublet_layout layout;
    WORKS(sublet_simulate_workspace(&trace, &schedule, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_timing timings[REWRITTEN];
    sublet_run run = {.struct_size = sizeof run};
    WORKS(sublet_simulate(&trace, &schedule, workspace, size, timings, &run, &error));
    sublet_device backwards = {.struct_size = sizeof backwards, .out_bandwidth = -1.0};
    sublet_trace there = on(&backwards);
    FAILS(SUBLET_STATUS_DEVICE, 0, 0, 0, sublet_simulate(&there, &schedule, workspace, size, NULL, NULL, &error));
    /* The read is reached at 11 + 9 us and waits until 22 us. */
    CHECK(timings[6].reached == 20000.0 && timings[6].begin == 22000.0 && run.time_ns == 22000.0);
    CHECK(run.original_ns == 9000 && run.swapped_bytes == 24000 && run.peak_load == 12000 && run.host_bytes == 12000);

    sublet_device device = {.struct_size = sizeof device, .in_bandwidth = 6e9};
    sublet_trace other = on(&device);
    WORKS(sublet_simulate(&other, &schedule, workspace, size, NULL, &run, &error));
    CHECK(run.time_ns == 23000.0);
    /* Offsets are not asked for. */
    sublet_schedule rows_alone = schedule;
    rows_alone.offsets = NULL;
    rows_alone.residency_count = 0;
    WORKS(sublet_simulate(&trace, &rows_alone, workspace, size, NULL, NULL, &error));

    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_simulate(NULL, &schedule, workspace, size, timings, &run, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_simulate(&trace, NULL, workspace, size, timings, &run, &error));
    sublet_schedule broken = schedule;
    broken.rows = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 1, 0, offsetof(sublet_schedule, rows),
          sublet_simulate(&trace, &broken, workspace, size, timings, &run, &error));
    other = trace;
    other.row_count = 2;
    FAILS(SUBLET_STATUS_ROW_OTHER_ACCESS, 6, 0, 0,
          sublet_simulate(&other, &schedule, workspace, size, timings, &run, &error));
    other = trace;
    other.block_count = 0;
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_BLOCK, 0, 0, 0,
          sublet_simulate(&other, &schedule, workspace, size, timings, &run, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 2, size, size - 8,
          sublet_simulate(&trace, &schedule, workspace, size - 8, NULL, NULL, &error));
    *(uint32_t *)&timings[1] = sizeof run;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 4,
          sublet_simulate(&trace, &schedule, workspace, size, timings, (sublet_run *)&timings[1], &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_simulate_workspace(&trace, &schedule, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_simulate_workspace(&trace, NULL, &layout, &error));
    broken = schedule;
    broken.row_count = SIZE_MAX;
    CHECK(sublet_simulate_workspace(&trace, &broken, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    SIZES_ARE_HEARD(sublet_run, time_ns, 5, result,
                    sublet_simulate(&trace, &schedule, workspace, size, NULL, result, &error));
    free(workspace);
}

/* A changed copy of the rewritten trace, and what the verifier must say of it. */
static void refused(sublet_status status, uint32_t index, size_t at, sublet_row row, uint32_t once) {
    sublet_layout layout;
    sublet_row broken[REWRITTEN];
    memcpy(broken, rewritten, sizeof broken);
    broken[at] = row;
    const uint64_t anywhere[3] = {0, 0, 0};
    sublet_schedule changed = {.struct_size = sizeof changed, .rows = broken, .row_count = REWRITTEN, .offsets = anywhere};
    WORKS(sublet_residencies(broken, REWRITTEN, &changed.residency_count, &error));
    WORKS(sublet_verify_schedule_workspace(&trace, &changed, &layout, &error));
    void *workspace = lend(layout);
    sublet_schedule_params params = {.struct_size = sizeof params, .once = once};
    FAILS(status, index, 0, 0,
          sublet_verify_schedule(&trace, &changed, &params, workspace, layout.size, NULL, NULL, &error));
    free(workspace);
}

static void devices_have_names(void) {
    sublet_device device = {.struct_size = sizeof device, .flags = 7};
    FAILS(SUBLET_STATUS_UNKNOWN_NAME, 0, 0, 0, sublet_device_named("h2000", &device, &error));
    FAILS(SUBLET_STATUS_UNKNOWN_NAME, 0, 0, 0, sublet_device_named("", &device, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_device_named(NULL, &device, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_device_named("h200", NULL, &error));
    CHECK(device.flags == 7);
    WORKS(sublet_device_named("h200", &device, &error));
    CHECK(device.struct_size == sizeof device && device.flags == 0 && device.out_bandwidth == 55e9);
    WORKS(sublet_device_named("gtx1080ti", &device, &error));
    sublet_device usual = {.struct_size = sizeof usual, .out_bandwidth = 12e9, .in_bandwidth = 12e9,
                           .out_latency = 1e4, .in_latency = 1e4};
    CHECK(memcmp(&device, &usual, sizeof device) == 0);

    /* Device and host share one memory: nothing can be swapped. */
    WORKS(sublet_device_named("jetson-orin", &device, &error));
    CHECK(device.flags == SUBLET_DEVICE_INTEGRATED);
    sublet_trace integrated = on(&device);
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(&integrated, &schedule, &layout, &error));
    void *workspace = lend(layout);
    FAILS(SUBLET_STATUS_HOST_TOO_SMALL, 0, 12000, 0,
          sublet_verify_schedule(&integrated, &schedule, NULL, workspace, layout.size, NULL, NULL, &error));
    device.flags = 2;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 0, 0, 2,
          sublet_verify_schedule(&integrated, &schedule, NULL, workspace, layout.size, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 0, 0, 2,
          sublet_simulate(&integrated, &schedule, workspace, layout.size, NULL, NULL, &error));
    free(workspace);
}

static void proved(void) {
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(&trace, &schedule, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_timing timings[REWRITTEN];
    sublet_verified verified = {.struct_size = sizeof verified};
    sublet_schedule_params params = {.struct_size = sizeof params};
    sublet_device device = {.struct_size = sizeof device};
    sublet_trace there = on(&device);
    WORKS(sublet_verify_schedule(&there, &schedule, &params, workspace, size, timings, &verified, &error));
    CHECK(verified.run.time_ns == 22000.0 && timings[6].end == 22000.0);
    CHECK(verified.peak == 12064 && verified.max_load == 12000);
    SIZES_ARE_HEARD(sublet_verified, peak, 6, result,
                    sublet_verify_schedule(&trace, &schedule, NULL, workspace, size, NULL, result, &error));

    /* The operators of mallocs, frees and copies do not matter. */
    sublet_row renamed[REWRITTEN];
    memcpy(renamed, rewritten, sizeof renamed);
    sublet_schedule other = schedule;
    other.rows = renamed;
    for (size_t i = 0; i < REWRITTEN; ++i) {
        if (renamed[i].event != SUBLET_EVENT_READ && renamed[i].event != SUBLET_EVENT_WRITE) {
            renamed[i].op = (uint32_t)i;
            renamed[i].op_kind = (uint32_t)(i % 3);
        }
    }
    WORKS(sublet_verify_schedule(&trace, &other, NULL, workspace, size, NULL, &verified, &error));
    CHECK(verified.run.time_ns == 22000.0);

    params.capacity = 12000;
    FAILS(SUBLET_STATUS_PLAN_OVER_CAPACITY, 1, 12064, 12000,
          sublet_verify_schedule(&trace, &schedule, &params, workspace, size, NULL, NULL, &error));
    params = (sublet_schedule_params){.struct_size = sizeof params, .once = 2};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, 2,
          sublet_verify_schedule(&trace, &schedule, &params, workspace, size, NULL, NULL, &error));
    device.host_capacity = 11999;
    FAILS(SUBLET_STATUS_HOST_TOO_SMALL, 0, 12000, 11999,
          sublet_verify_schedule(&there, &schedule, NULL, workspace, size, NULL, NULL, &error));
    device.out_latency = -1.0;
    FAILS(SUBLET_STATUS_DEVICE, 0, 0, 0,
          sublet_verify_schedule(&there, &schedule, NULL, workspace, size, NULL, NULL, &error));
    sublet_schedule broken = schedule;
    broken.residency_count = 1;
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 1, 2, 1,
          sublet_verify_schedule(&trace, &broken, NULL, workspace, size, NULL, NULL, &error));
    const uint64_t three[3] = {0};
    broken.offsets = three;
    broken.residency_count = 3;
    sublet_layout larger;
    WORKS(sublet_verify_schedule_workspace(&trace, &broken, &larger, &error));
    void *more = lend(larger);
    FAILS(SUBLET_STATUS_LENGTH_OVERFLOW, 1, 2, 3,
          sublet_verify_schedule(&trace, &broken, NULL, more, larger.size, NULL, NULL, &error));
    free(more);
    broken = schedule;
    broken.offsets = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 1, 0, offsetof(sublet_schedule, offsets),
          sublet_verify_schedule(&trace, &broken, NULL, workspace, size, NULL, NULL, &error));
    broken.offsets = ODD(timings);
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 1, 8, offsetof(sublet_schedule, offsets),
          sublet_verify_schedule(&trace, &broken, NULL, workspace, size, NULL, NULL, &error));
    broken = schedule;
    broken.reserved = 7;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 1, 0, 7,
          sublet_verify_schedule(&trace, &broken, NULL, workspace, size, NULL, NULL, &error));
    *(uint32_t *)&timings[1] = sizeof verified;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 6, 0, 5,
          sublet_verify_schedule(&trace, &schedule, NULL, workspace, size, timings, (sublet_verified *)&timings[1], &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0,
          sublet_verify_schedule(&trace, NULL, NULL, workspace, size, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_verify_schedule_workspace(&trace, &schedule, NULL, &error));
    broken = schedule;
    broken.residency_count = SIZE_MAX;
    CHECK(sublet_verify_schedule_workspace(&trace, &broken, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1);
    free(workspace);

    sublet_row free_row = {.event = SUBLET_EVENT_FREE}, read = original[2], read_early = original[2];
    read.op = 7;
    read_early.event = SUBLET_EVENT_WRITE;
    refused(SUBLET_STATUS_ROW_OTHER_ACCESS, 6, 6, read, 0);
    refused(SUBLET_STATUS_ROW_FREE_WITHOUT_MALLOC, 3, 2, free_row, 0);
    refused(SUBLET_STATUS_ROW_ACCESSES_MISSING, REWRITTEN, 6, free_row, 0);
    refused(SUBLET_STATUS_ROW_OTHER_ACCESS, 6, 6, read_early, 0);
    refused(SUBLET_STATUS_ROW_OTHER_VALUE, 6, 5, rewritten[2], 0);
}

void test_schedule(void) {
    timed();
    devices_have_names();
    proved();
}
