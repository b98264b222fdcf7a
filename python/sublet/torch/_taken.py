"""What a step takes, beside its limit; and where it takes more, why.

The passes of compiled graphs begin and end at marks. Between two marks the most bytes are counted: by PyTorch's allocator
on a GPU, by the functions of the heap on the host. A step begins with the first forward pass that follows a backward
pass, and what is allocated then is its level 0; the parameters, inputs and gradients that are there count as bytes. On the
host an alarm rings as the limit is crossed, so that the operator and the line are known.
"""

from __future__ import annotations

import copy
import linecache
import logging
import os
import re
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, fx
from torch._guards import CompileContext, TracingContext, tracing
from torch._functorch.eager_transforms import _autograd_grad
from torch.autograd import Variable
from torch.autograd.function import BackwardCFunction
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves

from .. import PlanError, _sublet
from ._measure import HEAP
from ._partition import Partitioner, Report

OnExceed: TypeAlias = Literal["warn", "raise", "replan"]
TOLERATED = 1 << 18
"""So many bytes above a limit are not told: Python's own objects take some. On a limit of 128 MiB and more, 0.2 %."""
GRADIENTS = (torch.autograd.grad, _autograd_grad)
"""What computes gradients within a graph."""
COMPUTES = (
    "computes gradients itself (torch.func.grad, torch.autograd.grad), and runs without a limit; compile the loss alone, and take "
    "its gradients outside, by backward()"
)
OURS = (os.path.dirname(__file__), os.path.dirname(torch.__file__))
COMPILED = "<eval_with_key>"
"""How the names of the files begin in which PyTorch's graphs are."""


class OverLimit(UserWarning):
    """A step has taken more than its limit. The message says by how much, and why."""


def said(size: int) -> str:
    """A size for people."""
    return f"{size / 1e9:.2f} GB" if size >= 1e10 else f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} bytes"


@dataclass
class Span:
    """What runs between two marks."""

    what: str
    graph: Graph | None
    """The compiled graph; None for other code."""
    level: int = 0
    """The bytes at its beginning, over level 0."""
    most: int = 0
    """The most bytes at once, over level 0."""


@dataclass
class Turn:
    """One forward pass of a graph in a step."""

    graph: Graph
    function: weakref.ref[Any] | None = None
    """The part of autograd's graph that waits for the backward pass; None if it is not known."""
    forward: Span | None = None
    backward: Span | None = None
    """The passes; None where one has not begun."""
    after_forward: Span | None = None
    after_backward: Span | None = None
    """What follows the passes."""

    @property
    def is_given_up(self) -> bool:
        """Whether no backward pass has begun, and none can: nothing that the pass keeps is alive."""
        return self.backward is None and self.function is not None and self.function() is None

    @property
    def gradients(self) -> int:
        """The bytes of the gradients that the backward pass makes, as far as there is a plan."""
        return 0 if self.graph.report is None else self.graph.report.gradients

    def is_kept(self, gradients: int) -> bool:
        """Whether most of what the pass keeps was there after its backward pass, beside the gradients that were made until then."""
        report = self.graph.report
        if report is None or self.forward is None or self.after_backward is None:
            return False
        return self.after_backward.level - self.forward.level - gradients > report.kept // 2 > 0


@dataclass
class Crossing:
    """Where a limit was crossed."""

    operator: str = ""
    """The operator of a compiled graph."""
    module: str = ""
    """The class of the innermost module whose code runs; with Python 3.11 and later."""
    line: str = ""
    """The user's line."""


