"""Networks of transformers and timm within limits of `sublet.torch.compile`: at the least that is found, at 50 and at 70 % of what a step
takes without a plan. Prints a line for each, and ends with 1 where a step has taken more than 0.2 % above its limit, or has other bits
than PyTorch's own graph (`aot_eager`).

    python benches/torch_networks.py [NAME...]

It needs torch, transformers and timm. The time is that of the thread, the least of some steps, over that of `aot_eager`.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import timm
import torch
import transformers
from torch import Tensor, nn

import sublet.torch
from sublet.torch._measure import HEAP

CPU = torch.device("cpu")
STEPS = 4
LIMITS = ("least", "50%", "70%")
WORDS, BATCH, LENGTH = 500, 8, 128
SMALL = {"vocab_size": WORDS, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = {**SMALL, "intermediate_size": 512}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "OPT": ("OPTForCausalLM", {**SMALL, "ffn_dim": 512, "word_embed_proj_dim": 128, "dropout": 0.0}),
    "Bloom": ("BloomForCausalLM", {"vocab_size": WORDS, "hidden_size": 128, "n_layer": 2, "n_head": 4}),
    "GPTNeoX": ("GPTNeoXForCausalLM", WIDE),
    "Falcon": ("FalconForCausalLM", {**SMALL, "alibi": False}),
    "StableLm": ("StableLmForCausalLM", {**WIDE, "num_key_value_heads": 4}),
    "Olmo": ("OlmoForCausalLM", {**WIDE, "num_key_value_heads": 4}),
    "Roberta": ("RobertaForMaskedLM", WIDE),
    "Electra": ("ElectraForMaskedLM", {**WIDE, **NO_DROPOUT, "embedding_size": 128}),
    "Albert": ("AlbertForMaskedLM", {**WIDE, "embedding_size": 64}),
}
"""By configuration: the class of the network, and what is smaller than by default."""

IMAGES = {
    "regnety_002": 24,
    "mobilenetv3_small_050": 48,
    "mixer_s32_224": 4,
    "resnetv2_50": 2,
    "vgg11_bn": 1,
    "pvt_v2_b0": 8,
    "ghostnet_050": 32,
}
"""By name in timm: how many images a batch has."""


class Classes(nn.Module):
    """A network for images and its loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.network(x), y)


def built(name: str) -> tuple[nn.Module, dict[str, Tensor], Callable[[Any], Tensor]]:
    """A network, its batch, and what takes the loss of what it returns."""
    torch.manual_seed(0)
    if name in TEXTS:
        cls, smaller = TEXTS[name]
        network = getattr(transformers, cls)(getattr(transformers, f"{name}Config")(**smaller))
        tokens = torch.randint(3, WORDS, (BATCH, LENGTH))
        return network, {"input_ids": tokens, "labels": tokens.clone()}, lambda result: result.loss
    size = 224 if "mixer" in name else 96
    network = Classes(timm.create_model(name, num_classes=10))
    return network, {"x": torch.randn(IMAGES[name], 3, size, size), "y": torch.randint(0, 10, (IMAGES[name],))}, lambda loss: loss


def trained(name: str, limit: int | str | None) -> dict[str, Any]:
    """What steps of a network within a limit take and give; without one, by PyTorch's own graph."""
    torch._dynamo.reset()
    network, batch, loss_of = built(name)
    network.train()
    parts = None if limit is None else sublet.torch.Parts(limit)
    if parts is None:
        network.compile(backend="aot_eager")
    else:
        sublet.torch.compile(network, parts)
    held = sum(x.untyped_storage().nbytes() for x in {*network.parameters(), *network.buffers(), *batch.values()})
    torch.manual_seed(1)
    peaks, seconds = [], []
    for _ in range(STEPS):
        gc.collect()
        network.zero_grad()
        since, begin = HEAP.since(CPU), time.thread_time()
        loss_of(network(**batch)).backward()
        seconds.append(time.thread_time() - begin)
        peaks.append(since.peak + held)
    digest = hashlib.sha256()
    for p in [*network.parameters(), *network.buffers()]:
        digest.update(b"" if p.grad is None else p.grad.contiguous().numpy().tobytes())
    told = {"taken": max(peaks[2:]), "seconds": min(seconds[1:]), "bits": digest.hexdigest()}
    if parts is not None:
        original = sum(sum(part.joint.graph.time_ns) for part in parts.parts if part.joint is not None)
        told |= {"limit": parts.allowed, "planned": parts.planned_peak, "overhead": parts.overhead_ns / max(original, 1)}
    return told


def least_of(name: str) -> int:
    """The least limit that a refusal names."""
    try:
        trained(name, 1)
    except Exception as e:
        refusal = getattr(e, "inner_exception", e)
        if isinstance(refusal, sublet.PlanError):
            for limit in (refusal.least, refusal.needed):
                if limit is not None:
                    return limit
        raise
    raise AssertionError(f"{name}: a byte is enough")


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    warnings.simplefilter("ignore")
    wrong = 0
    for name in names:
        own = trained(name, None)
        for share in LIMITS:
            limit: int | str = least_of(name) if share == "least" else share
            for _ in range(3):
                try:
                    ours = trained(name, limit)
                    break
                except Exception as e:
                    # A bound on what is needed is no limit that works; the refusal at that has one.
                    refusal = getattr(e, "inner_exception", e)
                    if share != "least" or not isinstance(refusal, sublet.PlanError) or refusal.least is None:
                        print(f"{name:22} {share:>6} {type(refusal).__name__}: {str(refusal)[:200]}", flush=True)
                        ours = {}
                        break
                    limit = refusal.least
            if not ours:
                continue
            is_held, is_same = ours["taken"] <= ours["limit"] * 1.002, ours["bits"] == own["bits"]
            wrong += not (is_held and is_same)
            print(
                f"{name:22} {share:>6} own {own['taken'] / 1e6:7.2f} MB, limit {ours['limit'] / 1e6:7.2f}, planned "
                f"{ours['planned'] / 1e6:7.2f}, taken {ours['taken'] / 1e6:7.2f}, overhead said {100 * ours['overhead']:5.1f} %, "
                f"measured {100 * (ours['seconds'] / own['seconds'] - 1):5.1f} %"
                + ("" if is_held else ", ABOVE THE LIMIT") + ("" if is_same else ", OTHER BITS"),
                flush=True,
            )
    return int(wrong > 0)


if __name__ == "__main__":
    status = main(sys.argv[1:] or [*TEXTS, *IMAGES])
    sys.stdout.flush()
    os._exit(status)
