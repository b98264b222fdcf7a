"""A whole training step as a tape: recorded once, then replayed in the order of a fit.

Every tensor is a storage with a type, an offset, sizes and strides, so that views need no operators. A storage is
dropped when the schedule frees it. A replay runs the recorded operators on tensors of the recorded shapes and types,
without autograd and without the network's Python code: numbers that Python computes (a learning rate) are those of the
recording.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from .. import Fit, Trace, fit
from .._problem import FREE, MALLOC, READ, WRITE, Operators
from ._joint import is_random
from ._measure import HEAP, clock
from ._partition import Step, steps_of

aten = torch.ops.aten
BATCH_NORMS = (aten.native_batch_norm.default, aten.cudnn_batch_norm.default, aten.miopen_batch_norm.default)
"""Batch norm on the host and on GPUs. All have the same arguments up to whether the network trains."""
STATISTICS = (3, 4)
TRAINS = 5
LEAST_SCRATCH = 4096
"""Less scratch than this, in bytes, is not recorded: it is the noise of the counter."""


@dataclass(frozen=True)
class Ref:
    """A tensor of the tape: a block, and the type, offset, sizes and strides with which the tensor looks at it."""

    block: int
    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def on(self, storage: torch.UntypedStorage) -> Tensor:
        """This tensor on a storage of its block."""
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(storage, self.offset, self.size, self.stride)


@dataclass
class Call:
    """An operator of the tape."""

    target: Any
    args: list[Any]
    """The arguments as a flat list, in which tensors are refs."""
    spec: Any
    results: list[Ref | None]
    made: set[int]
    """The blocks that begin here."""
    grad: bool
    """Whether autograd was enabled. Some operators keep nothing for their backward pass otherwise: oneDNN's LSTM."""


