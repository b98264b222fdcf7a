"""Loops that keep values for later loops, as the gradient of a `scan` does: other values are kept, the rest is computed
again in the later loop. The program is rewritten after gradients were taken, so that nothing in it is marked.

A loop whose arrays are read only by loops of the same length in the other direction is paired with these. For each
pair there are choices from all that is kept to the least, each with estimated bytes and seconds (`_cut`). Where the
carry dominates, it is kept once for a group of iterations only, and the group is run again before the later loop comes
to it (Griewank, 1992). All choices of all pairs in the order of what a saved byte costs are one chain, along which the
first iterations of a pair go over one after the other: so any limit is met closely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from ._cut import NEVER, Cut, Wants
from ._straight import LIGHT
from ._trace import Block, Equation, Loop, Value, needed, parts, run, take
from ._xla import Evidence, may_rerun

FUSED = 0.1
"""The part of its time that an equation is taken to last that XLA fuses into its readers."""


@dataclass(frozen=True)
class Choice:
    """What a loop keeps, and the estimated costs for all its iterations."""

    cut: Cut
    group: int
    """The carry is kept once for so many iterations, which are run again; 1: what the cut keeps is kept."""
    bytes: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Piece:
    """Iterations of a loop for which the same is kept."""

    cut: Cut
    group: int
    low: int
    high: int
    saved: list[Value]
    """The arrays that are kept, with an element for each iteration or each group."""

    @property
    def starts(self) -> Any:
        """The first iterations of the groups."""
        return jnp.arange(self.low, self.high, self.group)


class Pair:
    """A loop, and later loops that read what it stacks."""

    def __init__(self, first: Equation, loop: Loop, outer: Block, evidence: Evidence | None, times: int) -> None:
        self.first = first
        self.loop = loop
        self.times = times
        """How often the loop runs."""
        self.evidence = evidence
        made = first.makes[loop.carries :]
        self.stacks = [k for k, value in enumerate(made) if _is_stack(value, loop, outer)]
        """The numbers of the arrays that only the later loops read."""
        self.others = [k for k in range(len(made)) if k not in self.stacks]
        self.readers = list(dict.fromkeys(reader for k in self.stacks for reader in outer.readers[made[k]]))
        results = loop.body.results[loop.carries :]
        self.wanted = {made[k]: results[k] for k in self.stacks}
        """By stacked array: the value of the body that it holds."""
        later = {value for reader in self.readers for value in reader.reads}
        held = later | {*outer.args, *outer.results}
        stacked = zip(loop.body.args[loop.constants + loop.carries :], loop.stacked, strict=True)
        free = [value for value, array in stacked if array in held or array.constant is not None]
        self.elements = {results[k]: made[k] for k in self.others if made[k] in held}
        """Values of the body that are there later without being kept, and the arrays that hold them."""
        self.free = {*free, *loop.body.args[: loop.constants], *self.elements}
        # What the body reads of arrays is there in the later loop, where they are held for it.
        self.read = set(loop.body.args) - set(self.carry)

    @property
    def carry(self) -> list[Value]:
        return self.loop.body.args[self.loop.constants : self.loop.constants + self.loop.carries]

    @cached_property
    def choices(self) -> list[Choice]:
        """The best choices, from that of most bytes, which is what the program does by itself, to that of least."""
        length, body = self.loop.length, self.loop.body
        wants = Wants(
            body, [*self.wanted.values()], lambda value: 0 if value in self.free else value.bytes, self._seconds
        )
        cuts = wants.cuts()
        now = tuple(dict.fromkeys(value for value in self.wanted.values() if value.constant is None))
        as_is = Cut(now, (), sum(value.bytes for value in self.wanted.values()), 0.0)
        found = [Choice(cut, 1, length * cut.bytes, length * cut.seconds) for cut in [as_is, *cuts]]
        carry = sum(value.bytes for value in self.carry)
        for cut in cuts:
            again = needed(body.equations, [*body.results[: self.loop.carries], *cut.kept], effects=False)
            forward = sum(map(self._seconds, again))
            fixed = length * sum(value.bytes for value in self._arrays(again) if value not in self.free)
            for group in range(2, length):
                groups = -(-length // group)
                if forward != NEVER and groups != -(-length // (group - 1)):
                    size = groups * carry + group * cut.bytes + fixed
                    found.append(Choice(cut, group, size, length * (cut.seconds + forward)))
        times = self.times * len(self.readers)
        return _hull([Choice(c.cut, c.group, c.bytes, times * c.seconds) for c in found])

    @property
    def saves(self) -> bool:
        """Whether something can be kept less. Arrays of keys and the like cannot be written by iterations."""
        plain = (value.aval for equation in [self.first, *self.readers] for value in equation.makes)
        written = all(not jnp.issubdtype(aval.dtype, jax.dtypes.extended) for aval in plain if hasattr(aval, "shape"))
        return bool(self.stacks) and written and len(self.choices) > 1

    def _arrays(self, equations: Sequence[Equation]) -> list[Value]:
        read = {value for equation in equations for value in equation.reads}
        return [value for value in self.loop.body.args[self.loop.constants + self.loop.carries :] if value in read]

    def _seconds(self, equation: Equation) -> float:
        if not may_rerun(equation, self.evidence):
            return NEVER
        return equation.seconds * (FUSED if equation.name in LIGHT else 1)

    def pieces(self, choice: Choice, low: int, high: int) -> list[Piece]:
        """Iterations by a choice. A group that is not whole is a piece of its own."""
        whole = high - (high - low) % choice.group
        spans = ((choice.group, low, whole), (high - whole, whole, high))
        return [self._piece(choice.cut, *span) for span in spans if span[1] < span[2]]

    def _piece(self, cut: Cut, group: int, low: int, high: int) -> Piece:
        values = self.kept(cut) if group == 1 else self.carry
        return Piece(cut, group, low, high, [Value(value.aval) for value in values])

    def kept(self, cut: Cut) -> list[Value]:
        """The values that are stacked for a cut: arrays and constants that the loop reads are there later."""
        return [value for value in cut.kept if value not in self.read and value not in self.elements]

    def instead(self, pieces: Sequence[Piece]) -> dict[Equation, Callable[[dict[Value, Any]], None]]:
        """What is run in place of the loops of the pair."""
        later = {reader: partial(self._later, reader, pieces) for reader in self.readers}
        return {self.first: partial(self._first, pieces), **later}

    def _first(self, pieces: Sequence[Piece], held: dict[Value, Any]) -> None:
        loop = self.loop
        constants, carry, arrays = parts(loop, held)
        stacks = _empty(loop, self.others)

        def step(kept: list[Value], state: Any, k: Any) -> Any:
            carry, stacks = state
            local = dict(zip(loop.body.args, [*constants, *carry, *_at(arrays, k)], strict=True))
            run(loop.body.equations, local, {})
            made = [take(local, value) for value in loop.body.results]
            others = [made[loop.carries + j] for j in self.others]
            return (made[: loop.carries], _put(stacks, others, k)), [take(local, value) for value in kept]

        def group(length: int, state: Any, low: Any) -> Any:
            after, _ = jax.lax.scan(partial(step, []), state, low + jnp.arange(length), reverse=loop.reverse)
            return after, state[0]

        state: Any = (carry, stacks)
        for piece in pieces[::-1] if loop.reverse else pieces:
            body = partial(step, self.kept(piece.cut)) if piece.group == 1 else partial(group, piece.group)
            unroll = loop.unroll if piece.group == 1 else 1
            state, saved = jax.lax.scan(body, state, piece.starts, reverse=loop.reverse, unroll=unroll)
            held.update(zip(piece.saved, saved, strict=True))
        carry, stacks = state
        held.update(zip(self.first.makes[: loop.carries], carry, strict=True))
        held.update(zip((self.first.makes[loop.carries + j] for j in self.others), stacks, strict=True))

    def _later(self, reader: Equation, pieces: Sequence[Piece], held: dict[Value, Any]) -> None:
        loop, first = reader.loop, self.loop
        assert loop is not None
        own, carry, _ = parts(loop, held)
        constants, _, _ = parts(first, held)
        read = [take(held, value) for value in first.stacked]
        elements = {value: take(held, array) for value, array in self.elements.items()}
        arrays = {k: take(held, value) for k, value in enumerate(loop.stacked) if value not in self.wanted}

        def again(k: Any) -> dict[Value, Any]:
            """What is there of an iteration of the first loop without being kept."""
            local = dict(zip(first.body.args[: first.constants], constants, strict=True))
            local.update(zip(first.body.args[first.constants + first.carries :], _at(read, k), strict=True))
            local.update(zip(elements, _at(list(elements.values()), k), strict=True))
            return local

        def step(cut: Cut, state: Any, at: Any) -> Any:
            carry, stacks = state
            k, kept = at
            local = again(k)
            local.update(zip(self.kept(cut), kept, strict=True))
            run(cut.again, local, {})
            taken = [
                _at([arrays[j]], k)[0] if j in arrays else take(local, self.wanted[value])
                for j, value in enumerate(loop.stacked)
            ]
            made = loop.body.run([*own, *carry, *taken], {})
            return (made[: loop.carries], _put(stacks, made[loop.carries :], k)), None

        def group(cut: Cut, length: int, state: Any, at: Any) -> Any:
            low, start = at
            ks = low + jnp.arange(length)
            ends = first.body.results[: first.carries]
            equations = needed(first.body.equations, [*ends, *self.kept(cut)], effects=False)

            def forward(carry: Any, k: Any) -> Any:
                local = again(k)
                local.update(zip(self.carry, carry, strict=True))
                run(equations, local, {})
                return [take(local, value) for value in ends], [take(local, value) for value in self.kept(cut)]

            _, kept = jax.lax.scan(forward, start, ks, reverse=first.reverse)
            return jax.lax.scan(partial(step, cut), state, (ks, kept), reverse=loop.reverse)

        state: Any = (carry, _empty(loop, range(len(reader.makes) - loop.carries)))
        for piece in pieces[::-1] if loop.reverse else pieces:
            saved = [held[value] for value in piece.saved]
            body = partial(step, piece.cut) if piece.group == 1 else partial(group, piece.cut, piece.group)
            unroll = loop.unroll if piece.group == 1 else 1
            state, _ = jax.lax.scan(body, state, (piece.starts, saved), reverse=loop.reverse, unroll=unroll)
        carry, stacks = state
        held.update(zip(reader.makes, [*carry, *stacks], strict=True))


def _is_stack(value: Value, loop: Loop, outer: Block) -> bool:
    """Whether only loops of the same length in the other direction read the elements of the array."""
    readers = outer.readers.get(value, [])

    def is_later(reader: Equation) -> bool:
        other = reader.loop
        return (
            other is not None
            and other.length == loop.length
            and other.reverse != loop.reverse
            and value in other.stacked
            and value not in other.reads[: other.constants + other.carries]
        )

    return bool(readers) and value not in outer.results and all(map(is_later, readers))


def _hull(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that are the best for some price of a byte, the first of them the one that takes no time."""
    hull = [choices[0]]
    for choice in sorted(choices, key=lambda c: (c.seconds, c.bytes)):
        if choice.bytes >= hull[-1].bytes:
            continue
        while len(hull) > 1 and _slope(hull[-2], choice) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(choice)
    return hull


