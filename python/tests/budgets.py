"""Sublet beside PyTorch's activation memory budget and beside checkpointing of blocks, at the same peaks: rows of CSV.

    python budgets.py [NETWORK...]

For each way of PyTorch's its measured peak becomes sublet's limit; overheads are sums over operators, each of which is
measured once for both. A way that fails has no figures, and its error goes to standard error. Where sublet takes more memory or
more time than a way that works, or gives other bits, the row is named at the end, and the exit status is 1.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from train import equal, train

NETWORKS = ["gpt_small", "vit_small", "mixer_small", "unet_small", "resnet_small_gn", "resnet_small"]
"""The last has batch norm, which the budget does not train."""
WAYS = ["torch=0.7", "torch=0.5", "torch=0.3", "torch=0.1", "torch=0", "blocks"]
ROOM = 16384
"""What the limit is below the other's peak, in bytes: the counter sees small allocations that no plan has."""


def row_of(name: str, way: str, eager: dict[str, Any]) -> tuple[list[Any], bool]:
    """The row of a way, and whether sublet is at or below it."""
    row = [name, way, eager["peak"]]
    try:
        theirs = train(name, "sgd", way, steps=2)
    except Exception as e:
        print(name, way, *str(e).strip().splitlines()[:2], file=sys.stderr)
        return [*row, "", "", "", "", ""], True
    limit = min(theirs["peak"], eager["peak"]) - ROOM
    row += [theirs["peak"], f"{theirs['overhead']:.4f}"]
    try:
        ours = train(name, "sgd", f"sublet={limit}", steps=2)
    except torch._dynamo.exc.BackendCompilerFailed as e:
        print(name, way, *str(e).strip().splitlines()[:2], file=sys.stderr)
        return [*row, "", "", ""], False
    same = equal(ours, eager)
    row += [ours["peak"], f"{ours['overhead']:.4f}", int(same)]
    return row, same and ours["peak"] <= theirs["peak"] and ours["overhead"] <= max(theirs["overhead"], 0)


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print("network,way,eager_bytes,peak_bytes,overhead,sublet_bytes,sublet_overhead,equal")
    above = []
    for name in names:
        eager = train(name, "sgd", "eager", steps=2)
        for way in WAYS:
            row, below = row_of(name, way, eager)
            print(",".join(map(str, row)), flush=True)
            above += [] if below else [f"{name} {way}"]
    print("above:", ", ".join(above) or "none", file=sys.stderr, flush=True)
    return bool(above)


if __name__ == "__main__":
    status = main(sys.argv[1:] or NETWORKS)
    sys.stdout.flush()
    os._exit(status)