class Recording(TorchDispatchMode):
    """Records what runs inside it: operators, blocks, frees, times, scratch.

        with sublet.torch.record(model, optimizer) as recording:
            step()
        plan = sublet.plan(recording.trace)

    The tensors in `keep` persist, and so does every tensor that was there before the recording.
    """

    def __init__(self, keep: Iterable[Tensor]) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.order: list[Step] = []
        """Operators and frees in the order in which they happened."""
        self.before: dict[int, torch.UntypedStorage] = {}
        """The storages of the blocks that were there before the recording, by number."""
        self.left: set[int] = set()
        """Blocks that were still there at the end."""
        self.sizes: list[int] = []
        self._operators = Operators()
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._live: dict[int, int] = {}
        self._time_ns = 0
        self._on = False
        for tensor in keep:
            self._block(tensor, -1)

    def __enter__(self) -> Recording:
        self._on = True
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._on = False
        self.left = set(self._live.values())

    @property
    def trace(self) -> Trace:
        """The recorded iteration as a trace for the planner. The blocks that were there before come first."""
        given = [(0, MALLOC, block, self.sizes[block], -1) for block in self.before]
        rows = given + self._rows
        time_ns, event, block, size, op = (list(column) for column in zip(*rows)) if rows else ([], [], [], [], [])
        names = [str(i) for i in range(len(self.sizes))]
        return Trace(time_ns, event, block, size, op, names, self._operators)

    @property
    def persistent(self) -> int:
        """The bytes of the blocks that were there before the recording."""
        return sum(self.sizes[block] for block in self.before)

    def ref(self, tensor: Tensor) -> Ref | None:
        """The tape's ref for a tensor; None if its storage has no block."""
        block = self._live.get(tensor.untyped_storage()._cdata)
        if block is None:
            return None
        return Ref(block, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat, spec = tree_flatten((args, kwargs))
        inputs = [a for a in flat if isinstance(a, Tensor)]
        device = inputs[0].device if inputs else torch.device("cpu")
        since = HEAP.since(device)
        begin = clock(device)
        out = func(*args, **kwargs)
        taken = clock(device) - begin
        scratch = since.peak - max(since.now, 0)
        outputs = [o for o in tree_leaves(out) if isinstance(o, Tensor)]
        changed = _changed(func, args, kwargs)
        given = {x.untyped_storage()._cdata for x in inputs}
        fresh = [o for o in outputs if o.untyped_storage()._cdata not in given | self._live.keys()]
        if not fresh and not changed and outputs:
            return out  # A view.
        op = len(self.calls)
        reads = self._blocks(inputs, -1)
        made = self._blocks(fresh, op)
        written = made + self._blocks(changed, -1)
        self._row(READ, reads, op)
        if scratch >= LEAST_SCRATCH:
            self.sizes.append(scratch)
            self._rows.append((self._time_ns, MALLOC, len(self.sizes) - 1, scratch, op))
        self._time_ns += max(taken, 1)
        self._row(WRITE, written, op)
        if scratch >= LEAST_SCRATCH:
            self._row(WRITE, [len(self.sizes) - 1], op)
            self._row(FREE, [len(self.sizes) - 1], -1)
        refs = [(self.ref(a) if isinstance(a, Tensor) else None) or a for a in flat]
        self.calls.append(Call(func, refs, spec, [self.ref(o) for o in outputs], set(made), torch.is_grad_enabled()))
        rerun, ordered = self._may_run_again(func, args, written), _keeps_its_place(func, args, written)
        self._operators.add(str(func), rerun=rerun, ordered=ordered)
        self.order.append(Step("run", op))
        return out

    def _may_run_again(self, func: Any, args: Any, written: list[int]) -> bool:
        """Whether an operator may be recomputed, with the same bits as result: not if it draws random numbers, is a
        collective, runs in the backward pass, or writes a block that persists. Batch norm may be recomputed, without an
        update of its running statistics."""
        if torch._C._current_graph_task_id() != -1 or "c10d" in func.namespace:
            return False
        if is_random(func, args):
            return False
        return func in BATCH_NORMS or not any(block in self.before for block in written)

    def _row(self, event: int, blocks: Iterable[int], op: int) -> None:
        self._rows += [(self._time_ns, event, block, 0, op) for block in blocks]

    def _blocks(self, tensors: Iterable[Tensor], op: int) -> list[int]:
        blocks = (self._block(t, op) for t in tensors)
        return list(dict.fromkeys(b for b in blocks if b is not None))

    def _block(self, tensor: Tensor, op: int) -> int | None:
        """The number of a tensor's block; None for a storage of no bytes. A block that is new begins here, or before
        the iteration if `op` is -1."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._live:
            if not storage.nbytes():
                return None
            block = self._live[key] = len(self.sizes)
            self.sizes.append(storage.nbytes())
            if op < 0:
                self.before[block] = storage
            else:
                self._rows.append((self._time_ns, MALLOC, block, storage.nbytes(), op))
                weakref.finalize(storage, self._end, key, block).atexit = False
        return self._live[key]

    def _end(self, key: int, block: int) -> None:
        """Records that the storage of a block is freed."""
        if self._live.get(key) == block:
            del self._live[key]
            if self._on:
                self._row(FREE, [block], -1)
                self.order.append(Step("free", block))


def _keeps_its_place(func: Any, args: Any, written: list[int]) -> bool:
    """Whether an operator keeps its place in the order: it draws random numbers, is a collective, or writes no block
    (its result is a number for Python)."""
    return "c10d" in func.namespace or not written or is_random(func, args)


def _changed(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors that an operator writes over."""
    schema = func._schema.arguments
    values = [*zip(schema, args), *((a, kwargs[a.name]) for a in schema if a.name in kwargs)]
    changed = [x for a, v in values if a.alias_info is not None and a.alias_info.is_write for x in tree_leaves(v)]
    if func.namespace == "c10d":
        # The schemas of collectives do not say which arguments they write over.
        changed += tree_leaves((args, kwargs))
    if func in BATCH_NORMS and args[TRAINS]:
        changed += [args[i] for i in STATISTICS]
    return [x for x in changed if isinstance(x, Tensor)]


def record(*keep: Any) -> Recording:
    """Records what runs inside it. `keep` are networks, optimizers and tensors that persist."""
    return Recording(_tensors(keep))


def _tensors(keep: Iterable[Any]) -> list[Tensor]:
    tensors: list[Tensor] = []
    for each in keep:
        if isinstance(each, torch.nn.Module):
            tensors += [*each.parameters(), *each.buffers()]
        elif isinstance(each, torch.optim.Optimizer):
            tensors += [x for x in tree_leaves([dict(s) for s in each.state.values()]) if isinstance(x, Tensor)]
        else:
            tensors += [x for x in tree_leaves(each) if isinstance(x, Tensor)]
    return tensors


class TapedStep:
    """A training step that runs by a plan. See `step`."""

    def __init__(self, function: Callable[..., Any], keep: tuple[Any, ...], limit: int | str) -> None:
        self.fitted: Fit | None = None
        """The fit of the recorded step; None until the second call has recorded the step."""
        self._function, self._keep = function, keep
        self._limit = limit
        self._calls = 0
        self._numbers: Any = None

    @property
    def planned_peak(self) -> int:
        """The most bytes that the replay takes, beside the blocks that persist; 0 before there is a plan."""
        if self.fitted is None:
            return 0
        return self.fitted.schedule.peak_load - self._recording.persistent

    def __call__(self, *inputs: Any) -> Any:
        """Runs the step on tensors of the recorded shapes: the first as it is, the second recorded, then replays."""
        self._calls += 1
        if self._calls == 1:
            # Optimizers make their state in the first step.
            return self._function(*inputs)
        if self.fitted is None or self._numbers != self._python_numbers():
            return self._record(inputs)
        return self._replay(inputs)

    def _python_numbers(self) -> list[dict[str, Any]]:
        """The options of the optimizers that are not tensors, such as learning rates: if one changes, the step is
        recorded anew."""
        groups = [g for o in self._keep if isinstance(o, torch.optim.Optimizer) for g in o.param_groups]
        return [{k: v for k, v in g.items() if k != "params" and not isinstance(v, Tensor)} for g in groups]

    def _record(self, inputs: tuple[Any, ...]) -> Any:
        self._numbers = self._python_numbers()
        with record(*self._keep, *inputs) as recording:
            result = self._function(*inputs)
        self._inputs = [recording.ref(x) if isinstance(x, Tensor) else x for x in tree_leaves(inputs)]
        self._result = tree_map(lambda x: recording.ref(x) if isinstance(x, Tensor) else x, result)
        self._recording = recording
        self.fitted = fit(recording.trace, self._limit, using=("recompute",), reorder=True, alignment=1)
        self._steps = steps_of(self.fitted)
        return result

    def _replay(self, inputs: tuple[Any, ...]) -> Any:
        recording = self._recording
        storages = dict(recording.before)
        for old, new in zip(self._inputs, tree_leaves(inputs), strict=True):
            if isinstance(old, Ref):
                if (old.size, old.dtype, old.stride) != (tuple(new.shape), new.dtype, new.stride()):
                    raise ValueError(f"the step was recorded on {old.size} {old.dtype}, not {tuple(new.shape)} {new.dtype}")
                storages[old.block] = new.untyped_storage()
            elif old != new:
                raise ValueError(f"the step was recorded with {old!r}, not {new!r}")
        # The calls were recorded below autocast: its conversions of types are calls of their own.
        with torch._C._DisableAutocast():
            for step in self._steps:
                if step.what == "run":
                    self._run(recording.calls[step.at], step.again, storages)
                elif step.what == "free" and step.at not in recording.before:
                    storages.pop(step.at, None)
        return tree_map(lambda x: x.on(storages[x.block]) if isinstance(x, Ref) else x, self._result)

    @staticmethod
    def _run(call: Call, again: bool, storages: dict[int, torch.UntypedStorage]) -> None:
        flat = [a.on(storages[a.block]) if isinstance(a, Ref) else a for a in call.args]
        args, kwargs = tree_unflatten(flat, call.spec)
        if again and call.target in BATCH_NORMS:
            args = (*args[:3], None, None, *args[5:])
        with torch.set_grad_enabled(call.grad):
            outputs = [o for o in tree_leaves(call.target(*args, **kwargs)) if isinstance(o, Tensor)]
        for ref, output in zip(call.results, outputs):
            if ref is not None and ref.block in call.made:
                storages[ref.block] = output.untyped_storage()


def step(
    function: Callable[..., Any],
    *keep: Any,
    limit: int | str,
) -> TapedStep:
    """A training step that stays within a limit, optimizer included.

        def train(x, y):
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        train = sublet.torch.step(train, model, optimizer, limit="60%")

    The first call runs as it is, the second is recorded, later ones replay the recording in the order of the fit. `keep`
    names networks, optimizers and tensors whose values pass from one step to the next. The step has to be the same each
    time: fixed shapes, no branch on values, gradients set to None at its end, an optimizer whose counters are tensors (SGD,
    or Adam with `fused=True`). The limit counts what persists, too.
    """
    return TapedStep(function, keep, limit)
