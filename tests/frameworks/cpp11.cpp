// What a framework in C++11 without exceptions has of sublet.hpp.
#include <sublet.hpp>

int main() {
    sublet::network network;
    const std::uint32_t memory = network.memory(4096);
    network.op(1);
    network.use(memory, SUBLET_USE_OVERWRITE);
    sublet_error error;
    return network.plan(0, &error) == SUBLET_STATUS_OK && network.planned().peak == 4096 ? 0 : 1;
}
