"""Sublet beside PyTorch's activation memory budget and beside checkpointing of blocks, at the same peaks: rows of CSV.

    LD_PRELOAD=libheap.so python budgets.py NETWORK...

For each way of PyTorch's its measured peak becomes sublet's limit; overheads are sums over operators, each of which is
measured once for both. A way that fails has no figures.
"""

from __future__ import annotations

import contextlib
import sys

import torch

from train import equal, train

WAYS = ["torch=0.7", "torch=0.5", "torch=0.3", "torch=0.1", "torch=0", "blocks"]
ROOM = 4096
"""What the limit is below the other's peak, in bytes: the counter sees small allocations that no plan has."""


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    print("network,way,eager_bytes,peak_bytes,overhead,sublet_bytes,sublet_overhead,equal")
    for name in names:
        eager = train(name, "sgd", "eager", steps=2)
        for way in WAYS:
            row = [name, way, eager["peak"]]
            limit = None
            try:
                theirs = train(name, "sgd", way, steps=2)
                limit = min(theirs["peak"], eager["peak"]) - ROOM
                row += [theirs["peak"], f"{theirs['overhead']:.4f}"]
            except Exception as e:
                print(name, way, str(e).strip().splitlines()[:2], file=sys.stderr)
                row += ["", ""]
            if limit is not None:
                with contextlib.suppress(torch._dynamo.exc.BackendCompilerFailed):
                    ours = train(name, "sgd", f"sublet={limit}", steps=2)
                    row += [ours["peak"], f"{ours['overhead']:.4f}", int(equal(ours, eager))]
            print(",".join(map(str, row)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
