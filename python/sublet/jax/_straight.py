"""Programs without loops, and what is left of others: a schedule of the planner decides what is run again, and when.

Equations are joined into operators as XLA fuses them. What it stores is read from a compiled program (`_xla.Evidence`);
before one is compiled, it is guessed by the equations' names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .._problem import ITERATION, PERSISTENT, TRANSIENT, Graph
from .._results import Fit
from ._trace import BYTES_PER_S, FLOPS_PER_S, Block, Equation, Value, flops, run, take
from ._xla import Evidence, may_rerun

LIGHT = frozenset(
    "abs add add_any and broadcast_in_dim ceil clamp convert_element_type copy eq expand_dims floor ge gt imag "
    "integer_pow iota is_finite le lt max min mul ne neg not or pad real reshape rev round select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign slice square squeeze sub transpose xor".split()
)
"""Equations that XLA fuses into all their readers: it computes their elements where they are read, and stores none."""
DEAR = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma div erf erf_inv erfc exp exp2 expm1 lgamma log log1p "
    "logistic nextafter pow rem rsqrt sin sinh sqrt tan tanh".split()
)
"""Equations of single elements that XLA computes once only: it fuses them if they have one reader."""
REDUCE = frozenset("argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum".split())
"""Equations into which XLA fuses what they read, though they are not fused themselves."""


@dataclass(frozen=True, eq=False)
class Operator:
    """Equations that XLA runs as one: the last of them, and those that are fused into it."""

    equations: list[Equation]
    reads: list[Value]
    makes: list[Value]

    @property
    def name(self) -> str:
        return self.equations[-1].name

    def run(self, held: dict[Value, Any]) -> None:
        """Runs the equations. `held` has the values that are read, and gets those that are made."""
        local = {value: held[value] for value in self.reads}
        run(self.equations, local, {})
        held.update((value, local[value]) for value in self.makes)


class Straight:
    """A block as operators in a row."""

    def __init__(self, block: Block, evidence: Evidence | None = None) -> None:
        self.block = block
        self.evidence = evidence
        self.operators = _operators(block, evidence)
        read = [value for operator in self.operators for value in operator.reads]
        self.constants = {value: None for value in [*read, *block.results] if value.constant is not None}

    def graph(self) -> Graph:
        """The operators, with the values that they read and make, and with estimated times."""
        graph, ends = Graph(), set(self.block.results)
        number = {
            value: graph.tensor(f"argument {k}", value.bytes, PERSISTENT) for k, value in enumerate(self.block.args)
        }
        for k, value in enumerate(self.constants):
            number[value] = graph.tensor(f"constant {k}", value.bytes, PERSISTENT)
        for operator in self.operators:
            for value in operator.makes:
                storage = ITERATION if value in ends else TRANSIENT
                number[value] = graph.tensor(f"{operator.name} {len(number)}", value.bytes, storage)
            moved = sum(value.bytes for value in [*operator.reads, *operator.makes])
            computed = sum(flops(equation.closed.jaxpr) for equation in operator.equations)
            graph.op(
                operator.name,
                [number[value] for value in operator.reads],
                [number[value] for value in operator.makes],
                time_ns=1 + round(1e9 * max(moved / BYTES_PER_S, computed / FLOPS_PER_S)),
                rerun=all(may_rerun(equation, self.evidence) for equation in operator.equations),
            )
        return graph

    def function(self, runs: Sequence[tuple[int, bool]]) -> Callable[..., list[Any]]:
        """The function that runs operators in an order. Each run is the number of the operator, and whether it is
        recomputed."""

        def scheduled(*args: Any) -> list[Any]:
            held = dict(zip(self.block.args, args, strict=True))
            held.update((value, value.constant) for value in self.constants)
            last: Value | None = None
            previous = False
            for at, (number, again) in enumerate(runs):
                operator = self.operators[number]
                if again and not previous:
                    self._hold_back(held, runs, at, last)
                operator.run(held)
                last = next((value for value in operator.makes if value.is_array), last)
                previous = again
            return [take(held, value) for value in self.block.results]

        return scheduled

    def scheduled(self, plan: Fit) -> Callable[..., list[Any]]:
        """The function that follows a schedule."""
        runs: list[tuple[int, bool]] = []
        schedule = plan.schedule
        for op, again in zip(schedule.op.tolist(), schedule.again.tolist(), strict=True):
            # The operator after the last reads what has to be there at the end.
            if 0 <= op < len(self.operators) and (not runs or runs[-1] != (op, again)):
                runs.append((op, again))
        return self.function(runs)

    def _hold_back(
        self, held: dict[Value, Any], runs: Sequence[tuple[int, bool]], begin: int, last: Value | None
    ) -> None:
        """Puts a barrier before recomputations in a row: XLA runs none of them before the value `last` is there, and
        does not take them for the first runs."""
        made: set[Value] = set()
        read: dict[Value, None] = {} if last is None else {last: None}
        for number, again in runs[begin:]:
            if not again:
                break
            operator = self.operators[number]
            read.update((value, None) for value in operator.reads if value.is_array and value not in made)
            made.update(operator.makes)
        held.update(zip(read, jax.lax.optimization_barrier(tuple(held[value] for value in read)), strict=True))


def _operators(block: Block, evidence: Evidence | None) -> list[Operator]:
    """Joins equations into operators. A value that is fused into its readers takes no memory, so the values that
    operators make are those that XLA stores."""
    ends = set(block.results)
    once = {equation for equation in block.equations if not may_rerun(equation, evidence)}
    # Of a value that is not stored: the stored values that it is computed from.
    sources: dict[Value, dict[Value, None]] = {}

    def is_stored(equation: Equation, value: Value, read: dict[Value, None]) -> bool:
        who = block.readers.get(value, [])
        if value in ends or len(equation.makes) != 1 or equation in once:
            return True
        elementwise = equation.name in LIGHT | DEAR
        # It takes the place of two others of its size. XLA may fuse it all the same, while these are there anyway.
        joins = elementwise and len(who) > 1 and sum(source.bytes * 2 >= value.bytes for source in read) > 1
        if evidence is not None:
            fused = equation in evidence.fused or elementwise or len(who) == 1
            return joins or equation in evidence.stored or not fused
        if not elementwise or any(reader.name not in LIGHT | DEAR | REDUCE for reader in who):
            return True
        return joins or (len(who) > 1 and equation.name in DEAR)

    operators = []
    for equation in block.equations:
        read = {source: None for value in equation.reads for source in sources.get(value, {value: None})}
        stored = [value for value in equation.makes if is_stored(equation, value, read)]
        sources.update((value, read) for value in equation.makes if value not in stored)
        if stored or equation.has_effects:
            operators.append(Operator(_fused(equation, block, sources), list(read), stored))
    return operators


def _fused(equation: Equation, block: Block, sources: Iterable[Value]) -> list[Equation]:
    """An equation, and before it those that make the values that it reads and that are not stored."""
    fused: dict[Equation, None] = {}
    stack = [(equation, iter(equation.reads))]
    while stack:
        equation, reads = stack[-1]
        for value in reads:
            if value in sources and block.maker[value] not in fused:
                stack.append((block.maker[value], iter(block.maker[value].reads)))
                break
        else:
            fused[equation] = None
            stack.pop()
    return list(fused)
