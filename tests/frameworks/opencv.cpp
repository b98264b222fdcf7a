// Runs a small Caffe network in OpenCV's dnn module, first with OpenCV's own memory and then with sublet's, and
// compares: the outputs have to be the same, bit for bit. Half way the batch becomes larger.
//
//   opencv
//
// The network and its weights are written here, in Caffe's formats. Prints one figure a line, `name value`; exits with
// 1 if an output differs.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <opencv2/core.hpp>
#include <opencv2/dnn.hpp>
#include <string>
#include <vector>

#include "requests.hpp"
#include "sublet.hpp"

namespace {

constexpr int iterations = 40;
constexpr int batch_changes_at = 20;
constexpr int channels = 3, side = 32, width = 16, classes = 10;

// Caffe's description of a network: two convolutions with rectifiers, pooling, a fully connected layer.
std::string prototxt() {
    const auto layer = [](const std::string &name, const std::string &type, const std::string &from,
                          const std::string &parameters) {
        return "layer { name: \"" + name + "\" type: \"" + type + "\" bottom: \"" + from + "\" top: \"" + name + "\" " +
               parameters + " }\n";
    };
    const auto convolution = [](int outputs) {
        return "convolution_param { num_output: " + std::to_string(outputs) + " kernel_size: 3 pad: 1 }";
    };
    return "name: \"small\"\ninput: \"data\"\ninput_shape { dim: 1 dim: 3 dim: 32 dim: 32 }\n" +
           layer("conv1", "Convolution", "data", convolution(width)) + layer("relu1", "ReLU", "conv1", "") +
           layer("pool1", "Pooling", "relu1", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }") +
           layer("conv2", "Convolution", "pool1", convolution(2 * width)) + layer("relu2", "ReLU", "conv2", "") +
           layer("pool2", "Pooling", "relu2", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }") +
           layer("fc", "InnerProduct", "pool2", "inner_product_param { num_output: 10 }") +
           layer("prob", "Softmax", "fc", "");
}

// Protocol Buffers, as far as Caffe's weights need them: a field is its number and kind, then its content.
std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 128; value >>= 7) {
        bytes.push_back(static_cast<char>(value % 128 + 128));
    }
    bytes.push_back(static_cast<char>(value));
    return bytes;
}
std::string bytes_field(int number, const std::string &content) {
    return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(content.size()) + content;
}

// BlobProto: the shape (7), and the values (5).
std::string blob(const std::vector<int> &shape, std::uint32_t seed) {
    std::string dimensions, values;
    int count = 1;
    for (const int n : shape) {
        dimensions += varint(1 << 3) + varint(static_cast<std::uint64_t>(n));
        count *= n;
    }
    for (int i = 0; i < count; ++i) {
        seed = seed * 1664525 + 1013904223;
        const float value = (static_cast<float>(seed >> 8) / 16777216.0F - 0.5F) * 0.2F;
        char raw[sizeof value];
        std::memcpy(raw, &value, sizeof value);
        values.append(raw, sizeof raw);
    }
    return bytes_field(7, dimensions) + bytes_field(5, values);
}

// NetParameter: its layers (100), each with name (1), type (2) and blobs (7).
std::string caffemodel() {
    const auto layer = [](const char *name, const char *type, const std::vector<int> &weights, std::uint32_t seed) {
        return bytes_field(100, bytes_field(1, name) + bytes_field(2, type) + bytes_field(7, blob(weights, seed)) +
                                    bytes_field(7, blob({weights[0]}, seed + 1)));
    };
    return layer("conv1", "Convolution", {width, channels, 3, 3}, 1) +
           layer("conv2", "Convolution", {2 * width, width, 3, 3}, 3) +
           layer("fc", "InnerProduct", {classes, 2 * width * side / 4 * side / 4}, 5);
}

// OpenCV's view of sublet. What carries a matrix's bookkeeping is OpenCV's own; its data come from sublet.
class Matrices final : public cv::MatAllocator {
  public:
    explicit Matrices(sublet::allocator *planned) : planned_(planned) {}

