"""Measures operators: their time, and the scratch memory that they need beside their inputs and outputs.

Each operator is run alone on made-up inputs, so that the network need not fit into memory for this. Equal operators on
equal shapes are measured once.
"""

from __future__ import annotations

import functools
import math
import operator
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from .. import Device, PlanError, _sublet

REPEAT = 3
LONG_NS = 50_000_000
"""An operator that takes longer, in ns, is run once and not `REPEAT` times."""
UNCOUNTED = (
    "PyTorch's own allocator is not in use, and the one in its place does not count the bytes that operators take; "
    "leave out sublet.torch.install() where a limit is to hold"
)
COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem")
"""The namespaces of operators that speak with other ranks."""


@dataclass(frozen=True)
class Cost:
    """The time and the memory that an operator takes."""

    time_ns: int
    """How long it runs, in ns."""
    scratch: int
    """The bytes that it takes only while it runs, beside its inputs and outputs."""


@dataclass(frozen=True)
class Speed:
    """How fast a device is, for operators that are not measured."""

    flops: float
    """Operations on numbers of single precision per second."""
    half_flops: float
    """The same for numbers of half precision."""
    bandwidth: float
    """Bytes of its memory per second."""

    def time_ns(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> int:
        """How long an operator takes, in ns: as long as its arithmetic or its traffic, whichever is longer."""
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, torch.Tensor)]
        count = flop_registry.get(func.overloadpacket)
        flops = 0 if count is None else count(*args, **kwargs, out_val=out)
        is_half = any(x.dtype in (torch.float16, torch.bfloat16) for x in tensors)
        traffic = sum(x.numel() * x.itemsize for x in tensors)
        return int(1e9 * max(flops / (self.half_flops if is_half else self.flops), traffic / self.bandwidth))


class Heap:
    """Counts the bytes that are allocated, now and at most. On CUDA PyTorch's allocator counts them; on the host the
    functions of the heap are counted (Linux with glibc). Elsewhere the counts are 0."""

    def __init__(self) -> None:
        self.counts = _sublet.heap_install()

    def since(self, device: torch.device) -> Since:
        """Begins to count what is allocated from now on. The peak is reset for every other count too. PlanError if the
        device has an allocator that does not count."""
        self.reset(device)
        return Since(self, device, self.now(device))

    def reset(self, device: torch.device) -> None:
        """Lets the most bytes be those of now. PlanError as for `since`."""
        if device.type == "cuda":
            if torch.cuda.get_allocator_backend() == "pluggable":
                raise PlanError(UNCOUNTED)
            torch.cuda.reset_peak_memory_stats(device)
        else:
            _sublet.heap_install()
            _sublet.heap_reset()

    def now(self, device: torch.device) -> int:
        """The bytes that are allocated now."""
        return torch.cuda.memory_allocated(device) if device.type == "cuda" else _sublet.heap_bytes()[0]

    def most(self, device: torch.device) -> int:
        """The most bytes that were allocated at once since the peak was reset."""
        return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _sublet.heap_bytes()[1]


@dataclass(frozen=True)
class Since:
    """Counts the bytes that have been allocated since some moment, less those that have been freed."""

    heap: Heap
    device: torch.device
    before: int
    """The bytes that were allocated at that moment."""

    @property
    def now(self) -> int:
        """The bytes now; below 0 if more was freed than allocated since then."""
        return self.heap.now(self.device) - self.before

    @property
    def peak(self) -> int:
        """The most bytes since then."""
        return self.heap.most(self.device) - self.before


class Made(NamedTuple):
    """An output of an operator, as it was when the operator was measured."""

    type: torch.dtype
    bytes: int
    """The bytes of its storage: more than those of the tensor for the one number that `mse_loss` gives."""


Measure: TypeAlias = tuple[Cost, list["Made | None"], bool]
"""The cost of an operator; its outputs, None for what is no tensor; whether it drew random numbers."""

HEAP = Heap()
_measures: dict[str, Measure] = {}


