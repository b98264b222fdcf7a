"""One limit for a network that breaks into several graphs, its parts.

While the forward pass of a part runs, the blocks that earlier parts keep for their backward passes are alive, and the
results of these parts. While the backward pass of a part runs, the gradients of later parts are alive too; results are
freed by then, unless a part or the caller of the network keeps them. So no part can be planned alone, and the memory of
later parts is not known when the first part is compiled. In the first iteration each part therefore keeps as little as
possible. Then all parts are known, and for each part there are choices: schedules for several limits of its own. One is
chosen for each part, so that all parts together stay within the limit in the least time. A part is compiled anew at its
next call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, fx
from torch.autograd.function import BackwardCFunction
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from .. import Device, Fit, PlanError
from .._results import bytes_of as size_in_bytes
from ._joint import Joint, bytes_of
from ._partition import Partitioner, loads, saved_nodes, steps_of
from ._pipeline import gradients
from ._ranks import Speaking, check_equal

CHOICES = 10
"""Into how many steps the range of a part's limits is divided."""


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
class Turn:
    """One call of a part in an iteration: the storages that it reads and returns, with their bytes."""

    part: Part
    given: dict[StorageWeakRef, int]
    """The inputs that no earlier part has returned: parameters, buffers, inputs of the network."""
    passed: dict[StorageWeakRef, int]
    """The inputs that earlier parts have returned."""
    numbers: dict[StorageWeakRef, set[int]]
    """The numbers of the inputs that lie in each storage."""
    returned: dict[StorageWeakRef, int] = field(default_factory=dict)
    """The results of the part, without its inputs."""
    graph: weakref.ref[Any] | None = None
    """The part of autograd's graph that waits for the backward pass; None if it is not known."""
    stays: dict[StorageWeakRef, int] | None = None
    """The results that are still alive when the part's own backward pass begins; None if it has not begun."""
    beside_forward: int = 0
    """The bytes that are alive while the forward pass runs, beside the part's own and those that other parts keep."""
    beside_backward: int = 0
    """The bytes that are alive while the backward pass runs, beside the part's own, those that other parts keep, and
    results that are still alive."""

    @property
    def is_given_up(self) -> bool:
        """Whether no backward pass has begun, and none can: nothing that the part keeps is alive."""
        return self.stays is None and self.graph is not None and self.graph() is None


