#include "check.h"

/* image, weights -> convolution -> maps -> relu -> active */
static const sublet_tensor tensors[] = {
    {.bytes = 3072},
    {.bytes = 864, .storage = SUBLET_STORAGE_PERSISTENT},
    {.bytes = 32768},
    {.bytes = 32768, .storage = SUBLET_STORAGE_ITERATION},
};
static const sublet_node nodes[] = {
    {.time_ns = 900, .workspace = 4096, .input_count = 2, .output_count = 1},
    {.time_ns = 100, .input_count = 1, .output_count = 1},
};
static const uint32_t operands[] = {0, 1, 2, 2, 3};
#define TENSORS COUNT(tensors)
#define NODES COUNT(nodes)
#define OPERANDS COUNT(operands)
#define MOST (3 * TENSORS + 3 * NODES + OPERANDS)

static void every_fault_has_its_status(void *workspace, size_t size) {
    sublet_row rows[MOST];
#define REFUSED(status, index, needed, got, nodes_, operands_)                                                         \
    FAILS(status, index, needed, got,                                                                                  \
          sublet_graph_rows(tensors, TENSORS, nodes_, NODES, operands_, OPERANDS, workspace, size, rows, MOST, NULL,   \
                            NULL, &error))
    const uint32_t unknown[] = {0, 1, 2, 4, 3};
    REFUSED(SUBLET_STATUS_UNKNOWN_TENSOR, 1, 0, 4, nodes, unknown);
    const uint32_t twice[] = {0, 1, 2, 0, 2};
    REFUSED(SUBLET_STATUS_TWO_WRITERS, 2, 0, 1, nodes, twice);
    const uint32_t cycle[] = {0, 3, 2, 2, 3};
    REFUSED(SUBLET_STATUS_CYCLE, 0, 0, 0, nodes, cycle);
    const sublet_node more[] = {nodes[0], {.input_count = 1, .output_count = 2}};
    REFUSED(SUBLET_STATUS_OPERANDS, 1, 2, 1, more, operands);
    const sublet_node fewer[] = {nodes[0], {.input_count = 1}};
    REFUSED(SUBLET_STATUS_OPERANDS, 2, 0, 1, fewer, operands);
    const sublet_node many[] = {nodes[0], {.input_count = UINT32_MAX}};
    REFUSED(SUBLET_STATUS_OPERANDS, 1, UINT32_MAX, 2, many, operands);

    sublet_tensor broken[TENSORS];
    memcpy(broken, tensors, sizeof broken);
    broken[2].storage = 3;
    FAILS(SUBLET_STATUS_TENSOR_UNKNOWN_VALUE, 2, 0, 3,
          sublet_graph_rows(broken, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, rows, MOST, NULL, NULL,
                            &error));
    broken[2] = (sublet_tensor){.bytes = 1, .reserved = 9};
    FAILS(SUBLET_STATUS_TENSOR_UNKNOWN_VALUE, 2, 0, 9,
          sublet_graph_rows(broken, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, rows, MOST, NULL, NULL,
                            &error));
    broken[2] = (sublet_tensor){.bytes = 0};
    FAILS(SUBLET_STATUS_ZERO_SIZE, 2, 0, 0,
          sublet_graph_rows(broken, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, rows, MOST, NULL, NULL,
                            &error));
}

