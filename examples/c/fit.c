/* A network trains in less memory: its iteration is recorded, sublet_fit rewrites it within a limit, and the rows that it
 * writes are followed one by one, here on the host. The weights are the same, bit for bit, as without a plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sublet.h>

enum { LAYERS = 6, FLOATS = 1 << 16, BYTES = FLOATS * 4, KEPT = 2 * LAYERS };
enum { BLOCKS = 64, OPS = 64, ROWS = 512, ROUNDS = 3, LIMIT = 8 * BYTES };
enum kind { LOAD, SCALE, RELU, LOSS, RELU_GRADIENT, SCALE_GRADIENT };
#define NONE UINT32_MAX
#define TRY(call)                                                              \
    do {                                                                       \
        if ((call) != SUBLET_STATUS_OK) {                                      \
            printf("%s: %s\n", #call, sublet_status_string(error.status));     \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

/* An operator reads the blocks in[0], in[1] and `state`, writes `state`, and at last `out`. The first KEPT blocks persist
 * from one iteration to the next: a weight of each layer, then a running mean of each. */
static struct op { enum kind kind; uint32_t in[2], state, out; } ops[OPS];
static uint32_t op_count, block_count = KEPT, iteration;
static float *at[2 * BLOCKS]; /* where each block lies and, from block_count on, the mask of each */
static sublet_error error;

/* Without a state, none is updated. With a mask, its bits tell where the second input is positive. The output may lie over
 * the first input, as each element is read before it is written. */
static void compute(const struct op *op, float *state, const unsigned char *mask) {
    const float *a = op->in[0] == NONE ? NULL : at[op->in[0]], *b = op->in[1] == NONE ? NULL : at[op->in[1]];
    float *out = at[op->out];
    if (op->kind == SCALE && state != NULL) *state = 0.9f * *state + 0.1f * a[0];
    for (uint32_t j = 0; j < FLOATS; ++j) {
        switch (op->kind) {
        case LOAD: out[j] = (float)((j * 7 + iteration) % 13) / 13.0f - 0.4f; break;
        case SCALE: out[j] = a[j] * b[j] - 0.05f; break;
        case RELU: out[j] = a[j] > 0 ? a[j] : 0; break;
        case LOSS: out[j] = a[j] - 0.5f; break;
        case RELU_GRADIENT: out[j] = (mask != NULL ? mask[j / 8] >> j % 8 & 1 : b[j] > 0) ? a[j] : 0; break;
        case SCALE_GRADIENT: {
            float gradient = a[j], weight = state[j];
            state[j] = weight - 0.01f * gradient * b[j];
            out[j] = gradient * weight;
        }
        }
    }
}

static uint32_t add(enum kind kind, uint32_t first, uint32_t second, uint32_t state) {
    ops[op_count++] = (struct op){kind, {first, second}, state, block_count};
    return block_count++;
}

static void build(void) {
    uint32_t x[LAYERS + 1] = {add(LOAD, NONE, NONE, NONE)};
    for (uint32_t i = 0; i < LAYERS; ++i) x[i + 1] = add(RELU, add(SCALE, x[i], i, LAYERS + i), NONE, NONE);
    uint32_t d = add(LOSS, x[LAYERS], NONE, NONE);
    for (uint32_t i = LAYERS; i-- > 0;) d = add(SCALE_GRADIENT, add(RELU_GRADIENT, d, x[i + 1], NONE), x[i], i);
}

static size_t bytes_of(uint32_t block) { return block >= LAYERS && block < KEPT ? sizeof(float) : BYTES; }

