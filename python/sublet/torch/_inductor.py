"""A limit under PyTorch's own compiler.

The compiler puts operators into loops and takes their outputs when it likes, so that no plan over operators says what it will
take. Dry runs do: both graphs of a cut are lowered as far as its scheduler, which has the loops and the order of all calls, and
no code is generated. Where the peak that stands there is above the limit, the cut is made anew with a lower limit inside.

Three things keep the compiler near the plan: a loop may take no more than its operators one by one, each loop is a function of
its own, and what a library call returns in a tuple is taken at once. Convolutions run with the channels last, as the compiler likes
it, or not: that changes their time and their scratch, and weights in that layout are copies. The faster way that holds is taken.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._functorch import config as functorch
from torch._inductor import config, custom_graph_pass
from torch.utils._pytree import tree_leaves

from .. import Fit, PlanError
from ._inner import Tried, within
from ._joint import CONVOLUTIONS, Joint, bytes_of
from ._measure import Cost, cost_of
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
    channels_last: bool
    """Whether convolutions are computed with the channels last."""

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
        GUARD: 0.0,
        PASS: OURS,
        "triton.cudagraphs": False,
    }
    wrong = [key for key in asked if key == "custom_partitioner_fn" or (key in ours and asked[key] != ours[key])]
    if wrong:
        raise ValueError(f"the options {', '.join(wrong)} of the compiler are set so that a limit holds")
    return {**asked, **ours}


def compiled(module: fx.GraphModule, inputs: Any, channels_last: bool, **given: Any) -> Any:
    """Compiles one graph of a cut, of which is known how its convolutions are computed. On the processor the compiler would put all loops between two library calls into one function, whose
    outputs are all made before it and whose inputs are freed after it: here each loop is a function."""
    from torch._inductor import compile_fx
    from torch._inductor.codegen.cpp import CppScheduling

    # The graph is cut: by the partitioner, which is another one in each process, no code would be found that was kept.
    ours = {"custom_partitioner_fn": None, "layout_optimization": channels_last}
    with mock.patch.object(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", -1), config.patch(ours):
        return compile_fx.compile_fx_inner(module, inputs, **given)


Pass: Any = getattr(custom_graph_pass, "CustomSchedulerPass", custom_graph_pass.CustomGraphPass)
"""What the compiler takes for a pass whose code it keeps; older PyTorch, which is refused, has none for its scheduler."""


class TakenAtOnce(Pass):
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


def lowered(joint: Joint, fitted: Fit, asked: dict[str, Any], channels_last: bool) -> tuple[Lowered, dict[str, Cost]]:
    """What the passes take that follow a fit, once PyTorch's compiler has lowered them; and what its library calls cost, by the names
    of their operators."""
    steps = steps_of(fitted)
    forward, backward = cut(joint, steps)
    saved = saved_nodes(joint, steps) - {*joint.primals}
    results = {*joint.reads(joint.fwd_outputs)} - {*joint.primals}
    asked = {**asked, "layout_optimization": channels_last}
    first, some = _dry(forward, False, asked, {})
    second, others = _dry(backward, True, asked, {node.name: bytes_of(node) for node in saved - results})
    # The caller holds the results until the backward pass ends.
    beside, kept = sum(map(bytes_of, results)), sum(map(bytes_of, saved - results))
    return Lowered(first, second + beside, kept, channels_last), {**others, **some}


class _Dry(BaseException):
    """Ends a dry run; no handler of the compiler takes it for an error of its own."""


def _dry(
    module: fx.GraphModule, is_backward: bool, asked: dict[str, Any], given: dict[str, int]
) -> tuple[int, dict[str, Cost]]:
    """The peak of a graph as it is lowered, with the inputs that it may free, which are `given` by name with their bytes, and
    beside all others; and what its library calls cost."""
    from torch._inductor import compile_fx
    from torch._inductor.scheduler import Scheduler

    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    result = graph.output(graph.graph_copy(module.graph, values))
    result.meta = {**module.graph.output_node().meta, "user_visible_output_idxs": []}
    copied = fx.GraphModule(module, graph)
    inputs = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    names = [node.name for node in graph.nodes if node.op == "placeholder"]
    # The code may write over what the forward pass has kept.
    donated = [i for i, name in enumerate(names) if name in given and functorch.donated_buffer]
    # A graph without an operator has no schedule.
    peak, costs = sum(given.values()), dict[str, Cost]()
    codegen = Scheduler.codegen

    def ends(scheduler: Any) -> None:
        nonlocal peak, costs
        with contextlib.ExitStack() as stack:
            for device in {node.get_device() for node in scheduler.nodes} - {None}:
                backend = scheduler.get_backend(device)
                stack.enter_context(mock.patch.object(backend, "codegen_node", _allocate))
            codegen(scheduler)
        peak, costs = _peak(given)
        raise _Dry

    with (
        config.patch({**options(asked), "fx_graph_cache": False}),
        mock.patch.object(Scheduler, "codegen", ends),
        mock.patch("torch._inductor.graph.get_donated_idxs", lambda: donated),
    ):
        try:
            compile_fx.compile_fx_inner(copied, inputs, is_backward=is_backward, static_input_idxs=list(range(len(inputs))))
        except _Dry:
            pass
    return peak, costs


def _allocate(loop: Any) -> None:
    """Stands for the generation of a loop's code: what of it changes how memory is taken."""
    from torch._inductor.codegen.common import Kernel
    from torch._inductor.virtualized import V

    kernel = Kernel(increase_kernel_count=False)
    with V.set_kernel_handler(kernel):
        for part in loop.get_nodes():
            part.decide_inplace_update()
            part.mark_run()
        names = {buffer.get_name() for buffer in loop.get_outputs()}
        kernel.store_buffer_names |= names
        kernel.must_keep_buffers |= names - _in_registers(loop)
        kernel.remove_kernel_local_buffers()
    V.graph.removed_buffers |= kernel.removed_buffers
    V.graph.inplaced_to_remove |= kernel.inplaced_to_remove
    loop.scheduler.free_buffers()


