"""Has PyTorch take its device memory from sublet's plans.

    from sublet_allocator import use
    use("target/release/libsublet.so")  # before anything is on a device
"""

import ctypes

# What PyTorch's setters are given: the functions of include/sublet_torch.h.
SETTERS = {
    "set_record_stream_fn": "sublet_torch_record_stream",
    "set_begin_allocate_to_pool": "sublet_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "sublet_torch_end_allocate_to_pool",
    "set_release_pool": "sublet_torch_release_pool",
    "set_reset_fn": "sublet_torch_reset",
    "set_memory_fraction_fn": "sublet_torch_memory_fraction",
}


def use(library):
    """Makes the allocator of this library PyTorch's for all devices, and returns the library."""
    import torch

    loaded = ctypes.CDLL(str(library))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "sublet_torch_malloc", "sublet_torch_free")
    for setter, function in SETTERS.items():
        address = ctypes.cast(getattr(loaded, function), ctypes.c_void_p).value
        getattr(allocator._allocator, setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)
    return loaded