def _slope(left: Choice, right: Choice) -> float:
    """What a byte less costs, in seconds."""
    return (right.seconds - left.seconds) / (left.bytes - right.bytes)


def _at(arrays: Sequence[Any], k: Any) -> list[Any]:
    index = partial(jax.lax.dynamic_index_in_dim, keepdims=False, allow_negative_indices=False)
    return [index(array, k) for array in arrays]


def _put(stacks: Sequence[Any], elements: Sequence[Any], k: Any) -> list[Any]:
    put = partial(jax.lax.dynamic_update_index_in_dim, axis=0, allow_negative_indices=False)
    return [put(stack, element, index=k) for stack, element in zip(stacks, elements, strict=True)]


def _empty(loop: Loop, numbers: Sequence[int]) -> list[Any]:
    """Arrays that take the elements that iterations of the loop make."""
    avals = [loop.body.results[loop.carries + k].aval for k in numbers]
    return [jnp.zeros((loop.length, *aval.shape), aval.dtype) for aval in avals]


@dataclass(frozen=True, eq=False)
class Step:
    """Iterations of a pair go over from a choice to the next."""

    pair: Pair
    before: Choice
    after: Choice

    @property
    def bytes(self) -> float:
        """What the step saves."""
        return self.before.bytes - self.after.bytes


