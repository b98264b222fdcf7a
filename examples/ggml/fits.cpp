// Will it fit: fits MODEL.gguf [CONTEXT [UBATCH [OUTPUTS]]] prints the weights, the KV cache and the compute buffer, as ggml
// makes it and planned, with flash attention and without. No weights are read and no memory is taken for them.
// UBATCH is how many tokens are computed at once, OUTPUTS for how many of them logits are asked for: 0 is all.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "llama.h"

// What libllama and ggml say while a context is made; there is no other way to ask.
struct told {
    double kv = 0, compute = 0, greedy = 0;
    std::string errors;

    static void log(ggml_log_level level, const char *text, void *to) {
        auto &told = *static_cast<struct told *>(to);
        double size;
        const auto number = [&](const char *words, const char *format) {
            const char *at = std::strstr(text, words);
            return at && std::sscanf(at, format, &size) == 1;
        };
        if (level == GGML_LOG_LEVEL_ERROR) told.errors += text;
        if (number("_cache: size", "_cache: size =%lf")) told.kv += size;
        if (number("compute buffer size", "compute buffer size =%lf")) told.compute += size;
        if (std::strstr(text, " by ggml, ") && number("MiB (", "MiB (%lf")) told.greedy += size;
    }
};

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "fits MODEL.gguf [CONTEXT [UBATCH [OUTPUTS]]]\n");
        return 2;
    }
    const auto argument = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
    const int context = argument(2, 4096), ubatch = argument(3, 512), outputs = argument(4, 1);
    told told;
    llama_log_set(told::log, &told);
    llama_backend_init();
    llama_model_params of_model = llama_model_default_params();
    of_model.no_alloc = true;
    of_model.use_extra_bufts = false;
    of_model.load_mode = LLAMA_LOAD_MODE_NONE;
    llama_model *model = llama_model_load_from_file(argv[1], of_model);
    if (!model) {
        std::fprintf(stderr, "%s: %s", argv[1], told.errors.empty() ? "cannot be read\n" : told.errors.c_str());
        return 1;
    }
    std::printf("weights %.2f MiB; context %d, ubatch %d\n", static_cast<double>(llama_model_size(model)) / 1048576, context, ubatch);
    for (const bool flash : {true, false}) {
        told = {};
        llama_context_params params = llama_context_default_params();
        params.n_ctx = static_cast<uint32_t>(context);
        params.n_ubatch = static_cast<uint32_t>(ubatch);
        params.n_batch = ubatch > 2048 ? params.n_ubatch : 2048;
        params.n_outputs_max = static_cast<uint32_t>(outputs);
        params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        llama_context *made = llama_init_from_model(model, params);
        if (!made) {
            std::fprintf(stderr, "%s", told.errors.empty() ? "no context can be made\n" : told.errors.c_str());
            return 1;
        }
        std::printf("flash attention %s: KV cache %.2f MiB, compute buffer ", flash ? "on " : "off", told.kv);
        if (told.greedy > 0) std::printf("%.2f MiB planned, %.2f by ggml\n", told.compute, told.greedy);
        else std::printf("%.2f MiB by ggml, whose GGML_SUBLET is off\n", told.compute);
        llama_free(made);
    }
    llama_model_free(model);
}
