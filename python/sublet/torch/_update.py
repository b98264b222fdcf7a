"""What the Python code of an optimizer computes: counters, learning rates, and what follows from them.

A replay runs no Python code of the step but this. It runs the optimizer's code once more under a mode in which operators do not
compute, and the numbers that they are given go into the tape. What a number is read from is computed: the slice of the
tape that it depends on (Weiser, 1981).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ._watch import on

if TYPE_CHECKING:
    from ._tape import Recording

aten = torch.ops.aten
NUMBER = aten._local_scalar_dense.default
"""The operator that gives the value of a tensor to Python."""
NO_OPERATORS = ("prim", "profiler")
"""The namespaces of questions about a tensor, which reach a mode where tensors have no numbers, and of marks for the profiler."""
CLOSURE = "the step gives its optimizer a closure, and replays would not call it; run the network before, and step() without it"


@dataclass(frozen=True)
class Ref:
    """A tensor of the tape: a block, and how the tensor looks at it."""

    block: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conj: bool
    """Whether the values are the conjugates of those in the block."""
    neg: bool
    """Whether the values are the negatives of those in the block."""

    def on(self, storage: torch.UntypedStorage) -> Tensor:
        """This tensor on a storage of its block."""
        return on(storage, self.dtype, self.offset, self.size, self.stride, self.conj, self.neg)

    def stand_in(self, device: torch.device | None) -> Tensor:
        """A tensor that looks like this one, in the memory of one number."""
        storage = torch.empty((), dtype=self.dtype, device=device).untyped_storage()
        return on(storage, self.dtype, 0, self.size, (0,) * len(self.size), self.conj, self.neg)


@dataclass
class Call:
    """An operator of the tape."""

    target: Any
    args: list[Any]
    """The arguments as a flat list, in which tensors are refs."""
    spec: Any
    results: list[Ref | None]
    """The results as a flat list; None for what is no tensor."""
    returns: Any
    """How the results are nested."""
    made: set[int]
    """The blocks that begin here."""
    grad: bool
    """Whether autograd was enabled. Some operators keep nothing for their backward pass otherwise: oneDNN's LSTM."""


@dataclass
class Update:
    """One call of an optimizer in a recorded step."""

    optimizer: Optimizer
    ops: range
    """The operators that it ran."""
    gradients: list[tuple[Tensor, Ref]]
    """The parameters that had gradients, and how these looked."""
    again: Callable[[], Any]
    """Calls the optimizer as the step did."""


class OtherOperators(Exception):
    """An optimizer runs other operators than were recorded."""


@contextmanager
def followed(optimizers: Iterable[Optimizer], recording: Recording) -> Iterator[list[Update]]:
    """The calls of these optimizers in a recording."""
    updates: list[Update] = []
    own = [(each, vars(each).get("step"), each.step) for each in optimizers]

    def following(optimizer: Optimizer, again: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                recording.refuse(CLOSURE)
            params = (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
            gradients = [(p, ref) for p in params if (ref := recording.ref(p.grad)) is not None]
            begin = len(recording.calls)
            result = again(*args, **kwargs)
            updates.append(Update(optimizer, range(begin, len(recording.calls)), gradients, again))
            return result

        return step

    for optimizer, _, step in own:
        optimizer.step = following(optimizer, step)
    try:
        yield updates
    finally:
        for optimizer, before, _ in own:
            if before is None:
                del optimizer.step
            else:
                optimizer.step = before


def slice_of(
    ends: set[int], ops: Iterable[int], reads: Sequence[set[int]], writes: Sequence[set[int]]
) -> tuple[set[int], set[int]]:
    """Those of some operators on which the operators `ends` depend, with these; and the blocks that they read."""
    found, others = set(ends), set(ops) - ends
    while True:
        needed = set[int]().union(*(reads[op] for op in found))
        more = {op for op in others if not writes[op].isdisjoint(needed)}
        if not more:
            return found, needed
        found |= more
        others -= more


class Numbers(TorchDispatchMode):
    """Within it, operators of an optimizer do not compute, and the numbers that they are given go into the tape."""

    def __init__(self, calls: Sequence[Call], ops: range, computed: set[int], storages: dict[int, torch.UntypedStorage]) -> None:
        super().__init__()
        self._calls, self._ops, self._computed, self._storages = calls, iter(ops), computed, storages
        self._next = next(self._ops, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in NO_OPERATORS:
            return func(*args, **kwargs)
        # A number of Python as a tensor is recorded as a copy of that.
        target = aten.clone.default if func is aten.lift_fresh.default else func
        flat, spec = tree_flatten((args, kwargs))
        call = None if self._next is None else self._calls[self._next]
        if call is None or call.target != target or call.spec != spec:
            if not func.is_view:
                raise OtherOperators
            return func(*args, **kwargs)
        computes = self._next in self._computed
        self._next = next(self._ops, None)
        for i, (was, now) in enumerate(zip(call.args, flat)):
            size = tuple(now.shape) if isinstance(now, Tensor) else None
            if size != (was.size if isinstance(was, Ref) else None):
                raise OtherOperators
            if not isinstance(now, Tensor):
                call.args[i] = now
            elif target is not func:
                self._storages[was.block] = now.untyped_storage()
        if computes:
            return target(*args, **kwargs)
        device = next((x.device for x in flat if isinstance(x, Tensor)), None)
        return tree_unflatten([ref and ref.stand_in(device) for ref in call.results], call.returns)

    def end(self) -> None:
        """OtherOperators if fewer operators have run than were recorded."""
        if self._next is not None:
            raise OtherOperators


def repeated(
    updates: Iterable[Update],
    calls: Sequence[Call],
    computed: set[int],
    storages: dict[int, torch.UntypedStorage],
    counters: Iterable[int],
) -> bool:
    """Runs the code of optimizers for the numbers of the next replay, and computes its counters, which are blocks. False if it
    runs other operators than were recorded; then the counters are as they were."""
    before = {block: storages[block].clone() for block in counters}
    try:
        for update in updates:
            for p, ref in update.gradients:
                p.grad = ref.stand_in(p.device)
            with Numbers(calls, update.ops, computed, storages) as numbers:
                update.again()
            numbers.end()
    except OtherOperators:
        for block, was in before.items():
            storages[block].copy_(was)
        return False
    finally:
        for p, _ in (each for update in updates for each in update.gradients):
            p.grad = None
    return True
