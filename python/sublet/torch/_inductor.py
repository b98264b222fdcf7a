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
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx
from torch._functorch import config as functorch
from torch._inductor import config, custom_graph_pass
from torch.utils._pytree import tree_leaves

from .. import Fit, PlanError
from ._inner import T, Tried, within
from ._joint import CONVOLUTIONS, Joint, bytes_of
from ._measure import copy_ns, cost_of
from ._partition import WORTH, cut, saved_nodes, steps_of

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
    time_ns: int
    """How long both passes take: library calls as they were measured, and the traffic of loops."""

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
        # For CUDA graphs alone, and a tenth of a dry run's time.
        "graph_partition": False,
    }
    wrong = [key for key in asked if key == "custom_partitioner_fn" or (key in ours and asked[key] != ours[key])]
    if wrong:
        raise ValueError(f"the options {', '.join(wrong)} of the compiler are set so that a limit holds")
    return {"layout_optimization": config.layout_optimization, **asked, **ours}


def compiled(module: fx.GraphModule, inputs: Any, channels_last: bool, **given: Any) -> Any:
    """Compiles one graph of a cut, whose convolutions are computed as the dry run has said."""
    from torch._inductor import compile_fx

    # The graph is cut: by the partitioner, which is another one in each process, no code would be found that was kept.
    ours = {"custom_partitioner_fn": None, "layout_optimization": channels_last}
    with _each_loop_a_function(), config.patch(ours):
        return compile_fx.compile_fx_inner(module, inputs, **given)


