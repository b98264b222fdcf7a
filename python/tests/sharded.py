"""Ranks on gloo that hold parts of a network, each part under a plan; prints what each rank tells, as lines of JSON.

    python sharded.py fsdp|killed|steps|dtensor|pipeline|retained

`fsdp`: two ranks, FSDP2 around each block of a GPT; each has a plan, and its limit counts
what all of them keep. `killed`: the same with four ranks, of which one ends in the second step. `steps`: two ranks train by
AdamW with and without a limit, under `DistributedDataParallel` and under FSDP2. `dtensor`: parameters that are
`DTensor`s in one graph, which reads their mesh of devices in both passes. `pipeline`: two stages, 1F1B with four microbatches; the first has two passes alive at once, the second one, and
each has its limit, which counts what its schedule holds. `retained`: the same with losses that hold their graphs.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import networks
import sublet.torch
from sublet import PlanError
from sublet.torch import OverLimit, Partitioner, Parts, Stage1F1B, Together, released
from sublet.torch._measure import HEAP
from sublet.torch._taken import watch_of
from train import digest

RANKS = 2
KILLED = 4
"""How many ranks there are where one is killed."""
BLOCKS = 6
STEPS = 6
MICROBATCHES = 4
LIMITS = ["75%", "88%"]
CPU = torch.device("cpu")


def compiled(module: nn.Module, limit: int | str, **options: Any) -> tuple[Any, Partitioner]:
    """The module under a limit, and what was planned."""
    cut = Partitioner(limit, **options)
    return torch.compile(module, backend="sublet", options={"partitioner": cut}, fullgraph=True, dynamic=False), cut


def told_of(cut: Partitioner) -> dict[str, Any]:
    return {
        "limit": cut.reports[-1].limit,
        "planned": cut.reports[-1].planned_peak,
        "kept": cut.reports[-1].kept,
        "held": cut.reports[-1].held,
        "again": cut.reports[-1].again,
    }


def gpt() -> networks.Loss:
    """Of more blocks than the small one."""
    torch.manual_seed(0)
    return networks.Loss(networks.GPT(BLOCKS, 64, 4, 500, 64, 0.0))


def fsdp(rank: int, ranks: int) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    tokens = torch.randint(0, 500, (2, 4 * ranks, 64), generator=torch.Generator().manual_seed(1))
    shares = [(x, y.flatten()) for x, y in zip(tokens[0].chunk(ranks), tokens[1].chunk(ranks))]
    whole, network = gpt(), gpt()
    for share in shares:
        (whole(*share) / ranks).backward()
    mesh = init_device_mesh("cpu", (ranks,))
    body = network.network.body
    cuts = []
    for i in range(BLOCKS):
        block, cut = compiled(body[i], "65%", group=dist.group.WORLD, passes=BLOCKS)
        body[i] = block
        fully_shard(block, mesh=mesh)
        cuts.append(cut)
    fully_shard(network, mesh=mesh)
    network(*shares[rank]).backward()
    if ranks == KILLED:
        if rank == ranks - 1:
            os._exit(1)
        network(*shares[rank]).backward()
    pairs = zip(network.parameters(), whole.parameters(), strict=True)
    far = max(float((a.grad.full_tensor() - b.grad).abs().max() / b.grad.abs().max()) for a, b in pairs)
    return told_of(cuts[0]) | {"all_plans": sum(len(cut.reports) for cut in cuts), "far": far}


def stepped(rank: int, ranks: int, wraps: str, limit: str | None) -> dict[str, Any]:
    """What some steps give and take: losses, the most bytes of the last one, and what is said of the limit."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch._dynamo.reset()
    tokens = torch.randint(0, 500, (2, ranks, 8, 64), generator=torch.Generator().manual_seed(1))[:, rank]
    network: Any = gpt()
    cuts: list[Partitioner] = []
    parts = Parts(limit or "100%", group=dist.group.WORLD)
    if wraps == "ddp":
        network = nn.parallel.DistributedDataParallel(network)
        network = network if limit is None else sublet.torch.compile(network, parts)
    else:
        mesh, body = init_device_mesh("cpu", (ranks,)), network.network.body
        for i in range(BLOCKS):
            if limit is not None:
                body[i], cut = compiled(body[i], limit, group=dist.group.WORLD, passes=BLOCKS)
                cuts.append(cut)
            fully_shard(body[i], mesh=mesh)
        fully_shard(network, mesh=mesh)
    optimizer, losses = torch.optim.AdamW(network.parameters()), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(STEPS):
            said_before = len(caught)
            since = HEAP.since(CPU)
            loss = network(tokens[0].clone(), tokens[1].flatten())
            loss.backward()
            peak = since.peak
            losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
            del loss
    told = {"losses": losses, "peak": peak, "said": sum(w.category is OverLimit for w in caught[said_before:])}
    if cuts:
        told |= {"taken": max(watch_of(cut).taken for cut in cuts)} | told_of(cuts[0])
    elif limit is not None:
        told |= {"taken": parts.taken, "planned": parts.planned_peak, "limit": parts.allowed}
    return told


