#include "check.h"

/* Three tensors; the first and the last are never alive together. */
static const sublet_block blocks[] = {
    {.start = 0, .end = 2, .size = 4096},
    {.start = 1, .end = 3, .size = 8192},
    {.start = 2, .end = 4, .size = 4096},
};
#define N COUNT(blocks)

static sublet_layout layout_of(size_t n, const sublet_place_params *params) {
    sublet_layout layout;
    WORKS(sublet_place_workspace(n, params, &layout, &error));
    return layout;
}

/* How many solvers there are: their numbers are those below. */
static uint32_t solvers(void) {
    uint32_t count = 0;
    while (sublet_solver_name(count) != NULL) {
        ++count;
    }
    return count;
}

static void every_solver_makes_a_plan(void) {
    CHECK(solvers() > SUBLET_SOLVER_COLORING_BACKWARD);
    for (uint32_t solver = SUBLET_SOLVER_AUTO; solver < solvers(); ++solver) {
        CHECK(sublet_solver_name(solver) != NULL && strlen(sublet_solver_name(solver)) > 3);
        uint32_t named = UINT32_MAX;
        WORKS(sublet_solver_named(sublet_solver_name(solver), &named, &error));
        CHECK(named == solver);
        sublet_place_params params = {.struct_size = sizeof params, .solver = solver};
        sublet_layout layout = layout_of(N, &params);
        void *workspace = lend(layout);
        uint64_t offsets[N + 1] = {7, 7, 7, 7};
        sublet_placement placement = {.struct_size = sizeof placement};
        WORKS(sublet_place(blocks, N, &params, workspace, layout.size, offsets, &placement, &error));
        CHECK(placement.peak == 12288 && placement.lower_bound == 12288);
        CHECK(offsets[0] == offsets[2] && offsets[0] != offsets[1] && offsets[N] == 7);
        CHECK(placement.solver < solvers());
        CHECK(solver < SUBLET_SOLVER_MULTISTART || solver >= SUBLET_SOLVER_BEAM || placement.solver == solver);
        free(workspace);
    }
    CHECK(strcmp(sublet_solver_name(SUBLET_SOLVER_BEST_FIT), "best-fit") == 0);
    uint32_t solver = 7;
    FAILS(SUBLET_STATUS_UNKNOWN_NAME, 0, 0, 0, sublet_solver_named("best-fi", &solver, &error));
    FAILS(SUBLET_STATUS_UNKNOWN_NAME, 0, 0, 0, sublet_solver_named("best-fit-", &solver, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_solver_named(NULL, &solver, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_solver_named("auto", NULL, &error));
    CHECK(solver == 7);
}

static void parameters_are_heard(void *workspace, size_t size) {
    uint64_t offsets[N];
    sublet_placement placement = {.struct_size = sizeof placement};
    sublet_place_params params = {.struct_size = sizeof params, .alignment = 65536};
    WORKS(sublet_place(blocks, N, &params, workspace, size, offsets, &placement, &error));
    CHECK(offsets[0] % 65536 == 0 && offsets[1] % 65536 == 0 && placement.peak > 65536);

    params = (sublet_place_params){.struct_size = sizeof params, .capacity = 12288};
    WORKS(sublet_place(blocks, N, &params, workspace, size, offsets, &placement, &error));
    params.capacity = 12287;
    placement.peak = 1;
    FAILS(SUBLET_STATUS_NO_PLAN_FITS, 0, 12288, 12287,
          sublet_place(blocks, N, &params, workspace, size, offsets, &placement, &error));
    CHECK(placement.peak == 1); /* written on success only */

    params = (sublet_place_params){.struct_size = sizeof params, .alignment = 3};
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 3,
          sublet_place(blocks, N, &params, workspace, size, offsets, &placement, &error));

    params = (sublet_place_params){.struct_size = sizeof params, .solver = solvers()};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 2, 0, solvers(),
          sublet_place(blocks, N, &params, workspace, size, offsets, &placement, &error));
    sublet_layout layout = {1, 2};
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 1, 0, solvers(), sublet_place_workspace(N, &params, &layout, &error));
    CHECK(layout.size == 1 && layout.alignment == 2);
}

