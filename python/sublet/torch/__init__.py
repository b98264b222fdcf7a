"""Training with PyTorch within a memory limit.

    model = sublet.torch.compile(model, "8GiB")
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo import register_backend

from .. import Device
from ._estimate import Estimate, estimate
from ._install import install, memory_stats
from ._partition import Partitioner, Report
from ._parts import Compiler, Parts
from ._pipeline import Stage1F1B, released
from ._ranks import Together
from ._taken import Graph, OnExceed, OverLimit, watch_of
from ._tape import Recording, TapedStep, record, step

__all__ = [
    "Estimate",
    "OverLimit",
    "Partitioner",
    "Parts",
    "Recording",
    "Report",
    "Stage1F1B",
    "TapedStep",
    "Together",
    "backend",
    "compile",
    "estimate",
    "install",
    "memory_stats",
    "record",
    "released",
    "step",
]


@register_backend(name="sublet")
def backend(module: fx.GraphModule, inputs: list[Any], *, options: dict[str, Any] | None = None) -> Any:
    """The backend `sublet` of torch.compile. `options` are the arguments of `Parts`, which then is that of all graphs of one
    torch.compile; or `parts`, a `Parts`; or `partitioner`, a `Partitioner`, or its arguments where it alone has them."""
    chosen = options if options is not None else {}
    for alone in ("parts", "partitioner"):
        if alone in chosen and len(chosen) > 1:
            others = ", ".join(key for key in chosen if key != alone)
            raise ValueError(f"the option {alone} has its own limit and means; give {others} to it and not beside it")
    if "parts" in chosen:
        return chosen["parts"].compiled(module, inputs).run
    if "partitioner" in chosen:
        return Graph(watch_of(chosen["partitioner"]), chosen["partitioner"], module, inputs).run
    if "limit" not in chosen:
        raise ValueError('torch.compile(…, backend="sublet") needs options={"limit": "8GiB"}')
    if chosen.keys() & {"passes", "stage"}:
        partitioner = Partitioner(**chosen)
        return Graph(watch_of(partitioner), partitioner, module, inputs).run
    return _of(chosen).compiled(module, inputs).run


_by_options: list[tuple[dict[str, Any], Parts]] = []
"""By the options of a torch.compile, which are one object for all its graphs: what has the limit for these."""


def _of(options: dict[str, Any]) -> Parts:
    for known, parts in _by_options:
        if known is options:
            return parts
    _by_options.append((options, Parts(**options)))
    return _by_options[-1][1]


def compile(
    model: Any,
    limit: int | str | Parts,
    *,
    on_exceed: OnExceed = "warn",
    using: str | Sequence[str] = ("recompute",),
    device: str | Device | None = None,
    group: Any = None,
    reorder: bool = True,
    compiler: Compiler = "aot_eager",
    planning: str | float = "60s",
    **options: Any,
) -> Any:
    """A model, or a function, whose training steps stay within a limit: all graphs that torch.compile makes of it, and what
    runs between them.

        model = sublet.torch.compile(model, "8GiB")

    A module is compiled in place and returned; its state and its class stay. The limit and all arguments are those of
    `Parts`; or `limit` is a `Parts`, which says what was planned. `options` are those of torch.compile; with
    `compiler="inductor"` its own `mode` and `options` are among them. PlanError, where the
    limit cannot be met, comes from the model's call. In a process of `torch.distributed` the cutting of graphs for
    `DistributedDataParallel` is turned off (`torch._dynamo.config.optimize_ddp`), with a warning.
    """
    theirs: dict[str, Any] = {}
    if isinstance(limit, Parts) and (compiler == "inductor" and limit.compiler is None or {"mode", "options"} & options.keys()):
        raise ValueError("a Parts has its own compiler: give it compiler and compiler_options")
    if compiler == "inductor":
        from torch._inductor import list_mode_options

        theirs = {**list_mode_options(options.pop("mode", None) or "default"), **(options.pop("options", None) or {})}
    parts = (
        limit
        if isinstance(limit, Parts)
        else Parts(limit, using, device, group, 300, reorder, on_exceed, compiler, planning, theirs)
    )
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch._dynamo.config.optimize_ddp:
        torch._dynamo.config.optimize_ddp = False
        warnings.warn("sublet: torch._dynamo.config.optimize_ddp is off now, so that a graph is planned as a whole", stacklevel=2)
    if not isinstance(model, torch.nn.Module):
        return torch.compile(model, backend=backend, options={"parts": parts}, **options)
    model.compile(backend=backend, options={"parts": parts}, **options)
    return model