/* Two branches, a -> b and c: in the order of the list, a is done when c begins; on two streams it may not be. */
static void branches_may_run_at_the_same_time(void) {
    const sublet_tensor four[4] = {{.bytes = 8}, {.bytes = 8}, {.bytes = 8}, {.bytes = 8}};
    const sublet_node three[3] = {
        {.input_count = 1, .output_count = 1},
        {.input_count = 1, .output_count = 1},
        {.input_count = 1, .output_count = 1},
    };
    const uint32_t used[] = {0, 1, 1, 2, 0, 3};
    sublet_layout layout;
    WORKS(sublet_parallel_workspace(4, 3, 6, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size, count = 0;
    sublet_block blocks[4];
    sublet_residency names[4];
    WORKS(sublet_parallel_lifetimes(four, 4, three, 3, used, 6, NULL, workspace, size, blocks, names, 4, &count, &error));
    CHECK(count == 4 && blocks[1].end > blocks[3].start && names[3].block == 3);
    uint32_t streams[3] = {9, 9, 9};
    WORKS(sublet_longest_paths(four, 4, three, 3, used, 6, 2, workspace, size, streams, &error));
    CHECK(streams[0] == 0 && streams[1] == 0 && streams[2] == 1);
    WORKS(sublet_longest_paths(four, 4, three, 3, used, 6, 1, workspace, size, streams, &error));
    CHECK(streams[0] == 0 && streams[1] == 0 && streams[2] == 0);
    WORKS(sublet_parallel_lifetimes(four, 4, three, 3, used, 6, streams, workspace, size, blocks, NULL, 4, NULL, &error));
    CHECK(blocks[1].start == 0 && blocks[1].end == 2 && blocks[3].start == 2 && blocks[3].end == 3);

    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 9, 4, 3,
          sublet_parallel_lifetimes(four, 4, three, 3, used, 6, NULL, workspace, size, blocks, names, 3, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 9, 0, 0,
          sublet_parallel_lifetimes(four, 4, three, 3, used, 6, NULL, workspace, size, NULL, names, 4, NULL, &error));
    FAILS(SUBLET_STATUS_OPERANDS, 2, 1, 0,
          sublet_parallel_lifetimes(four, 4, three, 3, used, 5, NULL, workspace, size, blocks, names, 4, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 7, size, size - 1,
          sublet_parallel_lifetimes(four, 4, three, 3, used, 6, NULL, workspace, size - 1, blocks, names, 4, NULL,
                                    &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 9, 0, 0,
          sublet_longest_paths(four, 4, three, 3, used, 6, 2, workspace, size, NULL, &error));
    FAILS(SUBLET_STATUS_OPERANDS, 3, 0, 6,
          sublet_longest_paths(four, 4, (sublet_node[3]){{0}}, 3, used, 6, 2, workspace, size, streams, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_parallel_workspace(1, 1, 1, NULL, &error));
    free(workspace);
}

void test_graph(void) {
    branches_may_run_at_the_same_time();
    sublet_layout layout;
    WORKS(sublet_graph_rows_workspace(TENSORS, NODES, OPERANDS, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_row rows[MOST];
    size_t count = 0, blocks = 0;
    memset(rows, 7, sizeof rows);
    WORKS(sublet_graph_rows(tensors, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, rows, MOST, &count,
                            &blocks, &error));
    CHECK(count == 16 && blocks == 5 && rows[count].block == 0x07070707);
    /* What is persistent is there first; then what is given. */
    CHECK(rows[0].event == SUBLET_EVENT_MALLOC && rows[0].block == 1 && rows[0].bytes == 864);
    CHECK(rows[1].block == 0 && rows[2].event == SUBLET_EVENT_WRITE && rows[2].op_kind == SUBLET_OP_KIND_NONE);
    /* The workspace is block 4; the image is freed when the convolution is done; the result is at the end. */
    CHECK(rows[6].event == SUBLET_EVENT_MALLOC && rows[6].block == 4 && rows[6].bytes == 4096);
    CHECK(rows[10].event == SUBLET_EVENT_FREE && rows[10].block == 0 && rows[10].time_ns == 900);
    CHECK(rows[12].event == SUBLET_EVENT_READ && rows[12].op == 1 && rows[12].op_kind == SUBLET_OP_KIND_FIRST);
    CHECK(rows[14].event == SUBLET_EVENT_FREE && rows[14].block == 2 && rows[15].block == 3 && rows[15].time_ns == 1000);
    every_fault_has_its_status(workspace, size);

    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 8, 16, 15,
          sublet_graph_rows(tensors, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, rows, 15, NULL, NULL,
                            &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0,
          sublet_graph_rows(NULL, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, rows, MOST, NULL, NULL,
                            &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0,
          sublet_graph_rows(tensors, TENSORS, nodes, NODES, NULL, OPERANDS, workspace, size, rows, MOST, NULL, NULL,
                            &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 6, size, size - 1,
          sublet_graph_rows(tensors, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size - 1, rows, MOST, NULL,
                            NULL, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 8, 0, 6,
          sublet_graph_rows(tensors, TENSORS, nodes, NODES, operands, OPERANDS, workspace, size, workspace, 1, NULL,
                            NULL, &error));
    CHECK(sublet_graph_rows_workspace(1, 1, SIZE_MAX, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW &&
          error.index == 2);
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_graph_rows_workspace(1, 1, 1, NULL, &error));
    WORKS(sublet_graph_rows(NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, &count, &blocks, &error));
    CHECK(count == 0 && blocks == 0);
    free(workspace);
}
