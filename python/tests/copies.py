"""The copies of a cut network and the waits for them, as a line of JSON for each graph.

    python copies.py NETWORK LIMIT%

`out` has for each copy to the host its place in the graph, that of the wait after which the block is freed, and that of the last other
node that reads the block on the device. `back` has for each copy back its place, that of the wait for it, and that of the first other
node that reads the block.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import networks
import torch
from torch import fx

import sublet.torch._partition as partition
from sublet.torch._host import ARRIVED, BACK, LEFT, OUT
from train import Part


def places(module: fx.GraphModule) -> dict[str, list[list[int]]]:
    at = {node: i for i, node in enumerate(module.graph.nodes)}
    out, back = [], []
    for node in at:
        if node.target is OUT:
            device = node.args[0]
            left = next(user for user in node.users if user.target is LEFT)
            assert left.args == (node, device)
            out.append([at[node], at[left], max(at[user] for user in device.users if user is not left)])
        elif node.target is BACK:
            arrived = next(user for user in node.users if user.target is ARRIVED)
            back.append([at[node], at[arrived], min(at[user] for user in node.users if user is not arrived)])
    return {"out": out, "back": back}


def main(name: str, limit: str) -> None:
    torch.set_num_threads(1)
    whole = partition.cut

    def cut(*arguments: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        graphs = whole(*arguments)
        for graph in graphs:
            print(json.dumps(places(graph)), flush=True)
        return graphs

    partition.cut = cut
    network, inputs = networks.build(name)
    partitioner = Part(limit, using=("recompute", "swap"))
    run = torch.compile(network, backend="sublet", options={"partitioner": partitioner}, fullgraph=True)
    run(*inputs).backward()


if __name__ == "__main__":
    main(*sys.argv[1:])
