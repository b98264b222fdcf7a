"""A network that breaks into several graphs, under one limit.

While the forward pass of a part runs, what those of the parts before it keep is there, and what they return. While its backward
pass runs, the gradients of the parts after it are there too; but what was returned has ended, unless a part has kept it, or
who called the network. So no part can be planned alone, and what the later ones take is not known when the first
is compiled. In the first iteration each part therefore keeps the least that it can. Then all parts are known: how each would
run within several limits of its own, and one of these is chosen for each, so that all together stay within the limit in the
least time. At its next call a part is compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from .. import Fit, PlanError
from .._results import bytes_of as size_in_bytes
from ._joint import Joint, bytes_of
from ._partition import Partitioner, loads, saved_nodes, steps_of
from ._pipeline import gradients

CHOICES = 10
"""Into how many steps the range of a part's limits is divided."""


@dataclass(frozen=True)
class Choice:
    """One way to run a part. Bytes and ns."""

    fitted: Fit
    forward: int
    """The most that its forward pass takes beside what it is given."""
    backward: int
    """The most that its backward pass takes beside what it was given and has returned."""
    kept: int
    """What its forward pass keeps for its backward pass beside these."""
    keeps: frozenset[int]
    """What it keeps of what it is given, by number."""
    keeps_results: bool
    """Whether it keeps something that it returns."""
    time_ns: int
    """What it takes more than without a limit."""


@dataclass
class Turn:
    """A part's turn in an iteration: what it is given and leaves, by storage, in bytes."""

    part: Part
    given: dict[StorageWeakRef, int]
    """What was there before the iteration: parameters, buffers, inputs."""
    passed: dict[StorageWeakRef, int]
    """What earlier parts have returned and this one reads."""
    numbers: dict[StorageWeakRef, set[int]]
    """Which inputs of the part lie where."""
    returned: dict[StorageWeakRef, int] = field(default_factory=dict)
    stays: dict[StorageWeakRef, int] | None = None
    """What of it is still there when its own backward pass begins; None where that has not run."""
    beside_forward: int = 0
    """What is there beside the part and what others keep, while its forward pass runs."""
    beside_backward: int = 0
    """The same of its backward pass, but for what was returned and has not ended."""


