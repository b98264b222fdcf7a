"""Operators for PyTorch: copies of blocks to the host and back, and the waits for them.

On a GPU the copies of each direction have a stream of their own, so that operators run meanwhile. A block may be freed
once its copy to the host is done (`left`), and may be read once its copy back is done (`arrived`): the stream of the
operators waits for these. On the host a copy is done when its operator returns, and nothing waits.
"""

from __future__ import annotations

import functools
from collections.abc import Container

import torch
from torch.fx.node import has_side_effect
from torch.utils.weak import WeakTensorKeyDictionary

_library = torch.library.Library("sublet", "DEF")
_library.define("out(Tensor block) -> Tensor")
_library.define("left(Tensor host, Tensor block) -> ()")
_library.define("back(Tensor host, Device device) -> Tensor")
_library.define("arrived(Tensor block) -> ()")

_done = WeakTensorKeyDictionary()
"""By the result of a copy: the event at which the copy is done."""


@functools.cache
def _stream(device: torch.device, direction: str) -> torch.cuda.Stream:
    """The stream of a device's copies in one direction."""
    return torch.cuda.Stream(device)


def _copy(block: torch.Tensor, result: torch.Tensor, device: torch.device, direction: str) -> torch.Tensor:
    """Begins a copy on a stream of its own, once the operators so far are done and, for a copy back, the copy to the
    host."""
    stream = _stream(device, direction)
    stream.wait_stream(torch.cuda.current_stream(device))
    if block in _done:
        stream.wait_event(_done[block])
    with torch.cuda.stream(stream):
        result.copy_(block, non_blocking=True)
    _done[result] = stream.record_event()
    return result


def _wait(result: torch.Tensor, device: torch.device) -> None:
    """The operators that come wait for a copy."""
    if result in _done:
        torch.cuda.current_stream(device).wait_event(_done[result])


def _out(block: torch.Tensor) -> torch.Tensor:
    on_gpu = block.device.type == "cuda"
    host = torch.empty_strided(block.shape, block.stride(), dtype=block.dtype, device="cpu", pin_memory=on_gpu)
    return _copy(block, host, block.device, "out") if on_gpu else host.copy_(block)


def _left(host: torch.Tensor, block: torch.Tensor) -> None:
    _wait(host, block.device)


def _back(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    block = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=device)
    return _copy(host, block, device, "back") if device.type == "cuda" else block.copy_(host)


def _arrived(block: torch.Tensor) -> None:
    _wait(block, block.device)


for _name, _function in (("out", _out), ("left", _left), ("back", _back), ("arrived", _arrived)):
    _library.impl(_name, _function, "CompositeExplicitAutograd")
OUT = torch.ops.sublet.out.default
LEFT = has_side_effect(torch.ops.sublet.left.default)
BACK = torch.ops.sublet.back.default
ARRIVED = has_side_effect(torch.ops.sublet.arrived.default)


class Away:
    """The storages of a replay, of which some wait on the host between their uses."""

    def __init__(self, storages: dict[int, torch.UntypedStorage], stays: Container[int]) -> None:
        self.storages = storages
        """By block: its storage, if it is on the device."""
        self._stays = stays
        """The blocks that tensors of the caller look at. Their storages stay, without memory."""
        self._host: dict[int, tuple[torch.device, torch.Tensor]] = {}
        self._left: set[int] = set()
        self._copied: dict[int, torch.Tensor] = {}
        """The results of copies that may not be done."""

    def out(self, block: int) -> None:
        """Begins a copy to the host."""
        storage = self.storages[block]
        self._copied[block] = host = OUT(_bytes(storage))
        self._host[block] = storage.device, host

    def free(self, block: int) -> None:
        """Gives up the memory on the device."""
        if block in self._stays:
            if block not in self._host:
                # It is never written over: a schedule takes it to be on the host too.
                self.out(block)
            self._left.add(block)
            self.arrived(block)
            self.storages[block].resize_(0)
        elif block in self.storages:
            self.arrived(block)
            del self.storages[block]

    def back(self, block: int) -> None:
        """Begins a copy back."""
        device, host = self._host[block]
        self._left.discard(block)
        storage = self.storages[block] if block in self._stays else torch.UntypedStorage(0, device=device)
        self.storages[block] = storage
        storage.resize_(host.numel())
        made = _bytes(storage)
        self._copied[block] = _copy(host, made, device, "back") if device.type == "cuda" else made.copy_(host)

    def arrived(self, block: int) -> None:
        """Lets operators wait until the last copy of a block is done."""
        if block in self._copied:
            _wait(self._copied.pop(block), self.storages[block].device)

    def close(self) -> None:
        """Brings back what tensors of the caller look at."""
        for block in list(self._left):
            self.back(block)
        for block in list(self._copied):
            self.arrived(block)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
