#include "check.h"

void test_status(void) {
    CHECK(SUBLET_STATUS_OK == 0);
    CHECK(sizeof(sublet_status) == 4);
    CHECK(strcmp(sublet_status_string(SUBLET_STATUS_OK), "success") == 0);
    CHECK(strcmp(sublet_status_string(SUBLET_STATUS_PLAN_OVERLAP), "invalid plan: two blocks share an address") == 0);
    const char *unknown = sublet_status_string(-1);
    CHECK(strcmp(unknown, "not a status of this version") == 0);
    CHECK(strcmp(sublet_status_string(INT32_MAX), unknown) == 0);
    int named = 0;
    for (int32_t status = 0; status < 1000; ++status) {
        named += strcmp(sublet_status_string(status), unknown) != 0;
    }
    /* What the driver has counted in the header. */
    CHECK(named == STATUSES);
}
