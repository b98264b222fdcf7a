"""An allocator of device memory for PyTorch that follows plans.

PyTorch calls functions of this package through `CUDAPluggableAllocator`. The allocator finds the iterations in the
sequence of requests, and plans them; afterwards a request is a look-up in the plan.
"""

from __future__ import annotations

import ctypes
import pathlib
from typing import Any

import torch

from .. import PlanError, _sublet

SETTERS = {
    "set_record_stream_fn": "sublet_torch_record_stream",
    "set_begin_allocate_to_pool": "sublet_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "sublet_torch_end_allocate_to_pool",
    "set_release_pool": "sublet_torch_release_pool",
    "set_reset_fn": "sublet_torch_reset",
    "set_memory_fraction_fn": "sublet_torch_memory_fraction",
}
"""The functions of this package that PyTorch's allocator calls, by the name of the setter that takes each."""

ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
"""The mangled name of the constructor of `c10::Error`."""

LIBRARIES = ("libc10.so", "libc10_cuda.so", "libtorch_python.so")
"""The libraries of PyTorch that may define its exceptions. PyTorch's version decides which of them has the exception for
lack of memory."""

STATISTICS = ("planned", "unplanned", "plans", "arena", "held", "held_peak")


def install() -> None:
    """Makes sublet the memory of all devices. Call it before anything is on a device.

        import sublet.torch
        sublet.torch.install()

    A request that cannot be served raises `torch.OutOfMemoryError`. Limits on a device are refused afterwards, since
    what operators take is not counted. RuntimeError where a device has memory already, or where this PyTorch lacks what
    is needed.
    """
    torch.cuda.memory.change_current_allocator(allocator())


def allocator() -> Any:
    """The allocator with all functions that PyTorch calls. PyTorch does not use it yet."""
    library = ctypes.CDLL(_sublet.__file__)
    try:
        _throw_as_pytorch()
        made = torch.cuda.memory.CUDAPluggableAllocator(
            _sublet.__file__, "sublet_torch_malloc_or_throw", "sublet_torch_free"
        )
        for setter, function in SETTERS.items():
            getattr(made._allocator, setter)(_address(library, function))
    except AttributeError as e:
        raise RuntimeError(f"PyTorch {torch.__version__} lacks what sublet needs: {e}") from None
    return made


def memory_stats(device: int | None = None) -> dict[str, int]:
    """The counters of a device's memory. `torch.cuda.memory_stats` counts only for PyTorch's own allocator.

    The bytes held now and the most bytes held have the names that `torch.cuda.memory_stats` gives to reserved bytes.
    The other names begin with `sublet.`: requests that were planned, requests that were not, plans, bytes of the arena.
    RuntimeError if the device has no memory of sublet.
    """
    try:
        told = _sublet.device_statistics(torch.cuda.current_device() if device is None else device)
    except PlanError as e:
        raise RuntimeError(str(e)) from None
    values = dict(zip(STATISTICS, told, strict=True))
    stats = {"reserved_bytes.all.current": values.pop("held"), "reserved_bytes.all.peak": values.pop("held_peak")}
    return stats | {f"sublet.{name}": value for name, value in values.items()}


def _throw_as_pytorch() -> None:
    """Gives the allocator the addresses that it needs to throw PyTorch's exceptions."""
    folder = pathlib.Path(torch.__file__).parent / "lib"
    libraries = [ctypes.CDLL(str(folder / name)) for name in LIBRARIES if (folder / name).exists()]
    runtime = ctypes.CDLL("libstdc++.so.6")

    def address(name: str) -> int:
        """The address of a name in the first library that has it, or the error of the first library."""
        return _address(next((library for library in libraries if hasattr(library, name)), libraries[0]), name)

    _sublet.throw_by(
        _address(runtime, "__cxa_allocate_exception"),
        _address(runtime, "__cxa_throw"),
        address(ERROR),
        address("_ZTVN3c1016OutOfMemoryErrorE"),
        address("_ZTIN3c1016OutOfMemoryErrorE"),
        address("_ZTIN3c105ErrorE"),
    )


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address
