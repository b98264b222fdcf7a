#include "check.h"

/* A block that outlives the iteration is freed before the restart and requested again: it keeps its place. */
static void what_persists_is_requested_in_each_iteration(void) {
    const sublet_block blocks[] = {
        {.start = 0, .end = 5, .size = 64}, {.start = 1, .end = 3, .size = 32}, {.start = 2, .end = 4, .size = 64}};
    const uint64_t offsets[] = {64, 0, 128};
    sublet_layout layout;
    WORKS(sublet_replay_workspace(COUNT(blocks), &layout, &error));
    void *workspace = lend(layout);
    sublet_replay *replay = NULL;
    WORKS(sublet_replay_create(blocks, COUNT(blocks), offsets, NULL, workspace, layout.size, &replay, &error));
    for (int i = 0; i < 3; ++i) {
        uint64_t persistent = 7, a = 7, b = 7;
        int32_t followed = 7;
        WORKS(sublet_replay_malloc(replay, 64, &persistent, &error));
        WORKS(sublet_replay_malloc(replay, 32, &a, &error));
        WORKS(sublet_replay_malloc(replay, 64, &b, &error));
        CHECK(persistent == 64 && a == 0 && b == 128);
        WORKS(sublet_replay_free(replay, a, &error));
        WORKS(sublet_replay_free(replay, b, &error));
        if (i < 2) {
            WORKS(sublet_replay_free(replay, persistent, &error));
        }
        WORKS(sublet_replay_restart(replay, &followed, &error));
        CHECK(followed == 1);
    }
    uint64_t persistent = 7;
    FAILS(SUBLET_STATUS_NOT_PLANNED, 1, 0, 64, sublet_replay_malloc(replay, 64, &persistent, &error));
    free(workspace);
}

void test_replay(void) {
    what_persists_is_requested_in_each_iteration();

    const sublet_block blocks[] = {
        {.start = 0, .end = 2, .size = 64}, {.start = 1, .end = 4, .size = 32}, {.start = 3, .end = 5, .size = 64}};
    const uint64_t offsets[] = {0, 64, 0};
    size_t n = COUNT(blocks);
    sublet_layout layout;
    WORKS(sublet_replay_workspace(n, &layout, &error));
    void *workspace = lend(layout);
    sublet_replay *replay = NULL;
    WORKS(sublet_replay_create(blocks, n, offsets, NULL, workspace, layout.size, &replay, &error));
    uint64_t a = 7, b = 7, c = 7;
    int32_t followed = 7;
    for (int i = 0; i < 3; ++i) {
        WORKS(sublet_replay_malloc(replay, 64, &a, &error));
        WORKS(sublet_replay_malloc(replay, 20, &b, &error)); /* smaller than planned */
        WORKS(sublet_replay_free(replay, a, &error));
        WORKS(sublet_replay_malloc(replay, 64, &c, &error));
        CHECK(a == 0 && b == 64 && c == 0);
        WORKS(sublet_replay_free(replay, b, &error));
        WORKS(sublet_replay_free(replay, c, &error));
        WORKS(sublet_replay_restart(replay, &followed, &error));
        CHECK(followed == 1);
    }
    c = 7;
    FAILS(SUBLET_STATUS_NOT_PLANNED, 1, 0, 65, sublet_replay_malloc(replay, 65, &c, &error));
    CHECK(c == 7);
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 0, 0, 64, sublet_replay_free(replay, 64, &error));
    FAILS(SUBLET_STATUS_NOT_ALLOCATED, 0, 0, UINT64_MAX, sublet_replay_free(replay, UINT64_MAX, &error));
    WORKS(sublet_replay_restart(replay, &followed, &error));
    CHECK(followed == 0);
    WORKS(sublet_replay_restart(replay, NULL, &error));

    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_replay_malloc(NULL, 1, &a, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_replay_malloc(replay, 1, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_replay_free(NULL, 0, &error));
    FAILS(SUBLET_STATUS_MISALIGNED_POINTER, 0, 8, 0, sublet_replay_restart(ODD(replay), NULL, &error));

    /* Only a valid plan is followed. */
    const uint64_t broken[] = {0, 63, 0};
    sublet_replay *none = NULL;
    FAILS(SUBLET_STATUS_PLAN_OVERLAP, 0, 1, 1,
          sublet_replay_create(blocks, n, broken, NULL, workspace, layout.size, &none, &error));
    sublet_constraints constraints = {.struct_size = sizeof constraints, .capacity = 95};
    FAILS(SUBLET_STATUS_PLAN_OVER_CAPACITY, 1, 96, 95,
          sublet_replay_create(blocks, n, offsets, &constraints, workspace, layout.size, &none, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0,
          sublet_replay_create(blocks, n, NULL, NULL, workspace, layout.size, &none, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 4, layout.size, layout.size - 8,
          sublet_replay_create(blocks, n, offsets, NULL, workspace, layout.size - 8, &none, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 6, 0, 0,
          sublet_replay_create(blocks, n, offsets, NULL, workspace, layout.size, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_replay_workspace(n, NULL, &error));
    CHECK(none == NULL);
    free(workspace);
}