def _in_registers(loop: Any) -> set[str]:
    """The values of a loop that are in no memory where it alone reads them: those that are read where they are made, point by
    point, in one turn of the loop. What follows a reduction is in turns of its own."""
    from torch._inductor.codegen.cpp import OuterLoopFusedSchedulerNode
    from torch._inductor.scheduler import SchedulerNode

    parts = loop.get_nodes()
    reduced = {name for part in parts if part.is_reduction() for name in part.get_buffer_names()}
    turns = {part: math.prod(map(int, itertools.chain(*part.group[1]))) for part in parts if isinstance(part, SchedulerNode)}
    if len(turns) < len(parts) or isinstance(loop, OuterLoopFusedSchedulerNode):
        return set()
    inner = [part for part in parts if turns[part] == max(turns.values())]
    follows = any(use.name in reduced for part in inner for use in part.read_writes.reads)
    if reduced and (follows or loop.get_device().type != "cpu"):
        return set()
    uses: dict[str, set[Any]] = {}
    places: dict[str, set[int]] = {}
    for part in parts:
        for use in part.read_writes.reads_and_writes():
            uses.setdefault(use.name, set()).add(use)
            places.setdefault(use.name, set()).add(turns[part])
    return {name for name, found in uses.items() if len(found) == 1 and len(places[name]) == 1} - reduced


@dataclass
class _Storage:
    bytes: int
    names: int = 1


def _peak(given: dict[str, int]) -> tuple[int, dict[str, Cost]]:
    """The most bytes at once by the lines of the code: what they allocate, use for something else, and free; and what library calls
    cost, by the names of their operators."""
    from torch._inductor.codegen import wrapper
    from torch._inductor.virtualized import V

    V.graph.wrapper_code.run_wrapper_ir_passes(False)
    of = {name: [_Storage(size)] for name, size in given.items()}
    now = most = sum(given.values())
    costs: dict[str, Cost] = {}
    members = [line for line in V.graph.wrapper_code.lines if isinstance(line, wrapper.MultiOutputLine) and line.indices]
    for line in V.graph.wrapper_code.lines:
        node: Any = getattr(line, "node", None)
        scratch = 0
        if isinstance(line, (wrapper.AllocateLine, wrapper.ExternKernelAllocLine)):
            sizes = [_allocated(node)] if isinstance(line, wrapper.AllocateLine) else _returned(node, members)
            of[node.get_name()] = [*map(_Storage, sizes)]
            now += sum(sizes)
        elif isinstance(line, wrapper.MultiOutputLine) and line.indices:
            of[line.result_name] = of.get(line.arg_name, [])[line.indices[0][1] :][:1]
            for storage in of[line.result_name]:
                storage.names += 1
        elif isinstance(line, wrapper.ReuseLine):
            of[line.reused_as.get_name()] = of.pop(node.get_name(), []) if line.delete_old else of.get(node.get_name(), [])
        elif isinstance(line, wrapper.FreeLine) or (isinstance(line, wrapper.FreeIfNotReusedLine) and not line.is_reused):
            for storage in of.pop(node.get_name(), ()):
                storage.names -= 1
                now -= storage.bytes * (not storage.names)
        if isinstance(line, (wrapper.ExternKernelAllocLine, wrapper.ExternKernelOutLine)):
            operator = _operator_of(node)
            if operator is not None:
                costs[operator.name] = cost = cost_of(_as_called(node, operator))
                scratch = cost.scratch
        most = max(most, now + scratch)
    return most, costs


