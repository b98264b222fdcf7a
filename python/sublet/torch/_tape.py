"""A whole training step as a tape: recorded once, then replayed in the order of a fit.

Every tensor is a storage with a type, an offset, sizes and strides, so that views need no operators. A storage is
dropped when the schedule frees it. A replay runs the recorded operators on tensors of the recorded shapes and types,
without autograd and without the network's Python code. The numbers of an optimizer, such as a learning rate, are computed by its
own code at each replay; those of the network are those of the recording. If one of these has changed, the step is recorded anew.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import fields, replace
from itertools import zip_longest
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_flatten, tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten

from .. import Device, Fit, PlanError, Trace, fit
from .._problem import FREE, MALLOC, READ, WRITE, Operators
from .._results import DEFAULT_DEVICE, bytes_of, max_load
from ._host import Away
from ._joint import is_random
from ._measure import COLLECTIVES, HEAP, Made, Speed, are_equal, clock, device_of, link_costs, random_states
from ._measure import alone as measured_alone
from ._partition import Step, steps_of
from ._taken import OverLimit
from ._update import NO_OPERATORS, NUMBER, Call, Ref, Update, followed, repeated, slice_of
from ._watch import (
    READS_VALUES,
    Argument,
    Marks,
    alone,
    check_unchanged,
    is_plain,
    look,
    named_tensors,
    names_of,
    optimizer_name,
    other_tensors,
    overlap,
    place,
    reader,
    reads_told,
    seen,
)

aten = torch.ops.aten
BATCH_NORMS = (aten.native_batch_norm.default, aten.cudnn_batch_norm.default, aten.miopen_batch_norm.default)
"""Batch norm on the host and on GPUs. All have the same arguments up to whether the network trains."""
STATISTICS = (3, 4)
TRAINS = 5
_LSTM = tuple(getattr(aten, name).default for name in ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward") if hasattr(aten, name))
UNKNOWN = (aten.convolution.default, aten.convolution_backward.default, *_LSTM)
"""The operators that take most memory beside their inputs and outputs, or make outputs whose sizes only a run tells."""
LENGTHS = 1
"""Which argument of `_pack_padded_sequence` has the lengths."""
RESEEDED = (
    "the step sets the state of PyTorch's random numbers, and a replay would not; seed them outside of the step, and "
    "leave out torch.utils.checkpoint where there is dropout: the plan recomputes"
)
PACKED = (
    "the step packs sequences whose lengths are a tensor among its arguments, and replays would go on with those that "
    "were recorded; give the lengths as a list"
)
RAN = "the step has run, without the limit, and its update stays"
LEAST_SCRATCH = 4096
"""Less scratch than this, in bytes, is not recorded: it is the noise of the counter."""


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
        self.refused = ""
        """The first thing that happened and that replays would get wrong, and what to do about it; empty if none."""
        self.numbers: dict[int, tuple[Any, str]] = {}
        """By operator that gave a number to Python: the number, and what to say of it."""
        self.speed: Speed | None = None
        """How long operators take, where tensors have no numbers; None if they are measured."""
        self._random: dict[torch.Generator, Tensor] = {}
        """The generators of random numbers, and the state of each after the last operator."""
        self._operators = Operators()
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._live: dict[int, int] = {}
        self._time_ns = 0
        self._on = False
        for tensor in keep:
            self._block(tensor, -1)

    def __enter__(self) -> Recording:
        self._random = random_states()
        self._on = True
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._on = False
        self._look_at_random(random_states(self._random))
        self.left = set(self._live.values())

    @property
    def trace(self) -> Trace:
        """The recorded iteration as a trace for the planner. The blocks that were there before come first."""
        given = [(0, MALLOC, block, self.sizes[block], -1) for block in self.before]
        return self._traced(given + self._rows, self._operators)

    def trace_of(self, moving: Collection[int]) -> Trace:
        """As `trace`, but of the blocks that were there before it has these alone. An operator more at the beginning and one at the
        end read them: there they are on the device."""
        operators, last = Operators(), len(self.calls) + 1
        operators.add("begin")
        for column in fields(Operators):
            getattr(operators, column.name).extend(getattr(self._operators, column.name))
        operators.add("end")
        rows = [(0, MALLOC, block, self.sizes[block], -1) for block in moving]
        rows += [(0, READ, block, 0, 0) for block in moving]
        others = self.before.keys() - moving
        rows += [(time, event, block, size, op + (op >= 0)) for time, event, block, size, op in self._rows if block not in others]
        rows += [(self._time_ns, READ, block, 0, last) for block in moving]
        return self._traced(rows, operators)

    def _traced(self, rows: list[tuple[int, int, int, int, int]], operators: Operators) -> Trace:
        time_ns, event, block, size, op = (list(column) for column in zip(*rows)) if rows else ([], [], [], [], [])
        names = [str(i) for i in range(len(self.sizes))]
        return Trace(time_ns, event, block, size, op, names, operators)

    @property
    def persistent(self) -> int:
        """The bytes of the blocks that were there before the recording."""
        return sum(self.sizes[block] for block in self.before)

    @property
    def written(self) -> list[int]:
        """The blocks that were there before the recording and are written over."""
        return sorted({block for _, event, block, _, _ in self._rows if event == WRITE and block in self.before})

    @property
    def accesses(self) -> tuple[list[set[int]], list[set[int]]]:
        """By operator: the blocks that it reads, and those that it writes."""
        reads, writes = ([set[int]() for _ in self.calls] for _ in range(2))
        for _, event, block, _, op in self._rows:
            if op >= 0 and event in (READ, WRITE):
                (reads if event == READ else writes)[op].add(block)
        return reads, writes

    def packs_lengths_of(self, blocks: Iterable[int | None]) -> bool:
        """Whether sequences are packed by lengths that come from one of these blocks."""
        given, ops = set(blocks), set()
        for _, event, block, _, op in self._rows:
            if event == READ and block in given:
                ops.add(op)
            elif event == WRITE and op in ops:
                given.add(block)
        packs = (call.args[LENGTHS] for call in self.calls if call.target == aten._pack_padded_sequence.default)
        return any(isinstance(lengths, Ref) and lengths.block in given for lengths in packs)

    def refuse(self, why: str) -> None:
        """Notes what replays would get wrong."""
        self.refused = self.refused or why

    def tell(self, does: str, instead: str) -> None:
        """A thread takes the values or the memory of a tensor without an operator. That matters where this recording
        would see an operator: not in other threads of the program, nor inside of operators of the user."""
        if not self.refused and self in _get_current_dispatch_mode_stack():
            self.refuse(reader(does, instead))

    def ref(self, tensor: Tensor) -> Ref | None:
        """The tape's ref for a tensor; None if its storage has no block."""
        block = self._live.get(tensor.untyped_storage()._cdata)
        if block is None:
            return None
        shape = tuple(tensor.shape), tensor.stride()
        return Ref(block, tensor.dtype, tensor.storage_offset(), *shape, tensor.is_conj(), tensor.is_neg())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in NO_OPERATORS:
            return func(*args, **kwargs)
        if self.speed is not None and func is aten._local_scalar_dense.default:
            # Such as the counter of an optimizer; what it is does not change how much memory is taken.
            return 1
        says = reader(*READS_VALUES) if torch.Tag.data_dependent_output in func.tags else ""
        if says and not self.refused and func is not NUMBER:
            self.refused = says
        if not self.refused and func.namespace in COLLECTIVES:
            self.refused = f"the step runs a collective ({func}), and replays would not wait for it; run it elsewhere"
        if func is aten.lift_fresh.default and self.speed is None and args[0].untyped_storage().resizable():
            # A tensor that is made of Python's numbers, such as torch.tensor(0.0). The step may write over it, so the
            # step gets a copy, and each replay makes that copy again. A storage that cannot be resized is memory of
            # NumPy, and stays shared.
            func = aten.clone.default
        flat, spec = tree_flatten((args, kwargs))
        inputs = [a for a in flat if isinstance(a, Tensor)]
        device = inputs[0].device if inputs else torch.device("cpu")
        before = random_states(flat)
        self._look_at_random(before)
        if self.speed is not None:
            out = func(*args, **kwargs)
            taken = self.speed.time_ns(func, args, kwargs, out)
            scratch = 0
            if func in UNKNOWN and device.type != "meta":
                cost, made_alone, _ = measured_alone(func, args, kwargs, device)
                scratch, out = cost.scratch, type(out)(map(_as_made, out, made_alone)) if isinstance(out, (tuple, list)) else out
        else:
            since = HEAP.since(device)
            begin = clock(device)
            out = func(*args, **kwargs)
            taken = clock(device) - begin
            scratch = since.peak - max(since.now, 0)
        self._random |= random_states(flat)
        # An operator of the user may draw random numbers and have no tag that says so.
        draws = is_random(func, args) or not are_equal(before, self._random)
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
        results, returns = tree_flatten(out)
        looks = [self.ref(o) if isinstance(o, Tensor) else None for o in results]
        self.calls.append(Call(func, refs, spec, looks, returns, set(made), torch.is_grad_enabled()))
        if func is NUMBER:
            self.numbers[op] = out, says
        # An operator that writes no block has a number for Python as its result.
        ordered = draws or func.namespace in COLLECTIVES or not written
        self._operators.add(str(func), rerun=self._may_run_again(func, draws, written), ordered=ordered)
        self.order.append(Step("run", op))
        return out

    def _look_at_random(self, states: dict[torch.Generator, Tensor]) -> None:
        """Notes whether something else than the last operator has changed the state of random numbers."""
        if not self.refused and not are_equal(self._random, states):
            self.refused = RESEEDED

    def is_ordered(self, op: int) -> bool:
        """Whether an operator keeps its place: it draws random numbers, say."""
        return bool(self._operators.ordered[op])

    def _may_run_again(self, func: Any, draws: bool, written: list[int]) -> bool:
        """Whether an operator may be recomputed, with the same bits as result: not if it draws random numbers, is a
        collective, runs in the backward pass, or writes a block that persists. Batch norm may be recomputed, without an
        update of its running statistics."""
        if torch._C._current_graph_task_id() != -1 or func.namespace in COLLECTIVES or draws:
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
                weakref.finalize(storage, _end, weakref.ref(self), key, block).atexit = False
        return self._live[key]


