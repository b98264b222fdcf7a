"""Networks whose values share memory: views, writes into views, outputs that are inputs or each other; trained eagerly, within a
limit and as a tape. Prints what each took, as lines of JSON.

    python aliases.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import sublet.torch
from sublet.torch._measure import HEAP
from train import Part, digest

CPU = torch.device("cpu")
STEPS = 4
ROWS, WIDTH = 512, 256


class Views(nn.Module):
    """Halves and transposes of one block, read by several."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def between(self, h: Tensor) -> Tensor:
        """What is done to the values between two layers."""
        left, right = h.chunk(2, 1)
        return torch.cat([left * right, right.t().t() + left], 1)

    def results(self, x: Tensor, h: Tensor) -> Any:
        """What is returned of the input and the last value."""
        return h.square().mean()

    def forward(self, x: Tensor) -> Any:
        h = x
        for layer in self.layers:
            h = self.between(nn.functional.gelu(layer(h)))
        return self.results(x, h)


class Written(Views):
    """A view of a value is written over, and then the whole is read."""

    def between(self, h: Tensor) -> Tensor:
        h = h * 2
        h[:, ::2].mul_(0.5)
        h[:3].zero_()
        return h + 1


class Updated(Views):
    """A buffer is updated in place, through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, WIDTH))

    def between(self, h: Tensor) -> Tensor:
        self.seen[0].add_(h.detach().mean(0))
        return h - self.seen[0]


class Returned(Views):
    """It returns its input, a view of it, and two views of one value."""

    def results(self, x: Tensor, h: Tensor) -> Any:
        return h.square().mean(), x, x[1:], h[:, :2], h.t()


NETWORKS: list[Callable[[], Views]] = [Views, Written, Updated, Returned]


def trained(make: Callable[[], Views], how: str) -> dict[str, Any]:
    """What some steps give and take."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    network = make()
    x = torch.randn(ROWS, WIDTH)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    cut = Part("70%")
    run: Any = torch.compile(network, backend="sublet", options={"partitioner": cut}, fullgraph=True) if how == "cut" else network

    def step(x: Tensor) -> Any:
        results = run(x)
        (results[0] if isinstance(results, tuple) else results).backward()
        optimizer.step()
        optimizer.zero_grad()
        return tuple(r.detach() for r in results) if isinstance(results, tuple) else results.detach()

    taped = sublet.torch.step(step, network, optimizer, limit="80%") if how == "tape" else None
    results: list[str] = []
    shared: list[bool] = []
    for _ in range(STEPS):
        since = HEAP.since(CPU)
        told = (taped or step)(x)
        peak = since.peak
        told = told if isinstance(told, tuple) else (told,)
        results.append(digest(told))
        memory = [t.untyped_storage().data_ptr() for t in told]
        shared = [m in (x.untyped_storage().data_ptr(), memory[-1]) for m in memory]
        del told
    result = {"network": make.__name__, "how": how, "peak": peak, "shared": shared}
    result |= {"results": results, "weights": digest([*network.parameters(), *network.buffers()])}
    if how == "cut":
        report = cut.reports[-1]
        result |= {"planned": report.planned_peak - report.persistent, "again": len(report.again), "graphs": len(cut.reports)}
    if taped is not None:
        result["planned"] = taped.planned_peak
    return result


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for make in NETWORKS:
        for how in ("eager", "cut", "tape"):
            print(json.dumps(trained(make, how)), flush=True)


if __name__ == "__main__":
    main()