class Parts:
    """One limit for all graphs of a network that `torch.compile` breaks.

        parts = sublet.torch.Parts("8GiB")
        model = torch.compile(model, backend="sublet", options={"parts": parts})

    `limit` is bytes, `8GiB`, or `60%` of the most that an iteration takes. It counts what all parts take together. The
    first iteration keeps as little as it can. The plan is made when the second iteration begins; PlanError if the limit
    cannot be met. Parts whose shapes are not fixed are not counted, nor are parts without a backward pass. Gradients
    that are there before an iteration come on top of the limit.

    `using`, `device`, `group`, `timeout` and `reorder` are as for `Partitioner`. The ranks of a `group` plan with the
    least of their limits.
    """

    def __init__(
        self,
        limit: int | str,
        using: str | Sequence[str] = ("recompute",),
        device: str | Device | None = None,
        group: Any = None,
        timeout: float = 300,
        reorder: bool = True,
    ) -> None:
        self.limit = limit
        self.ranks = None if group is None else Speaking(group, timeout)
        self.planned_peak = 0
        """The most bytes that the parts take together, parameters and inputs included; 0 before there is a plan."""
        self.persistent = 0
        """The bytes of the parameters, buffers and inputs of all parts."""
        self.overhead_ns = 0
        """The time over the original, in all parts together, in ns."""
        self.parts: list[Part] = []
        self._options = {"using": using, "device": device, "group": group, "timeout": timeout, "reorder": reorder}
        self._turns: list[Turn] = []
        self._planned: list[Part] = []
        """The parts in the order for which there is a plan."""
        self._is_backward = False

    def compiled(self, module: fx.GraphModule, inputs: list[Any]) -> Part:
        """Adds a part, compiles it and returns it."""
        self.parts.append(Part(self, module, inputs, self._options))
        return self.parts[-1]

    def begin(self, part: Part, inputs: list[Any]) -> Turn:
        """Notes that a part is about to run."""
        if self._is_backward:
            # The iteration before is over.
            self._is_backward = False
            try:
                if [turn.part for turn in self._turns] != self._planned:
                    self._plan()
            finally:
                self._turns = []
        # A call for evaluation has no backward pass, and neither has a call that ended with an error.
        self._turns = [turn for turn in self._turns if not turn.is_given_up]
        returned = {storage for turn in self._turns for storage in turn.returned}
        turn = Turn(part, {}, {}, {})
        for number, x in enumerate(inputs):
            for storage, size in _storages([x]).items():
                (turn.passed if storage in returned else turn.given)[storage] = size
                turn.numbers.setdefault(storage, set()).add(number)
        return turn

    def end(self, turn: Turn) -> None:
        """Notes that the forward pass of a part has ended without an error."""
        self._turns.append(turn)

    def backward(self, part: Part) -> None:
        """Notes that the backward pass of a part has begun."""
        self._is_backward = True
        turn = next((turn for turn in reversed(self._turns) if turn.part is part and turn.stays is None), None)
        if turn is not None:
            turn.stays = {storage: size for storage, size in turn.returned.items() if not storage.expired()}

    def _plan(self) -> None:
        """Chooses how each part of the last iteration runs from now on."""
        turns = [turn for turn in self._turns if turn.part.choices]
        self.persistent = sum({storage: size for turn in turns for storage, size in turn.given.items()}.values())
        for i, turn in enumerate(turns):
            turn.beside_forward = self.persistent + sum(sum(t.returned.values()) for t in turns[:i])
            turn.beside_backward = self.persistent + sum(t.part.gradients for t in turns[i + 1 :])
        limit = size_in_bytes(self.limit, _peak(turns, [0] * len(turns)))
        if self.ranks is not None:
            limit = min(self.ranks.gathered(limit))
        found = _least_time(turns, limit)
        if self.ranks is not None:
            check_equal(found, self.ranks)
        if found is None:
            least = _peak(turns, [len(turn.part.choices) - 1 for turn in turns])
            raise PlanError(f"{len(turns)} parts do not stay within {limit} bytes; {least} bytes are enough")
        for turn, number in zip(turns, found):
            turn.part.chosen = number
        self._planned = [turn.part for turn in self._turns]
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
        """The bytes of the gradients of its parameters."""
        self._whole, self._module = whole, module
        self._names: list[str] = []
        self._inputs = 0
        """The number of its inputs, parameters and buffers included."""
        self._is_run = -1
        """The number of the choice that is compiled."""
        self._run = self._compiled(inputs)

    def run(self, *args: Any) -> Any:
        """Runs the part, compiled anew if another choice was made; `torch.compile` calls this."""
        if not self.choices:
            return self._run(*args)
        turn = self._whole.begin(self, self._given(args))
        if self._is_run != self.chosen:
            self._run = self._compiled(list(args))
        results = self._run(*args)
        leaves = tree_leaves(results)
        returned = _storages(leaves)
        turn.returned = {s: size for s, size in returned.items() if s not in turn.given and s not in turn.passed}
        functions = (x.grad_fn for x in leaves if isinstance(x, Tensor))
        turn.graph = next((weakref.ref(f) for f in functions if isinstance(f, BackwardCFunction)), None)
        self._whole.end(turn)
        return results

    def _given(self, inputs: Iterable[Any]) -> list[Any]:
        """The parameters, buffers and inputs of the part, in the order in which AOTAutograd numbers them."""
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
        """The choices: fits of the part to lower and lower limits. A fit that needs as much memory as the one before it
        is left out."""
        persistent = sum(map(bytes_of, joint.primals))
        found: list[Choice] = []
        most = 0
        for k in range(CHOICES):
            try:
                limit = persistent + (most - persistent) * (CHOICES - k) // CHOICES if k else "100%"
                fitted = self._fit_one(joint, limit)
            except PlanError:
                break
            most = most or fitted.schedule.peak_load
            way = _way(joint, fitted, self._inputs)
            last = found[-1] if found else None
            if last is None or way.kept < last.kept or way.forward < last.forward or way.backward < last.backward:
                found.append(way)
        return found


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

    def then(self, turn: Turn, number: int, stays: Collection[StorageWeakRef]) -> Sum:
        """The sum with one more turn, which runs by the choice `number`. `stays` are the results that are alive
        whatever is chosen."""
        way = turn.part.choices[number]
        alive = self.alive + sum((turn.returned if way.keeps_results or turn.stays is None else turn.stays).values())
        # A storage that several parts keep counts several times.
        alive += sum(b for s, b in turn.passed.items() if s not in stays and not way.keeps.isdisjoint(turn.numbers[s]))
        forward = turn.beside_forward + self.kept + way.forward
        backward = turn.beside_backward + self.kept + alive + way.backward
        most = max(self.most, forward, backward)
        return Sum(self.kept + way.kept, alive, most, self.time_ns + way.time_ns, (*self.numbers, number))


def _stays(turns: list[Turn]) -> set[StorageWeakRef]:
    return {storage for turn in turns for storage in (turn.returned if turn.stays is None else turn.stays)}


def _peak(turns: list[Turn], chosen: list[int]) -> int:
    """The most bytes that the turns take together."""
    stays, total = _stays(turns), Sum()
    for turn, number in zip(turns, chosen):
        total = total.then(turn, number, stays)
    return total.most


def _least_time(turns: list[Turn], limit: int) -> list[int] | None:
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
