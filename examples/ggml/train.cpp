// train [LAYERS WIDTH HEADS TOKENS VOCABULARY THREADS [STEPS]]: trains a small random transformer by ggml-opt, two batches a step
// whose gradients add up. Prints the bits of each loss, of the gradients and of the weights, and to standard error the compute
// buffer and the processor's time of a batch.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-opt.h"
#include "poison.hpp"

namespace {

uint32_t state = 1;

// From -1 to 1, the same ones everywhere.
float next() {
    state = state * 1664525 + 1013904223;
    return static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f;
}

uint64_t bits(const std::vector<ggml_tensor *> &tensors) {
    uint64_t hash = 1469598103934665603u; // FNV-1a
    for (ggml_tensor *t : tensors)
        for (size_t i = 0; i < ggml_nbytes(t); ++i) hash = (hash ^ static_cast<const unsigned char *>(t->data)[i]) * 1099511628211u;
    return hash;
}

struct model {
    const int layers, width, heads, tokens, vocabulary;
    ggml_context *weights = ggml_init({ggml_tensor_overhead() * 4096, nullptr, true});
    std::vector<ggml_tensor *> parameters = {};
    size_t used = 0;

    // The next weight: made at the first forward pass, the same at those that follow.
    ggml_tensor *weight(int64_t in, int64_t out) {
        if (used == parameters.size()) {
            parameters.push_back(out ? ggml_new_tensor_2d(weights, GGML_TYPE_F32, in, out) : ggml_new_tensor_1d(weights, GGML_TYPE_F32, in));
            ggml_set_param(parameters.back());
        }
        return parameters[used++];
    }

    ggml_tensor *norm(ggml_context *c, ggml_tensor *x) { return ggml_mul(c, ggml_rms_norm(c, x, 1e-5f), weight(width, 0)); }

    ggml_tensor *forward(ggml_context *c, ggml_tensor *input, ggml_tensor *positions) {
        used = 0;
        const int head = width / heads, inner = 4 * width;
        const auto split = [&](ggml_tensor *t) { return ggml_reshape_3d(c, t, head, heads, tokens); };
        const auto product = [&](ggml_tensor *x, int64_t out) { return ggml_mul_mat(c, weight(x->ne[0], out), x); };
        ggml_tensor *x = ggml_get_rows(c, weight(width, vocabulary), input);
        for (int layer = 0; layer < layers; ++layer) {
            ggml_tensor *n = norm(c, x);
            ggml_tensor *q = ggml_rope(c, split(product(n, width)), positions, head, 0);
            ggml_tensor *k = ggml_rope(c, split(product(n, width)), positions, head, 0);
            ggml_tensor *v = split(product(n, width));
            q = ggml_cont(c, ggml_permute(c, q, 0, 2, 1, 3));
            k = ggml_cont(c, ggml_permute(c, k, 0, 2, 1, 3));
            v = ggml_cont(c, ggml_permute(c, v, 1, 2, 0, 3));
            ggml_tensor *scores = ggml_scale(c, ggml_mul_mat(c, k, q), 1 / std::sqrt(static_cast<float>(head)));
            scores = ggml_soft_max(c, ggml_diag_mask_inf(c, scores, 0));
            ggml_tensor *mixed = ggml_cont(c, ggml_permute(c, ggml_mul_mat(c, v, scores), 0, 2, 1, 3));
            x = ggml_add(c, x, product(ggml_reshape_2d(c, mixed, width, tokens), width));
            n = norm(c, x);
            ggml_tensor *gate = ggml_silu(c, product(n, inner));
            x = ggml_add(c, x, product(ggml_mul(c, gate, product(n, inner)), width));
        }
        return product(norm(c, x), vocabulary);
    }
};

}

int main(int argc, char **argv) {
    const auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
    model of = {argument(1, 4), argument(2, 64), argument(3, 4), argument(4, 64), argument(5, 300)};
    const int steps = argument(7, 2);
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, argument(6, 1));
    ggml_backend_sched_t sched = ggml_backend_sched_new(&backend, nullptr, 1, 16384, false, true);
    ggml_opt_params params = ggml_opt_default_params(sched, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
    params.opt_period = 2;
    ggml_opt_context_t opt = ggml_opt_init(params);
    ggml_opt_result_t result = ggml_opt_result_init();

    std::vector<ggml_tensor *> gradients;
    for (int batch = 0; batch < 2 * steps; ++batch) {
        ggml_context *c = ggml_init({ggml_tensor_overhead() * 32768 + ggml_graph_overhead_custom(16384, true) * 3, nullptr, true});
        ggml_tensor *input = ggml_new_tensor_1d(c, GGML_TYPE_I32, of.tokens), *positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, of.tokens);
        ggml_set_input(positions);
        ggml_tensor *output = of.forward(c, input, positions);
        if (batch == 0) {
            ggml_backend_alloc_ctx_tensors(of.weights, backend);
            for (ggml_tensor *w : of.parameters)
                for (int64_t i = 0; i < ggml_nelements(w); ++i)
                    static_cast<float *>(w->data)[i] = w->ne[1] == 1 ? 1.0f : next() / std::sqrt(static_cast<float>(w->ne[0]));
        }
        ggml_cgraph *graph = ggml_new_graph_custom(c, 16384, true);
        ggml_build_forward_expand(graph, output);
        ggml_opt_prepare_alloc(opt, c, graph, input, output);
        ggml_opt_alloc(opt, true);
        if (batch == 0)
            for (ggml_tensor *w : of.parameters) gradients.push_back(ggml_opt_grad_acc(opt, w));
        auto *labels = static_cast<float *>(ggml_opt_labels(opt)->data);
        for (int64_t i = 0; i < ggml_nelements(output); ++i) labels[i] = 0;
        for (int i = 0; i < of.tokens; ++i) {
            static_cast<int32_t *>(input->data)[i] = (i * 7919 + 13 + 101 * batch) % of.vocabulary;
            static_cast<int32_t *>(positions->data)[i] = i;
            labels[i * of.vocabulary + (i * 31 + batch) % of.vocabulary] = 1;
        }
        ggml_opt_result_reset(result);
        const std::clock_t begin = std::clock();
        ggml_opt_eval(opt, result);
        const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        double loss;
        ggml_opt_result_loss(result, &loss, nullptr);
        std::printf("batch %d: loss %a, gradients %016llx, weights %016llx\n", batch, loss, static_cast<unsigned long long>(bits(gradients)),
                    static_cast<unsigned long long>(bits(of.parameters)));
        std::fprintf(stderr, "batch %d: compute buffer %.2f MiB, %.3f s\n", batch,
                     static_cast<double>(ggml_backend_sched_get_buffer_size(sched, backend)) / 1048576, seconds);
        ggml_free(c);
    }
    ggml_opt_result_free(result);
    ggml_opt_free(opt);
    ggml_backend_sched_free(sched);
    ggml_backend_free(backend);
    ggml_free(of.weights);
    return poison::filled > 0 ? 0 : 1;
}
