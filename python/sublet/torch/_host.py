"""Two operators for PyTorch: a copy of a block to the host, and a copy of a block back to the device."""

from __future__ import annotations

import torch

_library = torch.library.Library("sublet", "DEF")
_library.define("out(Tensor block) -> Tensor")
_library.define("back(Tensor host, Device device) -> Tensor")


def _out(block: torch.Tensor) -> torch.Tensor:
    host = torch.empty_strided(
        block.shape, block.stride(), dtype=block.dtype, device="cpu", pin_memory=block.device.type == "cuda"
    )
    return host.copy_(block, non_blocking=block.device.type == "cuda")


def _back(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    block = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=device)
    return block.copy_(host, non_blocking=True)


_library.impl("out", _out, "CompositeExplicitAutograd")
_library.impl("back", _back, "CompositeExplicitAutograd")
OUT = torch.ops.sublet.out.default
BACK = torch.ops.sublet.back.default