Mixed = dict[Pair, list[Piece]]


@dataclass(frozen=True)
class Chain:
    """The steps of all pairs, those first whose bytes cost least."""

    steps: list[Step] = field(default_factory=list)

    @property
    def bytes(self) -> float:
        """What all steps save."""
        return sum(step.bytes for step in self.steps)

    def saving(self, bytes: float) -> tuple[Mixed, float]:
        """What is kept where so many bytes are saved, or all that can be; and the seconds of what is run again."""
        mixed: Mixed = {}
        seconds = 0.0
        for step in self.steps:
            if bytes <= 0:
                break
            length = step.pair.loop.length
            count = min(length, -int(-bytes * length // step.bytes))
            pieces = step.pair.pieces
            mixed[step.pair] = [*pieces(step.after, 0, count), *pieces(step.before, count, length)]
            bytes -= step.bytes
            seconds += (step.after.seconds - step.before.seconds) * count / length
        return mixed, seconds

    def saved(self, seconds: float) -> float:
        """What whole steps save of which all that is run again takes at most so long: where a loop is in two parts, XLA
        may hold more."""
        bytes = 0.0
        for step in self.steps:
            seconds -= step.after.seconds - step.before.seconds
            if seconds < 0:
                break
            bytes += step.bytes
        return bytes


def chain(block: Block, evidence: Evidence | None) -> Chain:
    """All that the loops of a program, and those in their bodies, can keep less of."""
    pairs = list(_pairs(block, evidence, 1))
    steps = [Step(pair, *two) for pair in pairs for two in pairwise(pair.choices)]
    return Chain(sorted(steps, key=lambda step: _slope(step.before, step.after)))


def _pairs(block: Block, evidence: Evidence | None, times: int) -> Iterator[Pair]:
    taken: set[Equation] = set()
    for equation in block.equations:
        loop = equation.loop
        if loop is None or equation in taken:
            continue
        pair = Pair(equation, loop, block, evidence, times)
        if taken.isdisjoint(pair.readers) and pair.saves:
            taken.update(pair.readers)
            yield pair
        else:
            yield from _pairs(loop.body, evidence, times * loop.length)