def _operator_of(node: Any) -> fx.Node | None:
    """The operator that a library call computes; None if it is not known."""
    alone = node.get_origin_node()
    operators = [each for each in ([] if alone is None else [alone]) if isinstance(each.target, torch._ops.OpOverload)]
    return next(iter(operators or [each for each in node.get_origins() if each.target is node.op_overload]), None)


def _as_called(node: Any, operator: fx.Node) -> fx.Node:
    """An operator as a library call computes it: the compiler may give it inputs with other strides."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    given = [x for x in tree_leaves((operator.args, operator.kwargs)) if isinstance(x, fx.Node)]
    for each, real in itertools.zip_longest(given, node.inputs):
        if each is not None and each not in values:
            values[each] = graph.placeholder(each.name)
            values[each].meta = dict(each.meta)
            known = each.meta.get("val")
            if isinstance(known, Tensor) and real is not None and ir.is_storage_and_layout(real):
                hints = V.graph.sizevars.optimization_hints
                sizes, strides = hints(real.get_size()), hints(real.get_stride())
                if tuple(sizes) == tuple(known.shape):
                    values[each].meta["val"] = known.new_empty_strided(sizes, strides)
    called = graph.node_copy(operator, values.__getitem__)
    called.meta = operator.meta
    return called


def _allocated(node: Any) -> int:
    from torch._inductor.virtualized import V

    length = V.graph.sizevars.optimization_hint(V.graph.get_allocation_storage_size(node), fallback=0)
    return int(length) * node.get_dtype().itemsize


def _returned(node: Any, members: list[Any]) -> list[int]:
    """The bytes of each value that a library call returns, 0 for views. Those that nobody takes are known by the operator alone."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    if node.get_inputs_that_alias_output():
        return []
    if not isinstance(node.layout, ir.MultiOutputLayout):
        return [_allocated(node)] if isinstance(node.layout, ir.Layout) else []
    operator = _operator_of(node)
    values = None if operator is None else operator.meta.get("val")
    sizes = [x.untyped_storage().nbytes() if isinstance(x, Tensor) else 0 for x in values] if isinstance(values, (tuple, list)) else []
    for member in members:
        if member.arg_name == node.get_name():
            at = member.indices[0][1]
            sizes += [0] * (at + 1 - len(sizes))
            sizes[at] = max(sizes[at], _allocated(V.graph.name_to_buffer[member.result_name]))
    return sizes


@dataclass(frozen=True)
class Layout:
    """The costs of a graph's operators where convolutions are computed with the channels last, or not."""

    channels_last: bool
    time_ns: list[int]
    workspace: list[int]

    def take(self, joint: Joint) -> None:
        """Lets a plan be made by these costs."""
        joint.graph.time_ns, joint.graph.workspace = self.time_ns, self.workspace

    def slower(self, original: int) -> float:
        """The time of all operators over another one, minus 1."""
        return sum(self.time_ns) / max(original, 1) - 1


