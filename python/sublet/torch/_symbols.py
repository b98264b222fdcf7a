"""Open sizes: a joint graph is planned at numbers in the place of its symbols, and cut with the symbols.

A schedule does not depend on the numbers, and what it takes grows with them. So a plan at the largest sizes holds for all
smaller ones; a guard says that no size is larger, and a larger one is compiled and planned anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.functions import Mod, PythonMod

Place: TypeAlias = tuple[int, int, int]
"""Which size of which input: how many tensors are inputs, the number of one of them, the dimension."""

OPEN = "sublet_open"
"""The key, in a node's meta, of its value with symbols, while `val` is the one with numbers."""

DIVISORS = 129
"""Sizes that have to be multiples of a number are looked for up to the one before this."""
STEP = Fraction(4, 3)
"""By how much the sizes of a level are larger than those of the next."""


class Levels:
    """The open sizes of a graph, by levels: 0 has those that were seen first, 1 and more have smaller ones, -1 and less larger ones."""

    def __init__(self, inputs: Sequence[Any], sizes: Sizes) -> None:
        self._sizes, self._numbers = sizes, sizes.numbers
        self._largest: dict[int, dict[Any, int]] = {}
        self._places: dict[Any, tuple[int, int]] = {}
        """By symbol: which input it is a size of, and of which dimension."""
        for i, x in enumerate(inputs):
            for d, size in enumerate(_sizes_of(x)):
                if isinstance(size, torch.SymInt) and size.node.expr in self._numbers:
                    self._places[size.node.expr] = i, d

    @property
    def is_known(self) -> bool:
        """Whether each size is one of an input."""
        return self._places.keys() == self._numbers.keys()

    def sizes(self, args: Sequence[Any]) -> dict[Any, int]:
        """The sizes of some inputs."""
        return {s: args[i].shape[d] if isinstance(args[i], torch.Tensor) else int(args[i]) for s, (i, d) in self._places.items()}

    def largest(self, level: int) -> dict[Any, int]:
        """The largest sizes of a level."""
        if level not in self._largest:
            self._largest[level] = self._sizes.times(self._numbers, 1 / STEP**level)
        return self._largest[level]

    def of(self, sizes: dict[Any, int]) -> int:
        """The last level that has these sizes."""
        level = 0
        while any(sizes[s] > most for s, most in self.largest(level).items()):
            level -= 1
        while sizes and all(max(sizes[s], 1) <= most for s, most in self.largest(level + 1).items()):
            level += 1
        return level


def is_size(node: fx.Node) -> bool:
    """Whether a node is a size, and no tensor."""
    return isinstance(node.meta.get(OPEN), torch.SymInt)