def _each_loop_a_function() -> contextlib.AbstractContextManager[Any]:
    """On the processor the compiler would put all loops between two library calls into one function, whose outputs are all made before
    it and whose inputs are freed after it."""
    from torch._inductor.codegen.cpp import CppScheduling

    return mock.patch.object(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", -1)


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


def lowered(joint: Joint, fitted: Fit, asked: dict[str, Any], channels_last: bool) -> Lowered:
    """What the passes take that follow a fit, once PyTorch's compiler has lowered them."""
    steps = steps_of(fitted)
    forward, backward = cut(joint, steps)
    saved = saved_nodes(joint, steps) - {*joint.primals}
    results = {*joint.reads(joint.fwd_outputs)} - {*joint.primals}
    asked = {**asked, "layout_optimization": channels_last}
    first = _dry(forward, False, asked, {})
    second = _dry(backward, True, asked, {node.name: bytes_of(node) for node in saved - results})
    # The caller holds the results until the backward pass ends.
    beside, kept = sum(map(bytes_of, results)), sum(map(bytes_of, saved - results))
    return Lowered(first.peak, second.peak + beside, kept, channels_last, first.time_ns + second.time_ns)


@dataclass
class _Pass:
    peak: int
    time_ns: int = 0


class _Dry(BaseException):
    """Ends a dry run; no handler of the compiler takes it for an error of its own."""


def _dry(module: fx.GraphModule, is_backward: bool, asked: dict[str, Any], given: dict[str, int]) -> _Pass:
    """The peak and the time of a graph as it is lowered, with the inputs that it may free, which are `given` by name with their bytes,
    and beside all others."""
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
    taken = _Pass(sum(given.values()))
    codegen = Scheduler.codegen

    def ends(scheduler: Any) -> None:
        with contextlib.ExitStack() as stack:
            for device in {node.get_device() for node in scheduler.nodes} - {None}:
                backend = scheduler.get_backend(device)
                stack.enter_context(mock.patch.object(backend, "codegen_node", partial(_allocate, taken, backend.codegen_node)))
            stack.enter_context(_each_loop_a_function())
            codegen(scheduler)
        _count(taken, given)
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
    return taken


def _allocate(taken: _Pass, generate: Callable[[Any], None], loop: Any) -> None:
    """Stands for the generation of a loop's code: what of it changes how memory is taken; and counts the time of its traffic. Loops
    that turn together are generated: their vectors decide what is kept for one turn only."""
    from torch._inductor.codegen.common import Kernel
    from torch._inductor.codegen.cpp import OuterLoopFusedSchedulerNode
    from torch._inductor.virtualized import V

    taken.time_ns += copy_ns(int(loop.get_read_write_buffers_sizes()), loop.get_device())
    if isinstance(loop, OuterLoopFusedSchedulerNode):
        return generate(loop)
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
    from torch._inductor.scheduler import SchedulerNode

    parts = loop.get_nodes()
    reduced = {name for part in parts if part.is_reduction() for name in part.get_buffer_names()}
    turns = {part: math.prod(map(int, itertools.chain(*part.group[1]))) for part in parts if isinstance(part, SchedulerNode)}
    if len(turns) < len(parts):
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


def _count(taken: _Pass, given: dict[str, int]) -> None:
    """Counts the most bytes at once by the lines of the code: what they allocate, use for something else, and free; and the time of
    library calls."""
    from torch._inductor.codegen import wrapper
    from torch._inductor.virtualized import V

    V.graph.wrapper_code.run_wrapper_ir_passes(False)
    of = {name: [_Storage(size)] for name, size in given.items()}
    now = taken.peak
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
                cost = cost_of(_as_called(node, operator))
                scratch = cost.scratch
                taken.time_ns += cost.time_ns
        taken.peak = max(taken.peak, now + scratch)


def _operator_of(node: Any) -> fx.Node | None:
    """The operator that a library call computes; None if it is not known."""
    alone = node.get_origin_node()
    operators = [each for each in ([] if alone is None else [alone]) if isinstance(each.target, torch._ops.OpOverload)]
    return next(iter(operators or [each for each in node.get_origins() if each.target is node.op_overload]), None)


def _as_called(node: Any, operator: fx.Node) -> fx.Node:
    """An operator with the inputs that its library call gets: the compiler may give them other strides."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    hints = V.graph.sizevars.optimization_hints
    looks = {}
    given = [x for x in tree_leaves((operator.args, operator.kwargs)) if isinstance(x, fx.Node)]
    for x, real in zip(given, node.inputs):
        value = x.meta.get("val")
        if isinstance(value, Tensor) and ir.is_storage_and_layout(real) and tuple(hints(real.get_size())) == tuple(value.shape):
            looks[x] = value.new_empty_strided(value.shape, hints(real.get_stride()))
    return _with_inputs(operator, looks)


def _in_layout(convolution: fx.Node, channels_last: bool) -> fx.Node:
    """A convolution with inputs whose channels are last or not."""
    looks = {}
    for x in convolution.all_input_nodes:
        value = x.meta["val"]
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(value.dim()) if channels_last else None
        looks[x] = torch.empty_like(value, memory_format=last or torch.contiguous_format)
    return _with_inputs(convolution, looks)


def _with_inputs(operator: fx.Node, looks: dict[fx.Node, Tensor]) -> fx.Node:
    """The operator alone, with inputs that look like these."""
    graph, values = fx.Graph(), dict[fx.Node, fx.Node]()
    for x in operator.all_input_nodes:
        values[x] = graph.placeholder(x.name)
        values[x].meta = {**x.meta, "val": looks.get(x, x.meta.get("val"))}
    alone = graph.node_copy(operator, values.__getitem__)
    alone.meta = operator.meta
    return alone


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
        beside = sum(map(bytes_of, joint.primals))
        refusals: list[tuple[PlanError, Layout]] = []

        def attempt(layout: Layout, inner: int) -> Tried[tuple[Layout, Fit, Lowered]] | None:
            layout.take(joint)
            try:
                fitted = fit(inner)
            except PlanError as e:
                refusals.append((e, layout))
                return None
            figures = lowered(joint, fitted, self._asked, layout.channels_last)
            return Tried(beside + figures.peak, figures.time_ns, (layout, fitted, figures))

        firsts = [first for first in (attempt(layout, limit) for layout in self._ways(joint)) if first is not None]
        best = _fastest(first for first in firsts if first.peak <= limit)
        least = min((first.peak for first in firsts), default=None)
        over = sorted((first for first in firsts if first.peak > limit), key=lambda first: first.time_ns)
        for k, first in enumerate(over):
            # With less inside it takes no less time.
            if best is not None and best.time_ns <= first.time_ns * (1 + WORTH):
                break
            now = time.monotonic()
            until = now + (end - now) / (len(over) - k)
            found = within(limit, beside, first, partial(attempt, first.plan[0]), partial(_goes_on, until))
            best = _fastest(each for each in (best, found.best) if each is not None)
            least = min(least or found.least, found.least)
        if best is None:
            if least is None:
                easiest, layout = min(refusals, key=lambda each: each[0].least or math.inf)
                layout.take(joint)
                raise easiest
            why = f", in planning={self._seconds:.0f}s" if time.monotonic() > end else ""
            refusal = PlanError(
                f"under PyTorch's compiler the step does not stay within {limit} bytes: {least} bytes are the least that was found{why}"
            )
            refusal.least = least
            raise refusal
        layout, fitted, figures = best.plan
        layout.take(joint)
        return fitted, figures

    def _ways(self, joint: Joint) -> list[Layout]:
        """The ways to compute the convolutions of a graph."""
        graph = joint.graph
        convolutions = [(k, op) for k, op in enumerate(joint.ops) if op is not None and op.target in CONVOLUTIONS]
        if not convolutions:
            return [Layout(False, graph.time_ns, graph.workspace)]
        layouts = []
        for channels_last in {False, self._asked["layout_optimization"]}:
            time_ns, workspace = list(graph.time_ns), list(graph.workspace)
            for k, op in convolutions:
                cost = cost_of(_in_layout(op, channels_last))
                time_ns[k], workspace[k] = cost.time_ns, cost.scratch + joint.unread(op)
            layouts.append(Layout(channels_last, time_ns, workspace))
        return layouts


def _goes_on(until: float, tried: int) -> bool:
    return tried < TRIES and time.monotonic() < until


def _fastest(tried: Iterable[Tried[T]]) -> Tried[T] | None:
    return min(tried, key=lambda each: each.time_ns, default=None)


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