class Parts:
    """One limit for all graphs of a network that `torch.compile` breaks.

        parts = sublet.torch.Parts("8GiB")
        model = torch.compile(model, backend="sublet", options={"parts": parts})

    `limit` is bytes, `8GiB`, or `60%` of what an iteration takes at most; it counts what all parts take together. The first
    iteration keeps as little as it can, and the plan is made when the second begins: PlanError where the limit cannot be
    met. `options` are those of `Partitioner`. Parts whose shapes are not fixed, and those without a backward pass, are not counted.
    """

    def __init__(self, limit: int | str, **options: Any) -> None:
        self.limit = limit
        self.planned_peak = 0
        """The most that the parts take together, in bytes, parameters and inputs included; 0 before there is a plan."""
        self.persistent = 0
        """Parameters, buffers and inputs of all parts, in bytes."""
        self.overhead_ns = 0
        """What runs again takes, in all parts together."""
        self.parts: list[Part] = []
        self._options = options
        self._turns: list[Turn] = []
        self._planned: list[Part] = []
        """The parts in the order for which there is a plan."""
        self._is_backward = False

    def compiled(self, module: fx.GraphModule, inputs: list[Any]) -> Part:
        """A part that has been found."""
        self.parts.append(Part(self, module, inputs, self._options))
        return self.parts[-1]

    def begin(self, part: Part, inputs: list[Any]) -> Turn:
        """A part is about to run."""
        if self._is_backward:
            # The iteration before is over.
            self._is_backward = False
            if [turn.part for turn in self._turns] != self._planned:
                self._plan()
            self._turns = []
        returned = {storage for turn in self._turns for storage in turn.returned}
        turn = Turn(part, {}, {}, {})
        for number, x in enumerate(inputs):
            for storage, size in _storages([x]).items():
                (turn.passed if storage in returned else turn.given)[storage] = size
                turn.numbers.setdefault(storage, set()).add(number)
        self._turns.append(turn)
        return turn

    def backward(self, part: Part) -> None:
        """The backward pass of a part has begun."""
        self._is_backward = True
        turn = next((turn for turn in reversed(self._turns) if turn.part is part and turn.stays is None), None)
        if turn is not None:
            turn.stays = {storage: size for storage, size in turn.returned.items() if not storage.expired()}

    def _plan(self) -> None:
        """Chooses how each part of the last iteration runs from now on."""
        turns = [turn for turn in self._turns if turn.part.choices]
        self._planned = [turn.part for turn in self._turns]
        self.persistent = sum({storage: size for turn in turns for storage, size in turn.given.items()}.values())
        for i, turn in enumerate(turns):
            turn.beside_forward = self.persistent + sum(sum(t.returned.values()) for t in turns[:i])
            turn.beside_backward = self.persistent + sum(t.part.gradients for t in turns[i + 1 :])
        limit = size_in_bytes(self.limit, _peak(turns, [0] * len(turns)))
        found = _least_time(turns, limit)
        if found is None:
            least = _peak(turns, [len(turn.part.choices) - 1 for turn in turns])
            raise PlanError(f"{len(turns)} parts do not stay within {limit} bytes; {least} bytes are enough")
        for turn, number in zip(turns, found):
            turn.part.chosen = number
        self.planned_peak = _peak(turns, found)
        self.overhead_ns = sum(turn.part.choices[number].time_ns for turn, number in zip(turns, found))


class Part(Partitioner):
    """One graph of a network, compiled anew when another way to run it has been chosen."""

    def __init__(self, whole: Parts, module: fx.GraphModule, inputs: list[Any], options: dict[str, Any]) -> None:
        super().__init__(whole.limit, **options)
        self.choices: list[Choice] = []
        """From the fastest to the one that keeps least."""
        self.chosen = -1
        self.gradients = 0
        """Of its parameters, in bytes."""
        self._whole, self._module = whole, module
        self._names: list[str] = []
        self._inputs = 0
        """How many it has, parameters and buffers included."""
        self._is_run = -1
        """The choice that is compiled."""
        self._run = self._compiled(inputs)

    def run(self, *args: Any) -> Any:
        """What `torch.compile` calls."""
        turn = self._whole.begin(self, self._given(args))
        if self._is_run != self.chosen:
            self._run = self._compiled(list(args))
        results = self._run(*args)
        returned = _storages(tree_leaves(results))
        turn.returned = {s: size for s, size in returned.items() if s not in turn.given and s not in turn.passed}
        return results

    def _given(self, inputs: Iterable[Any]) -> list[Any]:
        """All that it reads, as AOTAutograd numbers it."""
        return [*self._module.parameters(), *self._module.buffers(), *inputs]

    def _compiled(self, inputs: list[Any]) -> Callable[..., Any]:
        self._is_run = self.chosen
        self._inputs = len(self._given(inputs))
        cut = aot_autograd(fw_compiler=boxed_nop, bw_compiler=self._backward, partition_fn=self)
        return cut(self._module, inputs)

    def _backward(self, module: fx.GraphModule, inputs: Any) -> Any:
        run = boxed_nop(module, inputs)

        def backward(args: list[Any]) -> Any:
            self._whole.backward(self)
            return run(args)

        backward._boxed_call = True  # type: ignore[attr-defined]
        return backward

    def _fit(self, joint: Joint) -> Fit:
        if not self.choices:
            self._names = joint.graph.names
            self.gradients = gradients(joint)[0]
            self.choices = self._ways(joint)
            self.chosen = self._is_run = len(self.choices) - 1
        elif joint.graph.names != self._names:
            raise PlanError("a part of the network is another one when it is compiled again")
        return self.choices[self.chosen].fitted

    def _ways(self, joint: Joint) -> list[Choice]:
        """Fits within several limits, but for those that are slower and take no less."""
        persistent = sum(map(bytes_of, joint.primals))
        found: list[Choice] = []
        most = 0
        for k in range(CHOICES):
            try:
                fitted = self._fit_one(joint, persistent + (most - persistent) * (CHOICES - k) // CHOICES if k else "100%")
            except PlanError:
                break
            most = most or fitted.schedule.peak_load
            way = _way(joint, fitted, self._inputs)
            last = found[-1] if found else None
            if last is None or way.kept < last.kept or way.forward < last.forward or way.backward < last.backward:
                found.append(way)
        return found


def _way(joint: Joint, fitted: Fit, inputs: int) -> Choice:
    """What a fit of a part keeps and takes, which has so many inputs."""
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
        # Where AOTAutograd has put inputs together, which are kept is not known.
        keeps=frozenset(i for i in range(inputs) if len(joint.primals) != inputs or joint.primals[i] in saved),
        keeps_results=not saved.isdisjoint(returned),
        time_ns=int(fitted.overhead * sum(joint.graph.time_ns)),
    )