/* As if the network ran: each call stands where a framework allocates, frees, or runs an operator. */
static size_t record(sublet_row *rows, sublet_operator *known) {
    sublet_layout layout;
    sublet_recorder *recorder;
    uint32_t block, last[BLOCKS];
    size_t count;
    TRY(sublet_recorder_workspace(ROWS, &layout, &error));
    void *workspace = malloc(layout.size);
    TRY(sublet_recorder_create(ROWS, workspace, layout.size, &recorder, &error));
    /* What is allocated at time 0 and never freed persists; all else is allocated later. */
    for (uint32_t b = 0; b < KEPT; ++b) TRY(sublet_recorder_malloc(recorder, 0, bytes_of(b), &block, &error));
    for (uint32_t k = 0; k < op_count; ++k) last[ops[k].out] = k;
    for (uint32_t k = 0; k < 2 * op_count; ++k) if (ops[k / 2].in[k % 2] != NONE) last[ops[k / 2].in[k % 2]] = k / 2;
    for (uint32_t k = 0; k < op_count; ++k) {
        const struct op *op = &ops[k];
        const uint32_t reads[] = {op->in[0], op->in[1], op->state}, used[] = {op->in[0], op->in[1], op->out};
        uint64_t begin = 1 + k * 10000u, end = begin + 10000; /* ns, which a framework measures */
        TRY(sublet_recorder_malloc(recorder, begin, BYTES, &block, &error)); /* its number is op->out */
        TRY(sublet_recorder_begin_op(recorder, &error));
        for (int i = 0; i < 3; ++i) if (reads[i] != NONE) TRY(sublet_recorder_read(recorder, begin, reads[i], &error));
        if (op->state != NONE) TRY(sublet_recorder_write(recorder, end, op->state, &error));
        TRY(sublet_recorder_write(recorder, end, op->out, &error));
        TRY(sublet_recorder_end_op(recorder, &error));
        for (int i = 0; i < 3; ++i) {
            int ends = used[i] != NONE && used[i] >= KEPT && last[used[i]] == k;
            if (ends) TRY(sublet_recorder_free(recorder, end, used[i], &error));
        }
        /* LOAD would read other data. SCALE_GRADIENT needs the weight that it updates, which a recomputation does not get.
         * SCALE updates a mean too, but does not need it for its output: it may be recomputed. */
        known[k].flags = (op->kind == LOAD || op->kind == SCALE_GRADIENT ? SUBLET_OPERATOR_ONCE : 0) |
                         (op->kind == RELU || op->kind == RELU_GRADIENT ? SUBLET_OPERATOR_IN_PLACE : 0);
        known[k].kind = op->kind == RELU ? SUBLET_OPERATOR_KIND_RELU
                                         : op->kind == RELU_GRADIENT ? SUBLET_OPERATOR_KIND_RELU_BACKWARD : 0;
    }
    TRY(sublet_recorder_rows(recorder, rows, ROWS, &count, NULL, &error));
    free(workspace);
    return count;
}

/* How often each means was met. */
static int copies, recomputed, in_place, masks;

/* Runs one iteration by its rows. there[b] tells at its end whether block b is on the device. */
static void follow(const sublet_row *rows, size_t count, const uint64_t *offsets, char *arena, char **host, char *there) {
    size_t size[2 * BLOCKS];
    const unsigned char *mask = NULL;
    for (const sublet_row *row = rows; row < rows + count; ++row) {
        uint32_t b = row->block;
        switch (row->event) {
        case SUBLET_EVENT_MALLOC: /* Each has an offset. The bytes there stay as they are: see below, and main. */
            at[b] = (float *)(arena + *offsets++);
            size[b] = row->bytes;
            there[b] = 1;
            break;
        case SUBLET_EVENT_FREE:
            /* An operator works in place if, between its reads and its write, its first input is freed and then its first
             * output is allocated at the same address, in rows of the kind NONE. It still needs what lies there. */
            there[b] = 0;
            break;
        case SUBLET_EVENT_SWAP_OUT: memcpy(host[b], at[b], size[b]), ++copies; break;
        case SUBLET_EVENT_SWAP_IN: memcpy(at[b], host[b], size[b]), ++copies; break;
        case SUBLET_EVENT_READ: /* From block_count on, the mask of block b - block_count, in place of that block. */
            if (b >= block_count) mask = (unsigned char *)at[b];
            break;
        case SUBLET_EVENT_WRITE:
            if (b >= block_count) { /* Right after a ReLU that has read or written the block: its mask is made. */
                unsigned char *bits = memset(at[b], 0, size[b]);
                for (uint32_t j = 0; j < FLOATS; ++j) bits[j / 8] |= (unsigned char)((at[b - block_count][j] > 0) << j % 8);
                ++masks;
            } else if (b == ops[row->op].out) { /* The last access of every operator here, so that it runs now. */
                /* A recomputation has no rows for a block that persists and that the operator reads and writes: its first
                 * run has updated that, and it must not be updated again. */
                const struct op *op = &ops[row->op];
                int again = row->op_kind == SUBLET_OP_KIND_RERUN;
                compute(op, op->state == NONE || again ? NULL : at[op->state], mask);
                mask = NULL;
                recomputed += again;
                in_place += op->in[0] != NONE && at[op->in[0]] == at[op->out];
            }
        }
    }
}

