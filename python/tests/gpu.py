"""Networks trained in PyTorch on a GPU within a limit: rows of CSV, and then a GPU that is too small.

    python gpu.py [NETWORK...]

The ways are those of `train.py`. The peak is that of PyTorch's allocator in a
step's forward and backward pass, above what is there before it; the time is the median of several steps, as a part of that of
`traced`, PyTorch's own graph, operator by operator: eagerly PyTorch has other kernels for batch norm. `expected` is the overhead of
the plan or, of PyTorch's ways, of the operators that they run. `equal` says whether losses and gradients have the bits of `traced`.

Then the whole step, optimizer included, as a tape, beside the same step eagerly. At last PyTorch may take only so much memory as is
too little for it to train eagerly, which has to fail, and sublet has to train.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

import networks
from sublet.torch import Partitioner
from sublet.torch._measure import HEAP
from tape import trained
from train import compiled, digest

NETWORKS = ["resnet50_large", "gpt2_medium"]
WAYS = ["traced", "eager", "sublet=60%", "sublet=40%", "both=40%", "both=25%", "torch=0.5", "torch=0.2", "blocks"]
WAYS += ["inductor", "inductor=60%", "inductor=40%"]
STEPS = 12
WARM = 3
GPU = torch.device("cuda")
WHOLE = [("resnet50_large", "sgd", 0.7), ("resnet50_large", "sgd", 0.5), ("gpt2_medium", "adam", 0.6)]
"""Whole steps: network, optimizer, and the part of the peak above what persists."""
HALF = {"gpt2_medium"}
"""The networks of bfloat16."""


@dataclass(frozen=True)
class Row:
    """What a way takes."""

    peak: int
    planned: int | None
    seconds: float
    """The median of the steps."""
    expected: float | None
    bits: tuple[list[float], str]
    """The losses, and a digest of the first gradients."""


def measured(name: str, way: str, steps: int = STEPS) -> Row:
    """Trains a network in one way."""
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    network, inputs = networks.build(name)
    network.to(GPU, torch.bfloat16 if name in HALF else torch.float32)
    inputs = tuple(x.to(GPU) for x in inputs)
    run, partitioner = compiled(network, way)
    torch.manual_seed(1)
    seconds, losses, gradients, peak = [], [], "", 0
    for i in range(steps):
        torch.cuda.synchronize()
        since, begin = HEAP.since(GPU), time.perf_counter()
        loss = run(*inputs)
        loss.backward()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        peak = since.peak
        losses.append(loss.item())
        del loss
        if i == 0:
            gradients = digest(p.grad for p in network.parameters() if p.grad is not None)
        network.zero_grad()
    planned, expected = None, getattr(partitioner, "overhead", None)
    if isinstance(partitioner, Partitioner):
        report = partitioner.reports[-1]
        planned, expected = report.planned_peak - report.persistent, report.overhead
    return Row(peak, planned, statistics.median(seconds[WARM:] or seconds), expected, (losses, gradients))


def tell(error: Exception, *what: Any) -> None:
    """Says on standard error why something was not measured."""
    print(*what, *str(error).strip().splitlines()[:2], file=sys.stderr, flush=True)


def rows(name: str, ways: list[str]) -> dict[str, Row]:
    """Prints what each way takes; a way that fails says why on standard error."""
    found: dict[str, Row] = {}
    for way in ways:
        try:
            row = found[way] = measured(name, way)
        except Exception as e:
            tell(e, name, way)
            continue
        own = found.get("traced", row)
        expected = "" if row.expected is None else f"{row.expected:.3f}"
        times = [f"{1e3 * row.seconds:.1f}", f"{row.seconds / own.seconds:.3f}", expected]
        told = [name, way, row.peak, row.planned or "", *times, int(row.bits == own.bits)]
        print(",".join(map(str, told)), flush=True)
    return found


def whole(name: str, kind: str, part: float) -> bool:
    """Prints what whole steps take, eagerly and taped. Whether the taped ones stay within their plan and have the same bits."""
    eager = trained(name, kind, None, GPU, STEPS)
    torch.cuda.empty_cache()
    try:
        taped = trained(name, kind, part, GPU, STEPS)
    except Exception as e:
        tell(e, name, kind, part)
        return False
    torch.cuda.empty_cache()
    equal = (eager["losses"], eager["weights"]) == (taped["losses"], taped["weights"])
    times = f"{1e3 * eager['seconds']:.1f},{1e3 * taped['seconds']:.1f},{taped['overhead']:.3f}"
    print(f"{name},{kind},{part},{eager['peak']},{taped['peak']},{taped['planned']},{times},{int(equal)}", flush=True)
    return equal and taped["peak"] <= taped["planned"] * 1.01


def short(name: str, peak: int) -> bool:
    """Whether sublet trains a network where PyTorch alone finds too little memory, because it may take only three quarters of
    `peak`, the bytes of an eager step, beside what is there before it."""
    network, inputs = networks.build(name)
    size = 2 if name in HALF else 4
    there = sum(p.numel() * (size if p.is_floating_point() else 8) for p in [*network.parameters(), *network.buffers(), *inputs])
    most = there + peak * 3 // 4
    del network, inputs
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(most / torch.cuda.get_device_properties(GPU).total_memory)
    outcome = {}
    for way in ("eager", "sublet=45%"):
        try:
            outcome[way] = f"trains, {measured(name, way, 2).peak} bytes in a step"
        except torch.OutOfMemoryError:
            outcome[way] = "out of memory"
        print(f"{name} in {most} bytes: {way} {outcome[way]}", flush=True)
    torch.cuda.set_per_process_memory_fraction(1.0)
    return outcome["eager"] == "out of memory" and outcome["sublet=45%"].startswith("trains")


def main(names: list[str]) -> int:
    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no CUDA device")
        return 77
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    print("network,way,peak_bytes,planned_bytes,ms,time,expected,equal", flush=True)
    found = {name: rows(name, WAYS) for name in names}
    print("whole step,optimizer,part,eager_bytes,peak_bytes,planned_bytes,eager_ms,ms,expected,equal", flush=True)
    equal = [whole(*each) for each in WHOLE if each[0] in names]
    trains = [short(name, found[name]["eager"].peak) for name in names]
    within = [row.peak <= row.planned * 1.01 for each in found.values() for way, row in each.items() if way[:4] in ("subl", "both")]
    return int(not all(equal + trains + within))


if __name__ == "__main__":
    status = main(sys.argv[1:] or NETWORKS)
    sys.stdout.flush()
    os._exit(status)
