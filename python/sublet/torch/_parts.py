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
from ._partition import WORTH, Partitioner, loads, saved_nodes, steps_of
from ._pipeline import gradients
from ._ranks import Speaking, check_equal
from ._symbols import Levels, Sizes
from ._taken import TOLERATED, Graph, OnExceed, Turn, Watch, every_watch, said

Compiler: TypeAlias = Literal["aot_eager", "inductor"]
ONE_GRAPH = "another graph ran before it, or it returns no loss alone; make the loss part of the model"
CHOICES = 10
"""Into how many steps the range of a part's limits is divided."""
NOISE = 1 << 16
"""Fewer bytes than this, between two marks, are Python's own objects."""
ROOM = 1.25
"""How much larger than the largest sizes seen a part of open sizes is planned for, where it is not all of a step and has no levels."""


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
    level: int = 0
    """The level of sizes that it is made for; it holds for higher ones too, which are smaller."""


@dataclass
class PartTurn(Turn):
    """One pass of a part in a step: the storages that it reads and returns, with their bytes."""

    part: Part = field(kw_only=True)
    number: int = field(kw_only=True)
    """The number of the choice by which it runs."""
    sizes: dict[Any, int] = field(kw_only=True)
    """The open sizes of its inputs."""
    level: int = field(kw_only=True)
    """The level of sizes for which that choice was made."""
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
        self._planned: dict[tuple[tuple[Part, int], ...], int] = {}
        """The parts and their levels of sizes, in the orders for which there is a plan, and the most bytes that it was made for."""
        self._limit: int | None = None
        self._less = 0
        """So many bytes less are planned, since so many more were taken."""
        self._optimizers: dict[int, tuple[weakref.ref[Optimizer], int, int]] = {}
        """By id: an optimizer of the parameters, for how many of them it has a state, and the bytes of that."""
        self._state = 0
        """The bytes of the optimizers' state in the last plan."""
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
        return super().persistent + self.state

    @property
    def state(self) -> int:
        """The bytes of the optimizers' state, as of the last step."""
        return sum(size for _, _, size in self._optimizers.values())

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
        self._state = self.state
        self.planned_peak = part.partitioner._taken(joint, fitted) + self._state
        self.held = sum(map(bytes_of, joint.primals)) + self._state
        self._planned[((part, 0),)] = self.planned_peak

    def plan_level(self, part: Part, level: int, peak: int) -> None:
        """Notes that a part which is all of a step has a plan at a level of sizes, and what the step takes by it."""
        self.planned_peak = max(self.planned_peak, peak)
        self._planned[((part, level),)] = peak

    def inner_limit(self, original: Callable[[], int]) -> int:
        """The limit within which steps are planned, in bytes. A share is one of the largest step without a plan."""
        limit = size_in_bytes(self.limit, original() if "%" in str(self.limit) else None)
        if self.ranks is not None:
            limit = min(self.ranks.gathered(limit))
        self._limit = max(limit, self._limit or 0)
        return self._limit - self._less

    def turn_of(self, graph: Graph) -> Turn:
        if not isinstance(graph, Part):
            return Turn(graph)
        level = graph.choices[graph.chosen].level if graph.has_plan else 0
        return PartTurn(graph, part=graph, number=graph.chosen, sizes=graph.sizes, level=level)

    def _of_parts(self) -> list[PartTurn]:
        return [turn for turn in self.turns if isinstance(turn, PartTurn) and turn.part.has_plan]

    def _plan(self, turns: list[PartTurn], is_clean: bool, held: int) -> None:
        """Chooses how each part of the last step runs from now on."""
        order = tuple((turn.part, turn.level) for turn in turns)
        state = self.state
        given = sum({storage: size for turn in turns for storage, size in turn.given.items()}.values())
        # What is beside the parts may have grown: gradients, the optimizer's state.
        has_grown = state > self._state + TOLERATED or is_clean and self.taken > self._planned.get(order, 0) + TOLERATED
        if order in self._planned and not has_grown:
            return
        self.held, self._state = max(given + state, held if is_clean else 0), state
        for i, turn in enumerate(turns):
            turn.beside_forward = self.held + sum(sum(t.returned.values()) for t in turns[:i])
            turn.beside_backward = self.held + sum(t.part.gradients for t in turns[i + 1 :])
            turn.left = turn.part.gradients
        single, first = len(turns) == 1, turns[0]
        if is_clean:
            self._measure(turns)
        elif single:
            first.gap_forward = first.part.gap
        if single:
            first.part.see(first)
        limit = self.inner_limit(
            lambda: first.part.original(first.sizes) if single else _peak(turns, [turn.part.ways(turn.level)[0] for turn in turns])
        )
        found = first.part.within(first, limit) if single else _least_time(turns, limit)
        if self.ranks is not None:
            check_equal(found, self.ranks)
        if found is None:
            raise PlanError(self._too_little(turns, limit))
        for turn, number in zip(turns, found):
            turn.part.choose(number, turn.level, single)
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
            total = total.then(turn, turn.number, stays)
            if turn.backward is not None:
                there = turn.beside_backward + total.kept + total.alive
                turn.beside_backward += _more(turn.backward.level + zero, there)
            if turn.backward is not None and turn.after_backward is not None:
                kept = turn.part.choices[turn.number].kept
                turn.left = max(turn.left, turn.after_backward.level - turn.backward.level + kept)
                turn.gap_backward = _more(turn.after_backward.most, turn.after_backward.level)

    def _too_little(self, turns: list[PartTurn], limit: int) -> str:
        """Why a limit cannot be met: the sum, where the graph breaks, and what would help."""
        least = [min(turn.part.ways(turn.level), key=[way.kept for way in turn.part.choices].__getitem__) for turn in turns]
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
        """The number of the choice that is compiled."""
        self.levels: dict[int, int] = {}
        """By level of sizes: the number of the choice by which it runs."""
        self.is_alone = False
        """Whether a step seems to be this part alone."""
        self.level = 0
        self.sizes: dict[Any, int] = {}
        """The open sizes of the inputs that it runs with, and their level."""
        self.gradients = 0
        """The bytes of the gradients of its parameters."""
        self.inputs = len(inputs)
        self.whole = whole
        self.compiler = whole.compiler
        self.joint: Joint | None = None
        self.open: Levels | None = None
        """Its open sizes, where each level has a plan; None where PyTorch makes another graph for larger ones."""
        self.beside = self.gap = 0
        """Of a step that is this part alone: the bytes beside the part, and those that other code takes before the backward pass."""
        cut = Chosen if whole.compiler is None else Compiled
        super().__init__(whole, cut(self, whole.limit, options), module, inputs)
        self._runs = {self.chosen: self._run}
        """By choice: the compiled passes."""

    @property
    def has_plan(self) -> bool:
        """Whether it has a plan."""
        return bool(self.choices)

    def prepare(self, args: tuple[Any, ...]) -> None:
        if not self.has_plan:
            return
        if self.open is not None:
            self.sizes = self.open.sizes(args)
            self.level = self.open.of(self.sizes)
        if self.level not in self.levels:
            self.levels[self.level] = self._at_level()
        if self.chosen != self.levels[self.level]:
            self.chosen = self.levels[self.level]
            if self.chosen not in self._runs:
                self.compile_again()
            self._runs = {number: run for number, run in self._runs.items() if number in self.levels.values()}
            self._run = self._runs.setdefault(self.chosen, self._run)

    def add(self, joint: Joint, fitted: Fit, level: int = 0) -> int:
        """Adds a choice, and returns its number."""
        assert isinstance(self.partitioner, Chosen)
        self.choices.append(replace(self.partitioner.way(joint, fitted, self.inputs), level=level))
        return len(self.choices) - 1

    def ways(self, level: int) -> list[int]:
        """The numbers of the choices that hold at a level of sizes, those that were made for it first."""
        return sorted((n for n, way in enumerate(self.choices) if way.level <= level), key=lambda n: -self.choices[n].level)

    def choose(self, number: int, level: int, is_alone: bool) -> None:
        """Lets it run by a choice at a level of sizes, and at higher ones until these have their own."""
        self.is_alone = is_alone
        others = {} if is_alone else {each: number if each > level else old for each, old in self.levels.items()}
        self.levels = {**others, level: number}

    def see(self, turn: PartTurn) -> None:
        """Notes what a step that is this part alone took beside it."""
        assert isinstance(self.partitioner, Chosen)
        with self.partitioner.at(turn.sizes) as joint:
            self.beside = max(turn.beside_forward, turn.beside_backward) - sum(map(bytes_of, joint.primals))
        self.gap = turn.gap_forward

    def original(self, sizes: dict[Any, int]) -> int:
        """The most bytes that a step of some sizes takes which is this part alone, without a plan."""
        assert isinstance(self.partitioner, Chosen)
        with self.partitioner.at(sizes, self.gap) as joint:
            return max_load(problem_of(joint.graph)) + self.beside

    def within(self, turn: PartTurn, limit: int) -> list[int]:
        """The choice with which a step that is this part alone, as it was seen, stays within a limit in the least time. PlanError if
        there is none."""
        times = {number: self.choices[number].time_ns for number in self.ways(turn.level) if _peak([turn], [number]) <= limit}
        best = min(times, key=times.__getitem__, default=None)
        if best is not None and (self._is_for(best, turn.level) or not times[best]):
            return [best]
        try:
            number = self._fit(turn.level, limit)
        except PlanError:
            if best is None:
                raise
            return [best]
        return [number if best is None or self.choices[number].time_ns < times[best] else best]

    def _is_for(self, number: int, level: int) -> bool:
        return number in self.alone and self.choices[number].level == level

    def _at_level(self) -> int:
        """The choice for the level of its sizes, where that is new. PlanError if there is none."""
        assert isinstance(self.partitioner, Chosen)
        larger = self.levels.get(max((level for level in self.levels if level < self.level), default=self.level))
        if larger is not None and not (self.is_alone and self.choices[larger].fitted.overhead > WORTH):
            return larger
        if not self.is_alone:
            with self.partitioner.at_level(self.level) as joint, tracing(self._context):
                return self.partitioner.add_all(self, joint, self.level)
        try:
            number = self._fit(self.level, self.whole.inner_limit(partial(self.original, self.sizes)))
        except PlanError:
            if larger is None:
                raise
            return larger
        self.whole.plan_level(self, self.level, self.choices[number].fitted.schedule.peak_load + self.beside)
        return number

    def _fit(self, level: int, limit: int) -> int:
        """Adds the choice for a step that is this part alone, at a level of sizes."""
        assert isinstance(self.partitioner, Chosen)
        with self.partitioner.at_level(level, self.gap) as joint, tracing(self._context):
            number = self.add(joint, self.partitioner.fitted(joint, limit - self.beside), level)
        self.alone.add(number)
        return number


