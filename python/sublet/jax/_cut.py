"""What the body of a loop keeps of an iteration for a later loop, and what is computed again there.

Each value that the later loop wants is kept, or made again from values that are. Kept bytes have a price, and equations
take time: the cheapest choice is a least cut. All prices at once are searched by the lines between two choices that are
known (Eisner and Severance, 1976): each cut finds a choice below its line, or proves that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from ._trace import Block, Equation, Value

NEVER = float("inf")
_WHOLE, _MOST = 2**28, 2**31 - 1
"""Costs are whole numbers for the cut, of which the dearest is the first; the second is never paid."""


@dataclass(frozen=True)
class Cut:
    """A choice, with its costs for one iteration."""

    kept: tuple[Value, ...]
    again: tuple[Equation, ...]
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Wants:
    """What a later loop wants of the body of a loop."""

    block: Block
    values: Sequence[Value]
    bytes_of: Callable[[Value], int]
    """The bytes that keeping a value takes."""
    seconds_of: Callable[[Equation], float]
    """The seconds that an equation takes; NEVER if it must not be run again."""

    def cuts(self) -> list[Cut]:
        """The choices of which each is the best for some price of a byte, that of most bytes first."""
        most, least = self._cut(0.0), self._cut(NEVER)
        found = {most: None, least: None}
        pending = [(most, least)]
        while pending:
            left, right = pending.pop()
            saved, slower = left.bytes - right.bytes, right.seconds - left.seconds
            if saved <= 0 or slower <= 0:
                continue
            between = self._cut(slower / saved)
            # Below the line by more than its numbers are exact.
            gain = (left.bytes - between.bytes) * slower - (between.seconds - left.seconds) * saved
            if between not in found and gain > 1e-6 * saved * slower:
                found[between] = None
                pending += [(left, between), (between, right)]
        return sorted(found, key=lambda cut: (-cut.bytes, cut.seconds))

    def _cut(self, price: float) -> Cut:
        """The cheapest choice where a byte costs `price` seconds. Of an equation one node says that it is run again, of
        a value that it is made again, and another that it is there. The source's side is what is not so."""
        equations, values = self._reached()
        cost = [self.seconds_of(equation) for equation in equations]
        size = [self.bytes_of(value) for value in values]
        if price == NEVER:
            # A byte costs more than all that can be run again.
            price = 2 * (1e-12 + sum(seconds for seconds in cost if seconds != NEVER))
        dear = max([seconds for seconds in cost if seconds != NEVER] + [price * max(size, default=0), 1e-30])

        def whole(seconds: float) -> int:
            return _MOST if seconds == NEVER else 1 + round(seconds / dear * _WHOLE / (1 + len(cost) + len(size)))

        source, sink = 0, 1
        runs = {equation: 2 + k for k, equation in enumerate(equations)}
        made = {value: 2 + len(runs) + 2 * k for k, value in enumerate(values)}
        edges: dict[tuple[int, int], int] = {}
        for equation, seconds in zip(equations, cost, strict=True):
            edges[source, runs[equation]] = whole(seconds)
            edges.update(((made[value] + 1, runs[equation]), _MOST) for value in equation.reads if value in made)
        for value, bytes in zip(values, size, strict=True):
            maker = self.block.maker.get(value)
            if maker is None:
                edges[source, made[value] + 1] = whole(price * bytes)
            else:
                edges[made[value], made[value] + 1] = whole(price * bytes)
                edges[runs[maker], made[value]] = _MOST
        edges.update(((made[value] + 1, sink), _MOST) for value in self.values if value in made)
        reached = _source_side(edges, 2 + len(runs) + 2 * len(made))

        def is_kept(value: Value) -> bool:
            return made[value] + 1 not in reached and (value not in self.block.maker or made[value] in reached)

        kept = tuple(value for value in values if is_kept(value))
        again = tuple(equation for equation in equations if runs[equation] not in reached)
        return Cut(kept, again, sum(map(self.bytes_of, kept)), sum(map(self.seconds_of, again)))

    def _reached(self) -> tuple[list[Equation], list[Value]]:
        """What the wanted values are computed from, in order."""
        values: dict[Value, None] = {value: None for value in self.values if value.constant is None}
        equations = []
        for equation in reversed(self.block.equations):
            if not values.keys().isdisjoint(equation.makes):
                equations.append(equation)
                values.update((value, None) for value in equation.reads if value.constant is None)
        order = [*self.block.args, *(value for equation in self.block.equations for value in equation.makes)]
        return equations[::-1], [value for value in order if value in values]


def _source_side(edges: dict[tuple[int, int], int], nodes: int) -> set[int]:
    """The nodes on the source's side of a least cut between node 0 and node 1."""
    ends = np.array(list(edges), dtype=np.int32).reshape(-1, 2)
    room = csr_array((np.array(list(edges.values()), dtype=np.int32), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    left = room - maximum_flow(room, 0, 1).flow
    left.data[left.data < 0] = 0
    left.eliminate_zeros()
    return {int(node) for node in breadth_first_order(left, 0, return_predecessors=False)}