class Sizes:
    """The open sizes of a joint graph, by the symbol that PyTorch has for each."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.numbers: dict[Any, int] = {}
        """The numbers at which the graph is planned."""
        self._inputs = [n for n in module.graph.nodes if n.op == "placeholder" and "tangent" not in n.name]
        given = (value for n in self._inputs for value in _sizes_of(n.meta.get("val")))
        self._symbols = {size.node.expr: size for size in given if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol}

    def refused(self) -> str:
        """What of the sizes is not known before the graph runs; empty if there is nothing."""
        for node in self.module.graph.nodes:
            for value in tree_leaves(node.meta.get("val")):
                if isinstance(value, (torch.SymFloat, torch.SymBool)) or free_unbacked_symbols(value):
                    return "shapes that depend on values"
                if isinstance(value, (torch.SymInt, torch.Tensor)) and not free_symbols(value) <= self._symbols.keys():
                    return "shapes that are not those of inputs"
        return ""

    def seen(self) -> dict[Place, int]:
        """The sizes of the inputs that this graph was compiled for."""
        tensors = [n.meta["val"] for n in self._inputs if isinstance(n.meta.get("val"), torch.Tensor)]
        sizes = {(len(tensors), i, d): size for i, x in enumerate(tensors) for d, size in enumerate(x.shape)}
        return {place: size.node.hint if isinstance(size, torch.SymInt) else size for place, size in sizes.items()}

    def largest(self, seen: dict[Place, int]) -> dict[Any, int]:
        """The number for each symbol: the largest that was seen at its places."""
        tensors = [n.meta["val"] for n in self._inputs if isinstance(n.meta.get("val"), torch.Tensor)]
        numbers = {symbol: int(size.node.hint) for symbol, size in self._symbols.items()}
        for i, x in enumerate(tensors):
            for d, size in enumerate(x.shape):
                if isinstance(size, torch.SymInt) and size.node.expr in numbers:
                    symbol = size.node.expr
                    numbers[symbol] = max(numbers[symbol], seen.get((len(tensors), i, d), 0))
        return numbers

    def times(self, numbers: dict[Any, int], room: float | Fraction) -> dict[Any, int]:
        """Numbers that are larger by a factor, as far as PyTorch has guards that allow it: where sizes have to be multiples of a number,
        the next lower ones."""
        bounds = {s: size.node.shape_env.bound_sympy(s).upper for s, size in self._symbols.items()}
        larger = {symbol: int(min(number * room, bounds[symbol])) for symbol, number in numbers.items()}
        guards = {guard.expr for size in self._symbols.values() for guard in size.node.shape_env.guards if guard.expr.has(Mod, PythonMod)}
        known = [guard for guard in guards if guard.free_symbols <= numbers.keys()]
        for divisor in range(1, DIVISORS):
            even = {symbol: number - number % divisor for symbol, number in larger.items()}
            if all(even.values()) and all(bool(guard.xreplace(even)) for guard in known):
                return even
        return larger

    def fix(self, numbers: dict[Any, int]) -> None:
        """Puts numbers in the place of the symbols."""
        self.restore(self.module)
        self.numbers = numbers
        if not numbers:
            return
        mode = detect_fake_mode([n.meta.get("val") for n in self._inputs])
        assert mode is not None

        def number(x: Any) -> Any:
            if not isinstance(x, torch.SymInt):
                return x
            # An input may be a view into something larger, whose size is no input's.
            return int(x.node.expr.xreplace(numbers)) if x.node.expr.free_symbols <= numbers.keys() else x.node.hint

        def fixed(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return number(x)
            look = [tuple(map(number, sizes)) for sizes in (x.shape, x.stride())]
            offset = number(x.storage_offset())
            reach = offset + sum((size - 1) * stride for size, stride in zip(*look)) + 1 if all(look[0]) else 0
            items = max(reach, -(-number(x.untyped_storage().nbytes()) // x.itemsize))
            with mode:
                return torch.empty(items, dtype=x.dtype, device=x.device).as_strided(*look, offset)

        for node in self.module.graph.nodes:
            if "val" in node.meta:
                node.meta[OPEN] = node.meta["val"]
                node.meta["val"] = tree_map(fixed, node.meta["val"])

    def guard(self) -> None:
        """Has the graph compiled anew where a size is larger than its number."""
        for symbol, number in self.numbers.items():
            # The comparison is evaluated for the sizes of now, and PyTorch keeps it as a guard.
            assert self._symbols[symbol] <= number

    @staticmethod
    def restore(*modules: fx.GraphModule) -> None:
        """Puts the symbols back."""
        for node in (node for module in modules for node in module.graph.nodes if OPEN in node.meta):
            fixed, old = node.meta["val"], node.meta.pop(OPEN)
            # A recomputed batch norm has fewer outputs, and an operator may have been found to give another type.
            pairs = zip(fixed, old) if isinstance(fixed, (tuple, list)) else [(fixed, old)]
            values = [o.to(f.dtype) if isinstance(o, torch.Tensor) and o.dtype != f.dtype else o for f, o in pairs]
            node.meta["val"] = tuple(values) if isinstance(fixed, (tuple, list)) else values[0]


def _sizes_of(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield from value.shape
    else:
        yield value
