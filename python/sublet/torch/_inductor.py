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
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._inductor import config, custom_graph_pass
from torch.utils._pytree import tree_leaves

from .. import Fit, PlanError
from ._inner import Tried, within
from ._joint import Joint, bytes_of
from ._measure import cost_of
from ._partition import cut, saved_nodes, steps_of

TRIES = 12
"""How many limits inside are tried at most."""
GUARD = "fusion_memory_timeline_peak_memory_pct_threshold"
"""The option of the compiler that lets a loop take no more than its operators; PyTorch 2.15 has it."""
PASS = "_post_fusion_custom_pass"
"""The option of the compiler for a pass over its loops and calls."""
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
    if not hasattr(config, GUARD):
        raise ValueError(f'compiler="inductor" needs PyTorch 2.15, whose compiler has {GUARD}; this is {torch.__version__}')
    if asked.get("triton.cudagraphs", config.triton.cudagraphs) or asked.get("triton.cudagraph_trees_objective"):
        raise ValueError(CUDA_GRAPHS)
    ours = {
        "reorder_for_peak_memory": False,
        "layout_optimization": False,
        GUARD: 0.0,
        PASS: OURS,
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

    # The graph is cut: by the partitioner, which is another one in each process, no code would be found that was kept.
    with mock.patch.object(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", -1), config.patch(custom_partitioner_fn=None):
        return compile_fx.compile_fx_inner(module, inputs, **given)


Pass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", custom_graph_pass.CustomGraphPass)
"""What the compiler takes for a pass whose code it keeps; older PyTorch, which is refused, has none for its scheduler."""


class TakenAtOnce(Pass):  # type: ignore[misc]
    """Puts the members of what a library call returns in a tuple right after the call: until the last of them is taken, the
    tuple holds all."""

    def __call__(self, nodes: list[Any]) -> list[Any]:
        from torch._inductor import ir

        members = collections.defaultdict(list)
        for node in nodes:
            if isinstance(getattr(node, "node", None), ir.MultiOutput):
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

    def uuid(self) -> bytes:
        """That of this file: the compiler keeps code by it, and by it alone knows of all that is done here."""
        return custom_graph_pass.get_hash_for_files((__file__,))


OURS = TakenAtOnce()


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
    with config.patch(patch), _ending(found):
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
    """Finds the fit with which both passes stay within a limit as they are lowered. `seconds` bounds a search: after so many no
    other limit inside is tried. What is found is kept for later processes."""

    def __init__(self, asked: dict[str, Any], seconds: float) -> None:
        self._asked, self._seconds = asked, seconds
        self._known: list[tuple[Fit, Lowered]] = []
        self._end: float | None = None

    def begin(self) -> None:
        """A search begins. Its first fit is tried however long that takes."""
        self._end = None

    def of(self, fitted: Fit) -> Lowered | None:
        """What a fit takes that was found here; None if it was not."""
        return next((figures for each, figures in self._known if each.schedule is fitted.schedule), None)

    def within(self, joint: Joint, limit: int | str, fit: Callable[[int | str], Fit]) -> Fit:
        """A fit to a limit; `fit` makes one for operators one by one. PlanError names the least that was seen."""
        if self._end is not None and time.monotonic() > self._end:
            raise PlanError(f"no time is left of planning={self._seconds:.0f}s")
        self._end = self._end or time.monotonic() + self._seconds
        kept = Kept(joint, limit, self._asked)
        found = kept.found(fit)
        if found is None:
            found = self._searched(joint, limit, fit, self._end)
            kept.keep(*found)
        self._known.append((replace(found[0], limit=found[2]), found[1]))
        return self._known[-1][0]

    def _searched(
        self, joint: Joint, limit: int | str, fit: Callable[[int | str], Fit], end: float
    ) -> tuple[Fit, Lowered, int]:
        first = fit(limit)
        most, beside = first.limit, sum(map(bytes_of, joint.primals))

        def attempt(inner: int) -> Tried[tuple[Fit, Lowered]] | None:
            try:
                fitted = first if inner == most else fit(inner)
            except PlanError:
                return None
            figures = lowered(joint, fitted, self._asked)
            return Tried(beside + figures.peak, fitted.overhead, (fitted, figures))

        best, least = within(most, beside, attempt, lambda tried: tried < TRIES and time.monotonic() < end)
        if best is None:
            why = f", in planning={self._seconds:.0f}s" if time.monotonic() > end else ""
            refusal = PlanError(
                f"under PyTorch's compiler the step does not stay within {most} bytes: {least} bytes are the least that was found{why}"
            )
            refusal.least = least
            raise refusal
        return *best.plan, most


class Kept:
    """What dry runs have found for a graph and a limit, in the folder of the compiler's own files; with the costs of operators, so
    that the planner comes to the same schedule in another process. Where it comes to another one, nothing was found."""

    def __init__(self, joint: Joint, limit: int | str, asked: dict[str, Any]) -> None:
        from torch._inductor.codecache import CacheBase, torch_key
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        self._graph = joint.graph
        nodes = joint.module.graph.nodes
        values = [x for node in nodes for x in tree_leaves(node.meta.get("val"))]
        shapes = [(x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else x for x in values]
        operators = [(node.op, node.name, str(node.target), node.args, node.kwargs) for node in nodes]
        options = sorted((key, str(value)) for key, value in asked.items() if key != PASS)
        machine = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), CacheBase.get_system()
        about = limit, options, torch_key(), OURS.uuid(), machine, operators, shapes, joint.graph.bytes
        self._path = os.path.join(cache_dir(), "sublet", hashlib.sha256(repr(about).encode()).hexdigest())

    def found(self, fit: Callable[[int | str], Fit]) -> tuple[Fit, Lowered, int] | None:
        """The fit, with the limit inside, what it takes, and the limit; None if there is none."""
        try:
            with open(self._path) as file:
                told = json.load(file)
        except (OSError, ValueError):
            return None
        measured = self._graph.time_ns, self._graph.workspace
        self._graph.time_ns, self._graph.workspace = told["time_ns"], told["workspace"]
        with contextlib.suppress(PlanError):
            fitted = fit(told["inner"])
            if _digest(fitted) == told["schedule"]:
                return fitted, Lowered(*told["lowered"]), told["limit"]
        self._graph.time_ns, self._graph.workspace = measured
        return None

    def keep(self, fitted: Fit, figures: Lowered, limit: int) -> None:
        """Keeps what was found, unless the compiler is to keep nothing."""
        from torch._inductor.codecache import write_atomic

        if config.force_disable_caches or not config.fx_graph_cache:
            return
        told = {"inner": fitted.limit, "limit": limit, "lowered": astuple(figures), "schedule": _digest(fitted)}
        told |= {"time_ns": self._graph.time_ns, "workspace": self._graph.workspace}
        write_atomic(self._path, json.dumps(told), make_dirs=True)


def _digest(fitted: Fit) -> str:
    return hashlib.sha256(repr(steps_of(fitted)).encode()).hexdigest()
