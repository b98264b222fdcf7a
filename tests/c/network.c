/* A recorded network, from its file to replayed iterations, all of it through the C library. */
#include "check.h"

/* Reads a trace: time_ns,event,block,bytes,op. */
static sublet_row *read_rows(const char *path, size_t *row_count, size_t *block_count) {
    static const char *const events[] = {"malloc", "free", "read", "write"};
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t capacity = 1 << 14;
    sublet_row *rows = calloc(capacity, sizeof *rows);
    CHECK(rows != NULL);
    char line[128];
    CHECK(fgets(line, sizeof line, file) != NULL);
    *row_count = *block_count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        CHECK(*row_count < capacity);
        sublet_row *row = &rows[(*row_count)++];
        char *at = line;
        row->time_ns = strtoull(at, &at, 10);
        char *event = ++at;
        at = strchr(at, ',');
        CHECK(at != NULL);
        *at++ = '\0';
        while (row->event < COUNT(events) && strcmp(event, events[row->event]) != 0) {
            row->event += 1;
        }
        row->block = (uint32_t)strtoul(at, &at, 10);
        row->bytes = strtoull(at + 1, &at, 10);
        if (at[0] == ',' && at[1] >= '0' && at[1] <= '9') {
            row->op = (uint32_t)strtoul(at + 1, &at, 10);
            row->op_kind = SUBLET_OP_KIND_FIRST;
        }
        if (row->block >= *block_count) {
            *block_count = row->block + 1;
        }
    }
    fclose(file);
    return rows;
}

/* What the blocks that an iteration frees take in the best case, at an alignment of 256. */
static uint64_t least_arena(const sublet_row *rows, size_t row_count, size_t block_count) {
    size_t residencies = 0, n = 0;
    sublet_layout layout;
    WORKS(sublet_residencies(rows, row_count, &residencies, &error));
    const sublet_trace trace = {.struct_size = sizeof trace, .rows = rows, .row_count = row_count,
                                .block_count = block_count};
    WORKS(sublet_lifetimes_workspace(&trace, residencies, &layout, &error));
    sublet_block *blocks = calloc(residencies, sizeof *blocks);
    void *workspace = lend(layout);
    WORKS(sublet_lifetimes(&trace, workspace, layout.size, blocks, NULL, residencies, NULL, &error));
    free(workspace);
    for (size_t i = 0; i < residencies; ++i) {
        if (blocks[i].end < row_count) {
            blocks[n++] = blocks[i];
        }
    }
    CHECK(n > 10);
    sublet_constraints constraints = {.struct_size = sizeof constraints, .alignment = 256};
    uint64_t bound = 0;
    WORKS(sublet_lower_bound_workspace(n, &layout, &error));
    workspace = lend(layout);
    WORKS(sublet_lower_bound(blocks, n, &constraints, workspace, layout.size, &bound, &error));
    free(workspace);
    free(blocks);
    return bound;
}

static void replays(const char *path) {
    size_t row_count, block_count;
    sublet_row *rows = read_rows(path, &row_count, &block_count);
    char **address = calloc(block_count, sizeof *address);
    bool *freed = calloc(block_count, sizeof *freed);
    uint64_t requests = 0;
    for (size_t i = 0; i < row_count; ++i) {
        freed[rows[i].block] |= rows[i].event == SUBLET_EVENT_FREE;
    }
    /* Nobody looks into the range, so that it need not be there. */
    sublet_allocator_params params = {.struct_size = sizeof params, .events = row_count, .live = block_count,
                                      .capacity = (uint64_t)1 << 40, .range = (void *)((uintptr_t)1 << 41)};
    sublet_allocator *allocator = NULL;
    sublet_layout layout;
    WORKS(sublet_allocator_workspace(&params, &layout, &error));
    void *workspace = lend(layout);
    WORKS(sublet_allocator_create(&params, workspace, layout.size, &allocator, &error));
    /* Iteration 0 allocates what stays: parameters, and what belongs to them. */
    for (int iteration = 0; iteration < 4; ++iteration) {
        if (iteration > 0) {
            WORKS(sublet_iteration_begin(allocator, &error));
        }
        for (size_t i = 0; i < row_count; ++i) {
            uint32_t block = rows[i].block;
            if (freed[block] != (iteration > 0)) {
                continue;
            }
            if (rows[i].event == SUBLET_EVENT_MALLOC) {
                void *pointer = NULL;
                WORKS(sublet_malloc(allocator, rows[i].bytes, &pointer, &error));
                address[block] = pointer;
                requests += iteration == 1;
            } else if (rows[i].event == SUBLET_EVENT_FREE) {
                WORKS(sublet_free(allocator, address[block], &error));
            }
        }
        if (iteration > 0) {
            WORKS(sublet_iteration_end(allocator, &error));
        }
    }
    sublet_statistics done = {.struct_size = sizeof done};
    WORKS(sublet_stats(allocator, &done, &error));
    uint64_t least = least_arena(rows, row_count, block_count);
    CHECK(done.plans == 1 && done.hits == 2 * requests && done.misses == 0);
    CHECK(done.arena_peak >= least && done.arena_peak <= least + least / 100 + 256);
    sublet_allocator_destroy(allocator);
    free(workspace);
    free(freed);
    free(address);
    free(rows);
}

void test_network(void) {
    replays(TRACES "/resnet50_train_b32.csv");
    replays(TRACES "/vgg16_cifar_train_b100.csv");
    replays(TRACES "/seq2seq_infer_100w.csv");
}
