#include "check.h"

#define KIB ((uint64_t)1 << 10)
#define READ SUBLET_USE_READ
#define WRITE SUBLET_USE_WRITE

/* The parameter 0, data 1, activations 2 and 3, a gradient 4; activation 2 is read again at the end. */
static const sublet_memory memories[] = {
    {64, SUBLET_MEMORY_KEEP, 0}, {KIB, 0, 0}, {64 * KIB, 0, 0}, {64 * KIB, 0, 0}, {64 * KIB, 0, 0},
};
static const sublet_layer operators[] = {{1000, SUBLET_OPERATOR_ONCE, 0}, {1000, 0, 0}, {1000, 0, 0}, {1000, 0, 0}, {1000, 0, 0}};
static const sublet_access accesses[] = {
    {0, 1, WRITE}, {1, 0, READ}, {1, 1, READ}, {1, 2, WRITE}, {2, 2, READ}, {2, 3, SUBLET_USE_OVERWRITE},
    {3, 3, READ},  {3, 4, WRITE}, {4, 4, READ}, {4, 2, READ}, {4, 1, READ},
};

static sublet_network network(void) {
    sublet_network made = {.struct_size = sizeof made};
    made.memories = memories;
    made.memory_count = COUNT(memories);
    made.operators = operators;
    made.operator_count = COUNT(operators);
    made.accesses = accesses;
    made.access_count = COUNT(accesses);
    return made;
}

static sublet_layout layout;
static void *workspace;
static sublet_step *steps;
static size_t capacity;

static void make_room(const sublet_network *told, const sublet_network_params *asked) {
    free(workspace);
    free(steps);
    WORKS(sublet_network_workspace(told, asked, &capacity, &layout, &error));
    workspace = lend(layout);
    steps = malloc((capacity + 1) * sizeof *steps);
    CHECK(steps != NULL);
}

static sublet_status plan(const sublet_network *told, const sublet_network_params *asked, sublet_network_planned *planned) {
    return sublet_network_plan(told, asked, workspace, layout.size, steps, capacity, planned, &error);
}

static size_t count(const sublet_network_planned *planned, uint32_t action) {
    size_t found = 0;
    for (size_t i = 0; i < planned->step_count; ++i) {
        CHECK(i == 0 || steps[i].before >= steps[i - 1].before);
        found += steps[i].action == action;
    }
    return found;
}

static void without_a_limit(void) {
    const sublet_network told = network();
    sublet_network_planned planned = {.struct_size = sizeof planned};
    make_room(&told, NULL);
    WORKS(plan(&told, NULL, &planned));
    CHECK(planned.planned_bytes == 193 * KIB && planned.kept_bytes == 64);
    CHECK(planned.peak == 193 * KIB && planned.max_load == planned.original_load);
    CHECK(planned.step_count == 4 && count(&planned, SUBLET_ACTION_BIND) == 4);
    CHECK(steps[0].before == 0 && steps[0].subject == 1);
    CHECK(sublet_network_plan(&told, NULL, workspace, layout.size, steps, capacity, NULL, NULL) == SUBLET_STATUS_OK);
}

static void within_a_limit(void) {
    const sublet_network told = network();
    sublet_network_params asked = {.struct_size = sizeof asked, .limit = 130 * KIB, .alignment = 256};
    sublet_network_planned planned = {.struct_size = sizeof planned};
    make_room(&told, &asked);
    WORKS(plan(&told, &asked, &planned));
    CHECK(planned.peak <= 130 * KIB && planned.original_load == 193 * KIB && planned.run.recomputed_ns == 1000);
    CHECK(count(&planned, SUBLET_ACTION_RUN) == 1 && count(&planned, SUBLET_ACTION_BIND) == 5);

    asked.limit = 64 * KIB;
    sublet_status status = plan(&told, &asked, &planned);
    CHECK(status == SUBLET_STATUS_IMPOSSIBLE_LIMIT && error.got == 64 * KIB);
    asked.limit = error.needed;
    status = plan(&told, &asked, &planned);
    if (status == SUBLET_STATUS_OVER_LIMIT) {
        asked.limit = error.needed;
        status = plan(&told, &asked, &planned);
    }
    CHECK(status == SUBLET_STATUS_OK);

    /* On a device, memories that are not used are copied to the host. */
    sublet_network on_device = told;
    sublet_device device = {.struct_size = sizeof device, .out_latency = 1, .in_latency = 1};
    on_device.device = &device;
    asked.limit = 130 * KIB;
    asked.means = SUBLET_MEANS_SWAP;
    make_room(&on_device, &asked);
    WORKS(plan(&on_device, &asked, &planned));
    CHECK(count(&planned, SUBLET_ACTION_COPY_OUT) == 1 && count(&planned, SUBLET_ACTION_COPY_IN) == 1);
    CHECK(planned.run.host_bytes == 64 * KIB);
    on_device.device = NULL;
    CHECK(plan(&on_device, &asked, &planned) == SUBLET_STATUS_IMPOSSIBLE_LIMIT);
}

