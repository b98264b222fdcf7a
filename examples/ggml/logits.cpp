// logits FOLDER: small random models of four architectures compute a prompt and a few tokens of two sequences, in all
// combinations of flash attention, ubatch, and one or two kinds of memory. For each a line with a hash of all logits' bits.
#include <cstdlib>
#include <cstring>

#include "llama.h"
#include "models.hpp"
#include "poison.hpp"
#include "twin.hpp"

// In place of the function in libggml-base: with CHUNK_KIB, buffers are at most so long, as they are on many GPUs.
extern "C" size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t) {
    const char *kib = std::getenv("CHUNK_KIB");
    return kib ? static_cast<size_t>(std::atol(kib)) << 10 : SIZE_MAX;
}

namespace {

constexpr int vocabulary = 500;

struct hash {
    uint64_t value = 1469598103934665603u; // FNV-1a
    size_t finite = 0, count = 0;

    void add(const float *logits) {
        for (int i = 0; i < vocabulary; ++i) {
            uint32_t bits;
            std::memcpy(&bits, logits + i, sizeof bits);
            value = (value ^ bits) * 1099511628211u;
            finite += std::isfinite(logits[i]) ? 1 : 0;
            ++count;
        }
    }
};

void add(llama_batch &batch, int token, int position, int sequence) {
    const int k = batch.n_tokens++;
    batch.token[k] = token;
    batch.pos[k] = position;
    batch.n_seq_id[k] = 1;
    batch.seq_id[k][0] = sequence;
    batch.logits[k] = 1;
}

void decode(llama_context *context, const llama_batch &batch, hash &all) {
    if (llama_decode(context, batch) != 0) throw std::runtime_error("llama_decode failed");
    for (int k = 0; k < batch.n_tokens; ++k) all.add(llama_get_logits_ith(context, k));
}

hash run(const char *path, bool flash, uint32_t ubatch, bool two) {
    ggml_backend_dev_t devices[] = {two ? twin::device() : nullptr, nullptr};
    llama_model_params of_model = llama_model_default_params();
    of_model.devices = devices;
    of_model.n_gpu_layers = two ? 2 : 0;
    of_model.use_extra_bufts = false;
    llama_model *model = llama_model_load_from_file(path, of_model);
    if (!model) throw std::runtime_error(std::string("cannot load ") + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024;
    params.n_batch = 512;
    params.n_ubatch = ubatch;
    params.n_seq_max = 2;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, params);
    if (!context) throw std::runtime_error("no context");

    hash all;
    llama_batch batch = llama_batch_init(512, 0, 1);
    const int lengths[] = {96, 57};
    for (int s = 0; s < 2; ++s)
        for (int i = 0; i < lengths[s]; ++i) add(batch, (i * 7919 + 13 + 101 * s) % vocabulary, i, s);
    decode(context, batch, all);
    for (int step = 0; step < 5; ++step) {
        batch.n_tokens = 0;
        for (int s = 0; s < 2; ++s) add(batch, (step * 31 + 7 * s) % vocabulary, lengths[s] + step, s);
        decode(context, batch, all);
    }
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    return all;
}

}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR || std::strstr(text, "by ggml")) std::fputs(text, stderr);
    }, nullptr);
    llama_backend_init();
    const struct { const char *name; shape of; } models[] = {
        {"llama", {"llama", 3, 128, 352, 4, 4, 32, vocabulary}},
        {"qwen3moe", {"qwen3moe", 3, 128, 384, 4, 2, 32, vocabulary, 16, 4, 48}},
        {"gpt2", {"gpt2", 3, 128, 512, 4, 4, 32, vocabulary}},
        {"mamba", {"mamba", 3, 128, 0, 0, 0, 0, vocabulary}},
    };
    for (auto &model : models) {
        const std::string path = std::string(argv[1]) + "/" + model.name + ".gguf";
        model_file(model.of, path.c_str(), true);
        for (const bool flash : {false, true})
            for (const uint32_t ubatch : {32u, 128u, 512u})
                for (const bool two : {false, true}) {
                    const hash all = run(path.c_str(), flash, ubatch, two);
                    std::printf("%s flash %d ubatch %u memories %d: %016llx, %zu of %zu finite\n", model.name, flash, ubatch,
                                two ? 2 : 1, static_cast<unsigned long long>(all.value), all.finite, all.count);
                    std::fflush(stdout);
                }
    }
    return poison::filled > 0 ? 0 : 1;
}
