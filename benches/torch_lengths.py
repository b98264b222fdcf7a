"""Batches of 40 lengths between 64 and 512 tokens within one limit, beside steps of one length. Prints the most bytes of a step and
the time per token, and ends with 1 where a step has taken more than 0.2 % above its limit, or has other bits than eager PyTorch.

    python benches/torch_lengths.py [SHARE]

It needs torch. The limit is a share, 0.6 by default, of what an eager step of 512 tokens takes. Times are those of the thread, the
least of some rounds; all kinds of steps take turns.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))

import torch
from torch import nn

import networks
import sublet.torch
from sublet.torch._measure import HEAP

CPU = torch.device("cpu")
BATCH, WORDS, LONGEST, SHORTEST, COUNT, ROUNDS = 2, 500, 512, 64, 40, 2
ONE = (512, 288)
"""Lengths that are trained alone: the longest, and that of the middle."""


def network() -> nn.Module:
    torch.manual_seed(0)
    return networks.Loss(networks.GPT(4, 128, 4, WORDS, LONGEST, 0.0))


def stepped(model: nn.Module, lengths: list[int]) -> tuple[float, int]:
    """The seconds of some steps, and the most bytes of one, with parameters and its batch."""
    seconds, most = 0.0, 0
    held = sum(p.nbytes for p in model.parameters())
    for length in lengths:
        tokens = torch.randint(0, WORDS, (2, BATCH, length))
        gc.collect()
        model.zero_grad()
        since, begin = HEAP.since(CPU), time.thread_time()
        model(tokens[0], tokens[1].flatten()).backward()
        seconds += time.thread_time() - begin
        most = max(most, since.peak + held + tokens.nbytes)
    return seconds, most


def within(limit: int, **options: Any) -> nn.Module:
    torch._dynamo.reset()
    return sublet.torch.compile(network(), limit, **options)


def has_bits(model: nn.Module, eager: nn.Module, length: int) -> bool:
    for each in (model, eager):
        torch.manual_seed(length)
        tokens = torch.randint(0, WORDS, (2, BATCH, length))
        each.zero_grad()
        each(tokens[0], tokens[1].flatten()).backward()
    return all(torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), eager.parameters()))


def main(share: float) -> int:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    # Eager steps between are no steps of the network within a limit, whose watch takes them for code beside it.
    warnings.simplefilter("ignore")
    chosen = random.Random(0)
    lengths = [chosen.randint(SHORTEST, LONGEST) for _ in range(COUNT)]
    eager = network()
    stepped(eager, [LONGEST])
    limit = int(stepped(eager, [LONGEST])[1] * share)
    runs: dict[str, tuple[nn.Module, list[int]]] = {"eager": (eager, lengths), "all lengths": (within(limit), lengths)}
    for length in ONE:
        runs[f"{length} alone"] = within(limit, dynamic=False), [length] * 10
    best: dict[str, float] = {}
    most: dict[str, int] = {}
    for rounds in range(2 + ROUNDS):
        for name, (model, own) in runs.items():
            seconds, peak = stepped(model, own)
            # Graphs are compiled in the first round, and may be so in the second.
            if rounds > 1:
                best[name], most[name] = min(seconds / sum(own), best.get(name, seconds)), max(peak, most.get(name, 0))
    ours = runs["all lengths"][0]
    same = all(has_bits(ours, eager, length) for length in (SHORTEST + 1, 300, LONGEST))
    for name in runs:
        print(f"{name:12} {1e6 * best[name]:7.1f} us a token, {best[name] / best['eager']:.3f} of eager, {most[name] / 1e6:6.2f} MB")
    for length in ONE:
        print(f"all lengths over {length} alone: {best['all lengths'] / best[f'{length} alone']:.3f}")
    is_held = most["all lengths"] <= limit * 1.002
    print(f"limit {limit / 1e6:.2f} MB" + ("" if is_held else ", PASSED") + ("" if same else ", OTHER BITS"))
    return int(not (is_held and same))


if __name__ == "__main__":
    status = main(float(sys.argv[1]) if sys.argv[1:] else 0.6)
    sys.stdout.flush()
    os._exit(status)
