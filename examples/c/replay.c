/* Three iterations of a network: the first is recorded and planned, the others are replayed. */
#include <stdio.h>
#include <sublet.h>

int main(void) {
    sublet_allocator_params params = {.struct_size = sizeof params, .capacity = 64 << 20};
    sublet_allocator *allocator;
    sublet_error error;
    sublet_status status = sublet_allocator_create(&params, NULL, 0, &allocator, &error);
    for (int i = 0; i < 3 && status == SUBLET_STATUS_OK; ++i) {
        void *input = NULL, *hidden = NULL, *output = NULL;
        status |= sublet_iteration_begin(allocator, &error);
        status |= sublet_malloc(allocator, 4 << 20, &input, &error);
        status |= sublet_malloc(allocator, 8 << 20, &hidden, &error);
        status |= sublet_free(allocator, input, &error);
        status |= sublet_malloc(allocator, 4 << 20, &output, &error); /* where the input was */
        status |= sublet_free(allocator, hidden, &error);
        status |= sublet_free(allocator, output, &error);
        status |= sublet_iteration_end(allocator, &error);
    }
    sublet_statistics done = {.struct_size = sizeof done};
    if (status != SUBLET_STATUS_OK || sublet_stats(allocator, &done, &error) != SUBLET_STATUS_OK) return 1;
    printf("%d requests served from a plan of %d MiB\n", (int)done.hits, (int)(done.arena_peak >> 20));
    sublet_allocator_destroy(allocator);
    return 0;
}
