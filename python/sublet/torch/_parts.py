"""One limit for all graphs of a network, its parts, and for what runs between them.

While the forward pass of a part runs, the blocks that earlier parts keep for their backward passes are alive, and the
results of these parts. While the backward pass of a part runs, the gradients of later parts are alive too; results are
freed by then, unless a part or the caller of the network keeps them. So no part can be planned alone, and the memory of
later parts is not known when the first part is compiled. A graph that is all of a step, with its loss, is planned at once.
Otherwise each part keeps as little as possible in the first step. Then all parts are known, and for each there are
choices: schedules for several limits of its own. One is chosen for each part, so that all parts together stay within the
limit in the least time. What is alive beside them is measured in the first step that compiles nothing: gradients, the
optimizer's state, what other code takes and keeps. Where that does not fit, the parts are chosen anew.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import Tensor, fx
from torch._guards import tracing
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

from .. import Device, Fit, PlanError
from .._problem import problem_of
from .._results import bytes_of as size_in_bytes
from .._results import max_load
from . import _inductor
from ._joint import Joint, bytes_of
from ._partition import Partitioner, loads, saved_nodes, steps_of
from ._pipeline import gradients
from ._ranks import Speaking, check_equal
from ._symbols import Sizes
from ._taken import TOLERATED, Graph, OnExceed, Turn, Watch, every_watch, said

Compiler: TypeAlias = Literal["aot_eager", "inductor"]
ONE_GRAPH = "another graph ran before it, or it returns no loss alone; make the loss part of the model"
CHOICES = 10
"""Into how many steps the range of a part's limits is divided."""
NOISE = 1 << 16
"""Fewer bytes than this, between two marks, are Python's own objects."""
ROOM = 1.25
"""How much larger than the largest sizes seen a part of open sizes is planned for, where it is not all of a step."""


@dataclass(frozen=True)
class Choice:
    """One way to run a part: a schedule, and the memory that it takes."""

    fitted: Fit
    """The schedule."""
    forward: int
    """The most bytes that the forward pass takes, beside the part's inputs."""
    backward: int
    """The most bytes that the backward pass takes, beside the part's inputs and results."""
    kept: int
    """The bytes that the forward pass keeps for the backward pass, beside the part's inputs and results."""
    keeps: frozenset[int]
    """The numbers of the inputs that the part keeps for its backward pass."""
    keeps_results: bool
    """Whether the part keeps a result for its backward pass."""
    time_ns: int
    """The time that the schedule takes over the original, in ns."""


@dataclass
class PartTurn(Turn):
    """One pass of a part in a step: the storages that it reads and returns, with their bytes."""

    part: Part = field(kw_only=True)
    given: dict[StorageWeakRef, int] = field(default_factory=dict)
    """The inputs that were there before the step: parameters, buffers, inputs of the network."""
    passed: dict[StorageWeakRef, int] = field(default_factory=dict)
    """The inputs that earlier parts have returned."""
    numbers: dict[StorageWeakRef, set[int]] = field(default_factory=dict)
    """The numbers of the inputs that lie in each storage."""
    returned: dict[StorageWeakRef, int] = field(default_factory=dict)
    """The results of the part, without its inputs."""
    stays: dict[StorageWeakRef, int] | None = None
    """The results that are still alive when the part's own backward pass begins; None if it has not begun."""
    beside_forward: int = 0
    """The bytes that are alive while the forward pass runs, beside the part's own and those that other parts keep."""
    beside_backward: int = 0
    """The bytes that are alive while the backward pass runs, beside the part's own, those that other parts keep, and
    results that are still alive."""
    gap_forward: int = 0
    gap_backward: int = 0
    """The most bytes that other code takes after the passes, beside what is alive as they end."""
    left: int = 0
    """The bytes that the backward pass leaves: gradients of parameters, and of results of other code."""


