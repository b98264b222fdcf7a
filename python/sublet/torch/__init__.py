"""Training with PyTorch within a memory limit.

    model = torch.compile(model, backend="sublet", options={"limit": "8GiB"})
"""

from __future__ import annotations

from typing import Any

from torch import fx
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop

from ._install import install, memory_stats
from ._partition import Partitioner, Report
from ._parts import Parts
from ._pipeline import Stage1F1B, released
from ._ranks import Together
from ._tape import Recording, TapedStep, record, step

__all__ = [
    "Partitioner",
    "Parts",
    "Recording",
    "Report",
    "Stage1F1B",
    "TapedStep",
    "Together",
    "backend",
    "install",
    "memory_stats",
    "record",
    "released",
    "step",
]


@register_backend(name="sublet")
def backend(module: fx.GraphModule, inputs: list[Any], *, options: dict[str, Any] | None = None) -> Any:
    """The backend `sublet` of torch.compile. `options` are the arguments of `Partitioner`; or `partitioner`, a
    `Partitioner` whose reports can be read afterwards; or `parts`, a `Parts` for a network that breaks into several
    graphs."""
    chosen = dict(options or {})
    for alone in ("parts", "partitioner"):
        if alone in chosen and len(chosen) > 1:
            others = ", ".join(key for key in chosen if key != alone)
            raise ValueError(f"the option {alone} has its own limit and means; give {others} to it and not beside it")
    if "parts" in chosen:
        return chosen["parts"].compiled(module, inputs).run
    partitioner = chosen.pop("partitioner", None)
    if partitioner is None:
        if "limit" not in chosen:
            raise ValueError('torch.compile(…, backend="sublet") needs options={"limit": "8GiB"}')
        partitioner = Partitioner(**chosen)
    compiled = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partitioner)
    return compiled(module, inputs)
