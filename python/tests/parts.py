"""Networks that break into several graphs, under one limit; prints what each took, as lines of JSON.

    python parts.py [NETWORK...]

`parts`: one limit over all graphs. `each`: every graph has the same limit for itself, which is the control: together they take
more. `eager`: without a limit.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from torch import Tensor, nn

import networks
import sublet.torch
from train import stepped

STEPS = 3
LIMIT = "70%"
NETWORKS = ["gpt", "norms"]


class Breaks(networks.GPT):
    """A GPT of six blocks in three graphs, with the loss in the last. Word embeddings and head have one weight."""

    def __init__(self) -> None:
        super().__init__(6, 128, 4, 500, 64, 0.1)

    def through(self, x: Tensor, first: int) -> Tensor:
        """Two blocks. A break in a loop would leave the whole function to Python."""
        return self.body[first + 1](self.body[first](x))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = self.through(x, 0)
        torch._dynamo.graph_break()
        x = self.through(x, 2)
        torch._dynamo.graph_break()
        x = self.through(x, 4)
        return self.head(self.norm(x)).flatten(0, 1)


class Norms(nn.Module):
    """Convolutions with batch norm in two graphs, both of which have an input of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(*[networks.Residual(32, 32, 1, 1, nn.BatchNorm2d) for _ in range(3)])
        self.second = nn.Sequential(*[networks.Residual(32, 32, 1, 1, nn.BatchNorm2d) for _ in range(3)])
        self.head = nn.Linear(32, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        torch._dynamo.graph_break()
        return self.head((self.second(y) + x).mean((2, 3)))


def built(name: str) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    if name == "gpt":
        tokens = torch.randint(0, 500, (2, 8, 64))
        return networks.Loss(Breaks()), (tokens[0], tokens[1].flatten())
    return networks.Loss(Norms()), (torch.randn(8, 32, 32, 32), torch.randint(0, 1000, (8,)))


def trained(name: str, how: str, limit: int | str) -> dict[str, Any]:
    """What some steps give and take. The peak is that of the last: in the first operators are measured, in the second
    graphs are compiled anew."""
    torch._dynamo.reset()
    network, inputs = built(name)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    parts = sublet.torch.Parts(limit)
    cut = sublet.torch.Partitioner(limit)
    options = {"parts": {"parts": parts}, "each": {"partitioner": cut}}
    run: Any = torch.compile(network, backend="sublet", options=options[how]) if how in options else network
    peaks, came_out = stepped(run, network, inputs, optimizer, STEPS)
    result = {"network": name, "how": how, "peak": peaks[-1], **came_out}
    if how == "parts":
        result |= {"graphs": len(parts.parts), "planned": parts.planned_peak - parts.held}
        result |= {"limit": parts.limit, "above": parts.planned_peak, "overhead_ns": parts.overhead_ns}
        result["again"] = [len(part.report.again) for part in parts.parts]
    if how == "each":
        result["graphs"] = len(cut.reports)
    return result


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for name in names:
        print(json.dumps(trained(name, "eager", "")), flush=True)
        together = trained(name, "parts", LIMIT)
        print(json.dumps(together), flush=True)
        # What all of them were given, for each.
        print(json.dumps(trained(name, "each", together["above"])), flush=True)
        try:
            trained(name, "parts", "10%")
            error = "none"
        except sublet.PlanError as e:
            error = str(e)
        print(json.dumps({"network": name, "how": "little", "error": error}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or NETWORKS)
    sys.stdout.flush()
    os._exit(0)