class Parts(Watch):
    """One limit for all graphs of a network, and for what runs between them.

        parts = sublet.torch.Parts("8GiB")
        model = sublet.torch.compile(model, parts)

    `limit` is bytes, `8GiB`, or `60%` of the most that a step takes without a plan, as it is predicted. It counts
    parameters, buffers, inputs, the optimizer's state, gradients, what all parts take together, and what other code takes
    between them. PlanError comes as a step begins, if the limit cannot be met. Parts that have no plan are not counted.

    `on_exceed` says what happens after a step that took more than its limit: `warn`, `raise` (`OverLimit`), or `replan`,
    which warns and plans again with as much less. `using`, `device`, `group`, `timeout` and `reorder` are as for
    `Partitioner`. The ranks of a `group` plan with the least of their limits.

    `compiler` is what compiles the graphs that were cut: `aot_eager`, so that operators run one by one, or `inductor`,
    PyTorch's own compiler, for a step that is one graph with its loss. There both passes are lowered, without code, until
    one is found that stays within the limit; `planning` is how long that is tried, such as `60s`. `compiler_options` are
    those of `torch.compile`. PlanError names the least that was found. ValueError for options that take memory which no
    limit counts, such as CUDA graphs, and for a PyTorch that cannot hold its compiler to a limit (before 2.15).
    """

    is_shared = True

    def __init__(
        self,
        limit: int | str,
        using: str | Sequence[str] = ("recompute",),
        device: str | Device | None = None,
        group: Any = None,
        timeout: float = 300,
        reorder: bool = True,
        on_exceed: OnExceed = "warn",
        compiler: Compiler = "aot_eager",
        planning: str | float = "60s",
        compiler_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(on_exceed)
        if compiler not in ("aot_eager", "inductor"):
            raise ValueError(f'compiler {compiler!r}: expected "aot_eager" or "inductor"')
        if compiler == "inductor" and group is not None:
            raise ValueError('compiler="inductor" has no common plan for the ranks of a group')
        self.compiler = _inductor.options(compiler_options or {}) if compiler == "inductor" else None
        """The options of PyTorch's own compiler, where that compiles what was cut."""
        self.planning = seconds_of(planning)
        self.limit = limit
        self.ranks = None if group is None else Speaking(group, timeout)
        self.planned_peak = 0
        """The most bytes that a step takes by the plan, all that counts included; 0 before there is a plan."""
        self.held = 0
        """The bytes that are there before a step: parameters, buffers, inputs, gradients, the optimizer's state."""
        self.overhead_ns = 0
        """The time over the original, in all parts together, in ns."""
        self._options = {"using": using, "device": device, "group": group, "timeout": timeout, "reorder": reorder}
        self._planned: dict[tuple[Part, ...], int] = {}
        """The parts in the orders for which there is a plan, and the most bytes that it was made for."""
        self._limit: int | None = None
        self._less = 0
        """So many bytes less are planned, since so many more were taken."""
        self._optimizers: dict[int, tuple[weakref.ref[Optimizer], int, int]] = {}
        """By id: an optimizer of the parameters, for how many of them it has a state, and the bytes of that."""
        self._parameters: set[int] = set()

    @property
    def parts(self) -> list[Part]:
        """The graphs."""
        return [graph for graph in self.graphs if isinstance(graph, Part)]

    @property
    def allowed(self) -> int | None:
        """The limit in bytes; None as long as it is not known."""
        return self._limit

    @property
    def persistent(self) -> int:
        """The bytes that the step was given, with the optimizer's state."""
        return super().persistent + sum(size for _, _, size in self._optimizers.values())

    def compiled(self, module: fx.GraphModule, inputs: list[Any]) -> Part:
        """Adds a part, compiles it and returns it."""
        return Part(self, module, inputs, self._options)

    def begin(self, graph: Graph, args: Iterable[Any]) -> Turn:
        args = list(args)
        self.turns = [turn for turn in self.turns if not turn.is_given_up]
        turn = super().begin(graph, args)
        assert isinstance(turn, PartTurn)
        returned = {storage for each in self._of_parts() if each is not turn for storage in each.returned}
        for number, x in enumerate(args):
            for storage, size in _storages([x]).items():
                if storage in returned:
                    turn.passed[storage] = size
                elif x.grad_fn is None:
                    turn.given[storage] = size
                turn.numbers.setdefault(storage, set()).add(number)
        self._parameters.update(id(x) for x in args if isinstance(x, Parameter))
        return turn

    def end(self, turn: Turn, results: Any) -> None:
        if isinstance(turn, PartTurn):
            returned = _storages(tree_leaves(results))
            turn.returned = {s: size for s, size in returned.items() if s not in turn.numbers}
        super().end(turn, results)

    def begin_backward(self, graph: Graph) -> Turn | None:
        turn = super().begin_backward(graph)
        if isinstance(turn, PartTurn):
            turn.stays = {storage: size for storage, size in turn.returned.items() if not storage.expired()}
        return turn

    def end_of_step(self) -> None:
        turns, is_clean, held = self._of_parts(), self.is_clean, self.persistent
        was_backward = self._is_backward
        super().end_of_step()
        for key, (known, entries, size) in list(self._optimizers.items()):
            optimizer = known()
            if optimizer is None:
                del self._optimizers[key]
            elif entries != len(optimizer.state):
                state = _storages(tree_leaves(list(optimizer.state.values())))
                self._optimizers[key] = known, len(optimizer.state), sum(state.values())
        if was_backward and turns:
            self._plan(turns, is_clean, held)

    def over(self, taken: int, limit: int) -> None:
        if self.on_exceed == "replan":
            self._less += taken - limit
            self._planned.clear()

    def has_stepped(self, optimizer: Optimizer) -> None:
        """Notes an optimizer of the parameters: its state counts."""
        if id(optimizer) not in self._optimizers:
            if any(id(p) in self._parameters for group in optimizer.param_groups for p in group["params"]):
                self._optimizers[id(optimizer)] = weakref.ref(optimizer), -1, 0

    def is_whole(self, part: Part) -> bool:
        """Whether a part that is compiled seems to be all of a step: it has no break, and none ran before it."""
        return not part.breaks and (self._is_backward or not self.turns)

    def plan_alone(self, part: Part, joint: Joint, fitted: Fit) -> None:
        """Notes the plan of a part that seems to be all of a step."""
        self._limit = fitted.limit
        self.planned_peak = part.partitioner._taken(joint, fitted)
        self.held = sum(map(bytes_of, joint.primals))
        self._planned[(part,)] = self.planned_peak

    def turn_of(self, graph: Graph) -> Turn:
        return PartTurn(graph, part=graph) if isinstance(graph, Part) else Turn(graph)

    def _of_parts(self) -> list[PartTurn]:
        return [turn for turn in self.turns if isinstance(turn, PartTurn) and turn.part.has_plan]

    def _plan(self, turns: list[PartTurn], is_clean: bool, held: int) -> None:
        """Chooses how each part of the last step runs from now on."""
        order = tuple(turn.part for turn in turns)
        # What is beside the parts may have grown: gradients, the optimizer's state.
        if order in self._planned and not (is_clean and self.taken > self._planned[order] + TOLERATED):
            return
        state = sum(size for _, _, size in self._optimizers.values())
        given = sum({storage: size for turn in turns for storage, size in turn.given.items()}.values())
        self.held = max(given + state, held if is_clean else 0)
        for i, turn in enumerate(turns):
            turn.beside_forward = self.held + sum(sum(t.returned.values()) for t in turns[:i])
            turn.beside_backward = self.held + sum(t.part.gradients for t in turns[i + 1 :])
            turn.left = turn.part.gradients
        if is_clean:
            self._measure(turns)
        single = len(turns) == 1
        first = turns[0]
        peak = first.part.original(first) if single else _peak(turns, [0] * len(turns))
        limit = size_in_bytes(self.limit, peak)
        if self.ranks is not None:
            limit = min(self.ranks.gathered(limit))
        self._limit, limit = limit, limit - self._less
        found = first.part.within(first, limit) if single else _least_time(turns, limit)
        if self.ranks is not None:
            check_equal(found, self.ranks)
        if found is None:
            raise PlanError(self._too_little(turns, limit))
        for turn, number in zip(turns, found):
            turn.part.chosen = number
        self.planned_peak = _peak(turns, found)
        self._planned[order] = max(self.planned_peak, self.taken if is_clean else 0)
        self.overhead_ns = sum(turn.part.choices[number].time_ns for turn, number in zip(turns, found))

    @staticmethod
    def _measure(turns: list[PartTurn]) -> None:
        """Counts what was alive beside the parts as they ran, and what ran between them."""
        stays, total = _stays(turns), Sum()
        zero = turns[0].beside_forward
        for turn in turns:
            if turn.forward is not None:
                turn.beside_forward += _more(turn.forward.level + zero, turn.beside_forward + total.kept)
            if turn.after_forward is not None:
                turn.gap_forward = _more(turn.after_forward.most, turn.after_forward.level)
            total = total.then(turn, turn.part.chosen, stays)
            if turn.backward is not None:
                there = turn.beside_backward + total.kept + total.alive
                turn.beside_backward += _more(turn.backward.level + zero, there)
            if turn.backward is not None and turn.after_backward is not None:
                kept = turn.part.choices[turn.part.chosen].kept
                turn.left = max(turn.left, turn.after_backward.level - turn.backward.level + kept)
                turn.gap_backward = _more(turn.after_backward.most, turn.after_backward.level)

    def _too_little(self, turns: list[PartTurn], limit: int) -> str:
        """Why a limit cannot be met: the sum, where the graph breaks, and what would help."""
        least = [min(range(len(turn.part.choices)), key=[way.kept for way in turn.part.choices].__getitem__) for turn in turns]
        enough = _peak(turns, least)
        kept = sum(turn.part.choices[number].kept for turn, number in zip(turns, least))
        made = sum(turn.part.gradients for turn in turns)
        other = max(max(t.gap_forward, t.gap_backward) for t in turns)
        text = (
            f"{len(turns)} parts do not stay within {limit} bytes; {enough} bytes are enough: {said(self.held)} are there "
            f"before a step, {said(made)} are gradients, at least {said(kept)} are kept for backward passes"
        )
        if other > TOLERATED:
            text += f", and code that is not compiled takes {said(other)} beside them"
        breaks = list(dict.fromkeys(turn.part.breaks for turn in turns if turn.part.breaks))
        return text + "".join(f"; {each}" for each in breaks[:3])


def _has_stepped(optimizer: Optimizer, *_: Any) -> None:
    for watch in every_watch:
        if isinstance(watch, Parts):
            watch.has_stepped(optimizer)


register_optimizer_step_post_hook(_has_stepped)


class Part(Graph):
    """One graph of a network, compiled anew when another way to run it has been chosen."""

    def __init__(self, whole: Parts, module: fx.GraphModule, inputs: list[Any], options: dict[str, Any]) -> None:
        self.choices: list[Choice] = []
        self.alone: set[int] = set()
        """The choices that were made for a limit of a step that is this part alone."""
        self.chosen = -1
        self.gradients = 0
        """The bytes of the gradients of its parameters."""
        self.inputs = len(inputs)
        self.whole = whole
        self.compiler = whole.compiler
        self.joint: Joint | None = None
        self._is_run = -1
        """The number of the choice that is compiled."""
        cut = Chosen if whole.compiler is None else Compiled
        super().__init__(whole, cut(self, whole.limit, options), module, inputs)

    @property
    def has_plan(self) -> bool:
        """Whether it has a plan."""
        return bool(self.choices)

    def prepare(self) -> None:
        if self.has_plan and self._is_run != self.chosen:
            self.compile_again()
            self._is_run = self.chosen

    def add(self, joint: Joint, fitted: Fit) -> int:
        """Adds a choice, and returns its number."""
        assert isinstance(self.partitioner, Chosen)
        self.choices.append(self.partitioner.way(joint, fitted, self.inputs))
        return len(self.choices) - 1

    def original(self, turn: PartTurn) -> int:
        """The most bytes that a step takes which is this part alone, without a plan."""
        assert isinstance(self.partitioner, Chosen)
        joint = self._with_gap(turn)
        with self.partitioner.at_numbers():
            return max_load(problem_of(joint.graph)) + self._beside(turn)

    def within(self, turn: PartTurn, limit: int) -> list[int]:
        """The choice with which a step that is this part alone stays within a limit in the least time. PlanError if there is none."""
        assert isinstance(self.partitioner, Chosen)
        times = {number: way.time_ns for number, way in enumerate(self.choices) if _peak([turn], [number]) <= limit}
        best = min(times, key=times.__getitem__, default=None)
        if best is not None and (best in self.alone or not times[best]):
            return [best]
        joint = self._with_gap(turn)
        with self.partitioner.at_numbers():
            try:
                with tracing(self._context):
                    fitted = self.partitioner.fitted(joint, limit - self._beside(turn))
            except PlanError:
                if best is None:
                    raise
                return [best]
            number = self.add(joint, fitted)
        self.alone.add(number)
        return [number if best is None or self.choices[number].time_ns < times[best] else best]

    def _with_gap(self, turn: PartTurn) -> Joint:
        assert self.joint is not None
        self.joint.graph.workspace[self.joint.loss] = turn.gap_forward
        return self.joint

    def _beside(self, turn: PartTurn) -> int:
        assert self.joint is not None
        return max(turn.beside_forward, turn.beside_backward) - sum(map(bytes_of, self.joint.primals))


class Chosen(Partitioner):
    """Cuts a part by the choice that was made for it."""

    def __init__(self, part: Part, limit: int | str, options: dict[str, Any]) -> None:
        super().__init__(limit, **options)
        self._part = weakref.ref(part)
        self._numbers: dict[Any, int] = {}
        self._sizes: Sizes | None = None
        """The open sizes of the graph that was planned first."""
        self._names: list[str] = []

    def _planned(self, sizes: Sizes, make: Callable[[], Joint]) -> tuple[Joint, Fit]:
        part = self._part()
        assert part is not None
        if part.choices:
            sizes.fix(self._numbers)
            joint = make()
            if joint.graph.names != self._names:
                raise PlanError("a part of the network is another one when it is compiled again")
            return joint, part.choices[part.chosen].fitted
        largest = sizes.largest(self._seen)
        sizes.fix(largest)
        joint = make()
        if part.whole.is_whole(part) and _is_loss(joint):
            joint, fitted = super()._planned(sizes, make)
            part.whole.plan_alone(part, joint, fitted)
            part.alone.add(part.add(joint, fitted))
        elif part.compiler is not None:
            raise PlanError(
                f'compiler="inductor" plans a step that is one graph with its loss, and this is not: {part.breaks or ONE_GRAPH}'
            )
        else:
            sizes.fix(sizes.times(largest, ROOM))
            joint = make() if largest else joint
            self._add_all(part, joint)
        part.joint, part.gradients = joint, gradients(joint)[0]
        self._sizes, self._numbers, self._names = sizes, sizes.numbers, joint.graph.names
        part.chosen = part._is_run = len(part.choices) - 1
        return joint, part.choices[-1].fitted

    @contextmanager
    def at_numbers(self) -> Iterator[None]:
        """Within it, the graph that was planned first has the numbers of the plan in the place of open sizes."""
        assert self._sizes is not None
        self._sizes.fix(self._numbers)
        try:
            yield
        finally:
            self._sizes.restore(self._sizes.module)

    def fitted(self, joint: Joint, limit: int | str) -> Fit:
        """A fit to a limit. PlanError says what the limit is made of."""
        self.limit = limit
        return self._fit(joint)

    def way(self, joint: Joint, fitted: Fit, inputs: int) -> Choice:
        """Describes a fit of the part as a choice. `inputs` is the number of the part's inputs."""
        return _way(joint, fitted, inputs)

    def _add_all(self, part: Part, joint: Joint) -> None:
        """The choices: fits of the part to lower and lower limits. A fit that needs as much memory as the one before it
        is left out."""
        persistent = sum(map(bytes_of, joint.primals))
        most = 0
        for k in range(CHOICES):
            try:
                limit = persistent + (most - persistent) * (CHOICES - k) // CHOICES if k else "100%"
                fitted = self._fit_one(joint, limit)
            except PlanError:
                break
            most = most or fitted.schedule.peak_load
            part.add(joint, fitted)
            if len(part.choices) > 1:
                *_, last, way = part.choices
                if way.kept >= last.kept and way.forward >= last.forward and way.backward >= last.backward:
                    part.choices.pop()


class Compiled(Chosen):
    """Cuts a part that PyTorch's own compiler compiles, so that what comes out is within the limit."""

    is_lowered = True

    def __init__(self, part: Part, limit: int | str, options: dict[str, Any]) -> None:
        super().__init__(part, limit, options)
        self._dry = _inductor.Dry(part.whole.compiler or {}, part.whole.planning)

    def way(self, joint: Joint, fitted: Fit, inputs: int) -> Choice:
        way, real = super().way(joint, fitted, inputs), self._dry.of(fitted)
        assert real is not None
        results = sum(map(bytes_of, {*joint.reads(joint.fwd_outputs)} - {*joint.primals}))
        return replace(way, forward=real.forward, backward=real.backward - results, kept=real.kept)

    def _fit(self, joint: Joint) -> Fit:
        self._dry.begin()
        return super()._fit(joint)

    def _fit_one(self, joint: Joint, limit: int | str) -> Fit:
        return self._dry.within(joint, limit, partial(super()._fit_one, joint))

    def _taken(self, joint: Joint, fitted: Fit) -> int:
        real = self._dry.of(fitted)
        return super()._taken(joint, fitted) if real is None else sum(map(bytes_of, joint.primals)) + real.peak


def _is_loss(joint: Joint) -> bool:
    """Whether all that needs gradients among the results is one number: no loss follows."""
    results = [n.meta["val"] for n in joint.fwd_outputs if isinstance(n, fx.Node)]
    return len(joint.tangents) == 1 and any(isinstance(x, Tensor) and not x.dim() for x in results)


def _way(joint: Joint, fitted: Fit, inputs: int) -> Choice:
    """Describes a fit of a part as a choice. `inputs` is the number of the part's inputs."""
    steps = steps_of(fitted)
    returned = {*joint.reads(joint.fwd_outputs)} - {*joint.primals}
    saved = saved_nodes(joint, steps)
    given, results = sum(map(bytes_of, joint.primals)), sum(map(bytes_of, returned))
    forward, backward = loads(joint, fitted)
    return Choice(
        fitted,
        forward=forward - given,
        backward=backward - given - results,
        kept=sum(map(bytes_of, saved - {*joint.primals, *returned})),
        # If AOTAutograd has merged inputs, it is not known which are kept: all count as kept.
        keeps=frozenset(i for i in range(inputs) if len(joint.primals) != inputs or joint.primals[i] in saved),
        keeps_results=not saved.isdisjoint(returned),
        time_ns=int(fitted.overhead * sum(joint.graph.time_ns)),
    )


def _more(measured: int, known: int) -> int:
    """How many bytes more were measured than are known, without what Python's own objects take."""
    return measured - known if measured > known + NOISE else 0


def seconds_of(duration: str | float) -> float:
    """A duration such as `60s` or `2min`, or seconds. ValueError where it is none."""
    if not isinstance(duration, str):
        return float(duration)
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(s|min)\s*", duration)
    if found is None:
        raise ValueError(f"duration {duration!r}: expected one such as 60s or 2min")
    return float(found[1]) * (60 if found[2] == "min" else 1)


def _storages(values: list[Any]) -> dict[StorageWeakRef, int]:
    """The storages of the tensors among these values, with their bytes."""
    storages = [x.untyped_storage() for x in values if isinstance(x, Tensor)]
    return {StorageWeakRef(storage): storage.nbytes() for storage in storages}


class Sum(NamedTuple):
    """The memory and time of some turns, one after the other."""

    kept: int = 0
    """The bytes that the turns keep for their backward passes."""
    alive: int = 0
    """The bytes of their results that are alive while backward passes run."""
    most: int = 0
    """The most bytes that are alive while one of them runs."""
    time_ns: int = 0
    """The time that they take over the original, in ns."""
    numbers: tuple[int, ...] = ()
    """The number of the choice of each turn."""

    def then(self, turn: PartTurn, number: int, stays: Collection[StorageWeakRef]) -> Sum:
        """The sum with one more turn, which runs by the choice `number`. `stays` are the results that are alive
        whatever is chosen."""
        way = turn.part.choices[number]
        alive = self.alive + sum((turn.returned if way.keeps_results or turn.stays is None else turn.stays).values())
        # A storage that several parts keep counts several times.
        alive += sum(b for s, b in turn.passed.items() if s not in stays and not way.keeps.isdisjoint(turn.numbers[s]))
        before, after = turn.beside_forward + self.kept, turn.beside_backward + self.kept + alive
        between = before + way.kept + sum(turn.returned.values()) + turn.gap_forward
        ended = after + turn.left + turn.gap_backward
        most = max(self.most, before + way.forward, between, after + way.backward, ended)
        return Sum(self.kept + way.kept, alive, most, self.time_ns + way.time_ns, (*self.numbers, number))


def _stays(turns: list[PartTurn]) -> set[StorageWeakRef]:
    return {storage for turn in turns for storage in (turn.returned if turn.stays is None else turn.stays)}


def _peak(turns: list[PartTurn], chosen: list[int]) -> int:
    """The most bytes that the turns take together."""
    stays, total = _stays(turns), Sum()
    for turn, number in zip(turns, chosen):
        total = total.then(turn, number, stays)
    return total.most


def _least_time(turns: list[PartTurn], limit: int) -> list[int] | None:
    """The choice of each turn with which all turns together stay within the limit in the least time; None if there is
    none.

    Turn by turn, combinations are dropped if another one keeps no more bytes and takes no more time. A part that has
    several turns runs by the same choice in all of them.
    """
    order, stays = [turn.part for turn in turns], _stays(turns)
    sums = [Sum()]
    for i, turn in enumerate(turns):
        first = order.index(turn.part)
        following: list[Sum] = []
        for before in sums:
            ways = range(len(turn.part.choices)) if first == i else [before.numbers[first]]
            following += [before.then(turn, number, stays) for number in ways]
        again = [order.index(part) for part in {*order[i + 1 :]} & {*order[: i + 1]}]
        sums = _undominated([each for each in following if each.most <= limit], again)
    return list(min(sums, key=lambda each: each.time_ns).numbers) if sums else None


def _undominated(sums: list[Sum], again: list[int]) -> list[Sum]:
    """Drops a sum if another one keeps no more bytes and takes no more time.

    Two sums are compared only if they have equally many bytes alive, and the same choices for the turns `again`. These
    are the turns of parts that run once more later, and then by the same choice.
    """
    best: dict[tuple[int, ...], int] = {}
    kept = []
    for each in sorted(sums, key=lambda each: (each.kept, each.time_ns)):
        key = (each.alive, *(each.numbers[i] for i in again))
        if key not in best or each.time_ns < best[key]:
            best[key] = each.time_ns
            kept.append(each)
    return kept