def _storages(values: list[Any]) -> dict[StorageWeakRef, int]:
    """Where the tensors among these lie, and how many bytes that is."""
    storages = [x.untyped_storage() for x in values if isinstance(x, Tensor)]
    return {StorageWeakRef(storage): storage.nbytes() for storage in storages}


class Sum(NamedTuple):
    """What some turns, one after the other, leave and take."""

    kept: int = 0
    """What they keep for their backward passes."""
    alive: int = 0
    """What they have returned, as far as it is there while backward passes run."""
    most: int = 0
    """The most that is there while one of them runs."""
    time_ns: int = 0
    numbers: tuple[int, ...] = ()
    """The way of each."""

    def then(self, turn: Turn, number: int, stays: Collection[StorageWeakRef]) -> Sum:
        """With one more turn in one of its ways; of what was returned, `stays` is alive in any way."""
        way = turn.part.choices[number]
        alive = self.alive + sum((turn.returned if way.keeps_results or turn.stays is None else turn.stays).values())
        # What several parts keep counts several times.
        alive += sum(b for s, b in turn.passed.items() if s not in stays and not way.keeps.isdisjoint(turn.numbers[s]))
        forward = turn.beside_forward + self.kept + way.forward
        backward = turn.beside_backward + self.kept + alive + way.backward
        most = max(self.most, forward, backward)
        return Sum(self.kept + way.kept, alive, most, self.time_ns + way.time_ns, (*self.numbers, number))


def _stays(turns: list[Turn]) -> set[StorageWeakRef]:
    return {storage for turn in turns for storage in (turn.returned if turn.stays is None else turn.stays)}


def _peak(turns: list[Turn], chosen: list[int]) -> int:
    """What the parts take together at most."""
    stays, total = _stays(turns), Sum()
    for turn, number in zip(turns, chosen):
        total = total.then(turn, number, stays)
    return total.most


def _least_time(turns: list[Turn], limit: int) -> list[int] | None:
    """The way of each turn with which all stay within the limit in the least time; None where there is none.

    Turn by turn, of all combinations those are kept that no other is below in what is held and in time. A part that has
    several turns runs in one way in all of them.
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
    """Those that no other is below in what they keep and in time, among those that are equal in what is alive, and that
    agree on the parts that come again."""
    best: dict[tuple[int, ...], int] = {}
    kept = []
    for each in sorted(sums, key=lambda each: (each.kept, each.time_ns)):
        key = (each.alive, *(each.numbers[i] for i in again))
        if key not in best or each.time_ns < best[key]:
            best[key] = each.time_ns
            kept.append(each)
    return kept
