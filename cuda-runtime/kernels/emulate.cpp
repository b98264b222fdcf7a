/* The kernels as a library of the host, for the tests. */
#include "relu.cu"

namespace {

typedef void (*Kernel)(const void *, void *, u32 *, u64, float);

template <typename T, typename Mask>
void call(void (*kernel)(const T *, T *, Mask *, u64, float), const void *in, void *out, u32 *mask, u64 n, float slope) {
    kernel((const T *)in, (T *)out, mask, n, slope);
}

struct Named {
    const char *name;
    Kernel kernel;
};

#define NAMED(name)                                                                                                    \
    {                                                                                                                  \
        #name, [](const void *in, void *out, u32 *mask, u64 n, float slope) { call(name, in, out, mask, n, slope); }   \
    }
#define BOTH(kind, type) NAMED(sublet_##kind##_forward_##type), NAMED(sublet_##kind##_backward_##type)
const Named KERNELS_BY_NAME[] = {
    BOTH(relu, f32),       BOTH(relu, f16),       BOTH(relu, bf16),
    BOTH(leaky_relu, f32), BOTH(leaky_relu, f16), BOTH(leaky_relu, bf16),
};

struct Arguments {
    const void *in;
    void *out;
    u32 *mask;
    u64 n;
    float slope;
    Kernel kernel;
} arguments;

} // namespace

/* Runs a kernel over a grid; false if there is none of this name. One thread at a time. */
extern "C" bool emulate(const char *name, u32 blocks, u32 threads, const void *in, void *out, u32 *mask, u64 n,
                        float slope, emulated::Launch *launch) {
    for (const Named &named : KERNELS_BY_NAME) {
        if (strcmp(named.name, name) != 0) {
            continue;
        }
        arguments = Arguments{in, out, mask, n, slope, named.kernel};
        emulated::launch = launch;
        emulated::body = [] {
            const Arguments &a = arguments;
            a.kernel(a.in, a.out, a.mask, a.n, a.slope);
        };
        for (emulated::block_index = 0; emulated::block_index < blocks; emulated::block_index++) {
            for (emulated::warp_index = 0; emulated::warp_index < threads / emulated::WARP; emulated::warp_index++) {
                emulated::run_warp();
            }
        }
        return true;
    }
    return false;
}