def clock(device: torch.device) -> int:
    """A clock, in ns. For CUDA it waits until all work on the device is done, and is wall-clock time. For the host it
    is the CPU time of this thread, or wall-clock time if PyTorch runs several threads."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter_ns()
    return time.perf_counter_ns() if torch.get_num_threads() > 1 else time.thread_time_ns()


def is_collective(node: fx.Node) -> bool:
    """Whether an operator speaks with other ranks."""
    return getattr(node.target, "namespace", "") in COLLECTIVES


def cost_of(node: fx.Node) -> Cost:
    """The cost of an operator of a joint graph, measured once for equal arguments."""
    return _measure(node)[0]


def made_by(node: fx.Node) -> list[Made | None]:
    """An operator's outputs when it was measured; None for an output that is no tensor. Empty if the operator could not
    be run."""
    return _measure(node)[1]


def draws(node: fx.Node) -> bool:
    """Whether an operator drew random numbers when it was measured. An operator of the user may do so and have no tag
    that says so."""
    return _measure(node)[2]


def random_states(values: Iterable[Any] = ()) -> dict[torch.Generator, torch.Tensor]:
    """The states of PyTorch's own generators of random numbers, and of those among these values."""
    gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    own = (value for value in values if isinstance(value, torch.Generator))
    return {generator: generator.get_state() for generator in (torch.default_generator, *gpus, *own)}


def are_equal(some: dict[torch.Generator, torch.Tensor], others: dict[torch.Generator, torch.Tensor]) -> bool:
    """Whether the generators that are in both have equal states."""
    # A mode would take the states for tensors of the network; FakeTensorMode refuses them.
    with _disable_current_modes():
        return all(torch.equal(some[generator], others[generator]) for generator in some.keys() & others.keys())


def _value(node: fx.Node) -> Any:
    """What is known of an argument: a tensor without numbers, which has its shape and type. Or it is a graph within the
    graph, such as a branch of `torch.cond`."""
    if node.op == "get_attr" and "val" not in node.meta:
        return operator.attrgetter(str(node.target))(node.graph.owning_module)
    return node.meta["val"]


def _measure(node: fx.Node) -> Measure:
    key = f"{node.target}{fx.node.map_arg((node.args, node.kwargs), lambda a: _shape(_value(a)))}"
    if key not in _measures:
        # The graph has the conversions that autocast makes. Under autocast there would be others.
        with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast():
            _measures[key] = _measured(node)
    return _measures[key]


def alone(func: Any, args: Any, kwargs: dict[str, Any], device: torch.device) -> Measure:
    """What an operator takes and makes when it runs alone; of its tensors only the looks are read."""
    key = f"{func}{tree_map(_shape, (args, kwargs))}{torch.is_grad_enabled()}"
    if key not in _measures:
        with _disable_current_modes(), torch._C._DisableAutocast():
            _measures[key] = _timed(func, tree_map(_made_up, args), tree_map(_made_up, kwargs), device)
    return _measures[key]


@functools.cache
def copy_ns(size: int, device: torch.device) -> int:
    """The time of a copy within a device, in ns. `size` is the bytes read plus the bytes written."""
    source = torch.zeros(size // 2, dtype=torch.uint8, device=device)
    target, best = torch.empty_like(source), math.inf
    for _ in range(REPEAT + 1):
        begin = clock(device)
        target.copy_(source)
        best = min(best, clock(device) - begin)
    return int(best)


LINK_SIZES = (4096, 1 << 26)
"""The sizes of the copies between a GPU and the host that are measured, in bytes: the first gives the latency."""


@functools.cache
def link_costs(device: torch.device) -> list[Cost]:
    """The costs of copies between a GPU and the host: to the host, a copy of each of `LINK_SIZES`, then back."""
    costs = []
    for back in (False, True):
        for size in LINK_SIZES:
            block = torch.empty(size, dtype=torch.uint8, device=device)
            host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            source, target, best = (host, block, math.inf) if back else (block, host, math.inf)
            for _ in range(REPEAT + 1):
                begin = clock(device)
                target.copy_(source, non_blocking=True)
                best = min(best, clock(device) - begin)
            costs.append(Cost(int(best), 0))
    return costs


def device_of(costs: Sequence[Cost]) -> Device | None:
    """The device that `link_costs` describe; None if there are none."""
    if not costs:
        return None
    out_latency, out_ns, back_latency, back_ns = (cost.time_ns for cost in costs)
    moved = LINK_SIZES[1] - LINK_SIZES[0]
    rates = (1e9 * moved / max(out_ns - out_latency, 1), 1e9 * moved / max(back_ns - back_latency, 1))
    return Device(*rates, latency_ns=max(out_latency, back_latency))


def _shape(value: Any) -> Any:
    if isinstance(value, fx.GraphModule):
        return value.print_readable(print_output=False)
    if not isinstance(value, torch.Tensor):
        return value
    seen = f"{'conj' * value.is_conj()}{'neg' * value.is_neg()}"
    return f"{tuple(value.shape)}/{value.stride()}/{value.dtype}/{value.device}/{seen}"


def _measured(node: fx.Node) -> Measure:
    values = [_value(a) for a in node.all_input_nodes] + [node.meta["val"]]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    size = sum(v.untyped_storage().nbytes() for v in tensors)
    if is_collective(node):
        # Each rank's own clock says how often an operator is run. A collective that one rank runs once more waits for
        # ever, or meets another collective.
        return Cost(LINK * copy_ns(size, device), _of_gloo(node) if device.type == "cpu" else 0), [], False
    # The network's random numbers are the same as without a measurement.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            assert callable(node.target)
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda a: _made_up(_value(a)))
            return _timed(node.target, args, kwargs, device)
        except (torch.OutOfMemoryError, PlanError):
            raise
        # An operator of the user may raise any exception.
        except Exception as error:
            text = "%s could not be measured on made-up inputs; its time is taken to be that of a copy of %d bytes: %s"
            warnings.warn(text % (node.target, size, error), stacklevel=2)
            return Cost(copy_ns(size, device), 0), [], False


