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
#define MOST (4 * TENSORS + 3 * NODES + OPERANDS)

static const sublet_graph graph = {.struct_size = sizeof graph,     .tensors = tensors,   .tensor_count = TENSORS,
                                   .nodes = nodes,                  .node_count = NODES,
                                   .operands = operands,            .operand_count = OPERANDS};

static void every_fault_has_its_status(void *workspace, size_t size) {
    sublet_row rows[MOST];
    sublet_graph broken = graph;
#define REFUSED(status, index, needed, got) \
    FAILS(status, index, needed, got, sublet_graph_rows(&broken, workspace, size, rows, MOST, NULL, NULL, &error))
    const uint32_t unknown[] = {0, 1, 2, 4, 3};
    broken.operands = unknown;
    REFUSED(SUBLET_STATUS_UNKNOWN_TENSOR, 1, 0, 4);
    const uint32_t twice[] = {0, 1, 2, 0, 2};
    broken.operands = twice;
    REFUSED(SUBLET_STATUS_TWO_WRITERS, 2, 0, 1);
    const uint32_t cycle[] = {0, 3, 2, 2, 3};
    broken.operands = cycle;
    REFUSED(SUBLET_STATUS_CYCLE, 0, 0, 0);
    broken.operands = operands;
    const sublet_node more[] = {nodes[0], {.input_count = 1, .output_count = 2}};
    broken.nodes = more;
    REFUSED(SUBLET_STATUS_OPERANDS, 1, 2, 1);
    const sublet_node fewer[] = {nodes[0], {.input_count = 1}};
    broken.nodes = fewer;
    REFUSED(SUBLET_STATUS_OPERANDS, 2, 0, 1);
    const sublet_node many[] = {nodes[0], {.input_count = UINT32_MAX}};
    broken.nodes = many;
    REFUSED(SUBLET_STATUS_OPERANDS, 1, UINT32_MAX, 2);

    sublet_tensor changed[TENSORS];
    memcpy(changed, tensors, sizeof changed);
    broken = graph;
    broken.tensors = changed;
    changed[2].storage = 3;
    REFUSED(SUBLET_STATUS_TENSOR_UNKNOWN_VALUE, 2, 0, 3);
    changed[2] = (sublet_tensor){.bytes = 1, .reserved = 9};
    REFUSED(SUBLET_STATUS_TENSOR_UNKNOWN_VALUE, 2, 0, 9);
    changed[2] = (sublet_tensor){.bytes = 0};
    REFUSED(SUBLET_STATUS_ZERO_SIZE, 2, 0, 0);

    broken = graph;
    broken.reserved = 1;
    REFUSED(SUBLET_STATUS_UNKNOWN_VALUE, 0, 0, 1);
    broken = graph;
    broken.struct_size = 2;
    REFUSED(SUBLET_STATUS_STRUCT_SIZE, 0, 4096, 2);
    const size_t pointers[] = {offsetof(sublet_graph, tensors), offsetof(sublet_graph, nodes),
                               offsetof(sublet_graph, operands), offsetof(sublet_graph, streams)};
    const size_t alignments[] = {8, 8, 4, 4};
    for (size_t i = 0; i < COUNT(pointers); ++i) {
        const void *const nothing = NULL, *const odd = ODD(rows);
        broken = graph;
        memcpy((char *)&broken + pointers[i], &odd, sizeof odd);
        REFUSED(SUBLET_STATUS_MISALIGNED_FIELD, 0, alignments[i], pointers[i]);
        if (i < 3) {
            memcpy((char *)&broken + pointers[i], &nothing, sizeof nothing);
            REFUSED(SUBLET_STATUS_MISSING_FIELD, 0, 0, pointers[i]);
        }
    }
    broken = graph;
    broken.operands = (const uint32_t *)(void *)rows;
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 3, 0, 0,
          sublet_graph_rows(&broken, workspace, size, rows, MOST, NULL, NULL, &error));
