"""What a taped step is checked for: that its arguments and what persists are as they were when it was recorded, and
that Python neither reads values of tensors nor gives their memory away."""

from __future__ import annotations

import dis
import enum
import os
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves

TORCH = os.path.dirname(torch.__file__)
OPTIMIZERS = os.path.join(TORCH, "optim")
HERE = os.path.dirname(__file__)
READS_VALUES = (
    "reads values of a tensor in Python, and replays would go on with what was recorded",
    "return tensors, read them outside of the step, and take torch.where for a branch",
)
"""What a step does that reads values in Python, and what to do about it."""
GIVES_MEMORY = (
    "gives the memory of a tensor to code that is no operator of PyTorch, and replays would leave that code out",
    "make an operator of it, by torch.library.custom_op",
)
"""What a step does that takes the address of a tensor, and what to do about it."""
WATCHED: tuple[tuple[Any, str, tuple[str, str]], ...] = (
    (Tensor, "tolist", READS_VALUES),
    (Tensor, "numpy", READS_VALUES),
    (Tensor, "data_ptr", GIVES_MEMORY),
    (Tensor, "__dlpack__", GIVES_MEMORY),
    (torch.UntypedStorage, "data_ptr", GIVES_MEMORY),
    (torch.utils.dlpack, "to_dlpack", GIVES_MEMORY),
    (torch, "to_dlpack", GIVES_MEMORY),
)
"""What gives the values or the memory of tensors to Python and is no operator, by owner and name."""
GRADIENT = "the gradient of "
_NUMBERS = (bool, int, float, complex, np.generic, range, str, bytes, type(None))
_NAMES = (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, type)
PLAIN = _NUMBERS + _NAMES + _FUNCTIONS
"""Types whose values can be compared, and do not change."""
OF_ALL_MODULES = vars(torch.nn.Module()).keys() - {"training"}
"""Attributes that each module has, and that are no numbers of its own."""

MOST_ENTRIES = 1000
"""Lists and dictionaries of more entries are not compared: they are data."""

Marks = list[tuple[str, Any]]
"""What is compared between two calls of a step, with names for people."""


