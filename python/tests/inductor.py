"""Under PyTorch's compiler: sublet's cut beside its own and beside its activation memory budgets, as rows of CSV.

    python inductor.py [NETWORK...]

The peak is the heap's in a step's forward and backward pass, and time what the thread took for them, the least of several steps,
as a part of that of the compiler's own cut. `sublet=50` has a limit of 50 % of what the operators take one by one, above what
persists; `planned_bytes` is what the plan then says. `equal` says whether the first loss and the gradients have the bits of the
compiler's own cut. At the end stands for each budget the fastest cut of sublet's that takes no more memory, on standard error.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from torch._functorch import config

import networks
from sublet.torch._measure import HEAP
from train import Part, digest

NETWORKS = ["gpt_small", "resnet_small", "mlp"]
BUDGETS = ["0.5", "0.3", "0.1"]
LIMITS = ["90", "85", "70", "60", "50"]
STEPS = 20
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    way: str
    peak: int
    ns: int
    bits: tuple[float, str]
    planned: int | None


def measured(name: str, way: str) -> Row | None:
    """What a way takes; None where it fails."""
    torch._dynamo.reset()
    network, inputs = networks.build(name)
    what, _, value = way.partition("=")
    cut = Part(f"{value}%")
    # The compiler would put operators into another order than the plan's.
    ours = {"custom_partitioner_fn": cut, "reorder_for_peak_memory": False}
    options: dict[str, Any] = ours if what == "sublet" else {}
    config.activation_memory_budget = float(value) if what == "torch" else 1.0
    run = torch.compile(network, fullgraph=True, options=options)
    torch.manual_seed(1)
    took, peak, bits = [], 0, (0.0, "")
    for i in range(STEPS):
        since = HEAP.since(CPU)
        begin = time.thread_time_ns()
        try:
            loss = run(*inputs)
        except Exception as e:
            print(name, way, *str(e).strip().splitlines()[:2], file=sys.stderr)
            return None
        loss.backward()
        took.append(time.thread_time_ns() - begin)
        peak = since.peak
        if not i:
            bits = (loss.item(), digest(p.grad for p in network.parameters() if p.grad is not None))
        network.zero_grad()
        del loss
    planned = cut.reports[-1].planned_peak - cut.reports[-1].persistent if cut.reports else None
    return Row(way, peak, min(took), bits, planned)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print("network,way,peak_bytes,time,equal,planned_bytes")
    for name in names:
        ways = ["own", *(f"torch={b}" for b in BUDGETS), *(f"sublet={p}" for p in LIMITS)]
        rows: list[Row] = []
        for way in ways:
            row = measured(name, way)
            if row is not None:
                rows.append(row)
                told = [name, way, row.peak, f"{row.ns / rows[0].ns:.3f}", int(row.bits == rows[0].bits), row.planned or ""]
                print(",".join(map(str, told)), flush=True)
        for theirs in (row for row in rows if not row.way.startswith("sublet")):
            ours = [row for row in rows if row.way.startswith("sublet") and row.peak <= theirs.peak]
            best = min(ours, key=lambda row: row.ns, default=None)
            told = f"{best.way} in {best.peak} bytes, {best.ns / theirs.ns:.3f} of its time" if best else "none"
            print(f"{name}, {theirs.way} in {theirs.peak} bytes: {told}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or NETWORKS)
    sys.stdout.flush()
    os._exit(0)
