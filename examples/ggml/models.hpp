// Writes GGUF files: with random weights, to run; or of real shapes whose weights are a hole in the file, for no_alloc.
#pragma once
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml.h"
#include "gguf.h"

struct shape {
    const char *arch;
    int64_t layers, width, feed_forward, heads, kv_heads, head, vocabulary;
    int64_t experts = 0, experts_used = 0, expert_feed_forward = 0;
    bool tied = false; // the output has the weights of the embedding
};

class model_file {
    gguf_context *file = gguf_init_empty();
    ggml_context *tensors = nullptr;
    bool random;
    uint32_t state = 1;

    // From -1 to 1, the same ones everywhere.
    float next() {
        state = state * 1664525 + 1013904223;
        return static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f;
    }

    void key(const char *arch, const char *name, int64_t value) {
        gguf_set_val_u32(file, (std::string(arch) + name).c_str(), static_cast<uint32_t>(value));
    }

    // A vector is a norm's scale or a bias: near 1 or near 0.
    void add(const std::string &name, std::vector<int64_t> ne) {
        const bool is_vector = ne.size() == 1;
        const ggml_type type = random || is_vector ? GGML_TYPE_F32 : GGML_TYPE_F16;
        ggml_tensor *t = ggml_new_tensor(tensors, type, static_cast<int>(ne.size()), ne.data());
        ggml_set_name(t, name.c_str());
        if (random) {
            const bool is_bias = name.size() > 4 && name.substr(name.size() - 4) == "bias";
            const float scale = is_vector ? 0.1f : 1.7f / std::sqrt(static_cast<float>(ne[0]));
            auto *data = static_cast<float *>(t->data);
            for (int64_t i = 0; i < ggml_nelements(t); ++i) data[i] = scale * next() + (is_vector && !is_bias ? 1.0f : 0.0f);
        }
        gguf_add_tensor(file, t);
    }

    void transformer(const shape &s, const std::string &p) {
        const int64_t q = s.heads * s.head, kv = s.kv_heads * s.head, f = s.expert_feed_forward;
        add(p + "attn_norm.weight", {s.width});
        add(p + "attn_q.weight", {s.width, q});
        add(p + "attn_k.weight", {s.width, kv});
        add(p + "attn_v.weight", {s.width, kv});
        add(p + "attn_output.weight", {q, s.width});
        if (std::string(s.arch) == "qwen3moe") {
            add(p + "attn_q_norm.weight", {s.head});
            add(p + "attn_k_norm.weight", {s.head});
        }
        add(p + "ffn_norm.weight", {s.width});
        if (s.experts) {
            add(p + "ffn_gate_inp.weight", {s.width, s.experts});
            add(p + "ffn_gate_exps.weight", {s.width, f, s.experts});
            add(p + "ffn_up_exps.weight", {s.width, f, s.experts});
            add(p + "ffn_down_exps.weight", {f, s.width, s.experts});
        } else {
            add(p + "ffn_gate.weight", {s.width, s.feed_forward});
            add(p + "ffn_up.weight", {s.width, s.feed_forward});
            add(p + "ffn_down.weight", {s.feed_forward, s.width});
        }
    }

    void gpt2(const shape &s, const std::string &p) {
        const struct { const char *name; int64_t in, out; } parts[] = {
            {"attn_norm", 0, s.width}, {"attn_qkv", s.width, 3 * s.width}, {"attn_output", s.width, s.width},
            {"ffn_norm", 0, s.width}, {"ffn_up", s.width, s.feed_forward}, {"ffn_down", s.feed_forward, s.width}};
        for (auto &part : parts) {
            if (part.in) add(p + part.name + ".weight", {part.in, part.out});
            else add(p + part.name + ".weight", {part.out});
            add(p + part.name + ".bias", {part.out});
        }
    }

    void mamba(const shape &s, const std::string &p) {
        const int64_t inner = 2 * s.width, states = 16, rank = s.width / 16;
        add(p + "attn_norm.weight", {s.width});
        add(p + "ssm_in.weight", {s.width, 2 * inner});
        add(p + "ssm_conv1d.weight", {4, inner});
        add(p + "ssm_conv1d.bias", {inner});
        add(p + "ssm_x.weight", {inner, rank + 2 * states});
        add(p + "ssm_dt.weight", {rank, inner});
        add(p + "ssm_dt.bias", {inner});
        add(p + "ssm_a", {states, inner});
        add(p + "ssm_d", {inner});
        add(p + "ssm_out.weight", {inner, s.width});
    }

public:
    model_file(const shape &s, const char *path, bool random) : random(random) {
        const std::string arch = s.arch;
        const int64_t context = random ? 1024 : 131072;
        tensors = ggml_init({random ? size_t{256} << 20 : ggml_tensor_overhead() * 8000, nullptr, !random});
        gguf_set_val_str(file, "general.architecture", s.arch);
        gguf_set_val_str(file, "tokenizer.ggml.model", "none");
        const struct { const char *name; int64_t value; } keys[] = {
            {".block_count", s.layers}, {".context_length", context}, {".embedding_length", s.width},
            {".feed_forward_length", s.feed_forward}, {".vocab_size", s.vocabulary}, {".attention.head_count", s.heads},
            {".attention.head_count_kv", s.kv_heads}, {".attention.key_length", s.head},
            {".attention.value_length", s.head}, {".rope.dimension_count", s.head}, {".expert_count", s.experts},
            {".expert_used_count", s.experts_used}, {".expert_feed_forward_length", s.expert_feed_forward},
            {".ssm.conv_kernel", 4}, {".ssm.inner_size", 2 * s.width}, {".ssm.state_size", 16},
            {".ssm.time_step_rank", s.width / 16}};
        for (auto &k : keys)
            if (k.value && (arch == "mamba" || k.name[1] != 's')) key(s.arch, k.name, k.value);
        gguf_set_val_f32(file, (arch + ".attention.layer_norm_rms_epsilon").c_str(), 1e-5f);
        gguf_set_val_f32(file, (arch + ".attention.layer_norm_epsilon").c_str(), 1e-5f);
        gguf_set_val_f32(file, (arch + ".rope.freq_base").c_str(), 10000.0f);

        add("token_embd.weight", {s.width, s.vocabulary});
        if (arch == "gpt2") {
            add("position_embd.weight", {s.width, context});
            add("output_norm.bias", {s.width});
        }
        add("output_norm.weight", {s.width});
        if (!s.tied) add("output.weight", {s.width, s.vocabulary});
        for (int64_t i = 0; i < s.layers; ++i) {
            const std::string p = "blk." + std::to_string(i) + ".";
            if (arch == "gpt2") gpt2(s, p);
            else if (arch == "mamba") mamba(s, p);
            else transformer(s, p);
        }

        if (!gguf_write_to_file(file, path, !random)) throw std::runtime_error("cannot write the model");
        if (!random) {
            int64_t bytes = static_cast<int64_t>(gguf_get_meta_size(file));
            for (ggml_tensor *t = ggml_get_first_tensor(tensors); t; t = ggml_get_next_tensor(tensors, t))
                bytes += static_cast<int64_t>(GGML_PAD(ggml_nbytes(t), 64));
            if (truncate(path, bytes) != 0) throw std::runtime_error("cannot write the model");
        }
    }

    ~model_file() {
        gguf_free(file);
        ggml_free(tensors);
    }
    model_file(const model_file &) = delete;
    model_file &operator=(const model_file &) = delete;
};
