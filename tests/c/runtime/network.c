/* A network that trains by plans: within half its memory, then with all of it, then with half again. */
#include "tests.h"

#define LAYERS 8u
#define FLOATS 16384u
#define WORDS (FLOATS / 32)
#define BYTES (FLOATS * sizeof(float))
#define BLOCKS (3 * LAYERS + 1)
#define ROWS (16 * LAYERS)
#define FIRST SUBLET_OP_KIND_FIRST

/* Weights are the first blocks, then activations, then gradients. */
#define ACTIVATION(i) (LAYERS + (i))
#define GRADIENT(i) (2 * LAYERS + 1 + (i))

static sublet_row recorded[ROWS];
static size_t row_count;

static void row(uint64_t now, uint32_t event, uint32_t block, uint32_t op, uint32_t kind) {
    CHECK(row_count < ROWS);
    recorded[row_count++] = (sublet_row){.time_ns = now, .event = event, .block = block, .op = op, .op_kind = kind,
                                         .bytes = event == SUBLET_EVENT_MALLOC ? BYTES : 0};
}

static void record(void) {
    uint64_t now = 1;
    row_count = 0;
    for (uint32_t w = 0; w < LAYERS; ++w) {
        row(0, SUBLET_EVENT_MALLOC, w, 0, 0);
    }
    row(now, SUBLET_EVENT_MALLOC, ACTIVATION(0), 0, 0);
    row(now, SUBLET_EVENT_WRITE, ACTIVATION(0), 0, 0);
    for (uint32_t i = 0; i < LAYERS; ++i) {
        row(now, SUBLET_EVENT_MALLOC, ACTIVATION(i + 1), i, FIRST);
        row(now, SUBLET_EVENT_READ, ACTIVATION(i), i, FIRST);
        row(now, SUBLET_EVENT_READ, i, i, FIRST);
        now += 20000;
        row(now, SUBLET_EVENT_WRITE, ACTIVATION(i + 1), i, FIRST);
    }
    for (uint32_t i = LAYERS; i-- > 0;) {
        uint32_t op = 2 * LAYERS - 1 - i;
        row(now, SUBLET_EVENT_MALLOC, GRADIENT(i), op, FIRST);
        row(now, SUBLET_EVENT_READ, ACTIVATION(i), op, FIRST);
        row(now, SUBLET_EVENT_READ, ACTIVATION(i + 1), op, FIRST);
        row(now, SUBLET_EVENT_READ, i, op, FIRST);
        if (i + 1 < LAYERS) {
            row(now, SUBLET_EVENT_READ, GRADIENT(i + 1), op, FIRST);
        }
        now += 40000;
        row(now, SUBLET_EVENT_WRITE, GRADIENT(i), op, FIRST);
        row(now, SUBLET_EVENT_WRITE, i, op, FIRST);
        row(now, SUBLET_EVENT_FREE, ACTIVATION(i + 1), 0, 0);
        if (i + 1 < LAYERS) {
            row(now, SUBLET_EVENT_FREE, GRADIENT(i + 1), 0, 0);
        }
    }
    row(now, SUBLET_EVENT_FREE, ACTIVATION(0), 0, 0);
    row(now, SUBLET_EVENT_FREE, GRADIENT(0), 0, 0);
}

/* One operator, and where its blocks are. */
struct call {
    uint32_t op, kind, iteration;
    float *at[BLOCKS];
};

static void compute(struct call *call) {
    uint32_t op = call->op;
    if (call->kind != FIRST) {
        float *x = call->at[ACTIVATION(0)];
        for (uint32_t j = 0; j < FLOATS; ++j) {
            x[j] = (float)((j * 7 + call->iteration) % 13) / 13.0f;
        }
    } else if (op < LAYERS) {
        const float *x = call->at[ACTIVATION(op)], *w = call->at[op];
        float *y = call->at[ACTIVATION(op + 1)];
        for (uint32_t j = 0; j < FLOATS; ++j) {
            y[j] = x[j] * w[j] - 0.05f;
        }
        static uint32_t mask[WORDS];
        CHECK(sublet_relu_forward(y, FLOATS, NULL, y, mask, WORDS, NULL) == SUBLET_STATUS_OK);
    } else {
        uint32_t i = 2 * LAYERS - 1 - op;
        const float *x = call->at[ACTIVATION(i)], *y = call->at[ACTIVATION(i + 1)];
        const float *dy = i + 1 < LAYERS ? call->at[GRADIENT(i + 1)] : y;
        float *w = call->at[i], *dx = call->at[GRADIENT(i)];
        for (uint32_t j = 0; j < FLOATS; ++j) {
            float stopped = y[j] > 0 ? dy[j] : 0;
            dx[j] = stopped * w[j];
            w[j] -= 0.01f * stopped * x[j];
        }
    }
}

static void called(void *data) {
    compute(data);
    free(data);
}

/* The recorded order of operators, each block in memory of its own. */
static void unplanned(float **at, uint32_t iteration) {
    for (uint32_t k = 0; k <= 2 * LAYERS; ++k) {
        struct call call = {.op = k == 0 ? 0 : k - 1, .kind = k == 0 ? 0 : FIRST, .iteration = iteration};
        memcpy(call.at, at, sizeof call.at);
        compute(&call);
    }
}

