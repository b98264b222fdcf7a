"""Networks of transformers, timm, diffusers and PyTorch under PyTorch's own compiler, within limits of `sublet.torch.compile`.

    python benches/inductor_networks.py [NAME...]

It needs torch, transformers, timm and diffusers. A network has these limits: 60 and 45 % of what its operators take one by one above
what persists, the peak of the compiler's own cut, and that of its `activation_memory_budget`, the one of two with the lower peak,
where that is below the own cut's. A line each says what was planned and taken, in MB above what persists, and the time of the thread over that of the own cut and that of
the budget: the median over pairs of steps, one after the other. The dry runs of a limit may take a minute. The bench ends with 1
where a step has taken more than 1 % above its limit, or a plan is off by more than 3 %.
"""

from __future__ import annotations

import gc
import hashlib
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import diffusers
import timm
import torch
import transformers
from torch import Tensor, nn
from torch._functorch import config

import sublet.torch
from sublet.torch._joint import Joint, bytes_of
from sublet.torch._measure import HEAP

CPU = torch.device("cpu")
PAIRS = 9
SHARES = (0.6, 0.45)
BUDGETS = (0.5, 0.2)
WORDS, BATCH, LENGTH = 1000, 4, 128
TOLD = 1.01, 1.03
"""What a step may take over its limit, and what may lie between a plan and what is taken."""


class Classes(nn.Module):
    """A network that tells classes, and its loss."""

    def __init__(self, network: nn.Module, pick: Callable[[Any], Tensor] = lambda out: out) -> None:
        super().__init__()
        self.network, self.pick = network, pick

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.pick(self.network(x)), y)


class Noise(nn.Module):
    """A U-Net that tells noise, and its loss."""

    def __init__(self) -> None:
        super().__init__()
        down, up = ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")
        sizes = {"sample_size": 32, "in_channels": 3, "out_channels": 3, "layers_per_block": 1}
        self.network = diffusers.UNet2DModel(**sizes, block_out_channels=(64, 128, 128), down_block_types=down, up_block_types=up)

    def forward(self, x: Tensor, at: Tensor, noise: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.network(x, at).sample, noise)


class Words(nn.Module):
    """A network of transformers, which has its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        # Where it is not told, the network warns, which breaks its graph.
        network.loss_type = "ForCausalLM"
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        return self.network(input_ids=tokens, labels=tokens).loss


def llama() -> tuple[nn.Module, tuple[Tensor, ...]]:
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 688}
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=WORDS, **sizes))
    return Words(network), (torch.randint(3, WORDS, (BATCH, LENGTH)),)


def gpt2() -> tuple[nn.Module, tuple[Tensor, ...]]:
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, n_embd=256, n_layer=3, n_head=4))
    return Words(network), (torch.randint(3, WORDS, (BATCH, LENGTH)),)


def encoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(192, 4, 768, batch_first=True), 4)
    network = Classes(nn.Sequential(layers, nn.Linear(192, 10)), lambda out: out.mean(1))
    return network, (torch.randn(8, LENGTH, 192), torch.randint(0, 10, (8,)))


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Noise(), (torch.randn(4, 3, 32, 32), torch.randint(0, 1000, (4,)), torch.randn(4, 3, 32, 32))


def images(network: nn.Module, count: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Classes(network), (torch.randn(count, 3, 64, 64), torch.randint(0, 10, (count,)))


def vit() -> tuple[nn.Module, tuple[Tensor, ...]]:
    sizes = {"img_size": 64, "patch_size": 8, "embed_dim": 192, "depth": 3, "num_heads": 3}
    return images(timm.models.VisionTransformer(**sizes, num_classes=10), 16)


def convnext() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return images(timm.models.ConvNeXt(depths=(1, 1, 2, 1), dims=(32, 64, 128, 256), num_classes=10), 16)


NETWORKS = {each.__name__: each for each in (llama, encoder, unet, gpt2, vit, convnext)}


class Read(BaseException):
    """Ends a compilation once its graph was read."""


class Reader(sublet.torch.Partitioner):
    """Reads what persists, and what the operators of a graph take above it one by one."""

    def _fit(self, joint: Joint) -> Any:
        self.persistent = sum(map(bytes_of, joint.primals))
        self.above = sublet.plan(joint.graph, solver="best-fit").max_load - self.persistent
        raise Read


@dataclass
class Way:
    """A network that is compiled in one way."""

    network: nn.Module
    run: Callable[..., Tensor]
    batch: tuple[Tensor, ...]
    peak: int = 0
    """The most bytes of a step above what persists."""
    bits: str = ""
    """A digest of the gradients of its first step."""
    parts: sublet.torch.Parts | None = None

    def step(self) -> int:
        """Runs a step; how long that took, in ns."""
        self.network.zero_grad()
        gc.collect()
        since, begin = HEAP.since(CPU), time.thread_time_ns()
        self.run(*self.batch).backward()
        took = time.thread_time_ns() - begin
        self.peak = since.peak
        return took

    def warmed(self) -> Way:
        """Compiles, and runs some steps."""
        torch.manual_seed(1)
        self.step()
        digest = hashlib.sha256()
        for p in self.network.parameters():
            digest.update(b"" if p.grad is None else p.grad.contiguous().numpy().tobytes())
        self.bits = digest.hexdigest()
        for _ in range(3):
            self.step()
        self.network.zero_grad()
        return self


def built(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    network, batch = NETWORKS[name]()
    return network.train(), batch


def own(name: str, budget: float = 1.0) -> Way:
    """A network by the compiler's own cut."""
    network, batch = built(name)
    with config.patch(activation_memory_budget=budget):
        return Way(network, torch.compile(network), batch).warmed()


