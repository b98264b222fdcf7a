"""Trains a network in several ways, one after the other, and prints what each took, as a line of JSON.

    python train.py NETWORK sgd|adam HOW...

HOW: `eager`; `traced`, PyTorch's own graph, operator by operator; `sublet=60%`, a part of the peak above what persists, or bytes
above it; `both=60%`, where blocks may be swapped too; `swap=75%`, where they are and nothing runs again; `torch=0.5`,
PyTorch's activation memory budget, in the same executor;
`blocks`, every block under torch.utils.checkpoint, in the same executor; `inductor` and `inductor=60%`, PyTorch's compiler on its own
cut and on ours; `spoiled=60%`, where what runs again comes out a thousandth larger, which must be seen.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config, partitioners
from torch.utils.checkpoint import checkpoint

import networks
from sublet.torch import Partitioner
from sublet.torch._joint import Joint, bytes_of, is_item, is_view
from sublet.torch._measure import HEAP, cost_of
from sublet.torch._partition import Writer

CPU = torch.device("cpu")


def digest(tensors: Iterable[Tensor]) -> str:
    """The bits of tensors, as a short text."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().flatten().view(torch.uint8).cpu().numpy().tobytes())
    return total.hexdigest()[:16]


class Part(Partitioner):
    """A limit as a part of what is above parameters and inputs."""

    def _fit(self, joint: Joint) -> Any:
        import sublet

        persistent = sum(map(bytes_of, joint.primals))
        above, percent, _ = str(self.limit).partition("%")
        if percent:
            most = sublet.plan(joint.graph, solver="best-fit").max_load
            self.limit = int(persistent + (most - persistent) * float(above) / 100)
        else:
            self.limit = persistent + int(above)
        return super()._fit(joint)


@contextlib.contextmanager
def spoiled() -> Iterator[None]:
    """What runs again comes out a thousandth larger."""
    whole = Writer._run

    def run(self: Writer, op: fx.Node, again: bool) -> None:
        whole(self, op, again)
        if again and op in self.device and op.meta["val"].dtype.is_floating_point:
            self.device[op] = self.graph.call_function(torch.ops.aten.mul.Scalar, (self.device[op], 1.001))
            self.device[op].meta = dict(op.meta)

    Writer._run = run
    yield
    Writer._run = whole


class Peer:
    """PyTorch's own partitioner; its time is what its operators take, each measured alone."""

    def __init__(self) -> None:
        self.overhead = 0.0

    def __call__(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        joint.graph.eliminate_dead_code()
        before = total_ns(joint)
        parts = partitioners.min_cut_rematerialization_partition(joint, inputs, **options)
        self.overhead = sum(map(total_ns, parts)) / before - 1
        return parts


class Block(torch.nn.Module):
    """A block that is computed again in the backward pass."""

    def __init__(self, block: torch.nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.block, x, use_reentrant=False)


def in_blocks(network: torch.nn.Module) -> None:
    """Every block of the network's body, or each half of a U-Net's levels, is computed again."""
    inner = network.network
    lists = [inner.down, inner.up] if hasattr(inner, "down") else [getattr(inner, "body", inner)]
    for blocks in lists:
        for i, block in enumerate(blocks):
            if any(True for _ in block.children()):
                blocks[i] = Block(block)


def total_ns(graph: fx.GraphModule) -> int:
    """What the operators of a graph take, one after the other; but for those that PyTorch wraps to keep their random state, which
    say nothing of what they make."""
    ops = [n for n in graph.graph.nodes if n.op == "call_function" and "val" in n.meta and not is_view(n) and not is_item(n)]
    return sum(cost_of(n).time_ns for n in ops)


def compiled(network: torch.nn.Module, how: str) -> tuple[Any, Any]:
    """The network as it is to run, and the partitioner that has cut it."""
    what, _, value = how.partition("=")
    partitioner: Any = None
    if what == "eager":
        return network, None
    if what == "traced":
        return torch.compile(network, backend="aot_eager", fullgraph=True), None
    if what in ("sublet", "spoiled", "both", "swap"):
        using = {"both": ("recompute", "swap"), "swap": ("swap",)}.get(what, ("recompute",))
        partitioner = Part(value, using=using)
        return torch.compile(network, backend="sublet", options={"partitioner": partitioner}, fullgraph=True), partitioner
    if what == "inductor":
        partitioner = Part(value) if value else None
        options = {"custom_partitioner_fn": partitioner, "reorder_for_peak_memory": False} if value else {}
        return torch.compile(network, fullgraph=True, options=options), partitioner
    assert what in ("torch", "blocks"), f"there is no way {how}"
    if what == "blocks":
        in_blocks(network)
    config.activation_memory_budget = float(value or 1)
    partitioner = Peer()
    backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partitioner)
    return torch.compile(network, backend=backend, fullgraph=True), partitioner


def stepped(
    run: Any, network: torch.nn.Module, inputs: tuple[Tensor, ...], optimizer: Any, steps: int
) -> tuple[list[int], dict[str, Any]]:
    """Trains for some steps: the peak of each, in bytes, and what came out: losses, first gradients, weights."""
    params = list(network.parameters())
    torch.manual_seed(1)
    peaks, losses, gradients = [], [], ""
    for i in range(steps):
        gc.collect()
        since = HEAP.since(CPU)
        loss = run(*inputs)
        loss.backward()
        peaks.append(since.peak)
        losses.append(loss.item())
        if i == 0:
            gradients = digest(p.grad for p in params if p.grad is not None)
        optimizer.step()
        optimizer.zero_grad()
        del loss
    return peaks, {"losses": losses, "gradients": gradients, "weights": digest([*params, *network.buffers()])}


def train(name: str, kind: str, how: str, steps: int = 3) -> dict[str, Any]:
    """Trains it from its beginning, and tells what it took: the peak is that of the last step, in bytes."""
    torch._dynamo.reset()
    network, inputs = networks.build(name)
    network.train()
    params = list(network.parameters())
    optimizer: Any = torch.optim.SGD(params, lr=0.01, momentum=0.9)
    if kind == "adam":
        optimizer = torch.optim.Adam(params, fused=True)
    run, partitioner = compiled(network, how)
    peaks, came_out = stepped(run, network, inputs, optimizer, steps)
    result: dict[str, Any] = {"network": name, "how": how, "peak": peaks[-1], **came_out}
    if isinstance(partitioner, Partitioner):
        report = partitioner.reports[-1]
        result |= {"planned": report.planned_peak - report.persistent, "overhead": report.overhead}
        result |= {"again": len(report.again), "swapped": report.swapped}
    elif partitioner is not None:
        result["overhead"] = partitioner.overhead
    return result


def equal(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether two ways of training give the same bits."""
    return all(ours[what] == theirs[what] for what in ("losses", "gradients", "weights"))


def main(name: str, kind: str, hows: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for how in hows:
        with spoiled() if how.startswith("spoiled") else contextlib.nullcontext():
            print(json.dumps(train(name, kind, how)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
