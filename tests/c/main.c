#include "check.h"

sublet_error error;

void *lend(sublet_layout layout) {
    CHECK(layout.alignment == 8 && layout.size % 8 == 0);
    void *memory = malloc(layout.size);
    CHECK(memory != NULL);
    memset(memory, 0xa5, layout.size);
    return memory;
}

int main(void) {
    test_version();
    test_status();
    test_error();
    test_handle();
    test_place();
    test_bound();
    test_banks();
    test_chunks();
    test_verify();
    test_trace();
    test_graph();
    test_schedule();
    test_operator();
    test_fit();
    test_allocator();
    test_framework();
    test_recorder();
    test_detector();
    test_replay();
    test_pool();
    test_network();
    test_tensors_that_stay();
    puts("all checks passed");
    return 0;
}
