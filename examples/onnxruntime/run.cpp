// Runs models of one input and any outputs with planned memory, two sessions of each at once, and compares the bits with
// ONNX Runtime's own memory.
//
//     run MODEL THREADS [ROWS...]    ROWS: the first dimension of the input, one after the other, where the file leaves it open
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "sublet_onnxruntime.hpp"

namespace {

const OrtApi *const api = OrtGetApiBase()->GetApi(ORT_API_VERSION);

void check(OrtStatus *status) {
    if (status != nullptr) {
        std::fprintf(stderr, "%s\n", api->GetErrorMessage(status));
        std::exit(1);
    }
}

struct model {
    OrtSession *session = nullptr;
    OrtAllocator *names = nullptr;
    char *input = nullptr;
    std::vector<char *> outputs;
    std::vector<std::int64_t> shape;

    model(OrtEnv *env, const char *file, int threads, const sublet::onnxruntime::memory *memory) {
        OrtSessionOptions *options = nullptr;
        check(api->CreateSessionOptions(&options));
        check(api->SetIntraOpNumThreads(options, threads));
        if (memory != nullptr) {
            memory->set(options);
        }
        check(api->CreateSession(env, file, options, &session));
        api->ReleaseSessionOptions(options);
        check(api->GetAllocatorWithDefaultOptions(&names));
        check(api->SessionGetInputName(session, 0, names, &input));
        std::size_t count = 0;
        check(api->SessionGetOutputCount(session, &count));
        outputs.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            check(api->SessionGetOutputName(session, i, names, &outputs[i]));
        }
        OrtTypeInfo *type = nullptr;
        const OrtTensorTypeAndShapeInfo *tensor = nullptr;
        check(api->SessionGetInputTypeInfo(session, 0, &type));
        check(api->CastTypeInfoToTensorInfo(type, &tensor));
        check(api->GetDimensionsCount(tensor, &count));
        shape.resize(count);
        check(api->GetDimensions(tensor, shape.data(), count));
        api->ReleaseTypeInfo(type);
    }
    ~model() {
        check(api->AllocatorFree(names, input));
        for (char *output : outputs) {
            check(api->AllocatorFree(names, output));
        }
        api->ReleaseSession(session);
    }

    // The bits of all outputs for an input of so many rows, as a sum of products.
    std::uint64_t run(std::int64_t rows) const {
        std::vector<std::int64_t> dims = shape;
        std::size_t size = 1;
        for (auto &dim : dims) {
            dim = dim > 0 ? dim : rows;
            size *= static_cast<std::size_t>(dim);
        }
        std::vector<float> data(size);
        for (std::size_t i = 0; i < size; ++i) {
            data[i] = static_cast<float>(i * 2654435761u % 2000) / 1000 - 1;
        }
        OrtMemoryInfo *info = nullptr;
        check(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &info));
        OrtValue *x = nullptr;
        check(api->CreateTensorWithDataAsOrtValue(info, data.data(), size * sizeof(float), dims.data(), dims.size(),
                                                  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &x));
        std::vector<OrtValue *> values(outputs.size(), nullptr);
        const OrtValue *given = x;
        check(api->Run(session, nullptr, &input, &given, 1, outputs.data(), outputs.size(), values.data()));
        std::uint64_t hash = 1469598103934665603u;
        for (OrtValue *value : values) {
            void *bytes = nullptr;
            std::size_t count = 0;
            check(api->GetTensorMutableData(value, &bytes));
            check(api->GetTensorSizeInBytes(value, &count));
            for (std::size_t i = 0; i < count; ++i) {
                hash = (hash ^ static_cast<unsigned char *>(bytes)[i]) * 1099511628211u;
            }
            api->ReleaseValue(value);
        }
        api->ReleaseValue(x);
        api->ReleaseMemoryInfo(info);
        return hash;
    }
};

}  // namespace

int main(int argc, char **argv) {
    if (argc < 3) {
        return 2;
    }
    const int threads = std::atoi(argv[2]);
    std::vector<std::int64_t> rows;
    for (int i = 3; i < argc; ++i) {
        rows.push_back(std::atoll(argv[i]));
    }
    if (rows.empty()) {
        rows.assign(4, 1);
    }
    OrtEnv *env = nullptr;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "sublet", &env));
    bool is_right = true;
    unsigned long long hits = 0, misses = 0, plans = 0, resident[2] = {0, 0};
    {
        const model stock(env, argv[1], threads, nullptr);
        sublet::onnxruntime::memory memory(*api, env);
        const model first(env, argv[1], threads, &memory), second(env, argv[1], threads, &memory);
        sublet::onnxruntime::session_memory of_first(memory), of_second(memory);
        for (int round = 0; round < 3; ++round) {
            // Two runs of one session at once, and one of another.
            std::vector<std::thread> all;
            std::uint64_t found[3][16];
            const auto run = [&](const model &own, sublet::onnxruntime::session_memory &planned, std::uint64_t *hashes) {
                for (std::size_t i = 0; i < rows.size() && i < 16; ++i) {
                    sublet::onnxruntime::run scope(planned);
                    hashes[i] = own.run(rows[i]);
                }
            };
            all.emplace_back([&] { run(first, of_first, found[0]); });
            all.emplace_back([&] { run(first, of_first, found[1]); });
            all.emplace_back([&] { run(second, of_second, found[2]); });
            for (auto &each : all) {
                each.join();
            }
            for (std::size_t i = 0; i < rows.size() && i < 16; ++i) {
                const std::uint64_t wanted = stock.run(rows[i]);
                is_right = is_right && found[0][i] == wanted && found[1][i] == wanted && found[2][i] == wanted;
            }
            if (round > 0) {
                resident[round - 1] = 0;
                hits = misses = plans = 0;
                for (auto *each : {&of_first, &of_second}) {
                    is_right = is_right && each->unplanned() == 0;
                    for (const auto &done : each->statistics()) {
                        resident[round - 1] += done.resident;
                        hits += done.hits;
                        misses += done.misses;
                        plans += done.plans;
                    }
                }
            }
        }
    }
    api->ReleaseEnv(env);
    std::printf("right %d hits %llu misses %llu plans %llu resident %llu then %llu\n", is_right, hits, misses, plans, resident[0],
                resident[1]);
    return is_right ? 0 : 1;
}