/* A pinned block lies at its pin. A pin that cannot be kept is refused, with the index of its block. */
static void blocks_are_judged(void *workspace, size_t size) {
    uint64_t offsets[N];
    sublet_block own[N];
    memcpy(own, blocks, sizeof own);
    own[1].flags = SUBLET_BLOCK_PINNED;
    own[1].pin = 64;
    WORKS(sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    CHECK(offsets[1] == 64);
    own[1].alignment = 128;
    FAILS(SUBLET_STATUS_PIN_MISALIGNED, 1, 128, 64, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    own[1].alignment = 0;
    own[2].flags = SUBLET_BLOCK_PINNED;
    own[2].pin = 128;
    FAILS(SUBLET_STATUS_PINS_OVERLAP, 1, 0, 2, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    own[2].flags = 6;
    FAILS(SUBLET_STATUS_BLOCK_FLAGS, 2, 0, 6, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    memcpy(own, blocks, sizeof own);
    own[2].size = 0;
    FAILS(SUBLET_STATUS_ZERO_SIZE, 2, 0, 0, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    own[2].size = UINT64_MAX;
    FAILS(SUBLET_STATUS_SIZE_OVERFLOW, 2, 0, 0, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    own[1].start = own[1].end = 3;
    FAILS(SUBLET_STATUS_EMPTY_LIFETIME, 1, 3, 3, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
    own[0].alignment = 12;
    FAILS(SUBLET_STATUS_ALIGNMENT, 0, 0, 12, sublet_place(own, N, NULL, workspace, size, offsets, NULL, &error));
}

static void pointers_and_lengths_are_judged(void *workspace, size_t size) {
    uint64_t offsets[N + 1];
    sublet_placement placement[2] = {{.struct_size = sizeof *placement}, {.struct_size = sizeof *placement}};
    size_t bytes = size;
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_place(NULL, N, NULL, workspace, bytes, offsets, placement, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_place(blocks, N, NULL, NULL, bytes, offsets, placement, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 5, 0, 0, sublet_place(blocks, N, NULL, workspace, bytes, NULL, placement, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 0, 8, 0,
          sublet_place(ODD(blocks), N, NULL, workspace, bytes, offsets, placement, &error));
    sublet_place_params params[2] = {{.struct_size = sizeof *params}, {.struct_size = sizeof *params}};
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 2, 8, 0,
          sublet_place(blocks, N, ODD(params), workspace, bytes, offsets, placement, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 3, 8, 0,
          sublet_place(blocks, N, NULL, ODD(workspace), bytes, offsets, placement, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 5, 8, 0,
          sublet_place(blocks, N, NULL, workspace, bytes, ODD(offsets), placement, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 6, 8, 0,
          sublet_place(blocks, N, NULL, workspace, bytes, offsets, ODD(placement), &error));
    sublet_error errors[2];
    CHECK(sublet_place(blocks, N, NULL, workspace, bytes, offsets, placement, ODD(errors)) ==
          SUBLET_STATUS_MISALIGNED_POINTER);

    /* Lengths whose size in bytes overflows, and lengths above the limit. */
    CHECK(sublet_place(blocks, SIZE_MAX, NULL, workspace, bytes, offsets, placement, &error) ==
              SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 1 && error.got == SIZE_MAX);
    CHECK(sublet_place(blocks, SIZE_MAX / sizeof *blocks + 2, NULL, workspace, bytes, offsets, placement, &error) ==
          SUBLET_STATUS_LENGTH_OVERFLOW);
    sublet_layout layout = {0, 0};
    CHECK(sublet_place_workspace(SIZE_MAX, NULL, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW && error.index == 0);
    CHECK(sublet_place_workspace((size_t)error.needed, NULL, &layout, &error) == SUBLET_STATUS_OK && layout.size > 0);
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_place_workspace(N, NULL, NULL, &error));

    /* A workspace that is a byte too small: the error tells the size that is enough. */
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 3, size, size - 1,
          sublet_place(blocks, N, NULL, workspace, size - 1, offsets, placement, &error));

    /* What is written must not overlap anything else. */
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 3,
          sublet_place(blocks, N, NULL, workspace, bytes, workspace, placement, &error));
    *(uint32_t *)(offsets + N - 1) = sizeof *placement;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 6, 0, 5,
          sublet_place(blocks, N, NULL, workspace, bytes, offsets, (sublet_placement *)(offsets + N - 1), &error));
    sublet_block own[N];
    memcpy(own, blocks, sizeof own);
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 5, 0, 0,
          sublet_place(own, N, NULL, workspace, bytes, &own[2].pin - 1, placement, &error));

    /* No blocks. */
    params->solver = SUBLET_SOLVER_BEST_FIT;
    CHECK(layout_of(0, params).size == 0);
    WORKS(sublet_place(NULL, 0, params, NULL, 0, NULL, placement, &error));
    CHECK(placement->peak == 0);
    CHECK(sublet_place(NULL, 0, NULL, workspace, bytes, NULL, NULL, NULL) == SUBLET_STATUS_OK);
    CHECK(sublet_place(NULL, 1, NULL, workspace, bytes, NULL, NULL, NULL) == SUBLET_STATUS_NULL_POINTER);
}

/* Callers that were compiled with an older and with a newer header. */
static void structs_may_grow(void *workspace, size_t size) {
    uint64_t offsets[N];
    struct {
        sublet_place_params known;
        uint64_t more[2];
    } newer = {.known = {.struct_size = sizeof newer}};
    WORKS(sublet_place(blocks, N, &newer.known, workspace, size, offsets, NULL, &error));
    newer.more[1] = 1;
    FAILS(SUBLET_STATUS_UNKNOWN_FIELD, 2, 0, sizeof newer.known + 8,
          sublet_place(blocks, N, &newer.known, workspace, size, offsets, NULL, &error));

    /* An older one ends after the solver; what lies behind it is not its own. */
    uint64_t older[COUNT(newer.more) + sizeof(sublet_place_params) / 8];
    memset(older, 0xff, sizeof older);
    memcpy(older, (uint32_t[]){8, SUBLET_SOLVER_BEST_FIT}, 8);
    sublet_placement placement = {.struct_size = sizeof placement};
    WORKS(sublet_place(blocks, N, (sublet_place_params *)older, workspace, size, offsets, &placement, &error));
    CHECK(placement.solver == SUBLET_SOLVER_BEST_FIT);

    /* The same for results: fields that an older caller lacks are not written, and fields that only a newer caller has
     * become 0. */
    uint64_t result[COUNT(newer.more) + sizeof(sublet_placement) / 8];
    memset(result, 0xee, sizeof result);
    memcpy(result, (uint32_t[]){16, 0}, 8);
    WORKS(sublet_place(blocks, N, NULL, workspace, size, offsets, (sublet_placement *)result, &error));
    CHECK(result[1] == 12288 && result[2] == 0xeeeeeeeeeeeeeeee);
    *(uint32_t *)result = sizeof placement + 8;
    WORKS(sublet_place(blocks, N, NULL, workspace, size, offsets, (sublet_placement *)result, &error));
    CHECK(*(uint32_t *)result == sizeof placement + 8 && result[sizeof placement / 8] == 0);
    CHECK(result[sizeof placement / 8 + 1] == 0xeeeeeeeeeeeeeeee);
    *(uint32_t *)result = 3;
    FAILS(SUBLET_STATUS_STRUCT_SIZE, 6, 4096, 3,
          sublet_place(blocks, N, NULL, workspace, size, offsets, (sublet_placement *)result, &error));

    sublet_place_params params = {.struct_size = 0};
    FAILS(SUBLET_STATUS_STRUCT_SIZE, 2, 4096, 0,
          sublet_place(blocks, N, &params, workspace, size, offsets, NULL, &error));
    params.struct_size = UINT32_MAX;
    FAILS(SUBLET_STATUS_STRUCT_SIZE, 2, 4096, UINT32_MAX,
          sublet_place(blocks, N, &params, workspace, size, offsets, NULL, &error));
}

struct told {
    int times, until;
    uint64_t least;
};

static int32_t watch(void *context, const sublet_placement *best) {
    struct told *told = context;
    told->times += 1;
    told->least = best->peak;
    return told->times == told->until;
}

/* Rows of a brick wall: enough work for the watcher to be called more than once. */
static void a_watcher_is_told_and_may_end_it(void) {
    enum { BLOCKS = 400 };
    static sublet_block wall[BLOCKS];
    static uint64_t offsets[BLOCKS];
    uint32_t random = 1;
    for (int i = 0; i < BLOCKS; ++i) {
        random = random * 1664525u + 1013904223u;
        wall[i] = (sublet_block){.start = random >> 22, .size = 1 + (random >> 8) % 1000};
        wall[i].end = wall[i].start + 1 + (random >> 4) % 60;
    }
    struct told told = {0, 0, 0};
    sublet_place_params params = {.struct_size = sizeof params, .nodes = 2000, .watch = watch, .watch_context = &told};
    sublet_layout layout = layout_of(BLOCKS, &params);
    void *workspace = lend(layout);
    sublet_placement whole = {.struct_size = sizeof whole}, ended = whole;
    WORKS(sublet_place(wall, BLOCKS, &params, workspace, layout.size, offsets, &whole, &error));
    CHECK(told.times > 1 && told.least == whole.peak);
    told = (struct told){0, 1, 0};
    WORKS(sublet_place(wall, BLOCKS, &params, workspace, layout.size, offsets, &ended, &error));
    CHECK(told.times == 1 && ended.peak >= whole.peak && ended.peak < UINT64_MAX);
    free(workspace);
}

void test_place(void) {
    every_solver_makes_a_plan();
    sublet_layout layout = layout_of(N, NULL);
    void *workspace = lend(layout);
    parameters_are_heard(workspace, layout.size);
    blocks_are_judged(workspace, layout.size);
    pointers_and_lengths_are_judged(workspace, layout.size);
    structs_may_grow(workspace, layout.size);
    free(workspace);
    a_watcher_is_told_and_may_end_it();
}