/* Operator 1 fills memory 1, of which operator 2 writes a part: to make it anew, both run, one after the other. */
static void what_others_write_later(void) {
    static const sublet_memory of[] = {{KIB, 0, 0}, {64 * KIB, 0, 0}, {64 * KIB, 0, 0}, {64 * KIB, 0, 0}};
    static const sublet_layer layers[] = {{1000, SUBLET_OPERATOR_ONCE, 0}, {1000, 0, 0}, {1000, 0, 0}, {1000, 0, 0},
                                          {1000, 0, 0}, {1000, 0, 0}, {1000, 0, 0}};
    sublet_access uses[] = {
        {0, 0, WRITE}, {1, 1, SUBLET_USE_OVERWRITE}, {2, 0, READ}, {2, 1, WRITE}, {3, 1, READ}, {3, 2, WRITE},
        {4, 2, READ},  {4, 3, WRITE}, {5, 3, READ}, {6, 1, READ}, {6, 0, READ},
    };
    for (uint32_t first = 1; first <= 2; ++first) {
        /* Operator 2 by itself is enough where it writes every byte. */
        uses[3].how = first == 1 ? WRITE : SUBLET_USE_OVERWRITE;
        const sublet_network told = {.struct_size = sizeof told, .memories = of, .memory_count = COUNT(of),
                                     .operators = layers, .operator_count = COUNT(layers), .accesses = uses,
                                     .access_count = COUNT(uses)};
        const sublet_network_params asked = {.struct_size = sizeof asked, .limit = 130 * KIB};
        sublet_network_planned planned = {.struct_size = sizeof planned};
        make_room(&told, &asked);
        WORKS(plan(&told, &asked, &planned));
        uint32_t next = first;
        for (size_t i = 0; i < planned.step_count; ++i) {
            if (steps[i].action == SUBLET_ACTION_RUN) {
                CHECK(steps[i].subject == next);
                next += 1;
            }
        }
        CHECK(next == 3 && planned.peak <= 130 * KIB);
    }
}

static void what_is_wrong(void) {
    sublet_network told = network();
    sublet_network_params asked = {.struct_size = sizeof asked};
    sublet_network_planned planned = {.struct_size = sizeof planned};
    make_room(&told, NULL);
    FAILS(SUBLET_STATUS_NULL_POINTER, 0, 0, 0, plan(NULL, NULL, &planned));
    FAILS(SUBLET_STATUS_NULL_POINTER, 2, 0, 0, sublet_network_workspace(&told, NULL, NULL, &layout, &error));
    FAILS(SUBLET_STATUS_NULL_POINTER, 3, 0, 0, sublet_network_workspace(&told, NULL, &capacity, NULL, &error));
    FAILS(SUBLET_STATUS_WORKSPACE_TOO_SMALL, 2, layout.size, layout.size - 8,
          sublet_network_plan(&told, NULL, workspace, layout.size - 8, steps, capacity, NULL, &error));
    FAILS(SUBLET_STATUS_BUFFER_TOO_SMALL, 4, capacity, capacity - 1,
          sublet_network_plan(&told, NULL, workspace, layout.size, steps, capacity - 1, NULL, &error));
    asked.means = SUBLET_MEANS_RELU;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 1, 0, SUBLET_MEANS_RELU, plan(&told, &asked, &planned));
    asked.means = 0;
    asked.alignment = 48;
    FAILS(SUBLET_STATUS_ALIGNMENT, UINT32_MAX, 0, 48, plan(&told, &asked, &planned));
    told.reserved = 1;
    FAILS(SUBLET_STATUS_UNKNOWN_VALUE, 0, 0, 1, plan(&told, NULL, &planned));
    told = network();
    told.memories = NULL;
    FAILS(SUBLET_STATUS_MISSING_FIELD, 0, 0, offsetof(sublet_network, memories), plan(&told, NULL, &planned));
    told = network();
    told.accesses = ODD(&asked);
    FAILS(SUBLET_STATUS_MISALIGNED_FIELD, 0, 4, offsetof(sublet_network, accesses), plan(&told, NULL, &planned));
    told = network();
    told.operator_count = SIZE_MAX;
    CHECK(plan(&told, NULL, &planned) == SUBLET_STATUS_LENGTH_OVERFLOW && error.index == 0 && error.got == SIZE_MAX);

    /* One access after the others is wrong. */
    sublet_access wrong[COUNT(accesses) + 1];
    told = network();
    told.accesses = wrong;
    told.access_count = COUNT(wrong);
    make_room(&told, NULL);
    memcpy(wrong, accesses, sizeof accesses);
    sublet_access *last = &wrong[COUNT(accesses)];
    *last = (sublet_access){4, 5, READ};
    FAILS(SUBLET_STATUS_ACCESS_UNKNOWN_MEMORY, COUNT(accesses), 0, 0, plan(&told, NULL, &planned));
    *last = (sublet_access){5, 0, READ};
    FAILS(SUBLET_STATUS_ACCESS_UNKNOWN_OPERATOR, COUNT(accesses), 0, 0, plan(&told, NULL, &planned));
    *last = (sublet_access){3, 0, READ};
    FAILS(SUBLET_STATUS_ACCESS_OUT_OF_ORDER, COUNT(accesses), 0, 0, plan(&told, NULL, &planned));
    *last = (sublet_access){4, 0, 3};
    FAILS(SUBLET_STATUS_NETWORK_UNKNOWN_VALUE, COUNT(accesses), 0, 3, plan(&told, NULL, &planned));
    const sublet_memory memory = {64, 4, 0};
    told = network();
    told.memories = &memory;
    told.memory_count = 1;
    FAILS(SUBLET_STATUS_NETWORK_UNKNOWN_VALUE, 0, 0, 4, plan(&told, NULL, &planned));
    const sublet_layer operator_ = {0, SUBLET_OPERATOR_IN_PLACE, 0};
    told = network();
    told.operators = &operator_;
    told.operator_count = 1;
    FAILS(SUBLET_STATUS_NETWORK_UNKNOWN_VALUE, 0, 0, SUBLET_OPERATOR_IN_PLACE, plan(&told, NULL, &planned));
}

void test_tensors_that_stay(void) {
    without_a_limit();
    within_a_limit();
    what_others_write_later();
    what_is_wrong();
    free(workspace);
    free(steps);
}
