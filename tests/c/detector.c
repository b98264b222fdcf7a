#include "check.h"

/* Six blocks, each freed at once: twelve events that repeat. */
static uint32_t iteration(sublet_detector *detector) {
    static const uint64_t sizes[] = {64, 32, 96, 128, 32, 256};
    uint32_t period = 7;
    for (size_t i = 0; i < COUNT(sizes); ++i) {
        uint32_t position = 0, unused = 0;
        WORKS(sublet_detector_push(detector, SUBLET_EVENT_MALLOC, sizes[i], 0, &position, NULL, &error));
        WORKS(sublet_detector_push(detector, SUBLET_EVENT_FREE, sizes[i], position, &unused, &period, &error));
    }
    return period;
}

void test_detector(void) {
    sublet_layout layout;
    WORKS(sublet_detector_workspace(64, &layout, &error));
    void *workspace = lend(layout);
    sublet_detector *detector = NULL;
    WORKS(sublet_detector_create(64, workspace, layout.size, &detector, &error));
    CHECK(iteration(detector) == 0);
    CHECK(iteration(detector) == 12);
    CHECK(iteration(detector) == 12);

    uint32_t position = 7, period = 7;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 1, 0, 6, sublet_detector_push(detector, 6, 1, 0, &position, &period, &error));
    CHECK(position == 7 && period == 7);
    /* A number that no event has received as its position is taken, and ends the period. */
    WORKS(sublet_detector_push(detector, SUBLET_EVENT_FREE, UINT64_MAX, UINT32_MAX, &position, &period, &error));
    CHECK(period == 0);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_detector_push(NULL, 0, 1, 0, &position, &period, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0, sublet_detector_push(detector, 0, 1, 0, NULL, &period, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, layout.size, 0,
          sublet_detector_create(64, workspace, 0, &detector, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_detector_workspace(64, NULL, &error));
    CHECK(sublet_detector_workspace(SIZE_MAX, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW);
    free(workspace);
}
