/* A network trains by a plan that runs: the runtime does the copies and tells, operator by operator, what to launch and
 * where its blocks lie. Here the host is the device, so that no GPU is needed; with one, the stream of each launch is the
 * GPU's. The weights are the same, bit for bit, as without a plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sublet.h>
#include <sublet_relu.h>
#include <sublet_runtime.h>

enum { LAYERS = 6, FLOATS = 1 << 16, BYTES = FLOATS * 4, WORDS = FLOATS / 32, ROUNDS = 4, LIMIT = 8 * BYTES };
enum { BLOCKS = 64, OPS = 64, ROWS = 512 };
enum kind { LOAD, SCALE, RELU, LOSS, RELU_GRADIENT, SCALE_GRADIENT };
#define NONE UINT32_MAX
#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != SUBLET_STATUS_OK) {                                                          \
            printf("%s: %s\n", #call, sublet_status_string(error.status));                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* An operator reads in[0], in[1] and the weight, updates the weight, and writes `out`. Blocks 0 to LAYERS - 1 are weights. */
static struct op { enum kind kind; uint32_t in[2], weight, out; } ops[OPS];
static uint32_t op_count, block_count = LAYERS;
static sublet_error error;

static uint32_t add(enum kind kind, uint32_t first, uint32_t second, uint32_t weight) {
    ops[op_count++] = (struct op){kind, {first, second}, weight, block_count};
    return block_count++;
}

static void build(void) {
    uint32_t x[LAYERS + 1] = {add(LOAD, NONE, NONE, NONE)};
    for (uint32_t i = 0; i < LAYERS; ++i) x[i + 1] = add(RELU, add(SCALE, x[i], i, NONE), NONE, NONE);
    uint32_t d = add(LOSS, x[LAYERS], NONE, NONE);
    for (uint32_t i = LAYERS; i-- > 0;) d = add(SCALE_GRADIENT, add(RELU_GRADIENT, d, x[i + 1], NONE), x[i], i);
}

/* One launch: the operator, and where its blocks and masks are, by block; NULL for one that it does not use. */
struct call {
    uint32_t op, round, mask_only;
    float *at[BLOCKS];
    uint32_t *mask[BLOCKS];
};

static void compute(const struct call *call) {
    static uint32_t unused[WORDS];
    static float values[FLOATS];
    const struct op *op = &ops[call->op];
    const float *a = op->in[0] == NONE ? NULL : call->at[op->in[0]], *b = op->in[1] == NONE ? NULL : call->at[op->in[1]];
    float *out = call->at[op->out], *w = op->weight == NONE ? NULL : call->at[op->weight];
    uint32_t *mask = call->mask[op->kind == RELU_GRADIENT ? op->in[1] : op->out]; /* a bit for each element, or NULL */
    sublet_status status = SUBLET_STATUS_OK;
    if (call->mask_only) { /* of a block that the ReLU has read or written */
        uint32_t of = call->mask[op->out] != NULL ? op->out : op->in[0];
        status = sublet_relu_forward(call->at[of], FLOATS, NULL, values, call->mask[of], WORDS, NULL);
    } else if (op->kind == RELU) {
        status = sublet_relu_forward(a, FLOATS, NULL, out, mask != NULL ? mask : unused, WORDS, NULL);
    } else if (op->kind == RELU_GRADIENT && mask != NULL) {
        status = sublet_relu_backward(a, FLOATS, mask, WORDS, NULL, out, NULL);
    } else {
        for (uint32_t j = 0; j < FLOATS; ++j) {
            switch (op->kind) {
            case LOAD: out[j] = (float)((j * 7 + call->round) % 13) / 13.0f - 0.4f; break;
            case SCALE: out[j] = a[j] * b[j] - 0.05f; break;
            case LOSS: out[j] = a[j] - 0.5f; break;
            case RELU_GRADIENT: out[j] = b[j] > 0 ? a[j] : 0; break;
            default: {
                float gradient = a[j], weight = w[j];
                w[j] = weight - 0.01f * gradient * b[j];
                out[j] = gradient * weight;
            }
            }
        }
    }
    if (status != SUBLET_STATUS_OK) abort();
}

/* Called by the runtime when all that the operator depends on is done. */
static void called(void *data) {
    compute(data);
    free(data);
}

