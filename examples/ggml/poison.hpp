// Whenever a graph is about to be computed, its buffers are filled with NaN: what reads memory that was not written shows.
#pragma once
#include "ggml-backend.h"

namespace poison {
inline int filled = 0;
}

// In place of the function in libggml-base, which is called when the tensors of a graph are about to get their addresses.
extern "C" void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer) {
    ggml_backend_buffer_clear(buffer, 0xff);
    ++poison::filled;
}