def _as_made(x: Any, made: Made | None) -> Any:
    """An output as large as it was made, where its shape does not tell that."""
    return x.new_empty(made.bytes // x.itemsize) if made is not None and isinstance(x, Tensor) and not x.numel() else x


def _end(recording: weakref.ref[Recording], key: int, block: int) -> None:
    """Records that the storage of a block is freed. The storage may outlive the recording, and does not hold it."""
    here = recording()
    if here is not None and here._live.get(key) == block:
        del here._live[key]
        if here._on:
            here._row(FREE, [block], -1)
            here.order.append(Step("free", block))


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
    return Recording(tensor for _, tensor in named_tensors(keep))


class TapedStep:
    """A training step that runs by a plan. See `step`."""

    def __init__(
        self,
        function: Callable[..., Any],
        keep: tuple[Any, ...],
        limit: int | str,
        using: str | Iterable[str] = ("recompute",),
        device: str | Device | None = None,
    ) -> None:
        self.fitted: Fit | None = None
        """The fit of the recorded step; None until the second call has recorded the step."""
        self._function, self._keep = function, keep
        self._limit, self._device = limit, device
        self._using = (using,) if isinstance(using, str) else tuple(using)
        self._stay = 0
        """The bytes that a plan with swaps leaves out, since they stay on the device."""
        self._calls = 0
        self._seen: Marks = []
        self._updates: list[Update] = []
        self._computed: set[int] = set()
        """The operators of optimizers that their code computes."""
        self._counters: set[int] = set()
        """The blocks that persist and that these write."""
        self._skipped: set[int] = set()
        """The operators of the tape that a replay leaves out, since what they compute is known before it."""
        self._flags: dict[int, Any] = {}
        """By operator: a flag that the step has read of its arguments."""
        self._of_flags: list[int] = []
        """The operators that these depend on."""
        self._told: set[str] = set()

    @property
    def planned_peak(self) -> int:
        """The most bytes that the replay takes, beside the blocks that persist; 0 before there is a plan."""
        if self.fitted is None:
            return 0
        return self.fitted.schedule.peak_load + self._stay - self._recording.persistent

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the step: the first call as it is, the second recorded, later ones as replays. The step is recorded anew
        if the networks, optimizers or modes have changed, as far as `seen` looks at them."""
        self._calls += 1
        if self._calls == 1:
            # Optimizers make their state in the first step.
            return self._function(*args, **kwargs)
        given = args, dict(sorted(kwargs.items()))
        leaves, spec = tree_flatten_with_path(given, is_leaf=lambda x: isinstance(x, PackedSequence))
        names = names_of(path for path, _ in leaves)
        values = [alone(value, name, self._keep) for name, (_, value) in zip(names, leaves)]
        now = seen(self._keep, self._function)
        if self.fitted is None:
            return self._record(names, values, spec, now)
        changed = self._changed(now) or self._prepared(values, spec)
        if not changed:
            return self._replay(values)
        if changed not in self._told:
            self._told.add(changed)
            text = f"sublet: the step is recorded anew, and takes what it takes without a limit, since this has changed: {changed}"
            warnings.warn(text, OverLimit, stacklevel=2)
        return self._record(names, values, spec, now)

    def _changed(self, now: Marks) -> str:
        """What has changed that the recording relies on; empty if nothing. An optimizer that is followed gives its numbers anew."""
        own = {optimizer_name(self._keep, update.optimizer) for update in self._updates}
        was, new = ([mark for mark in marks if mark[0] not in own] for marks in (self._seen, now))
        if was != new:
            return next(name or "the network" for (name, _), mark in zip_longest(new, was, fillvalue=("", None)) if (name, _) != mark)
        tensors = other_tensors(self._keep, self._function)
        return next((n for n, look in self._other_tensors.items() if n not in tensors or place(tensors[n]) != look), "")

    def _record(self, names: list[str], values: list[Any], spec: Any, before: Marks) -> Any:
        self.fitted = None
        self._arguments = [Argument(name, look(value), None) for name, value in zip(names, values)]
        args, kwargs = tree_unflatten(values, spec)
        tensors = other_tensors(self._keep, self._function)
        optimizers = [each for each in self._keep if isinstance(each, torch.optim.Optimizer)]
        with record(*self._keep, values) as recording, reads_told(recording.tell):
            with followed(optimizers, recording) as updates:
                result = self._function(*args, **kwargs)
        self._recording, self._seen, self._spec, self._updates = recording, before, spec, updates
        for argument, value in zip(self._arguments, values):
            ref = recording.ref(value) if isinstance(value, Tensor) else None
            argument.block = None if ref is None else ref.block
        self._other_tensors = {name: place(x) for name, x in tensors.items() if recording.ref(x) is not None}
        self._written = recording.written
        self._result = tree_map(lambda x: (recording.ref(x) if isinstance(x, Tensor) else None) or x, result)
        try:
            self._check_recording(values, tensors)
            self._fit()
            self._check_flags()
        except (PlanError, ValueError) as e:
            raise type(e)(f"{e} ({RAN})") from None
        finally:
            # A replay takes the storages of its own arguments. Those of this call can be freed.
            for argument in self._arguments:
                if argument.block is not None:
                    recording.before[argument.block] = torch.UntypedStorage(0)
        return result

    def _fit(self) -> None:
        """Plans the recorded step. With swaps, blocks of `keep` may leave the device; others belong to others."""
        recording = self._recording
        kept = [x for _, x in named_tensors(self._keep) if "swap" in self._using and x.untyped_storage().resizable()]
        given = {argument.block for argument in self._arguments}
        moving = dict.fromkeys(ref.block for ref in map(recording.ref, kept) if ref is not None and ref.block not in given)
        self._stay = recording.persistent - sum(recording.sizes[block] for block in moving) if moving else 0
        limit = bytes_of(self._limit, max_load(recording.trace.problem()))
        if limit <= self._stay:
            raise PlanError(f"of {limit} bytes, {self._stay} are of arguments and others' tensors, which stay on the device")
        gpu = next((x.device for x in kept if x.device.type == "cuda"), None)
        device = self._device or (device_of(link_costs(gpu)) if gpu is not None else None) or DEFAULT_DEVICE
        trace = recording.trace_of(moving) if moving else recording.trace
        fitted = fit(trace, limit - self._stay, using=self._using, reorder=True, device=device, alignment=1)
        steps = steps_of(fitted)
        if moving:
            steps = [replace(step, at=step.at - 1) if step.what == "run" else step for step in steps]
        self._steps = [step for step in steps if step.what != "run" or 0 <= step.at < len(recording.calls)]
        self.fitted = fitted

    def _check_recording(self, values: list[Any], tensors: dict[str, Tensor]) -> None:
        """ValueError if replays would do something else than the step. `tensors` are the attributes of the networks
        before the step."""
        if self._recording.refused:
            raise ValueError(self._recording.refused)
        self._slice()
        if self._recording.packs_lengths_of(argument.block for argument in self._arguments):
            raise ValueError(PACKED)
        for x in tree_leaves(self._result):
            if not (isinstance(x, (Ref, Tensor)) or is_plain(x) or any(x is each for each in self._keep)):
                told = "which a replay could not make anew; return tensors and numbers in lists, tuples or dictionaries"
                raise ValueError(f"the step returns an object of {type(x).__name__}, {told}")
        check_unchanged(self._seen, seen(self._keep, self._function))
        after = other_tensors(self._keep, self._function)
        for name, tensor in tensors.items():
            # The step may replace a tensor that it has not touched: no later call needs that one.
            if after.get(name) is not tensor and self._recording.ref(tensor) is not None:
                raise ValueError(f"the step replaces {name}, and a replay would not; write over it in place")
        for argument, value in zip(self._arguments, values):
            if isinstance(value, Tensor) and value.grad is not None:
                raise ValueError(f"the step leaves a gradient at {argument.name}; return it, by torch.autograd.grad")
        self._check_sharing(self._recording.before)

    def _slice(self) -> None:
        """Finds what numbers of Python depend on: those of optimizers on counters, flags on arguments. ValueError for others."""
        recording, before = self._recording, self._recording.before.keys()
        reads, writes = recording.accesses
        of_updates = {op for update in self._updates for op in update.ops}
        ends = recording.numbers.keys() & of_updates
        self._computed, needed = slice_of(ends, of_updates, reads, writes)
        self._counters = before & set[int]().union(*(writes[op] for op in self._computed))
        for op in range(len(recording.calls)):
            if op not in self._computed and not (writes[op].isdisjoint(needed) and reads[op].isdisjoint(self._counters)):
                raise ValueError(recording.numbers[min(ends)][1])
        # What makes blocks runs again in its place, for others may read these.
        self._skipped = {op for op in self._computed if op in ends or not writes[op].isdisjoint(self._counters)}
        self._flags = {op: value for op, (value, _) in recording.numbers.items() if op not in ends}
        found, given = slice_of(set(self._flags), range(len(recording.calls)), reads, writes)
        self._of_flags = sorted(found)
        self._skipped |= self._flags.keys()
        changes = not given.isdisjoint(recording.written) or any(recording.is_ordered(op) for op in found - self._flags.keys())
        for op, value in self._flags.items():
            if changes or not isinstance(value, bool):
                raise ValueError(recording.numbers[op][1])

    def _check_flags(self) -> None:
        """ValueError if flags of the arguments cannot be computed within the limit, before a replay."""
        assert self.fitted is not None
        blocks = {block for op in self._of_flags for block in self._recording.calls[op].made}
        limit = self.fitted.limit + self._stay
        if self._flags and self._recording.persistent + sum(self._recording.sizes[block] for block in blocks) > limit:
            raise ValueError(self._recording.numbers[min(self._flags)][1])

    def _check_sharing(self, storages: dict[int, torch.UntypedStorage]) -> None:
        """ValueError if an argument shares memory with another block that the step writes over. The plan takes them for
        two blocks, and may put the write before a read of the argument."""
        for argument in self._arguments:
            if argument.block is None:
                continue
            for block in self._written:
                if block != argument.block and overlap(storages[argument.block], storages[block]):
                    raise ValueError(f"{argument.name} shares memory with what the step writes over; clone it")

    def _prepared(self, values: list[Any], spec: Any) -> str:
        """Looks at the arguments, and computes what the replay depends on beside tensors: flags and the numbers of optimizers. What
        of these needs another recording; empty if nothing."""
        if spec != self._spec:
            raise ValueError("the step was recorded with other arguments: their number, names or nesting")
        calls, storages = self._recording.calls, dict(self._recording.before)
        for argument, value in zip(self._arguments, values):
            argument.check(value)
            if argument.block is not None:
                storages[argument.block] = value.untyped_storage()
        self._check_sharing(storages)
        with torch._C._DisableAutocast():
            for op in self._of_flags:
                if op not in self._flags:
                    self._run(calls[op], False, storages)
                elif calls[op].args[0].on(storages[calls[op].args[0].block]).item() != self._flags[op]:
                    return "a flag that the step reads of its arguments"
        is_same = repeated(self._updates, calls, self._computed, self._recording.before, self._counters)
        return "" if is_same else "what an optimizer runs"

    def _replay(self, values: list[Any]) -> Any:
        recording = self._recording
        storages = dict(recording.before)
        for argument, value in zip(self._arguments, values):
            if argument.block is not None:
                storages[argument.block] = value.untyped_storage()
        away = Away(storages, recording.before)
        # The calls were recorded below autocast: its conversions of types are calls of their own.
        with torch._C._DisableAutocast(), closing(away):
            for step in self._steps:
                if step.what == "run" and step.at not in self._skipped:
                    call = recording.calls[step.at]
                    for x in call.args:
                        if isinstance(x, Ref):
                            away.arrived(x.block)
                    self._run(call, step.again, storages)
                elif step.what == "free":
                    away.free(step.at)
                elif step.what == "out":
                    away.out(step.at)
                elif step.what == "in":
                    away.back(step.at)
        return tree_map(lambda x: x.on(storages[x.block]) if isinstance(x, Ref) else x, self._result)

    @staticmethod
    def _run(call: Call, again: bool, storages: dict[int, torch.UntypedStorage]) -> None:
        flat = [a.on(storages[a.block]) if isinstance(a, Ref) else a for a in call.args]
        args, kwargs = tree_unflatten(flat, call.spec)
        # An output that is still there is computed anew too, in its place.
        for block in call.made:
            storages.pop(block, None)
        if again and call.target in BATCH_NORMS and args[TRAINS]:
            # The running statistics are updated once. Batch norm that does not train only reads them.
            args = (*args[:3], None, None, *args[5:])
        with torch.set_grad_enabled(call.grad):
            outputs = tree_leaves(call.target(*args, **kwargs))
        for ref, output in zip(call.results, outputs):
            if ref is not None and ref.block in call.made:
                if (ref.size, ref.stride) != (tuple(output.shape), output.stride()):
                    shapes = f"{tuple(output.shape)}, and {ref.size} in the recording"
                    told = "shapes must not depend on values (the step has ended early)"
                    raise ValueError(f"{call.target} makes the shape {shapes}; {told}")
                storages[ref.block] = output.untyped_storage()


def step(
    function: Callable[..., Any],
    *keep: Any,
    limit: int | str,
    using: str | Iterable[str] = ("recompute",),
    device: str | Device | None = None,
) -> TapedStep:
    """A training step that stays within a limit, optimizer included.

        def train(x, y):
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        train = sublet.torch.step(train, model, optimizer, limit="60%")

    The first call runs as it is, the second is recorded, later ones replay the recorded operators in the order of the
    fit. `keep` names networks, optimizers and tensors whose values pass from one step to the next. The limit counts
    what persists, too. The step has to be the same each time: fixed shapes, no values of tensors in Python but flags of its
    arguments and the counters of optimizers, gradients set to None at its end.
    What replays would get wrong raises ValueError, as far as it can be seen.

    With `using=("recompute", "swap")` tensors of `keep` wait on the host between their uses, and other blocks too: all of
    `keep` is on the device between two calls. `device` is the one whose copies are simulated, as for `Partitioner`.
    """
    return TapedStep(function, keep, limit, using, device)