static size_t record(sublet_row *rows, sublet_operator *known) {
    sublet_layout layout;
    sublet_recorder *recorder;
    uint32_t block, last[BLOCKS] = {0};
    size_t count;
    TRY(sublet_recorder_workspace(ROWS, &layout, &error));
    void *workspace = malloc(layout.size);
    TRY(sublet_recorder_create(ROWS, workspace, layout.size, &recorder, &error));
    for (uint32_t b = 0; b < LAYERS; ++b) TRY(sublet_recorder_malloc(recorder, 0, BYTES, &block, &error));
    for (uint32_t k = 0; k < op_count; ++k) {
        last[ops[k].out] = k;
        for (int i = 0; i < 2; ++i) if (ops[k].in[i] != NONE) last[ops[k].in[i]] = k;
    }
    for (uint32_t k = 0; k < op_count; ++k) {
        const struct op *op = &ops[k];
        const uint32_t reads[] = {op->in[0], op->in[1], op->weight}, used[] = {op->in[0], op->in[1], op->out};
        uint64_t begin = 1 + k * 10000u, end = begin + 10000; /* ns, which a framework measures */
        TRY(sublet_recorder_malloc(recorder, begin, BYTES, &block, &error));
        TRY(sublet_recorder_begin_op(recorder, &error));
        for (int i = 0; i < 3; ++i) if (reads[i] != NONE) TRY(sublet_recorder_read(recorder, begin, reads[i], &error));
        if (op->weight != NONE) TRY(sublet_recorder_write(recorder, end, op->weight, &error));
        TRY(sublet_recorder_write(recorder, end, op->out, &error));
        TRY(sublet_recorder_end_op(recorder, &error));
        for (int i = 0; i < 3; ++i) {
            int ends = used[i] != NONE && used[i] >= LAYERS && last[used[i]] == k;
            if (ends) TRY(sublet_recorder_free(recorder, end, used[i], &error));
        }
        known[k].flags = op->kind == LOAD || op->kind == SCALE_GRADIENT ? SUBLET_OPERATOR_ONCE : 0;
        known[k].kind = op->kind == RELU ? SUBLET_OPERATOR_KIND_RELU
                                         : op->kind == RELU_GRADIENT ? SUBLET_OPERATOR_KIND_RELU_BACKWARD : 0;
    }
    TRY(sublet_recorder_rows(recorder, rows, ROWS, &count, NULL, &error));
    free(workspace);
    return count;
}

int main(void) {
    static sublet_row recorded[ROWS];
    static sublet_operator known[OPS];
    build();
    sublet_trace trace = {.struct_size = sizeof trace, .rows = recorded, .row_count = record(recorded, known),
                          .operators = known, .operator_count = op_count, .block_count = block_count};

    sublet_fit_lengths lengths;
    sublet_layout layout;
    TRY(sublet_fit_lengths_of(&trace, &lengths, &error));
    sublet_row *rows = malloc(lengths.rows * sizeof *rows);
    uint64_t *offsets = malloc(lengths.residencies * sizeof *offsets);
    sublet_fit_output output = {.struct_size = sizeof output, .rows = rows, .row_capacity = lengths.rows,
                                .offsets = offsets, .residency_capacity = lengths.residencies};
    TRY(sublet_fit_workspace(&trace, &output, &layout, &error));
    void *workspace = malloc(layout.size);
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    TRY(sublet_fit(&trace, LIMIT, NULL, workspace, layout.size, &output, &fitted, &error));
    free(workspace);

    /* Without a plan: every block has memory of its own. */
    struct call whole = {0};
    float *weights[LAYERS];
    for (uint32_t b = 0; b < block_count; ++b) whole.at[b] = malloc(BYTES);
    for (uint32_t b = 0; b < LAYERS; ++b) {
        for (uint32_t j = 0; j < FLOATS; ++j) whole.at[b][j] = 0.7f + (float)(j * (b + 3) % 7) / 8.0f;
        weights[b] = memcpy(malloc(BYTES), whole.at[b], BYTES);
    }
    for (whole.round = 0; whole.round < ROUNDS; ++whole.round)
        for (whole.op = 0; whole.op < op_count; ++whole.op) compute(&whole);

    /* By the plan. */
    const sublet_schedule schedule = {.struct_size = sizeof schedule, .rows = rows, .row_count = fitted.row_count,
                                      .offsets = offsets, .residency_count = fitted.residency_count};
    const sublet_runtime_params params = {.struct_size = sizeof params, .on_host = 1};
    sublet_runtime *runtime;
    uint64_t arena;
    TRY(sublet_runtime_create(&trace, &schedule, &params, &runtime, &error));
    TRY(sublet_runtime_arena(runtime, NULL, &arena, &error));
    for (uint32_t b = 0; b < LAYERS; ++b)
        TRY(sublet_runtime_write(runtime, b, (const uint8_t *)weights[b], BYTES, &error));
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        if (round == ROUNDS - 1) TRY(sublet_runtime_measure(runtime, &error));
        for (;;) {
            sublet_launch launch = {.struct_size = sizeof launch};
            TRY(sublet_runtime_next(runtime, &launch, &error)); /* after a failure: sublet_runtime_restart */
            if (launch.ended) break;
            struct call *call = calloc(1, sizeof *call);
            call->op = launch.op, call->round = round, call->mask_only = launch.mask_only;
            for (size_t i = 0; i < launch.operand_count; ++i) {
                const sublet_operand *o = &launch.operands[i];
                void *address = (void *)(uintptr_t)o->address;
                if (o->mask) call->mask[o->block] = address;
                else call->at[o->block] = address;
            }
            TRY(sublet_runtime_call(runtime, called, call, &error));
        }
    }
    TRY(sublet_runtime_finish(runtime, &error)); /* only now are the last operators done */
    sublet_measured measured = {.struct_size = sizeof measured};
    TRY(sublet_runtime_measured(runtime, &measured, &error));
    int same = measured.time_ns > 0 && sublet_relu_mask_words(FLOATS) == WORDS;
    for (uint32_t b = 0; b < LAYERS; ++b) {
        TRY(sublet_runtime_read(runtime, b, (uint8_t *)weights[b], BYTES, &error));
        same &= memcmp(weights[b], whole.at[b], BYTES) == 0;
        free(weights[b]);
    }
    sublet_runtime_destroy(runtime);
    for (uint32_t b = 0; b < block_count; ++b) free(whole.at[b]);
    free(rows), free(offsets);
    printf("%s weights from an arena of %d KiB, where %d are alive without a plan\n", same ? "the same" : "OTHER",
           (int)(arena >> 10), (int)(fitted.original_peak >> 10));
    return !same;
}