#undef REFUSED
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
    sublet_graph branches = {.struct_size = sizeof branches, .tensors = four, .tensor_count = 4, .nodes = three,
                             .node_count = 3, .operands = used, .operand_count = 6};
    sublet_layout layout;
    WORKS(sublet_parallel_workspace(&branches, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size, count = 0;
    sublet_block blocks[4];
    sublet_residency names[4];
    WORKS(sublet_parallel_lifetimes(&branches, workspace, size, blocks, names, 4, &count, &error));
    CHECK(count == 4 && blocks[1].end > blocks[3].start && names[3].block == 3);
    uint32_t streams[3] = {9, 9, 9};
    WORKS(sublet_longest_paths(&branches, 2, workspace, size, streams, &error));
    CHECK(streams[0] == 0 && streams[1] == 0 && streams[2] == 1);
    WORKS(sublet_longest_paths(&branches, 1, workspace, size, streams, &error));
    CHECK(streams[0] == 0 && streams[1] == 0 && streams[2] == 0);
    branches.streams = streams;
    WORKS(sublet_parallel_lifetimes(&branches, workspace, size, blocks, NULL, 4, NULL, &error));
    CHECK(blocks[1].start == 0 && blocks[1].end == 2 && blocks[3].start == 2 && blocks[3].end == 3);
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 4, 0, 0,
          sublet_longest_paths(&branches, 1, workspace, size, streams, &error));
    branches.streams = NULL;

    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 3, 4, 3,
          sublet_parallel_lifetimes(&branches, workspace, size, blocks, names, 3, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0,
          sublet_parallel_lifetimes(&branches, workspace, size, NULL, names, 4, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0,
          sublet_parallel_lifetimes(NULL, workspace, size, blocks, names, 4, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, size, size - 1,
          sublet_parallel_lifetimes(&branches, workspace, size - 1, blocks, names, 4, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0,
          sublet_longest_paths(&branches, 2, workspace, size, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_longest_paths(NULL, 2, workspace, size, streams, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_parallel_workspace(&branches, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_parallel_workspace(NULL, &layout, &error));
    branches.operand_count = 5;
    FAILS(SUBLET_STATUS_OPERANDS, 2, 1, 0,
          sublet_parallel_lifetimes(&branches, workspace, size, blocks, names, 4, NULL, &error));
    branches.operand_count = 6;
    const sublet_node none[3] = {{0}};
    branches.nodes = none;
    FAILS(SUBLET_STATUS_OPERANDS, 3, 0, 6, sublet_longest_paths(&branches, 2, workspace, size, streams, &error));
    free(workspace);
}

#define KEPT 1000000
#define KEPT_MOST (4 * 4 + 3 * 3 + 6)

/* The time of a fit in which `kept` and `wide` do not lie beside each other, as a part of the time without a limit; `kept` has
 * this storage. If it is computed again, it is there when the trace ends. */
static double time_within_a_limit(uint32_t storage) {
    const sublet_tensor four[4] = {{.bytes = 1000}, {.bytes = KEPT, .storage = storage}, {.bytes = KEPT},
                                   {.bytes = 4, .storage = SUBLET_STORAGE_ITERATION}};
    const sublet_node three[3] = {
        {.time_ns = 1000000, .input_count = 1, .output_count = 1},
        {.time_ns = 1000000, .input_count = 1, .output_count = 1},
        {.time_ns = 1000000, .input_count = 1, .output_count = 1},
    };
    const uint32_t used[] = {0, 1, 0, 2, 2, 3};
    const sublet_graph keeps = {.struct_size = sizeof keeps, .tensors = four, .tensor_count = 4, .nodes = three,
                                .node_count = 3, .operands = used, .operand_count = 6};
    sublet_layout layout;
    WORKS(sublet_graph_rows_workspace(&keeps, &layout, &error));
    void *workspace = lend(layout);
    sublet_row rows[KEPT_MOST];
    size_t count = 0, blocks = 0;
    WORKS(sublet_graph_rows(&keeps, workspace, layout.size, rows, KEPT_MOST, &count, &blocks, &error));
    free(workspace);

    const sublet_operator once[3] = {{.flags = 0}, {.flags = 0}, {.flags = 0}};
    const sublet_trace trace = {.struct_size = sizeof trace, .rows = rows, .row_count = count, .operators = once,
                                .operator_count = 3, .block_count = blocks};
    sublet_fit_lengths lengths;
    WORKS(sublet_fit_lengths_of(&trace, &lengths, &error));
    size_t r = lengths.rows, n = lengths.residencies;
    sublet_fit_output output = {.struct_size = sizeof output, .row_capacity = r, .residency_capacity = n};
    WORKS(sublet_fit_workspace(&trace, &output, &layout, &error));
    output.rows = malloc(r * sizeof *output.rows);
    output.offsets = malloc(n * sizeof *output.offsets);
    workspace = lend(layout);
    const sublet_fit_params params = {.struct_size = sizeof params, .means = SUBLET_MEANS_RECOMPUTE};
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    WORKS(sublet_fit(&trace, KEPT + 200000, &params, workspace, layout.size, &output, &fitted, &error));
    size_t back = 0, gone = 0;
    for (size_t i = 0; i < fitted.row_count; ++i) {
        back = output.rows[i].event == SUBLET_EVENT_MALLOC && output.rows[i].block == 1 ? i : back;
        gone = output.rows[i].event == SUBLET_EVENT_FREE && output.rows[i].block == 2 ? i : gone;
    }
    CHECK((back > gone) == (storage == SUBLET_STORAGE_ITERATION));
    free(workspace);
    free(output.rows);
    free(output.offsets);
    return (double)fitted.run.time_ns / (double)fitted.run.original_ns;
}

/* What is kept for the iteration is computed again after the other is gone, in a third of the time; where nobody reads it at the
 * end, nothing is. */
static void what_is_kept_is_back_at_the_end(void) {
    double kept = time_within_a_limit(SUBLET_STORAGE_ITERATION), dropped = time_within_a_limit(SUBLET_STORAGE_TRANSIENT);
    CHECK(kept > 1.33 && kept < 1.34 && dropped < 1.0001);
}

/* Two branches with large intermediate values and small results: one after the other they take less. Ordered operators
 * keep their order, and the last one works in place. */
static void the_order_with_the_least_load_is_found(void) {
    const sublet_tensor tensors[] = {{1, 0, 0}, {9, 0, 0}, {9, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}};
    const sublet_node nodes[] = {{0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 2, 1}};
    const uint32_t operands[] = {0, 1, 0, 2, 1, 3, 2, 4, 3, 4, 5};
    const sublet_graph branches = {.struct_size = sizeof branches,
                                   .tensors = tensors,
                                   .tensor_count = COUNT(tensors),
                                   .nodes = nodes,
                                   .node_count = COUNT(nodes),
                                   .operands = operands,
                                   .operand_count = COUNT(operands)};
    sublet_layout layout;
    WORKS(sublet_graph_order_workspace(&branches, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    uint32_t order[COUNT(nodes)];
    sublet_graph_ordered ordered = {.struct_size = sizeof ordered};
    WORKS(sublet_graph_order(&branches, NULL, workspace, size, order, &ordered, &error));
    CHECK(ordered.given == 19 && ordered.max_load == 11 && ordered.lower_bound == 11);
    CHECK(order[0] == 1 && order[1] == 3 && order[2] == 0 && order[3] == 2 && order[4] == 4);

    sublet_operator operators[COUNT(nodes)] = {{0, 0, 0}};
    WORKS(sublet_graph_order(&branches, operators, workspace, size, order, &ordered, &error));
    CHECK(ordered.max_load == 19 && order[0] == 0 && order[1] == 1 && order[2] == 2);
    for (size_t i = 0; i < COUNT(nodes); ++i) operators[i].flags = SUBLET_OPERATOR_UNORDERED | SUBLET_OPERATOR_IN_PLACE;
    WORKS(sublet_graph_order(&branches, operators, workspace, size, order, NULL, &error));
    CHECK(order[4] == 4);
    operators[1].flags = 64;
    FAILS(SUBLET_STATUS_OPERATOR_UNKNOWN_VALUE, 1, 0, 64,
          sublet_graph_order(&branches, operators, workspace, size, order, &ordered, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 4, 0, 0,
          sublet_graph_order(&branches, NULL, workspace, size, NULL, &ordered, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 2, size, size - 8,
          sublet_graph_order(&branches, NULL, workspace, size - 8, order, &ordered, &error));
    free(workspace);
}

void test_graph(void) {
    branches_may_run_at_the_same_time();
    sublet_layout layout;
    WORKS(sublet_graph_rows_workspace(&graph, &layout, &error));
    void *workspace = lend(layout);
    size_t size = layout.size;
    sublet_row rows[MOST];
    size_t count = 0, blocks = 0;
    memset(rows, 7, sizeof rows);
    WORKS(sublet_graph_rows(&graph, workspace, size, rows, MOST, &count, &blocks, &error));
    CHECK(count == 17 && blocks == 5 && rows[count].block == 0x07070707);
    /* What is persistent is there first; then what is given. */
    CHECK(rows[0].event == SUBLET_EVENT_MALLOC && rows[0].block == 1 && rows[0].bytes == 864);
    CHECK(rows[1].block == 0 && rows[2].event == SUBLET_EVENT_WRITE && rows[2].op_kind == SUBLET_OP_KIND_NONE);
    /* The workspace is block 4; the image is freed when the convolution is done; the result is at the end. */
    CHECK(rows[6].event == SUBLET_EVENT_MALLOC && rows[6].block == 4 && rows[6].bytes == 4096);
    CHECK(rows[10].event == SUBLET_EVENT_FREE && rows[10].block == 0 && rows[10].time_ns == 900);
    CHECK(rows[12].event == SUBLET_EVENT_READ && rows[12].op == 1 && rows[12].op_kind == SUBLET_OP_KIND_FIRST);
    CHECK(rows[14].event == SUBLET_EVENT_FREE && rows[14].block == 2);
    /* One more operator reads the result at the end. */
    CHECK(rows[15].event == SUBLET_EVENT_READ && rows[15].block == 3);
    CHECK(rows[15].op == graph.node_count && rows[15].op_kind == SUBLET_OP_KIND_FIRST);
    CHECK(rows[16].event == SUBLET_EVENT_FREE && rows[16].block == 3 && rows[16].time_ns == 1000);
    what_is_kept_is_back_at_the_end();
    every_fault_has_its_status(workspace, size);

    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 3, 17, 16,
          sublet_graph_rows(&graph, workspace, size, rows, 16, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0,
          sublet_graph_rows(NULL, workspace, size, rows, MOST, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0,
          sublet_graph_rows(&graph, workspace, size, NULL, MOST, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 1, size, size - 1,
          sublet_graph_rows(&graph, workspace, size - 1, rows, MOST, NULL, NULL, &error));
    FAILS(SUBLET_STATUS_OVERLAPPING_BUFFERS, 3, 0, 1,
          sublet_graph_rows(&graph, workspace, size, workspace, 1, NULL, NULL, &error));
    sublet_graph large = graph;
    large.operand_count = SIZE_MAX;
    CHECK(sublet_graph_rows_workspace(&large, &layout, &error) == SUBLET_STATUS_LENGTH_OVERFLOW && error.index == 0);
    FAILS(SUBLET_STATUS_NULL_POINTER, 1, 0, 0, sublet_graph_rows_workspace(&graph, NULL, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, sublet_graph_rows_workspace(NULL, &layout, &error));
    the_order_with_the_least_load_is_found();
    const sublet_graph nothing = {.struct_size = sizeof nothing};
    WORKS(sublet_graph_rows(&nothing, NULL, 0, NULL, 0, &count, &blocks, &error));
    CHECK(count == 0 && blocks == 0);
    free(workspace);
}
