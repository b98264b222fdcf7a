#include "check.h"

void test_version(void) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", SUBLET_VERSION_MAJOR, SUBLET_VERSION_MINOR, SUBLET_VERSION_PATCH);
    CHECK(strcmp(text, SUBLET_VERSION_STRING) == 0);
    CHECK(strcmp(text, sublet_version_string()) == 0);
    CHECK(sublet_version_number() == SUBLET_VERSION_NUMBER);
    /* What the driver has read in Cargo.toml. */
    CHECK(strcmp(text, CARGO_VERSION) == 0);
}