class Chosen(Partitioner):
    """Cuts a part by the choice that was made for it."""

    def __init__(self, part: Part, limit: int | str, options: dict[str, Any]) -> None:
        super().__init__(limit, **options)
        self._part = weakref.ref(part)
        self._numbers: dict[Any, int] = {}
        self._sizes: Sizes | None = None
        """The open sizes of the graph that was planned first."""
        self._make: Callable[[], Joint] | None = None
        self._names: list[str] = []

    def _planned(self, sizes: Sizes, make: Callable[[], Joint]) -> tuple[Joint, Fit]:
        part = self._part()
        assert part is not None
        if part.choices:
            sizes.fix(self._numbers if part.open is None else part.open.largest(part.choices[part.chosen].level))
            joint = make()
            if joint.graph.names != self._names:
                raise PlanError("a part of the network is another one when it is compiled again")
            return joint, part.choices[part.chosen].fitted
        largest = sizes.largest(self._seen)
        sizes.fix(largest)
        joint = make()
        levels = Levels(part._inputs, sizes)
        part.open = levels if largest and levels.is_known and part.compiler is None and part.whole.ranks is None else None
        if part.whole.is_whole(part) and _is_loss(joint):
            part.beside = beside = part.whole.state
            original = max_load(problem_of(joint.graph)) + beside
            self.limit = max(part.whole.inner_limit(lambda: original) - beside, 1)
            if part.open is not None:
                fitted = self._fit(joint)
            else:
                joint, fitted = super()._planned(sizes, make)
            part.whole.plan_alone(part, joint, fitted)
            part.alone.add(part.add(joint, fitted))
            part.is_alone = True
        elif part.compiler is not None:
            raise PlanError(
                f'compiler="inductor" plans a step that is one graph with its loss, and this is not: {part.breaks or ONE_GRAPH}'
            )
        else:
            if largest and part.open is None:
                sizes.fix(sizes.times(largest, ROOM))
                joint = make()
            self.add_all(part, joint, 0)
        part.joint, part.gradients = joint, gradients(joint)[0]
        self._sizes, self._numbers, self._names, self._make = sizes, sizes.numbers, joint.graph.names, make
        part.sizes = largest
        part.chosen = part.levels[0] = len(part.choices) - 1
        return joint, part.choices[-1].fitted

    def _guard(self, sizes: Sizes) -> None:
        part = self._part()
        if part is None or part.open is None:
            super()._guard(sizes)

    @contextmanager
    def at_level(self, level: int, gap: int = 0) -> Iterator[Joint]:
        """The part's operators at the largest sizes of a level. See `at`."""
        part = self._part()
        assert part is not None
        with self.at(self._numbers if part.open is None else part.open.largest(level), gap) as joint:
            yield joint

    @contextmanager
    def at(self, numbers: dict[Any, int], gap: int = 0) -> Iterator[Joint]:
        """The part's operators at some sizes, with the bytes that other code takes between the passes. Within it the graph has
        these numbers in the place of open sizes."""
        part = self._part()
        assert part is not None and part.joint is not None and self._sizes is not None and self._make is not None
        self._sizes.fix(numbers)
        try:
            joint = self._make() if numbers else part.joint
            joint.graph.workspace[joint.loss] = gap
            yield joint
        finally:
            self._sizes.restore(self._sizes.module)

    def _fit(self, joint: Joint) -> Fit:
        part = self._part()
        beside = 0 if part is None else part.beside
        try:
            return super()._fit(joint)
        except PlanError as e:
            if not beside:
                raise
            refusal = PlanError(f"{e}; {beside} bytes of the limit are for what is beside this graph")
            refusal.least, refusal.needed = (None if each is None else each + beside for each in (e.least, e.needed))
            raise refusal from None

    def fitted(self, joint: Joint, limit: int | str) -> Fit:
        """A fit to a limit. PlanError says what the limit is made of."""
        self.limit = limit
        return self._fit(joint)

    def way(self, joint: Joint, fitted: Fit, inputs: int) -> Choice:
        """Describes a fit of the part as a choice. `inputs` is the number of the part's inputs."""
        return _way(joint, fitted, inputs)

    def add_all(self, part: Part, joint: Joint, level: int) -> int:
        """Adds choices: fits of the part to lower and lower limits. A fit that needs as much memory as the one before it
        is left out. Returns the number of the last, which keeps least."""
        persistent = sum(map(bytes_of, joint.primals))
        most = 0
        for k in range(CHOICES):
            try:
                limit = persistent + (most - persistent) * (CHOICES - k) // CHOICES if k else "100%"
                fitted = self._fit_one(joint, limit)
            except PlanError:
                break
            is_first = not most
            most = most or fitted.schedule.peak_load
            part.add(joint, fitted, level)
            if not is_first:
                *_, last, way = part.choices
                if way.kept >= last.kept and way.forward >= last.forward and way.backward >= last.backward:
                    part.choices.pop()
        return len(part.choices) - 1


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

    def _planned(self, sizes: Sizes, make: Callable[[], Joint]) -> tuple[Joint, Fit]:
        joint, fitted = super()._planned(sizes, make)
        real = self._dry.of(fitted)
        assert real is not None
        self.channels_last = real.channels_last
        return joint, fitted

    def _fit(self, joint: Joint) -> Fit:
        self._dry.begin()
        return super()._fit(joint)

    def _fit_one(self, joint: Joint, limit: int | str) -> Fit:
        # A step has its limit in bytes before a graph of it is planned.
        assert isinstance(limit, int)
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
    least = {part: min(turn.level for turn in turns if turn.part is part) for part in order}
    sums = [Sum()]
    for i, turn in enumerate(turns):
        first = order.index(turn.part)
        following: list[Sum] = []
        for before in sums:
            ways = turn.part.ways(least[turn.part]) if first == i else [before.numbers[first]]
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