class Dry:
    """Finds the fit with which both passes stay within a limit as they are lowered. `seconds` bounds a search: after so many no
    other limit inside is tried. What is found is kept for later processes."""

    def __init__(self, asked: dict[str, Any], seconds: float) -> None:
        self._asked, self._seconds = asked, seconds
        self._known: list[tuple[Fit, Lowered]] = []
        self._end: float | None = None
        self._layouts: tuple[Joint, list[Layout]] | None = None

    def begin(self) -> None:
        """A search begins. Its first fit is tried however long that takes."""
        self._end = None

    def of(self, fitted: Fit) -> Lowered | None:
        """What a fit takes that was found here; None if it was not."""
        return next((figures for each, figures in self._known if each.schedule is fitted.schedule), None)

    def within(self, joint: Joint, limit: int, fit: Callable[[int | str], Fit]) -> Fit:
        """A fit to a limit; `fit` makes one for operators one by one. PlanError names the least that was seen."""
        if self._end is not None and time.monotonic() > self._end:
            raise PlanError(f"no time is left of planning={self._seconds:.0f}s")
        self._end = self._end or time.monotonic() + self._seconds
        kept = Kept(joint, limit, self._asked)
        found = kept.found(fit)
        if found is None:
            found = self._searched(joint, limit, fit, self._end)
            kept.keep(*found)
        self._known.append((replace(found[0], limit=limit), found[1]))
        return self._known[-1][0]

    def _searched(self, joint: Joint, limit: int, fit: Callable[[int | str], Fit], end: float) -> tuple[Fit, Lowered]:
        original, beside = sum(joint.graph.time_ns), sum(map(bytes_of, joint.primals))
        best: Tried[tuple[Fit, Lowered, Layout]] | None = None
        least: int | None = None
        refusal: PlanError | None = None
        for layout in sorted(self._ways(joint, fit), key=lambda each: each.slower(original)):
            if best is not None and (best.overhead <= layout.slower(original) or time.monotonic() > end):
                break
            layout.take(joint)

            def attempt(inner: int, layout: Layout = layout) -> Tried[tuple[Fit, Lowered, Layout]] | None:
                nonlocal refusal
                try:
                    fitted = fit(inner)
                except PlanError as e:
                    refusal = e
                    return None
                figures, _ = lowered(joint, fitted, self._asked, layout.channels_last)
                overhead = (1 + fitted.overhead) * (1 + layout.slower(original)) - 1
                return Tried(beside + figures.peak, overhead, (fitted, figures, layout))

            found = within(limit, beside, attempt, lambda tried: tried < TRIES and time.monotonic() < end)
            best = min((each for each in (best, found.best) if each is not None), key=lambda each: each.overhead, default=None)
            least = min((each for each in (least, found.least) if each is not None), default=None)
        if best is None:
            if least is None and refusal is not None:
                raise refusal
            why = f", in planning={self._seconds:.0f}s" if time.monotonic() > end else ""
            refusal = PlanError(
                f"under PyTorch's compiler the step does not stay within {limit} bytes: {least} bytes are the least that was found{why}"
            )
            refusal.least = least
            raise refusal
        fitted, figures, layout = best.plan
        layout.take(joint)
        return fitted, figures

    def _ways(self, joint: Joint, fit: Callable[[int | str], Fit]) -> list[Layout]:
        """The ways to compute the convolutions of a graph."""
        graph = joint.graph
        if self._layouts is not None and self._layouts[0] is joint:
            return self._layouts[1]
        if all(op is None or op.target not in CONVOLUTIONS for op in joint.ops):
            return [Layout(False, graph.time_ns, graph.workspace)]
        whole, layouts = fit("100%"), []
        for channels_last in {False, self._asked.get("layout_optimization", config.layout_optimization)}:
            _, costs = lowered(joint, whole, self._asked, channels_last)
            time_ns, workspace = list(graph.time_ns), list(graph.workspace)
            for k, op in enumerate(joint.ops):
                if op is not None and op.target in CONVOLUTIONS and op.name in costs:
                    time_ns[k] = costs[op.name].time_ns
                    workspace[k] = costs[op.name].scratch + joint.unread(op)
            layouts.append(Layout(channels_last, time_ns, workspace))
        self._layouts = joint, layouts
        return layouts


class Kept:
    """What dry runs have found for a graph and a limit, in the folder of the compiler's own files; with the costs of operators, so
    that the planner comes to the same schedule in another process. Where it comes to another one, nothing was found."""

    def __init__(self, joint: Joint, limit: int, asked: dict[str, Any]) -> None:
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

    def found(self, fit: Callable[[int | str], Fit]) -> tuple[Fit, Lowered] | None:
        """The fit, with the limit inside, and what it takes; None if there is none."""
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
                return fitted, Lowered(*told["lowered"])
        self._graph.time_ns, self._graph.workspace = measured
        return None

    def keep(self, fitted: Fit, figures: Lowered) -> None:
        """Keeps what was found, unless the compiler is to keep nothing."""
        from torch._inductor.codecache import write_atomic

        if config.force_disable_caches or not config.fx_graph_cache:
            return
        told = {"inner": fitted.limit, "lowered": astuple(figures), "schedule": _digest(fitted)}
        told |= {"time_ns": self._graph.time_ns, "workspace": self._graph.workspace}
        write_atomic(self._path, json.dumps(told), make_dirs=True)


def _digest(fitted: Fit) -> str:
    return hashlib.sha256(repr(steps_of(fitted)).encode()).hexdigest()
