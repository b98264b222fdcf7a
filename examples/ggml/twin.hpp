// A second device that computes as the processor does, but whose memory ggml takes for another kind: models are then split
// over two buffer types, and tensors are copied between them.
#pragma once
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

namespace twin {

inline ggml_backend_dev_t processor() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }
ggml_backend_dev_t device();

inline ggml_backend_buffer_type_t memory() {
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type made = *ggml_backend_cpu_buffer_type();
        made.iface.get_name = [](ggml_backend_buffer_type_t) { return "Twin"; };
        made.iface.get_alignment = [](ggml_backend_buffer_type_t) { return size_t{256}; };
        made.iface.is_host = nullptr;
        made.iface.alloc_buffer = [](ggml_backend_buffer_type_t self, size_t size) {
            // The processor's buffers are aligned to less.
            ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size + 256);
            if (!buffer) return buffer;
            buffer->buft = self;
            buffer->iface.get_base = [](ggml_backend_buffer_t b) {
                return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(b->context) + 255) / 256 * 256);
            };
            return buffer;
        };
        made.device = device();
        return made;
    }();
    return &type;
}

inline ggml_backend_dev_t device() {
    static ggml_backend_device made = [] {
        ggml_backend_device made = *processor();
        made.iface.get_name = [](ggml_backend_dev_t) { return "Twin"; };
        made.iface.get_description = [](ggml_backend_dev_t) { return "the processor once more"; };
        made.iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
        made.iface.get_props = [](ggml_backend_dev_t self, ggml_backend_dev_props *props) {
            ggml_backend_dev_get_props(processor(), props);
            props->name = "Twin";
            props->type = self->iface.get_type(self);
            props->caps = {};
        };
        made.iface.init_backend = [](ggml_backend_dev_t self, const char *) {
            ggml_backend_t backend = ggml_backend_cpu_init();
            backend->device = self;
            return backend;
        };
        made.iface.get_buffer_type = [](ggml_backend_dev_t) { return memory(); };
        made.iface.get_host_buffer_type = nullptr;
        made.iface.buffer_from_host_ptr = nullptr;
        made.iface.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return type == memory(); };
        made.iface.offload_op = nullptr;
        return made;
    }();
    return &made;
}

}