static void begin_values(float **values) {
    for (uint32_t b = 0; b < KEPT; ++b) {
        values[b] = calloc(1, bytes_of(b));
        for (uint32_t j = 0; b < LAYERS && j < FLOATS; ++j) values[b][j] = 0.7f + (float)(j * (b + 3) % 7) / 8.0f;
    }
}

int main(void) {
    static sublet_row recorded[ROWS];
    static sublet_operator known[OPS];
    build();
    sublet_trace trace = {.struct_size = sizeof trace, .rows = recorded, .row_count = record(recorded, known),
                          .operators = known, .operator_count = op_count, .block_count = block_count};

    sublet_fit_lengths lengths;
    TRY(sublet_fit_lengths_of(&trace, &lengths, &error));
    sublet_fit_output output = {.struct_size = sizeof output, .row_capacity = lengths.rows,
                                .residency_capacity = lengths.residencies};
    sublet_row *rows = output.rows = malloc(lengths.rows * sizeof *rows);
    uint64_t *offsets = output.offsets = malloc(lengths.residencies * sizeof *offsets);
    sublet_layout layout;
    TRY(sublet_fit_workspace(&trace, &output, &layout, &error));
    void *workspace = malloc(layout.size);
    sublet_fitted fitted = {.struct_size = sizeof fitted};
    TRY(sublet_fit(&trace, LIMIT, NULL, workspace, layout.size, &output, &fitted, &error));

    /* Without a plan: every block has memory of its own. */
    float *expected[KEPT], *values[KEPT];
    begin_values(expected);
    for (uint32_t b = 0; b < block_count; ++b) at[b] = b < KEPT ? expected[b] : malloc(BYTES);
    for (iteration = 0; iteration < ROUNDS; ++iteration)
        for (uint32_t k = 0; k < op_count; ++k) compute(&ops[k], ops[k].state == NONE ? NULL : at[ops[k].state], NULL);
    for (uint32_t b = KEPT; b < block_count; ++b) free(at[b]);

    /* By the plan. A block that persists begins where its last malloc stands before any access and any copy, with its value
     * there. A block that has no such malloc begins on the host. A block may need both. */
    char *arena = malloc(fitted.peak), *host[2 * BLOCKS], there[2 * BLOCKS] = {0};
    float *begin[KEPT] = {NULL};
    size_t mallocs = 0;
    for (const sublet_row *row = rows; row->event == SUBLET_EVENT_MALLOC || row->event == SUBLET_EVENT_FREE; ++row) {
        float *place = row->event == SUBLET_EVENT_MALLOC ? (float *)(arena + offsets[mallocs++]) : NULL;
        if (row->block < KEPT) begin[row->block] = place;
    }
    begin_values(values);
    for (uint32_t b = 0; b < 2 * block_count; ++b) host[b] = malloc(BYTES);
    for (uint32_t b = 0; b < KEPT; ++b) memcpy(host[b], values[b], bytes_of(b));
    for (iteration = 0; iteration < ROUNDS; ++iteration) {
        /* Before each iteration the values go to where it begins. It may have ended with them at other offsets, where others
         * begin: so all are taken out first (below), then all are put in. */
        for (uint32_t b = 0; b < KEPT; ++b) if (begin[b] != NULL) memcpy(begin[b], values[b], bytes_of(b));
        follow(rows, fitted.row_count, offsets, arena, host, there);
        for (uint32_t b = 0; b < KEPT; ++b) memcpy(values[b], there[b] ? (char *)at[b] : host[b], bytes_of(b));
    }

    /* Every means was used. */
    int same = copies > 0 && recomputed > 0 && in_place > 0 && masks > 0;
    for (uint32_t b = 0; b < KEPT; ++b) {
        same &= memcmp(values[b], expected[b], bytes_of(b)) == 0;
        free(values[b]), free(expected[b]);
    }
    for (uint32_t b = 0; b < 2 * block_count; ++b) free(host[b]);
    free(arena), free(workspace), free(offsets), free(rows);
    printf("%s weights within %d KiB, where %d are alive without a plan\n", same ? "the same" : "OTHER", LIMIT >> 10,
           (int)(fitted.original_peak >> 10));
    return !same;
}