def within(name: str, limit: int) -> Way:
    network, batch = built(name)
    parts = sublet.torch.Parts(limit, compiler="inductor")
    return Way(network, sublet.torch.compile(network, parts), batch, parts=parts).warmed()


def read(name: str) -> Reader:
    network, batch = built(name)
    reader = Reader("100%")
    try:
        torch.compile(network, options={"custom_partitioner_fn": reader})(*batch)
    except Read:
        pass
    torch._dynamo.reset()
    return reader


def ratio(ours: Way, theirs: Way) -> float:
    """The time of a step over that of another one."""
    return statistics.median(ours.step() / theirs.step() for _ in range(PAIRS))


def rows(name: str) -> int:
    """Prints the rows of a network; how many of them are wrong."""
    wrong, seen = 0, read(name)
    theirs = own(name)
    budgets = {share: own(name, share) for share in BUDGETS}
    share = min(budgets, key=lambda each: budgets[each].peak)
    budget = budgets[share]
    limits = {f"{each:.0%}": int(seen.above * each) for each in SHARES} | {"own": theirs.peak}
    if budget.peak < theirs.peak:
        limits[f"budget {share}"] = budget.peak
    told = f"own cut {theirs.peak / 1e6:6.2f}, budget {share} {budget.peak / 1e6:6.2f} MB at {ratio(budget, theirs):.3f}"
    print(f"{name:9} {told} of its time", flush=True)
    for what, above in limits.items():
        start = f"{name:9} {what:>10} limit {above / 1e6:6.2f}"
        begin = time.monotonic()
        try:
            ours = within(name, seen.persistent + above)
        except Exception as e:
            refusal = getattr(e, "inner_exception", e)
            if not isinstance(refusal, sublet.PlanError):
                raise
            why = str(refusal) if refusal.least is None else f"{(refusal.least - seen.persistent) / 1e6:.2f} MB were the least"
            print(f"{start}, refused: {why}", flush=True)
            continue
        assert ours.parts is not None
        took, planned = time.monotonic() - begin, ours.parts.planned_peak - seen.persistent
        over, off = ours.peak / above, max(ours.peak / planned, planned / ours.peak)
        wrong += over > TOLD[0] or off > TOLD[1]
        print(
            f"{start}, planned {planned / 1e6:6.2f}, taken {ours.peak / 1e6:6.2f}, time {ratio(ours, theirs):.3f} of its own cut, "
            f"{ratio(ours, budget):.3f} of the budget, {'its' if ours.bits == theirs.bits else 'other'} bits, ready in {took:.0f} s"
            + (", ABOVE THE LIMIT" if over > TOLD[0] else "")
            + (f", THE PLAN IS OFF BY {off - 1:.1%}" if off > TOLD[1] else ""),
            flush=True,
        )
    return wrong


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch._dynamo.config.recompile_limit = 64
    warnings.simplefilter("ignore")
    return int(sum(map(rows, names)) > 0)


if __name__ == "__main__":
    status = main(sys.argv[1:] or [*NETWORKS])
    sys.stdout.flush()
    os._exit(status)
