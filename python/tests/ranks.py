"""Four ranks on gloo train one network under one limit; prints what they agreed on, as JSON.

    python ranks.py CASE

CASE: `slow`, one measures other, longer times; `small`, one has a lower limit; `differ`, one has
another network; `apart`, each decides for itself, with times that differ: the control.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import networks
import sublet.torch
from sublet.torch import _measure
from train import digest

RANKS = 4


def rank_main(rank: int, case: str, port: int, told: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    if case in ("slow", "apart") and rank == 2:
        # This rank's operators take what their number in the alphabet says, and long.
        measured = _measure._measured
        _measure._measured = lambda node: _measure.Cost(10 * measured(node).time_ns * (1 + len(str(node.target)) % 7), 0)
    network, (x, y) = networks.build("gpt_small")
    if case == "differ" and rank == 2:
        network.network.body.append(torch.nn.LayerNorm(64))
    # Where it ends, ranks with a lower limit say so; this one's is lower by a few kilobytes.
    limit = 2_900_000 - (50_000 if case == "small" and rank == 1 else 0)
    group = None if case == "apart" else dist.group.WORLD
    cut = sublet.torch.Partitioner(limit, group=group)
    run = torch.compile(network, backend="sublet", options={"partitioner": cut}, fullgraph=True)
    torch.manual_seed(1)
    result: dict[str, Any] = {"rank": rank}
    try:
        share = slice(rank, rank + 1)
        loss = run(x[share].repeat(4, 1), y.view(4, -1)[share].repeat(4, 1).flatten())
        loss.backward()
        for p in network.parameters():
            dist.all_reduce(p.grad)
        report = cut.reports[-1]
        result |= {"again": report.again, "planned": report.planned_peak, "gradients": digest(p.grad for p in network.parameters())}
    except Exception as e:
        result |= {"error": str(e).splitlines()[1:2] or [str(e)]}
    told.put(result)
    dist.barrier()
    dist.destroy_process_group()


def main(case: str) -> list[dict[str, Any]]:
    context = mp.get_context("spawn")
    told = context.Queue()
    port = 20000 + os.getpid() % 20000
    ranks = [context.Process(target=rank_main, args=(rank, case, port, told)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    results = [told.get(timeout=300) for _ in ranks]
    for each in ranks:
        each.join()
    return sorted(results, key=lambda r: int(r["rank"]))


if __name__ == "__main__":
    print(json.dumps({"ranks": main(sys.argv[1])}))
