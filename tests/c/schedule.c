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

static void timed(void) {
    sublet_layout layout;
    WORKS(sublet_simulate_workspace(ORIGINAL, 0, REWRITTEN, 1, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_timing timings[REWRITTEN];
    sublet_run run = {.struct_size = sizeof run};
    WORKS(sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, NULL, workspace, size, timings, &run, &error));
    /* The read is reached at 11 + 9 us and waits until 22 us. */
    CHECK(timings[6].reached == 20000.0 && timings[6].begin == 22000.0 && run.time_ns == 22000.0);
    CHECK(run.original_ns == 9000 && run.swapped_bytes == 24000 && run.peak_load == 12000 && run.host_bytes == 12000);

    sublet_device device = {.struct_size = sizeof device, .in_bandwidth = 6e9};
    WORKS(sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, &device, workspace, size, NULL, &run, &error));
    CHECK(run.time_ns == 23000.0);
    WORKS(sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, NULL, workspace, size, NULL, NULL, &error));

    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0,
          sublet_simulate(original, ORIGINAL, NULL, 0, NULL, REWRITTEN, 1, NULL, workspace, size, timings, &run, &error));
    FAILS(SUBLET_STATUS_ROW_OTHER_ACCESS, 6, 0, 0,
          sublet_simulate(original, 2, NULL, 0, rewritten, REWRITTEN, 1, NULL, workspace, size, timings, &run, &error));
    FAILS(SUBLET_STATUS_ROW_UNKNOWN_BLOCK, 0, 0, 0,
          sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 0, NULL, workspace, size, timings, &run, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 8, size, size - 8,
          sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, NULL, workspace, size - 8, NULL, NULL, &error));
    *(uint32_t *)&timings[1] = sizeof run;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 11, 0, 10,
          sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, NULL, workspace, size, timings,
                          (sublet_run *)&timings[1], &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0, sublet_simulate_workspace(1, 0, 1, 1, NULL, &error));
    CHECK(sublet_simulate_workspace(1, 0, SIZE_MAX, 1, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    free(workspace);
}

/* A changed copy of the rewritten trace, and what the verifier must say of it. */
static void refused(sublet_status status, uint32_t index, size_t at, sublet_row row, uint32_t once) {
    sublet_layout layout;
    sublet_row broken[REWRITTEN];
    memcpy(broken, rewritten, sizeof broken);
    broken[at] = row;
    size_t residencies;
    WORKS(sublet_residencies(broken, REWRITTEN, &residencies, &error));
    WORKS(sublet_verify_schedule_workspace(ORIGINAL, 0, REWRITTEN, 1, residencies, &layout, &error));
    void *workspace = lend(layout);
    const uint64_t offsets[3] = {0, 0, 0};
    sublet_schedule_params params = {.struct_size = sizeof params, .once = once};
    FAILS(status, index, 0, 0,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, broken, REWRITTEN, 1, offsets, residencies, NULL, &params, workspace,
                                 layout.size, NULL, NULL, NULL, &error));
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

    /* One memory for both: nothing can leave. */
    WORKS(sublet_device_named("jetson-orin", &device, &error));
    CHECK(device.flags == SUBLET_DEVICE_INTEGRATED);
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(ORIGINAL, 0, REWRITTEN, 1, 2, &layout, &error));
    void *workspace = lend(layout);
    const uint64_t offsets[2] = {0, 0};
    FAILS(SUBLET_STATUS_HOST_TOO_SMALL, 0, 12000, 0,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, &device, NULL,
                                 workspace, layout.size, NULL, NULL, NULL, &error));
    device.flags = 2;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 9, 0, 2,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, &device, NULL,
                                 workspace, layout.size, NULL, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 7, 0, 2,
          sublet_simulate(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, &device, workspace, layout.size, NULL,
                          NULL, &error));
    free(workspace);
}

static void proved(void) {
    sublet_layout layout;
    WORKS(sublet_verify_schedule_workspace(ORIGINAL, 0, REWRITTEN, 1, 2, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    const uint64_t offsets[] = {0, 64};
    sublet_timing timings[REWRITTEN];
    sublet_run run = {.struct_size = sizeof run};
    sublet_certificate certificate = {.struct_size = sizeof certificate};
    sublet_schedule_params params = {.struct_size = sizeof params};
    sublet_device device = {.struct_size = sizeof device};
    WORKS(sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, &device, &params, workspace,
                                 size, timings, &run, &certificate, &error));
    CHECK(run.time_ns == 22000.0 && timings[6].end == 22000.0);
    CHECK(certificate.peak == 12064 && certificate.max_load == 12000);

    params.capacity = 12000;
    FAILS(SUBLET_STATUS_PLAN_OVER_CAPACITY, 1, 12064, 12000,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, NULL, &params, workspace,
                                 size, NULL, NULL, NULL, &error));
    params = (sublet_schedule_params){.struct_size = sizeof params, .once = 2};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 10, 0, 2,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, NULL, &params, workspace,
                                 size, NULL, NULL, NULL, &error));
    device.host_capacity = 11999;
    FAILS(SUBLET_STATUS_HOST_TOO_SMALL, 0, 12000, 11999,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, &device, NULL, workspace,
                                 size, NULL, NULL, NULL, &error));
    device.out_latency = -1.0;
    FAILS(SUBLET_STATUS_DEVICE, 0, 0, 0,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, &device, NULL, workspace,
                                 size, NULL, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 7, 2, 1,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 1, NULL, NULL, workspace, size,
                                 NULL, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 7, 0, 0,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, NULL, 2, NULL, NULL, workspace, size,
                                 NULL, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 15, 0, 14,
          sublet_verify_schedule(original, ORIGINAL, NULL, 0, rewritten, REWRITTEN, 1, offsets, 2, NULL, NULL, workspace, size,
                                 timings, &run, (sublet_certificate *)&run, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0, sublet_verify_schedule_workspace(1, 0, 1, 1, 1, NULL, &error));
    CHECK(sublet_verify_schedule_workspace(1, 0, 1, 1, SIZE_MAX, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
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