def named_tensors(keep: Iterable[Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of networks and optimizers, and those that were named themselves."""
    for each in keep:
        if isinstance(each, torch.nn.Module):
            yield from each.named_parameters()
            yield from each.named_buffers()
        elif isinstance(each, torch.optim.Optimizer):
            for group in each.param_groups:
                for option, value in group.items():
                    yield from ((f"{option} of the optimizer", x) for x in _tensors(value))
            for state in each.state.values():
                for key, value in state.items():
                    yield from ((f"{key} of the optimizer's state", x) for x in _tensors(value))
        else:
            yield from (("a tensor that persists", x) for x in _tensors(each))


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [x for x in tree_leaves(value) if isinstance(x, Tensor)]


def seen(keep: Iterable[Any], function: Callable[..., Any]) -> Marks:
    """What a recording holds of networks, optimizers, modes and variables that the step reads, beside the values of
    tensors: where the tensors are, and numbers and flags of Python."""
    keep = list(keep)
    marks: Marks = [("torch.is_grad_enabled()", torch.is_grad_enabled())]
    for kind in ("cpu", "cuda"):
        marks.append((f"autocast for {kind}", (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))))
    for name, tensor in named_tensors(keep):
        marks.append((name, place(tensor)))
        of_tensor = tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)
        marks.append((f"the hooks of {name}", [list(hooks or ()) for hooks in of_tensor]))
        if tensor.requires_grad and tensor.is_leaf:
            marks.append((GRADIENT + name, None if tensor.grad is None else place(tensor.grad)))
    for each in keep:
        if isinstance(each, torch.nn.Module):
            for name, module in each.named_modules():
                own = {key: value for key, value in vars(module).items() if key not in OF_ALL_MODULES}
                marks.append((name or "the network", _numbers(own)))
                marks.append((f"the hooks of {name or 'the network'}", _hooks(module)))
        elif isinstance(each, torch.optim.Optimizer):
            marks += [(optimizer_name(keep, each), _numbers(group)) for group in each.param_groups]
            marks.append(("the hooks of the optimizer", _hooks(each)))
    marks.append(("the hooks of all modules", _hooks(torch.nn.modules.module)))
    marks.append(("the variables that it reads", _numbers(outside(function))))
    return marks


def optimizer_name(keep: Sequence[Any], optimizer: torch.optim.Optimizer) -> str:
    """The name for people of an optimizer's options."""
    optimizers = [each for each in keep if isinstance(each, torch.optim.Optimizer)]
    number = next(i for i, each in enumerate(optimizers) if each is optimizer)
    return f"optimizer {number + 1}" if len(optimizers) > 1 else "the optimizer"


def outside(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables that a function of Python reads and that are not its own, by name: of its module, of functions
    around it, and attributes of the object of which it is a method. What it calls may read others."""
    owner = getattr(function, "__self__", None)
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return {}
    names, attributes = _read(function.__code__)
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            pass  # It has no value yet.
    own = getattr(owner, "__dict__", {})
    return found | {f"self.{name}": own[name] for name in attributes if name in own}


@cache
def _read(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The variables of its module that a function reads, and the attributes of its first argument."""
    instructions = list(dis.get_instructions(code))
    names = {each.argval for each in instructions if each.opname == "LOAD_GLOBAL"}
    attributes = set()
    for before, each in pairwise(instructions):
        if before.opname.startswith("LOAD_FAST") and each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            # Newer versions of Python load two variables at once.
            loaded = before.argval if isinstance(before.argval, tuple) else (before.argval,)
            if loaded[-1:] == code.co_varnames[:1]:
                attributes.add(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names |= _read(inner)[0]
    return names, attributes


def _hooks(owner: Any) -> list[tuple[str, list[int]]]:
    """The functions that PyTorch calls when something happens to a network, a tensor or an optimizer, as PyTorch
    numbers them, each with a number of its own."""
    hooks = ((key, value) for key, value in vars(owner).items() if key.endswith("_hooks") and isinstance(value, dict))
    return [(key, list(value)) for key, value in hooks if value]


def other_tensors(keep: Iterable[Any], function: Callable[..., Any]) -> dict[str, Tensor]:
    """The tensors that are attributes of networks, by name, and are neither parameters nor buffers; and the tensors
    among the variables that the step reads."""
    modules = (named for each in keep if isinstance(each, torch.nn.Module) for named in each.named_modules())
    read = {name: value for name, value in outside(function).items() if isinstance(value, Tensor)}
    return read | {
        f"{key} of {name or 'the network'}": value
        for name, module in modules
        for key, value in vars(module).items()
        if isinstance(value, Tensor)
    }


def place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's values are, and whether autograd follows it."""
    where = tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride()
    return *where, tensor.dtype, tensor.requires_grad


def is_plain(value: Any) -> bool:
    """Whether a value can be compared with another, and does not change: a number, a flag, a text, a function, or what
    is made of these."""
    if isinstance(value, slice):
        return is_plain((value.start, value.stop, value.step))
    return all(map(is_plain, value)) if isinstance(value, (tuple, frozenset)) else isinstance(value, PLAIN)


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    """The numbers, flags and texts among attributes or options, and those in lists, tuples and dictionaries."""
    numbers: dict[str, Any] = {}
    for key, value in values.items():
        if is_plain(value):
            numbers[key] = value
        elif isinstance(value, (list, tuple, dict)) and len(value) <= MOST_ENTRIES:
            leaves, spec = tree_flatten(value)
            numbers[key] = spec, [x if is_plain(x) else None for x in leaves]
    return numbers


def check_unchanged(before: Marks, after: Marks) -> None:
    """ValueError if a step has replaced what persists, or changed numbers of Python: a replay does neither."""
    for (was, old), (name, new) in zip_longest(before, after, fillvalue=("", None)):
        if (was, old) == (name, new):
            continue
        if name.startswith(GRADIENT):
            if new is None:
                continue
            raise ValueError(f"the step leaves {name}; call optimizer.zero_grad() at its end")
        if isinstance(old, dict) and isinstance(new, dict):
            changed = next(k for k in {**new, **old} if old.get(k, ...) != new.get(k, ...))
            raise ValueError(f"the step changes {changed} of {name}, and a replay would not; change it elsewhere")
        raise ValueError(f"the step replaces {name or was}, and a replay would not; write over it in place")


class Look(NamedTuple):
    """What has to be the same of a tensor that is an argument."""

    type: torch.dtype
    device: torch.device
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conjugation: bool
    negation: bool
    requires_grad: bool


@dataclass
class Argument:
    """An argument of the recorded step."""

    name: str
    value: Any
    """What an argument has to equal; for a tensor its look."""
    block: int | None
    """The block of a tensor; None for a tensor of no bytes and for what is no tensor."""

    def check(self, value: Any) -> None:
        """ValueError if the step was recorded with another argument."""
        new = look(value)
        if type(new) is not type(self.value):
            raise ValueError(f"{self.name} is {_said(new)}; the step was recorded with {_said(self.value)}")
        if isinstance(new, Look):
            for what, now, was in zip(Look._fields, new, self.value):
                if now != was:
                    raise ValueError(f"the {what} of {self.name}: {now}; the step was recorded with {was}")
        elif new != self.value:
            raise ValueError(f"{self.name} is {new!r}; the step was recorded with {self.value!r}")


def _said(value: Any) -> str:
    return "a tensor" if isinstance(value, Look) else repr(value)


def look(value: Any) -> Any:
    """A tensor's look; another value as it is."""
    if not isinstance(value, Tensor):
        return value
    shape = tuple(value.shape), value.stride()
    return Look(value.dtype, value.device, *shape, value.is_conj(), value.is_neg(), value.requires_grad)


def names_of(paths: Iterable[tuple[Any, ...]]) -> list[str]:
    """Names for the leaves of `(args, kwargs)`."""
    keys = ([getattr(key, "idx", getattr(key, "key", key)) for key in path[1:]] for path in paths)
    return [f"argument {first}" + "".join(f"[{key!r}]" for key in rest) for first, *rest in keys]


def alone(value: Any, name: str, keep: Iterable[Any]) -> Any:
    """A tensor with the same memory, on a storage of its own that begins and ends with it. So it does not matter where
    the tensor lies in a larger storage. Another value is returned as it is, if it can be compared with that of another
    call. `keep` are the networks and optimizers that are looked at anyway."""
    if isinstance(value, np.ndarray):
        raise ValueError(f"{name} is an array of NumPy, which a replay would not read anew; give a tensor")
    if not isinstance(value, Tensor):
        if not (is_plain(value) or isinstance(value, torch.Generator) or any(value is each for each in keep)):
            told = "what it holds cannot be compared with other calls; give numbers and tensors, or what step was given"
            raise ValueError(f"{name} is an object of {type(value).__name__}, and {told}")
        return value
    if value.grad_fn is not None:
        raise ValueError(f"{name} is the result of operators outside of the step that need gradients; detach it")
    begin, length = value.storage_offset() * value.itemsize, 0
    if value.numel():
        length = value.itemsize * (1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride())))
    storage = value.untyped_storage()[begin : begin + length]
    new = on(storage, value.dtype, 0, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
    return new.requires_grad_(value.requires_grad)


def on(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    conj: bool,
    neg: bool,
) -> Tensor:
    """A tensor on a storage."""
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
    tensor = torch._conj(tensor) if conj else tensor
    return torch._neg_view(tensor) if neg else tensor


def overlap(one: torch.UntypedStorage, other: torch.UntypedStorage) -> bool:
    """Whether two storages share memory."""
    begin, also = one.data_ptr(), other.data_ptr()
    return begin < also + other.nbytes() and also < begin + one.nbytes()


def reader(does: str, instead: str) -> str:
    """Which line of Python, outside of PyTorch, does something just now that replays would not, and what to do
    instead."""
    for frame in reversed(traceback.extract_stack()):
        file = os.path.basename(frame.filename)
        if frame.filename.startswith(OPTIMIZERS) and file != "optimizer.py":
            return (
                "the optimizer reads values of tensors in Python, and replays would go on with what was recorded "
                f"({file}); counters are read anew where the optimizer itself is given to sublet.torch.step"
            )
        if not frame.filename.startswith((TORCH, HERE)):
            return f"the step {does} ({file}, line {frame.lineno}); {instead}"
    return f"the step {does}; {instead}"


@contextmanager
def reads_told(tell: Callable[[str, str], None]) -> Iterator[None]:
    """Within it, `tell` is called where any thread takes the values or the memory of a tensor in Python without an
    operator: with what the step does, and what to do instead. PyTorch runs the backward pass of a GPU in a thread of
    its own."""
    with _lock:
        if not _tells:
            for owner, name, why in WATCHED:
                _replaced.append((owner, name, vars(owner).get(name)))
                setattr(owner, name, _told(getattr(owner, name), why))
        _tells.append(tell)
    try:
        yield
    finally:
        with _lock:
            _tells.remove(tell)
            while _replaced and not _tells:
                owner, name, own = _replaced.pop()
                if own is None:
                    # Without the attribute here, the inherited one is found again.
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)


_lock = threading.Lock()
_tells: list[Callable[[str, str], None]] = []
"""What is called where a tensor is read."""
_replaced: list[tuple[Any, str, Any]] = []
"""What stands in the place of `WATCHED` otherwise, by owner and name; None if the owner inherits it."""


def _told(read: Callable[..., Any], why: tuple[str, str]) -> Callable[..., Any]:
    def reading(*args: Any, **kwargs: Any) -> Any:
        for tell in list(_tells):
            tell(*why)
        return read(*args, **kwargs)

    return reading
