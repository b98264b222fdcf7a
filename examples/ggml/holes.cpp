// holes FOLDER: GGUF files of the shapes of published models, whose weights are holes in the files.
#include "models.hpp"

int main(int, char **argv) {
    const struct { const char *name; shape of; } models[] = {
        {"llama2_7b", {"llama", 32, 4096, 11008, 32, 32, 128, 32000}},
        {"llama3_8b", {"llama", 32, 4096, 14336, 32, 8, 128, 128256}},
        {"llama3_70b", {"llama", 80, 8192, 28672, 64, 8, 128, 128256}},
        {"qwen3_30b_a3b", {"qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 128, 8, 768}},
    };
    for (auto &model : models) model_file(model.of, (std::string(argv[1]) + "/" + model.name + ".gguf").c_str(), false);
}