/* A plan within so many percent of the peak. */
struct plan {
    sublet_row *rows;
    uint64_t *offsets;
    sublet_fitted fitted;
};

static sublet_trace trace(void) {
    return (sublet_trace){.struct_size = sizeof(sublet_trace), .rows = recorded, .row_count = row_count,
                          .block_count = BLOCKS};
}

static struct plan fit(uint64_t percent) {
    const sublet_trace iteration = trace();
    sublet_fit_lengths lengths;
    sublet_layout layout;
    struct plan plan = {.fitted = {.struct_size = sizeof(sublet_fitted)}};
    WORKS(sublet_fit_lengths_of(&iteration, &lengths, &error));
    plan.rows = malloc(lengths.rows * sizeof *plan.rows);
    plan.offsets = malloc(lengths.residencies * sizeof *plan.offsets);
    const sublet_fit_output output = {.struct_size = sizeof output, .rows = plan.rows, .row_capacity = lengths.rows,
                                      .offsets = plan.offsets, .residency_capacity = lengths.residencies};
    WORKS(sublet_fit_workspace(&iteration, &output, &layout, &error));
    void *workspace = malloc(layout.size);
    sublet_fit_params params = {.struct_size = sizeof params, .least_bytes = 1};
    uint64_t peak = (2 * LAYERS + 2) * BYTES;
    WORKS(sublet_fit(&iteration, peak * percent / 100, &params, workspace, layout.size, &output, &plan.fitted, &error));
    CHECK(plan.fitted.original_peak == peak && (plan.fitted.run.swapped_bytes > 0) == (percent < 100));
    free(workspace);
    return plan;
}

static sublet_schedule schedule(const struct plan *plan) {
    return (sublet_schedule){.struct_size = sizeof(sublet_schedule), .rows = plan->rows,
                             .row_count = plan->fitted.row_count, .offsets = plan->offsets,
                             .residency_count = plan->fitted.residency_count};
}

static void iterate(sublet_runtime *runtime, uint32_t iteration) {
    for (;;) {
        sublet_launch launch = {.struct_size = sizeof launch};
        WORKS(sublet_runtime_next(runtime, &launch, &error));
        if (launch.ended) {
            return;
        }
        struct call *call = calloc(1, sizeof *call);
        call->op = launch.op;
        call->kind = launch.op_kind;
        call->iteration = iteration;
        for (size_t i = 0; i < launch.operand_count; ++i) {
            call->at[launch.operands[i].block] = (float *)(uintptr_t)launch.operands[i].address;
        }
        WORKS(sublet_runtime_call(runtime, called, call, &error));
    }
}

void test_network_on(uint32_t on_host) {
    record();
    struct plan half = fit(50), whole = fit(100);
    float *at[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; ++b) {
        at[b] = calloc(FLOATS, sizeof(float));
        for (uint32_t j = 0; b < LAYERS && j < FLOATS; ++j) {
            at[b][j] = 1.0f + (float)((j + b) % 5) / 10.0f;
        }
    }
    sublet_runtime_params params = {.struct_size = sizeof params, .on_host = on_host, .memory = 1 << 24};
    sublet_runtime *runtime = NULL;
    const sublet_trace network = trace();
    const sublet_schedule within_half = schedule(&half), within_all = schedule(&whole);
    WORKS(sublet_runtime_create(&network, &within_half, &params, &runtime, &error));
    for (uint32_t w = 0; w < LAYERS; ++w) {
        WORKS(sublet_runtime_write(runtime, w, (const uint8_t *)at[w], BYTES, &error));
    }
    uint64_t address = 0, size = 0, later = 0;
    WORKS(sublet_runtime_arena(runtime, &address, &size, &error));
    for (uint32_t iteration = 0; iteration < 12; ++iteration) {
        if (iteration == 4 || iteration == 8) {
            const sublet_schedule *next = iteration == 4 ? &within_all : &within_half;
            WORKS(sublet_runtime_replan(runtime, &network, next, NULL, &error));
            WORKS(sublet_runtime_arena(runtime, &later, &size, &error));
            CHECK(later == address && size >= whole.fitted.peak);
        }
        iterate(runtime, iteration);
        unplanned(at, iteration);
    }
    float *weight = malloc(BYTES);
    for (uint32_t w = 0; w < LAYERS; ++w) {
        WORKS(sublet_runtime_read(runtime, w, (uint8_t *)weight, BYTES, &error));
        CHECK(memcmp(weight, at[w], BYTES) == 0);
        CHECK(weight[1] != 1.0f + (float)((1 + w) % 5) / 10.0f); /* it has learned */
    }
    free(weight);
    sublet_runtime_destroy(runtime);
    for (uint32_t b = 0; b < BLOCKS; ++b) {
        free(at[b]);
    }
    free(half.rows);
    free(half.offsets);
    free(whole.rows);
    free(whole.offsets);
}
