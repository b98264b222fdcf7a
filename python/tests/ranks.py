"""Ranks on gloo train one network under one limit, case by case; prints what each rank tells, as lines of JSON.

    python ranks.py COUNT CASE...

CASE: `slow`, one has other times, some of them long; `small`, one has a lower limit; `ddp`, under
DistributedDataParallel; `differ`, one has another network; `apart`, each decides for itself, and one has other times
than the rest: the control. Of these, which end their ranks, one alone: `killed`, one ends while the others plan;
`late`, one plans anew in the second step, alone; `ended`, one ends in the second step.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import networks
import sublet.torch
from sublet.torch import Together, _measure
from train import digest

ENDS = ("killed", "late", "ended")
LIMIT = 2_900_000
WAITS = int(os.environ.get("SUBLET_WAITS", "30"))
"""How many seconds a rank waits for another."""


def inputs(rank: int, x: Tensor, y: Tensor, rows: int = 4) -> tuple[Tensor, Tensor]:
    """The share of a rank: one text, several times."""
    share = slice(rank, rank + 1)
    return x[share].repeat(rows, 1), y.view(4, -1)[share].repeat(rows, 1).flatten()


def gradients_of_one_process(ranks: int) -> list[Tensor]:
    """What all shares give together, without a limit and without ranks."""
    network, (x, y) = networks.build("gpt_plain")
    for rank in range(ranks):
        network(*inputs(rank, x, y)).backward()
    return [p.grad for p in network.parameters()]


@contextlib.contextmanager
def other_times(differ: bool) -> Iterator[None]:
    """Operators take what the length of their names says, up to 10 s, or all the same."""
    measured = _measure._measured

    def made_up(node: torch.fx.Node) -> _measure.Measure:
        cost, types, draws = measured(node)
        return _measure.Cost(10_000 * 10 ** (len(str(node.target)) % 7 * differ), cost.scratch), types, draws

    _measure._measured = made_up
    _measure._measures.clear()
    yield
    _measure._measured = measured
    _measure._measures.clear()


def trained(rank: int, case: str) -> dict[str, Any]:
    """What a rank tells of one step."""
    torch._dynamo.reset()
    ranks = dist.get_world_size()
    odd = ranks // 2
    network, (x, y) = networks.build("gpt_plain")
    if case == "differ" and rank == odd:
        network.network.body.append(torch.nn.LayerNorm(64))
    # Where it ends, ranks with a lower limit say so; this one's is lower by a few kilobytes.
    limit = LIMIT - (50_000 if case == "small" and rank == 1 else 0)
    group, timeout = None if case == "apart" else dist.group.WORLD, WAITS if case in ENDS else 10 * WAITS
    cut = sublet.torch.Partitioner(limit, group=group, timeout=timeout)
    options = {"partitioner": cut}
    if case == "ddp":
        # Its own optimizer would cut the graph, and each part would have a limit of its own.
        torch._dynamo.config.optimize_ddp = False
        run: Any = torch.compile(torch.nn.parallel.DistributedDataParallel(network), backend="sublet", options=options)
    else:
        run = torch.compile(network, backend="sublet", options=options, fullgraph=True, dynamic=False)
    if case == "killed" and rank == ranks - 1:
        os._exit(1)
    together = Together(patience=WAITS)
    for step in range(2 if case in ENDS else 1):
        with together:
            network.zero_grad()
            loss = run(*inputs(rank, x, y, 3 if step and case == "late" and rank == odd else 4))
            if step and case == "ended" and rank == odd:
                os._exit(1)
            loss.backward()
            for p in network.parameters():
                if case == "ddp":
                    p.grad.mul_(ranks)
                else:
                    dist.all_reduce(p.grad)
    report = cut.reports[-1]
    gradients = [p.grad for p in network.parameters()]
    told = {"again": report.again, "planned": report.planned_peak, "gradients": digest(gradients)}
    if case != "apart":
        pairs = zip(gradients, gradients_of_one_process(dist.get_world_size()))
        told["far"] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    return told


def rank_main(rank: int, ranks: int, cases: list[str], port: int, told: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=300))
    for case in cases:
        odd = rank == ranks // 2
        try:
            with other_times(odd) if case == "apart" or odd and case == "slow" else contextlib.nullcontext():
                result = trained(rank, case)
        except Exception as e:
            result = {"error": str(e)}
        told.put({"case": case, "rank": rank} | result)
    if not {*ENDS} & {*cases}:
        dist.barrier()
    told.close()
    told.join_thread()
    os._exit(0)


def main(count: str, *cases: str) -> None:
    context = mp.get_context("spawn")
    told = context.Queue()
    port = 20000 + os.getpid() % 20000
    arguments = (int(count), [*cases], port, told)
    ranks = [context.Process(target=rank_main, args=(rank, *arguments), daemon=True) for rank in range(int(count))]
    for each in ranks:
        each.start()
    for _ in range(sum(len(ranks) - (case in ("killed", "ended")) for case in cases)):
        print(json.dumps(told.get(timeout=900)), flush=True)
    for each in ranks:
        each.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
