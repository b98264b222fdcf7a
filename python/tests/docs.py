"""Runs the examples of a document, block by block, on the processor as one rank; prints what became of each, as lines of JSON.

    python docs.py FILE

Names that an example uses and does not make are given: `model`, `optimizer`, `criterion`, `x`, `y`, `loader`. After a block that makes a
`model`, that is trained for a step. Not run are commands of a shell, blocks that leave something out (…), and blocks that need a
GPU: it is hidden, since `fully_shard` would move a network to it.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
import textwrap
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
import torch.distributed as dist
from torch import Tensor, nn

WIDTH = 64


class Model(nn.Module):
    """Layers, and with a second input their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(8))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if y is None else nn.functional.mse_loss(x, y)


def blocks_of(text: str) -> list[tuple[int, str]]:
    """Paragraphs that are indented by four, with the lines at which they begin."""
    found = re.finditer(r"(?<=\n\n)(?:    .*\n(?:\n(?=    ))?)+", text)
    return [(text.count("\n", 0, block.start()) + 1, textwrap.dedent(block[0])) for block in found]


def given() -> dict[str, Any]:
    """What examples use and do not make."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model()
    x, y = torch.randn(2048, WIDTH), torch.randn(2048, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "x": x, "y": y, "loader": 3 * [(x, y)], "criterion": nn.MSELoss(), "optimizer": optimizer}


def why_not(text: str) -> str:
    """Why a block is not run; empty where it is."""
    if "…" in text:
        return "leaves something out"
    if re.match(r"(LD_PRELOAD|python|pip|\./|cargo|sublet) ?", text):
        return "for a shell"
    if "install()" in text:
        return "needs a GPU"
    return ""


def main(file: str) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    names: dict[str, Any] = {"__name__": "docs"}
    for number, text in blocks_of(pathlib.Path(file).read_text()):
        reason = why_not(text)
        if not reason:
            names |= given()
            before = names["model"]
            exec(compile("\n" * (number - 1) + text, file, "exec"), names)
            if names["model"] is not before or "model.blocks[i] =" in text:
                names["model"](names["x"], names["y"]).sum().backward()
        print(json.dumps({"line": number, "first": text.splitlines()[0], "not_run": reason}), flush=True)


if __name__ == "__main__":
    status = 1
    try:
        main(sys.argv[1])
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