LINK = 10
"""How much longer a collective is taken to be than a copy of as many bytes: about as much slower links between GPUs are than their
own memory."""
GLOO_SEGMENT = 1 << 20
"""The most bytes that gloo sums at once; it has two such."""


def _of_gloo(node: fx.Node) -> int:
    """The bytes that a collective takes beside its inputs and outputs, from its call until its wait, on the processor: gloo gathers
    into a buffer of its own, and sums a copy of what is to be scattered."""
    name = str(node.target)
    values = [x for x in tree_leaves([_value(a) for a in node.all_input_nodes]) if isinstance(x, torch.Tensor)]
    if "all_gather" in name:
        return sum(x.nbytes for x in tree_leaves(node.meta["val"]) if isinstance(x, torch.Tensor))
    summed = sum(x.nbytes for x in values)
    if "reduce_scatter" in name:
        return summed + 2 * min(summed, GLOO_SEGMENT)
    return 2 * min(summed, GLOO_SEGMENT) if "all_reduce" in name else 0


def _timed(target: Callable[..., Any], args: Any, kwargs: Any, device: torch.device) -> Measure:
    best, scratch = math.inf, 0
    before = random_states()
    made: list[Made | None] = []
    # The first run warms up: libraries choose their kernels in it.
    for warm in range(REPEAT + 1):
        since = HEAP.since(device)
        begin = clock(device)
        out = target(*args, **kwargs)
        taken = clock(device) - begin
        scratch = since.peak - since.now
        outputs = out if isinstance(out, (tuple, list)) else [out]
        made = [Made(x.dtype, x.untyped_storage().nbytes()) if isinstance(x, torch.Tensor) else None for x in outputs]
        del out, outputs
        if warm:
            best = min(best, taken)
        if warm and best > LONG_NS:
            break
    return Cost(int(best), max(scratch, 0)), made, not are_equal(before, random_states())


def _made_up(value: Any) -> Any:
    """A tensor with the shape and strides of `value`, and a conjugated or negated view where that is one: operators may
    copy these first. It is filled with numbers from 0 to 1, which operators take for
    probabilities too: a GPU would be unusable after an operator that got a wrong probability. Integers are 0, flags are
    True. Other values are returned as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    reach = sum((d - 1) * s for d, s in zip(value.shape, value.stride())) + 1 if value.numel() else 0
    made = torch.zeros(reach, dtype=value.dtype, device=value.device)
    if value.dtype.is_floating_point:
        made.uniform_()
    elif value.dtype is torch.bool:
        made.fill_(True)
    made = made.as_strided(value.shape, value.stride())
    made = torch._conj(made) if value.is_conj() else made
    return torch._neg_view(made) if value.is_neg() else made