    cv::UMatData *allocate(int dimensions, const int *sizes, int type, void *given, std::size_t *step, cv::AccessFlag,
                           cv::UMatUsageFlags) const override {
        std::size_t total = CV_ELEM_SIZE(type);
        for (int i = dimensions - 1; i >= 0; --i) {
            if (step != nullptr) {
                if (given != nullptr && step[i] != cv::Mat::AUTO_STEP) {
                    total = step[i];
                } else {
                    step[i] = total;
                }
            }
            total *= static_cast<std::size_t>(sizes[i]);
        }
        auto *data = new cv::UMatData(this);
        data->size = total;
        if (given != nullptr) {
            data->data = data->origdata = static_cast<uchar *>(given);
            data->flags |= cv::UMatData::USER_ALLOCATED;
        } else {
            void *memory = planned_ == nullptr ? cv::fastMalloc(total) : planned_->allocate(total == 0 ? 1 : total);
            requests.taken(memory, total == 0 ? 1 : total);
            data->data = data->origdata = static_cast<uchar *>(memory);
        }
        return data;
    }
    bool allocate(cv::UMatData *data, cv::AccessFlag, cv::UMatUsageFlags) const override { return data != nullptr; }
    void deallocate(cv::UMatData *data) const override {
        if (data == nullptr || data->urefcount != 0 || data->refcount != 0) {
            return;
        }
        if ((data->flags & cv::UMatData::USER_ALLOCATED) == 0) {
            requests.given(data->origdata);
            if (planned_ == nullptr) {
                cv::fastFree(data->origdata);
            } else {
                planned_->deallocate(data->origdata);
            }
        }
        delete data;
    }

    mutable Requests requests;

  private:
    sublet::allocator *planned_;
};

// What the network says of every batch, when its memory comes from `matrices`.
template <class Begin, class End>
std::vector<std::vector<float>> run(Matrices &matrices, const Begin &begin, const End &end) {
    cv::Mat::setDefaultAllocator(&matrices);
    const std::string text = prototxt(), weights = caffemodel();
    cv::dnn::Net net = cv::dnn::readNetFromCaffe(text.data(), text.size(), weights.data(), weights.size());
    net.setPreferableBackend(cv::dnn::DNN_BACKEND_OPENCV);
    std::vector<std::vector<float>> outputs;
    cv::RNG random(7);
    for (int i = 0; i < iterations; ++i) {
        begin(i);
        {
            const int sizes[] = {i < batch_changes_at ? 4 : 6, channels, side, side};
            cv::Mat images(4, sizes, CV_32F);
            random.fill(images, cv::RNG::UNIFORM, -1.0, 1.0);
            net.setInput(images, "data");
            const cv::Mat output = net.forward();
            outputs.emplace_back(output.begin<float>(), output.end<float>());
        }
        end(i);
    }
    return outputs;
}

}  // namespace

int main() {
    cv::setNumThreads(1);
    const auto nothing = [](int) {};
    Matrices own(nullptr);
    const auto expected = run(own, nothing, nothing);
    print("framework_peak_bytes", static_cast<double>(own.requests.peak()));

    auto asked = sublet::params<sublet_allocator_params>();
    asked.capacity = std::uint64_t{1} << 30;
    asked.alignment = 64;
    sublet::allocator planned(asked);
    Matrices matrices(&planned);
    sublet_statistics after_two{}, last{};
    std::size_t max_load = 0;
    const auto outputs = run(
        matrices,
        [&](int) {
            matrices.requests.restart();
            planned.iteration_begin();
        },
        [&](int i) {
            planned.iteration_end();
            max_load = std::max(max_load, matrices.requests.max_load());
            last = planned.statistics();
            if (i == batch_changes_at + 1) {
                after_two = last;
            }
        });

    int different = 0;
    for (int i = 0; i < iterations; ++i) {
        different += outputs[i] != expected[i];
    }
    const double hits = static_cast<double>(last.hits - after_two.hits);
    const double misses = static_cast<double>(last.misses - after_two.misses);
    print("outputs_that_differ", different);
    print("hits_from_third_after_change", hits + misses == 0 ? 0 : hits / (hits + misses));
    print("plans", static_cast<double>(last.plans));
    print("arena_bytes", static_cast<double>(last.arena_peak));
    print("max_load_bytes", static_cast<double>(max_load));
    print("footprint_bytes", static_cast<double>(last.footprint));

    sublet::allocator fresh(asked);
    const auto none = [] {};
    print("framework_ns", matrices.requests.nanoseconds(&cv::fastMalloc, &cv::fastFree, none, none));
    print("sublet_ns", matrices.requests.nanoseconds([&](std::size_t n) { return fresh.allocate(n); },
                                                     [&](void *p) { fresh.deallocate(p); },
                                                     [&] { fresh.iteration_begin(); }, [&] { fresh.iteration_end(); }));
    std::fflush(stdout);
    // What the library still holds goes back to an allocator that is about to go away.
    std::_Exit(different != 0);
}
