/* Called with `gpu` where there is a GPU whose memory the processor can read, as that of the driver for tests; else
 * with `none`. */
#include "tests.h"

sublet_error error;

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (strcmp(arguments[1], "gpu") == 0) {
        test_network_on(0);
        test_arena(0);
        test_gpu_runtime();
        test_gpu_relu();
        test_torch();
    } else {
        CHECK(strcmp(arguments[1], "none") == 0);
        test_runtime();
        test_wrong_runtime();
        test_sizes_of_results();
        test_network_on(1);
        test_arena(1);
        test_relu();
        test_without_gpu();
    }
    puts("all checks passed");
    return 0;
}