def steps(rank: int, ranks: int) -> dict[str, Any]:
    return {wraps: [stepped(rank, ranks, wraps, limit) for limit in (None, "65%")] for wraps in ("ddp", "fsdp")}


class Gathered(nn.Module):
    """Layers whose weights are sharded, and gathered where they are read."""

    def __init__(self, mesh: Any) -> None:
        from torch.distributed.tensor import Shard, distribute_tensor

        super().__init__()
        torch.manual_seed(0)
        shards = (distribute_tensor(torch.randn(64, 64) / 8, mesh, [Shard(0)]) for _ in range(6))
        self.weights = nn.ParameterList(map(nn.Parameter, shards))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = nn.functional.gelu(x @ weight.full_tensor())
        return x.square().mean()


def dtensor(rank: int, ranks: int) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh

    network = Gathered(init_device_mesh("cpu", (ranks,)))
    x = torch.randn(512, 64, generator=torch.Generator().manual_seed(rank))
    cut = Partitioner("70%", group=dist.group.WORLD)
    told: dict[str, Any] = {}
    for how, options in (("aot_eager", None), ("sublet", {"partitioner": cut})):
        torch._dynamo.reset()
        network.zero_grad()
        torch.compile(network, backend=how, options=options, fullgraph=True)(x).backward()
        told[how] = digest(p.grad.to_local() for p in network.parameters())
    return told_of(cut) | {"equal": told["sublet"] == told["aot_eager"]}


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(256, 256), nn.GELU())))


def pipeline(rank: int, what: str) -> dict[str, Any]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2048, 256, generator=generator), torch.randn(2048, 256, generator=generator)
    whole, network = layers(), layers()
    for a, b in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
        (nn.functional.mse_loss(whole(a), b) / MICROBATCHES).backward()
    part = slice(8 * rank, 8 * rank + 8)
    run, cut = compiled(network[part], LIMITS[rank], stage=Stage1F1B(rank, RANKS, MICROBATCHES))
    micro = x.chunk(MICROBATCHES)[0]
    # What passes between stages carries gradients back.
    between = micro.clone().requires_grad_()
    stage = PipelineStage(run, rank, RANKS, CPU, input_args=(between if rank else micro,), output_args=(between,))
    loss = nn.functional.mse_loss if what == "retained" else released(nn.functional.mse_loss)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss)
    # The plan counts what was there before: parameters, the batch (first stage only), and buffers that the stage owns.
    there = sum(p.nbytes for p in network[part].parameters()) + (0 if rank else x.nbytes)
    for step in range(2):
        network.zero_grad()
        # The outputs of the last step end where the next one begins.
        stage.clear_runtime_states()
        infos = [info for each in (stage.args_recv_info, stage.grad_recv_info) for row in each.values() for info in row]
        buffers = [getattr(info, "buffer", None) for info in infos]
        since = HEAP.since(CPU)
        schedule.step(*((x,) if rank == 0 else ()), **({"target": y} if rank else {}))
    peak = since.peak + there + sum(buffer.nbytes for buffer in buffers if buffer is not None)
    gradients = digest(p.grad for p in network[part].parameters())
    expected = digest(p.grad for p in whole[part].parameters())
    return told_of(cut) | {"peak": peak, "equal": gradients == expected}


def rank_main(rank: int, ranks: int, what: str, port: int, told: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    try:
        with Together():
            case = {"fsdp": fsdp, "killed": fsdp, "steps": steps, "dtensor": dtensor}.get(what)
            result = pipeline(rank, what) if case is None else case(rank, ranks)
    except PlanError as e:
        result = {"error": str(e), "cause": repr(e.__cause__ and e.__cause__.__cause__)}
    told.put({"rank": rank} | result)
    told.close()
    told.join_thread()
    os._exit(0)


def main(what: str) -> None:
    context = mp.get_context("spawn")
    told = context.Queue()
    port = 20000 + os.getpid() % 20000
    count = KILLED if what == "killed" else RANKS
    ranks = [context.Process(target=rank_main, args=(rank, count, what, port, told), daemon=True) for rank in range(count)]
    for each in ranks:
        each.start()
    for _ in range(count - (what == "killed")):
        print(json.dumps(told.get(timeout=900)), flush=True)
    for each in ranks:
        each.join()


if __name__ == "__main__":
    main(sys.argv[1])
