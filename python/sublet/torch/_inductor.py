"""A limit under PyTorch's own compiler.

The compiler puts operators into loops and takes their outputs when it likes, so that no plan over operators says what it will
take. Dry runs do: both graphs of a cut are lowered as far as its scheduler, which has the loops and the order of all calls, and
no code is generated. Where the peak that stands there is above the limit, the cut is made anew with a lower limit inside.

Four things keep the compiler near the plan: a loop may take no more than its operators one by one, each loop is a function of
its own, what a library call returns in a tuple is taken at once, and no copies of weights in another layout are kept.
"""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import fx

from .. import Fit, PlanError
from ._joint import Joint, bytes_of
from ._measure import cost_of
from ._partition import cut, saved_nodes, steps_of

TRIES = 12
"""How many limits inside are tried at most."""
NEAR = 0.02
"""A limit inside that is found to hold is raised no more where this part of the limit is left."""
GUARD = "fusion_memory_timeline_peak_memory_pct_threshold"
"""The option of the compiler that lets a loop take no more than its operators; PyTorch 2.15 has it."""
CUDA_GRAPHS = (
    "CUDA graphs keep what a step takes in pools of their own, which no limit counts: leave out mode='reduce-overhead' and "
    "triton.cudagraphs"
)


@dataclass(frozen=True)
class Lowered:
    """What the two passes of a cut take as they are lowered, in bytes, beside parameters and inputs."""

    forward: int
    """The most bytes in the forward pass."""
    backward: int
    """The most bytes in the backward pass, results included."""
    kept: int
    """The bytes that the forward pass keeps for the backward pass."""

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward)


def options(asked: dict[str, Any]) -> dict[str, Any]:
    """The options of the compiler under which a limit is held, and those that were asked for. ValueError where they do not go
    together, or where this PyTorch has no such option."""
    from torch._inductor import config

    if not hasattr(config, GUARD):
        raise ValueError(f'compiler="inductor" needs PyTorch 2.15, whose compiler has {GUARD}; this is {torch.__version__}')
    if asked.get("triton.cudagraphs", config.triton.cudagraphs) or asked.get("triton.cudagraph_trees_objective"):
        raise ValueError(CUDA_GRAPHS)
    ours = {
        "reorder_for_peak_memory": False,
        "layout_optimization": False,
        GUARD: 0.0,
        "_post_fusion_custom_pass": taken_at_once,
        "triton.cudagraphs": False,
    }
    wrong = [key for key in asked if key in ours and asked[key] != ours[key]]
    if wrong:
        raise ValueError(f"the options {', '.join(wrong)} of the compiler are set so that a limit holds")
    return {**asked, **ours}


