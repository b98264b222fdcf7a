// What PyTorch does with given numbers: reads lines `kind format slope`, then as many words of bits as `count` says, for
// x and for dy; prints the bits of y and of dx.
#include <ATen/ATen.h>
#include <ATen/Functions.h>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

static at::Tensor read(const std::string &format, size_t count) {
    std::vector<uint32_t> bits(count);
    for (uint32_t &word : bits) {
        std::cin >> word;
    }
    at::Tensor tensor = at::empty({(int64_t)count}, format == "f32" ? at::kFloat : at::kBFloat16);
    for (size_t i = 0; i < count; i++) {
        std::memcpy((char *)tensor.data_ptr() + i * tensor.element_size(), &bits[i], tensor.element_size());
    }
    return tensor;
}

static void write(const at::Tensor &tensor) {
    for (int64_t i = 0; i < tensor.numel(); i++) {
        uint32_t bits = 0;
        std::memcpy(&bits, (char *)tensor.data_ptr() + i * tensor.element_size(), tensor.element_size());
        std::cout << bits << (i + 1 < tensor.numel() ? ' ' : '\n');
    }
}

int main() {
    std::string kind, format;
    double slope;
    size_t count;
    while (std::cin >> kind >> format >> slope >> count) {
        at::Tensor x = read(format, count), dy = read(format, count);
        if (kind == "relu") {
            at::Tensor y = at::relu(x);
            write(y);
            write(at::threshold_backward(dy, y, 0));
        } else {
            write(at::leaky_relu(x, slope));
            write(at::leaky_relu_backward(dy, x, slope, false));
        }
    }
}
