"""Trains a network by a whole taped step and eagerly, and prints what both took, as JSON.

    python tape.py NETWORK LIMIT% [sgd|adam|each]

LIMIT is a part of the peak above what persists. `each` is SGD that updates each parameter by itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

import networks
import sublet
import sublet.torch
from sublet.torch._measure import HEAP
from train import digest

CPU = torch.device("cpu")
STEPS = 4


def trained(name: str, kind: str, part: float | None, device: torch.device = CPU, steps: int = STEPS) -> dict[str, Any]:
    """What some steps of a network take: eagerly, or taped if they get a part of the peak."""
    network, inputs = built(name, device)
    network.train()
    params = list(network.parameters())
    optimizer = optimizer_of(kind, params)

    def train(x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = network(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run: Any = train
    if part is not None:
        run = sublet.torch.step(train, network, optimizer, limit=limit_of(name, kind, part, device))
    torch.manual_seed(1)
    peaks, losses, seconds = [], [], []
    for _ in range(steps):
        since, begin = HEAP.since(device), time.perf_counter()
        # Autocast around the whole step must change nothing that was recorded below it.
        with torch.autocast(device.type, torch.bfloat16, enabled=name.endswith("bf16")):
            loss = run(*inputs)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        peaks.append(since.peak)
        del loss
    # The first step makes the optimizer's state, the second is recorded.
    result = {"peak": peaks[-1], "losses": losses, "seconds": statistics.median(seconds[2:])}
    result["weights"] = digest([*params, *network.buffers()])
    if part is not None:
        result |= {"planned": run.planned_peak, "overhead": run.fitted.overhead, "in_order": fits_in_order(run)}
    return result


def built(name: str, device: torch.device) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
    """A network and its inputs on a device."""
    network, inputs = networks.build(name)
    return network.to(device), tuple(x.to(device) for x in inputs)


def optimizer_of(kind: str, params: Iterable[Tensor]) -> torch.optim.Optimizer:
    if kind == "adam":
        return torch.optim.Adam(params, fused=True)
    return torch.optim.SGD(params, lr=0.01, momentum=0.9, foreach=kind != "each")


def fits_in_order(taped: sublet.torch.TapedStep) -> bool:
    """Whether the step stays within its limit in the order that was recorded."""
    try:
        sublet.fit(taped.fitted.problem, taped.fitted.limit, using=["recompute"], alignment=1)
    except sublet.PlanError:
        return False
    return True


def limit_of(name: str, kind: str, part: float, device: torch.device) -> int:
    """Bytes: what persists, and a part of what a recorded step takes beside it."""
    network, inputs = built(name, device)
    optimizer = optimizer_of(kind, network.parameters())
    for record in (False, True):
        recording = sublet.torch.record(network, optimizer, inputs)
        if record:
            recording.__enter__()
        loss = network(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss
        if record:
            recording.__exit__(None, None, None)
    most = sublet.plan(recording.trace).max_load
    return int(recording.persistent + (most - recording.persistent) * part)


def main(name: str, limit: str, kind: str = "sgd") -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    return {"eager": trained(name, kind, None), "taped": trained(name, kind, float(limit.rstrip("%")) / 100)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4])))
