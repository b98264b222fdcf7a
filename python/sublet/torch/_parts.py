"""A network that breaks into several graphs, under one limit.

While a part runs, what the forward passes of the parts before it keep is there, and what they return; while its backward pass
runs, the gradients of the parts after it. So no part can be planned alone, and what the later ones take is not known when the first
is compiled. In the first iteration each part therefore keeps the least that it can. Then all parts are known: how each would
run within several limits of its own, and one of these is chosen for each, so that all together stay within the limit in the
least time. At its next call a part is compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from .. import Fit, PlanError
from .._results import bytes_of as size_in_bytes
from ._joint import Joint, bytes_of
from ._partition import Partitioner, kept_bytes, steps_of
from ._pipeline import gradients

CHOICES = 10
"""Into how many steps the range of a part's limits is divided."""


@dataclass(frozen=True)
class Choice:
    """One way to run a part. Bytes and ns."""

    fitted: Fit
    load: int
    """The most that it takes while it runs, parameters and inputs included."""
    held: int
    """What its forward pass leaves: kept for its backward pass, or returned."""
    time_ns: int
    """What it takes more than without a limit."""


@dataclass
class Turn:
    """A part's turn in an iteration: what it is given and leaves, by storage, in bytes."""

    part: Part
    given: dict[StorageWeakRef, int]
    """What was there before the iteration: parameters, buffers, inputs."""
    passed: int
    """What earlier parts have returned and this one reads."""
    returned: dict[StorageWeakRef, int] = field(default_factory=dict)


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

    def begin(self, part: Part, inputs: list[Tensor]) -> Turn:
        """A part is about to run."""
        if self._is_backward:
            # The iteration before is over.
            self._is_backward = False
            if [turn.part for turn in self._turns] != self._planned:
                self._plan()
            self._turns = []
        returned = {storage for turn in self._turns for storage in turn.returned}
        storages = _storages(inputs)
        passed = sum(size for storage, size in storages.items() if storage in returned)
        self._turns.append(Turn(part, {s: size for s, size in storages.items() if s not in returned}, passed))
        return self._turns[-1]

    def backward(self) -> None:
        """A backward pass has begun."""
        self._is_backward = True

    def _plan(self) -> None:
        """Chooses how each part of the last iteration runs from now on."""
        turns = [turn for turn in self._turns if turn.part.choices]
        self._planned = [turn.part for turn in self._turns]
        given = {storage: size for turn in turns for storage, size in turn.given.items()}
        self.persistent = sum(given.values())
        later = [turn.part.gradients for turn in turns]
        # What is there beside a part, but for what the earlier ones hold.
        beside = [
            self.persistent - sum(turn.given.values()) - turn.passed + sum(later[i + 1 :])
            for i, turn in enumerate(turns)
        ]
        limit = size_in_bytes(self.limit, _peak(turns, beside, [0] * len(turns)))
        found = _least_time(turns, beside, limit)
        if found is None:
            least = _peak(turns, beside, [len(turn.part.choices) - 1 for turn in turns])
            raise PlanError(f"{len(turns)} parts do not stay within {limit} bytes; {least} bytes are enough")
        for turn, number in zip(turns, found):
            turn.part.chosen = number
        self.planned_peak = _peak(turns, beside, found)
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
        self._is_run = -1
        """The choice that is compiled."""
        self._run = self._compiled(inputs)

    def run(self, *args: Any) -> Any:
        """What `torch.compile` calls."""
        tensors = [x for x in (*args, *self._module.parameters(), *self._module.buffers()) if isinstance(x, Tensor)]
        turn = self._whole.begin(self, tensors)
        if self._is_run != self.chosen:
            self._run = self._compiled(list(args))
        results = self._run(*args)
        given = _storages(tensors)
        returned = _storages([x for x in tree_leaves(results) if isinstance(x, Tensor)])
        turn.returned = {storage: size for storage, size in returned.items() if storage not in given}
        return results

    def _compiled(self, inputs: list[Any]) -> Callable[..., Any]:
        self._is_run = self.chosen
        cut = aot_autograd(fw_compiler=boxed_nop, bw_compiler=self._backward, partition_fn=self)
        return cut(self._module, inputs)

    def _backward(self, module: fx.GraphModule, inputs: Any) -> Any:
        run = boxed_nop(module, inputs)

        def backward(args: list[Any]) -> Any:
            self._whole.backward()
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
        """Fits within several limits, but for those that are slower and keep no less."""
        total_ns = sum(joint.graph.time_ns)
        persistent = sum(map(bytes_of, joint.primals))
        found: list[Choice] = []
        most = 0
        for k in range(CHOICES):
            try:
                fitted = self._fit_one(joint, persistent + (most - persistent) * (CHOICES - k) // CHOICES if k else "100%")
            except PlanError:
                break
            most = most or fitted.schedule.peak_load
            returned = {*joint.reads(joint.fwd_outputs)} - {*joint.primals}
            held = kept_bytes(joint, steps_of(fitted), {*joint.primals, *returned}) + sum(map(bytes_of, returned))
            way = Choice(fitted, fitted.schedule.peak_load, held, int(fitted.overhead * total_ns))
            if not found or way.held < found[-1].held or way.load < found[-1].load:
                found.append(way)
        return found


def _storages(tensors: list[Tensor]) -> dict[StorageWeakRef, int]:
    return {StorageWeakRef(x.untyped_storage()): x.untyped_storage().nbytes() for x in tensors}


def _peak(turns: list[Turn], beside: list[int], chosen: list[int]) -> int:
    """What the parts take together at most."""
    most = held = 0
    for turn, bytes_beside, number in zip(turns, beside, chosen):
        way = turn.part.choices[number]
        most = max(most, held + bytes_beside + way.load)
        held += way.held
    return most


def _least_time(turns: list[Turn], beside: list[int], limit: int) -> list[int] | None:
    """The way of each turn with which all stay within the limit in the least time; None where there is none.

    Turn by turn, of all combinations those are kept that no other is below in what is held and in time. A part that has
    several turns runs in one way in all of them.
    """
    order = [turn.part for turn in turns]
    states: list[tuple[int, int, list[int]]] = [(0, 0, [])]
    for i, (turn, bytes_beside) in enumerate(zip(turns, beside)):
        first = order.index(turn.part)
        following: list[tuple[int, int, list[int]]] = []
        for held, time_ns, numbers in states:
            ways = range(len(turn.part.choices)) if first == i else [numbers[first]]
            for number in ways:
                way = turn.part.choices[number]
                if held + bytes_beside + way.load <= limit:
                    following.append((held + way.held, time_ns + way.time_ns, [*numbers, number]))
        again = [order.index(part) for part in {*order[i + 1 :]} & {*order[: i + 1]}]
        states = _undominated(following, again)
    return min(states, key=lambda state: state[1])[2] if states else None


def _undominated(states: list[tuple[int, int, list[int]]], again: list[int]) -> list[tuple[int, int, list[int]]]:
    """Those that no other is below, among those that agree on the parts that come again."""
    best: dict[tuple[int, ...], int] = {}
    kept = []
    for state in sorted(states, key=lambda state: state[:2]):
        key = tuple(state[2][i] for i in again)
        if key not in best or state[1] < best[key]:
            best[key] = state[1]
            kept.append(state)
    return kept