def compiled(module: fx.GraphModule, inputs: Any, **given: Any) -> Any:
    """Compiles one graph. On the processor the compiler would put all loops between two library calls into one function, whose
    outputs are all made before it and whose inputs are freed after it: here each loop is a function."""
    from torch._inductor import compile_fx
    from torch._inductor.codegen.cpp import CppScheduling

    with mock.patch.object(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", -1):
        return compile_fx.compile_fx_inner(module, inputs, **given)


def taken_at_once(nodes: list[Any]) -> list[Any]:
    """Puts the members of what a library call returns in a tuple right after the call: until the last of them is taken, the
    tuple holds all."""
    from torch._inductor.ir import MultiOutput

    members = collections.defaultdict(list)
    for node in nodes:
        if isinstance(getattr(node, "node", None), MultiOutput):
            members[node.node.inputs[0].get_name()].append(node)
    order: dict[Any, None] = {}

    def take(node: Any) -> None:
        if node not in order:
            order[node] = None
            for name in node.get_buffer_names():
                for member in members.get(name, ()):
                    take(member)

    for node in nodes:
        take(node)
    return list(order)


def lowered(joint: Joint, fitted: Fit, asked: dict[str, Any]) -> Lowered:
    """What the passes take that follow a fit, once PyTorch's compiler has lowered them."""
    steps = steps_of(fitted)
    forward, backward = cut(joint, steps)
    saved = saved_nodes(joint, steps) - {*joint.primals}
    results = {*joint.reads(joint.fwd_outputs)} - {*joint.primals}
    first, _ = _dry(forward, False, asked)
    second, freed = _dry(backward, True, asked)
    # What the backward pass is given and does not free stays until its end.
    held = sum(map(bytes_of, saved | results)) - min(freed, sum(map(bytes_of, saved)))
    return Lowered(first, second + held, sum(map(bytes_of, saved - results)))


class _Dry(BaseException):
    """Ends a dry run; no handler of the compiler takes it for an error of its own."""


@contextlib.contextmanager
def _ending(found: list[tuple[int, int]]) -> Iterator[None]:
    """Has the compiler end where it would generate code, with the peak and the bytes of inputs that it frees."""
    from torch._inductor.scheduler import Scheduler

    def end(scheduler: Any) -> None:
        found.append(_peak(scheduler))
        raise _Dry

    with mock.patch.object(Scheduler, "codegen", end):
        try:
            yield
        except _Dry:
            pass


def _dry(module: fx.GraphModule, is_backward: bool, asked: dict[str, Any]) -> tuple[int, int]:
    """The peak of a graph as it is lowered, beside inputs that stay; and the bytes of the inputs that it frees."""
    from torch._inductor import compile_fx

    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    result = graph.output(graph.graph_copy(module.graph, values))
    result.meta = {**module.graph.output_node().meta, "user_visible_output_idxs": []}
    copied = fx.GraphModule(module, graph)
    inputs = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    found: list[tuple[int, int]] = []
    patch = {**options(asked), "fx_graph_cache": False}
    with torch._inductor.config.patch(patch), _ending(found):
        compile_fx.compile_fx_inner(copied, inputs, is_backward=is_backward, static_input_idxs=list(range(len(inputs))))
    # A graph without an operator has no schedule.
    return found[-1] if found else (0, 0)


def _peak(scheduler: Any) -> tuple[int, int]:
    from torch._inductor import memory
    from torch._inductor.scheduler import ExternKernelSchedulerNode
    from torch._inductor.virtualized import V
    from torch.utils._ordered_set import OrderedSet

    outputs, inputs = OrderedSet(V.graph.get_output_names()), OrderedSet(V.graph.graph_inputs.keys())
    _, frees = memory.prepare_planning_info(
        scheduler.nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, outputs
    )
    buffers, *_ = memory.compute_memory_timeline(scheduler.nodes, frees, outputs)
    _, line = memory.peak_memory_from_buf_info_list(buffers, len(scheduler.nodes))
    most = max(line, default=0)
    for at, node in zip(line, scheduler.nodes):
        origin = node.node.get_origin_node() if isinstance(node, ExternKernelSchedulerNode) else None
        if origin is not None and isinstance(origin.target, torch._ops.OpOverload):
            most = max(most, at + cost_of(origin).scratch)
    return most, sum(each.mpi_buffer.size_free for each in frees.values())


class Dry:
    """Finds the fit with which both passes stay within a limit as they are lowered. `seconds` bounds the search: after so many
    no other limit inside is tried."""

    def __init__(self, asked: dict[str, Any], seconds: float) -> None:
        self._asked, self._seconds = asked, seconds
        self._known: list[tuple[Fit, Lowered]] = []

    def of(self, fitted: Fit) -> Lowered | None:
        """What a fit takes that was found here; None if it was not."""
        return next((figures for each, figures in self._known if each.schedule is fitted.schedule), None)

    def within(self, joint: Joint, first: Fit, again: Any) -> Fit:
        """A fit to the limit of `first`; `again` makes a fit to another limit. PlanError names the least that was seen."""
        begin = time.monotonic()
        limit, beside = first.limit, sum(map(bytes_of, joint.primals))
        low, high, inner, fitted = beside, None, limit, first
        best: tuple[int, Fit] | None = None
        least: int | None = None
        for tried in range(TRIES):
            if tried and time.monotonic() - begin > self._seconds:
                break
            peak = None
            with contextlib.suppress(PlanError):
                fitted = first if inner == limit else again(inner)
                figures = lowered(joint, fitted, self._asked)
                peak = beside + figures.peak
                least = peak if least is None else min(least, peak)
            if peak is None:
                low = inner
            elif peak <= limit:
                self._known.append((replace(fitted, limit=limit), figures))
                best, low = (inner, self._known[-1][0]), inner
                if limit - peak <= NEAR * (limit - beside) or high is None:
                    break
            else:
                high = inner
            if best is not None and high is not None and high - best[0] <= NEAR * (limit - beside):
                break
            step = 0 if peak is None or best is not None else max((peak - limit) * 11 // 10, int(NEAR * (limit - beside)))
            inner = inner - step if step and inner - step > low else (low + (high or limit)) // 2
            if inner <= low + (limit - beside) // 200:
                break
        if best is None:
            told = "no plan was found" if least is None else f"{least} bytes are the least that was found"
            spent = time.monotonic() - begin > self._seconds
            why = f", in planning={self._seconds:.0f}s" if spent else ""
            refusal = PlanError(f"under PyTorch's compiler the step does not stay within {limit} bytes: {told}{why}")
            refusal.least = least
            raise refusal
        return best[1]