class Watch:
    """Counts what steps take, and says where one takes more than the limit."""

    is_shared = False
    """Whether all graphs share one limit, which counts what is beside them too."""

    def __init__(self, on_exceed: OnExceed = "warn") -> None:
        if on_exceed not in ("warn", "raise", "replan"):
            raise ValueError(f'on_exceed {on_exceed!r}: expected "warn", "raise" or "replan"')
        self.on_exceed = on_exceed
        self.graphs: list[Graph] = []
        self.taken = 0
        """The most bytes that the last step has taken, parameters, inputs and gradients included."""
        self.turns: list[Turn] = []
        self.spans: list[Span] = []
        self.given: dict[int, int] = {}
        """The storages that a step has been given, with their bytes: parameters, buffers, inputs."""
        self.gradients = 0
        """The bytes of gradients that were there as the step began."""
        self.is_clean = True
        """Whether nothing was compiled in the step: compiling takes memory too."""
        self.crossing = Crossing()
        self._device = torch.device("cpu")
        self._zero = self._most = 0
        self._is_backward = False
        self._again: set[Graph] = set()
        """Graphs whose backward pass ran more often than their forward pass."""
        self._told: set[tuple[str, ...]] = set()
        self.codes: set[int] = set()
        """The functions of Python that its graphs were made from, as PyTorch numbers them."""
        every_watch.add(self)
        self._is_queued = False

    @property
    def allowed(self) -> int | None:
        """The limit in bytes; None as long as it is not known."""
        known = [graph.report.limit for graph in self.graphs if graph.report is not None]
        return max(known, default=None)

    @property
    def persistent(self) -> int:
        """The bytes that the step was given, beside what it allocates."""
        return sum(self.given.values()) + self.gradients

    def settle(self) -> None:
        """Before a forward pass: ends the step before it, if that is over."""
        if self._is_backward or (self.turns and all(turn.is_given_up for turn in self.turns)):
            self.end_of_step()

    def begin(self, graph: Graph, args: Iterable[Any]) -> Turn:
        """A forward pass begins."""
        leaves = [x for x in args if isinstance(x, Tensor)]
        if not self.spans:
            self._device = leaves[0].device if leaves else self._device
            self._zero = self._level()[0]
        # What libraries make when they run first stays, such as their kernels.
        self.is_clean = self.is_clean and graph.has_run
        graph.has_run = True
        turn = self.turn_of(graph)
        for x in leaves:
            storage = x.untyped_storage()
            # What has a graph of autograd was made in the step.
            if storage._cdata not in self.given and x.grad_fn is None:
                self.given[storage._cdata] = storage.nbytes()
                if isinstance(x, Parameter) and x.grad is not None:
                    self.gradients += x.grad.untyped_storage().nbytes()
        turn.forward = self.mark(Span(f"the forward pass of graph {graph.number}", graph))
        self.turns.append(turn)
        self._set_alarm()
        return turn

    def end(self, turn: Turn, results: Any) -> None:
        """A forward pass has ended without an error."""
        turn.after_forward = self.mark(Span("code that is not compiled", None))
        functions = (x.grad_fn for x in tree_leaves(results) if isinstance(x, Tensor))
        turn.function = next((weakref.ref(f) for f in functions if isinstance(f, BackwardCFunction)), None)
        if turn.function is None and turn.graph.trains and torch.is_grad_enabled():
            return
        if turn.function is None:
            # No backward pass follows: a call for evaluation.
            self.turns.remove(turn)
            if not self.turns:
                self.end_of_step()

    def begin_backward(self, graph: Graph) -> Turn | None:
        """A backward pass begins."""
        self._is_backward = True
        if not self._is_queued:
            self._is_queued = True
            Variable._execution_engine.queue_callback(self._end_of_backward)
        turn = next((turn for turn in reversed(self.turns) if turn.graph is graph and turn.backward is None), None)
        span = self.mark(Span(f"the backward pass of graph {graph.number}", graph))
        if turn is None:
            self._again.add(graph)
        else:
            turn.backward = span
        return turn

    def end_backward(self, turn: Turn | None) -> None:
        """A backward pass has ended."""
        span = self.mark(Span("code that is not compiled", None))
        if turn is not None:
            turn.after_backward = span

    def mark(self, span: Span | None) -> Span | None:
        """Ends the span that runs, and begins another one."""
        now, most = self._level()
        if self.spans:
            self.spans[-1].most = max(self.spans[-1].most, most - self._zero)
        if span is not None:
            span.level = span.most = now - self._zero
            self.spans.append(span)
        return span

    def _level(self) -> tuple[int, int]:
        """The bytes that are allocated, and the most since the last call. On a GPU the most is known where there were
        never more: PyTorch's peak is the user's, and is reset only where it is above the limit already."""
        if self._device.type != "cuda":
            _sublet.heap_install()
            return _sublet.heap_mark()
        now, most = torch.cuda.memory_allocated(self._device), torch.cuda.max_memory_allocated(self._device)
        told, self._most = self._most, most
        limit = self.allowed
        if limit is not None and most > self._zero + limit - self.persistent:
            torch.cuda.reset_peak_memory_stats(self._device)
            self._most = now
        return now, most if most > told else now

    def turn_of(self, graph: Graph) -> Turn:
        """A new turn of a graph."""
        return Turn(graph)

    def over(self, taken: int, limit: int) -> None:
        """What follows a step that took more than its limit, beside telling it."""

    def compiles(self) -> None:
        """A graph is compiled."""
        self.is_clean = self.is_clean and not self.spans

    def end_of_step(self) -> None:
        """A step is over. OverLimit if it has taken more than the limit and that is to be raised."""
        if self.spans:
            self.mark(None)
        try:
            self.check()
        finally:
            self.turns, self.spans, self.given, self.gradients = [], [], {}, 0
            self.is_clean, self._is_backward, self.crossing = True, False, Crossing()
            self._again.clear()

    def _end_of_backward(self) -> None:
        self._is_queued = False
        self.mark(None)
        self.check()

    def check(self) -> None:
        """Tells once where the step has taken more than the limit."""
        limit = self.allowed
        if limit is None or not self.spans or not self.is_clean or not (HEAP.counts or self._device.type == "cuda"):
            return
        worst = max(self.spans, key=lambda span: span.most)
        self.taken = self.persistent + worst.most
        if self.taken <= limit + max(TOLERATED, limit // 500):
            return
        self.over(self.taken, limit)
        why = self.why(worst, limit)
        # The same reason with other numbers is told once.
        kind = (worst.what, re.sub(r"[0-9.]+ [MGb]\w+", "", why))
        if kind in self._told:
            return
        self._told.add(kind)
        over = f"this step took {said(self.taken)}, {said(self.taken - limit)} more than its limit of {said(limit)}"
        self.tell(f"{over}, in {worst.what}{self._where()}: {why}")

    def tell(self, what: str) -> None:
        """Says that the limit does not hold. OverLimit, if that is to be raised."""
        if self.on_exceed == "raise":
            raise OverLimit(f"sublet: {what}")
        warnings.warn(f"sublet: {what}", OverLimit, stacklevel=3)

    def why(self, worst: Span, limit: int) -> str:
        """Why a step took more than its limit, and what would help."""
        unplanned = next((graph for graph in self.graphs if graph is worst.graph and graph.report is None), None)
        if unplanned is not None:
            return f"graph {unplanned.number} has no plan ({unplanned.unplanned})"
        made = [sum(turn.gradients for turn in self.turns[i:]) for i in range(len(self.turns))]
        if self._again or any(map(Turn.is_kept, self.turns, made)):
            return "what a forward pass keeps was still there after its backward pass (retain_graph, create_graph)"
        if self.is_shared and worst.graph is not None:
            return "operators took more than was measured, or what is beside them has grown since it was planned"
        if self.gradients and self.taken - self.gradients <= limit:
            return (
                f"gradients of {said(self.gradients)} were there before the step; count them in the limit, by "
                "sublet.torch.compile, or set them to None"
            )
        ran = list(dict.fromkeys(turn.graph for turn in self.turns))
        if worst.graph is None:
            breaks = next((graph.breaks for graph in ran if graph.breaks), "")
            return "it is not part of a graph, and no plan counts it" + (f" ({breaks})" if breaks else "")
        if len(self.turns) > 1:
            breaks = next((f": {graph.breaks}" for graph in ran if graph.breaks), "")
            return f"{len(self.turns)} forward passes ran, each with the limit for itself{breaks}; {TOGETHER}"
        after = self.turns[0].after_forward if self.turns else None
        if after is not None and self.turns[0].backward is not None:
            beside = self.turns[0].backward.level - after.level
            if self.taken - beside <= limit:
                return f"code that is not compiled keeps {said(beside)} until the backward pass, such as a loss; {TOGETHER}"
        return "operators took more than was measured"

    def _where(self) -> str:
        at = self.crossing
        parts = [f"at {at.operator}" if at.operator else "", f"of {at.module}" if at.module else "", at.line]
        return "".join(f", {part}" for part in parts if part)

    def _set_alarm(self) -> None:
        limit = self.allowed
        if self._device.type != "cpu" or limit is None or self.crossing.line:
            return
        global _watched
        _watched = weakref.ref(self)
        _sublet.heap_alarm(self._zero + limit + max(TOLERATED, limit // 500) - self.persistent)

    def note_crossing(self, frame: FrameType | None) -> None:
        """Notes what runs as the limit is crossed."""
        at = Crossing()
        while frame is not None:
            # A look at the frame's variables would hold them.
            code, name = frame.f_code, getattr(frame.f_code, "co_qualname", "")
            if code.co_filename.startswith(COMPILED) and not at.operator:
                graph = self.spans[-1].graph if self.spans else None
                text = linecache.getline(code.co_filename, frame.f_lineno)
                at.operator, at.line = ("", "") if graph is None else graph.operator_of(text.split("=")[0].strip())
            if name.endswith(".forward") and not code.co_filename.startswith(COMPILED) and not at.module:
                at.module = name.split(".")[-2]
            if not code.co_filename.startswith((*OURS, "<")) and not at.line:
                at.line = f'{os.path.basename(code.co_filename)}, line {frame.f_lineno}'
            frame = frame.f_back
        self.crossing = at


_watches: weakref.WeakKeyDictionary[Partitioner, Watch] = weakref.WeakKeyDictionary()


def watch_of(partitioner: Partitioner) -> Watch:
    """The watch over all graphs that a partitioner cuts."""
    return _watches.setdefault(partitioner, Watch())


every_watch: weakref.WeakSet[Watch] = weakref.WeakSet()


def _gives_up(record: logging.LogRecord) -> bool:
    """Says that a function runs eagerly from now on. PyTorch tells that by its log alone."""
    code = CompileContext.current_compile_id()
    if code is not None and str(record.msg).startswith("torch._dynamo hit config."):
        option, limit, function, reason = record.args[:4] if isinstance(record.args, tuple) else ("", "", "", "")
        for watch in [watch for watch in every_watch if code.frame_id in watch.codes]:
            watch.tell(
                f"{function} runs without a limit from now on: PyTorch has compiled it {limit} times, which is its "
                f"torch._dynamo.config.{option}, the last time because {str(reason).strip()}; raise that, or let sizes be dynamic"
            )
    return True


logging.getLogger("torch._dynamo.convert_frame").addFilter(_gives_up)

TOGETHER = "sublet.torch.compile(model, limit) has one limit over all"
_watched: weakref.ref[Watch] | None = None
"""The watch whose alarm is set."""


def _rung() -> None:
    watch = None if _watched is None else _watched()
    if watch is not None:
        watch.note_crossing(sys._getframe(1))


_sublet.heap_on_alarm(_rung)


class Graph:
    """A compiled graph whose passes are marked."""

    compiler: dict[str, Any] | None = None
    """The options of PyTorch's own compiler, where that compiles what was cut; None where the operators run one by one."""

    def __init__(self, watch: Watch, partitioner: Partitioner, module: fx.GraphModule, inputs: list[Any]) -> None:
        self.watch, self.partitioner = watch, partitioner
        watch.graphs.append(self)
        self.number = len(watch.graphs)
        code = CompileContext.current_compile_id()
        if code is not None and code.frame_id is not None:
            if not code.frame_compile_id:
                # Another function had this number before PyTorch was reset.
                for other in every_watch:
                    other.codes.discard(code.frame_id)
            watch.codes.add(code.frame_id)
        context = TracingContext.try_get()
        mode = None if context is None else context.fake_mode
        self._context = context
        self._module, self._inputs = module, [x if mode is None or not isinstance(x, Tensor) else mode.from_tensor(x) for x in inputs]
        """The graph as PyTorch has traced it, and its inputs without numbers: so it can be compiled again."""
        reason = getattr(module, "compile_subgraph_reason", None)
        self.breaks = _break_of(reason) if reason is not None and reason.graph_break else ""
        self.report: Report | None = None
        """The plan; None if there is none."""
        self.unplanned = "it has no backward pass"
        self.trains = self.has_run = False
        self._modules: list[fx.GraphModule] = []
        self._run = self.compiled(module, inputs)
        if self.report is None and any(node.target in GRADIENTS for node in module.graph.nodes):
            watch.tell(f"graph {self.number} {COMPUTES}")

    def compiled(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """The graph, compiled by the partitioner."""
        self.watch.compiles()
        self._modules = []
        before = len(self.partitioner.reports)
        try:
            compiled = self._compile(module, inputs)
        except PlanError as e:
            if self.watch.is_shared:
                raise
            breaks = f"; {self.breaks}" if self.breaks else ""
            refusal = PlanError(f"{e}{breaks}; of a network in several graphs, {TOGETHER}")
            refusal.least, refusal.needed = e.least, e.needed
            raise refusal from None
        if len(self.partitioner.reports) > before:
            self.report = self.partitioner.reports[-1]
        elif self.trains:
            self.unplanned = self.partitioner.refused
        return compiled

    def _compile(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if self.compiler is None:
            compiler = aot_autograd(fw_compiler=self._forward, bw_compiler=self._backward, partition_fn=self.partitioner)
            return compiler(module, inputs)
        from torch._inductor import compile_fx

        from . import _inductor

        def inner(module: fx.GraphModule, inputs: Any, **given: Any) -> Any:
            self.watch.compiles()
            run = _inductor.compiled(module, inputs, self.partitioner.channels_last, **given)
            return self._marked(run) if given.get("is_backward") else run

        # The compiler may change the graph.
        graph = copy.deepcopy(module.graph)
        options = {**self.compiler, "custom_partitioner_fn": self.partitioner}
        return compile_fx.compile_fx(fx.GraphModule(module, graph), inputs, inner, options)

    def prepare(self, args: tuple[Any, ...]) -> None:
        """What is done before a forward pass."""

    def compile_again(self) -> None:
        """Compiles the graph anew, as the partitioner cuts it now."""
        with tracing(self._context):
            self._run = self.compiled(self._module, self._inputs)

    def run(self, *args: Any) -> Any:
        """Runs the forward pass; `torch.compile` calls this."""
        self.watch.settle()
        self.prepare(args)
        turn = self.watch.begin(self, args)
        results = self._run(*args)
        self.watch.end(turn, results)
        return results

    def operator_of(self, name: str) -> tuple[str, str]:
        """An operator and the user's line that it comes from, by its name in the graph."""
        for module in self._modules:
            for node in module.graph.nodes:
                if node.name == name:
                    return str(node.target), _line_of(node)
        return name, ""

    def _forward(self, module: fx.GraphModule, inputs: Any) -> Any:
        self._modules.append(module)
        return boxed_nop(module, inputs)

    def _backward(self, module: fx.GraphModule, inputs: Any) -> Any:
        return self._marked(self._forward(module, inputs))

    def _marked(self, run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """A backward pass with its marks."""
        self.trains = True

        def backward(args: list[Any]) -> Any:
            turn = self.watch.begin_backward(self)
            results = run(args)
            self.watch.end_backward(turn)
            return results

        backward._boxed_call = True  # type: ignore[attr-defined]
        return backward


def _break_of(reason: Any) -> str:
    """Where and why PyTorch ended a graph."""
    frames = [frame for frame in reason.user_stack if not frame.filename.startswith(OURS[1])] or reason.user_stack
    place = f"{os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}: " if frames else ""
    return f"the graph breaks at {place}{reason.reason.strip().splitlines()[0]}"


def _line_of(node: fx.Node) -> str:
    """The last line of a user's file among those that an operator comes from."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [line for line in lines if line.startswith("File ") and not any(own in line for own in OURS)]
    if not files:
        return ""
    file, line = files[-1].split('"')[1], files[-1].split("line ")[1].split(",")[0]
    return f"{os.path.basename(file)}, line {line}"
