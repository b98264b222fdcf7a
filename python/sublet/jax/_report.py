"""What a fitted program keeps and computes again, for people: by lines of their source and by names of their scopes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ._scans import Mixed, Pair, Piece
from ._trace import Equation, Value


@dataclass(frozen=True)
class Kept:
    """A value that is kept of each iteration of a loop."""

    name: str
    """The equation that makes it; `carry` for what an iteration begins with."""
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    """Its size in one iteration, in bytes."""
    where: str
    """The file and line of the equation."""
    scope: str
    """The names under which it was traced, such as flax's modules."""


@dataclass(frozen=True)
class Scan:
    """Iterations of a loop for which the same is kept."""

    where: str
    """The file and line of the loop."""
    length: int
    """The number of iterations of the loop."""
    iterations: range
    """The iterations that this is about."""
    group: int
    """If more than 1, the carry is kept once for so many iterations, which are run again before `kept` is there."""
    kept: tuple[Kept, ...]
    again: tuple[tuple[str, str], ...]
    """What is computed again from that: the names of equations, with file and line."""
    bytes: int
    """What stays in memory for these iterations, in bytes."""


class Told(Protocol):
    @property
    def footprint(self) -> int: ...
    @property
    def original_footprint(self) -> int | None: ...
    @property
    def overhead(self) -> float: ...
    @property
    def scans(self) -> tuple[Scan, ...]: ...
    @property
    def plan(self) -> Any: ...


def scans_of(mixed: Mixed) -> tuple[Scan, ...]:
    return tuple(_scan(pair, piece) for pair, pieces in mixed.items() for piece in pieces)


def _scan(pair: Pair, piece: Piece) -> Scan:
    iterations = range(piece.low, piece.high)
    kept = tuple(_kept(pair, value) for value in pair.kept(piece.cut))
    again = tuple((equation.name, equation.where) for equation in piece.cut.again)
    size = sum(value.bytes for value in piece.saved) * -(-len(iterations) // piece.group)
    return Scan(pair.first.where, pair.loop.length, iterations, piece.group, kept, again, size)


def _kept(pair: Pair, value: Value) -> Kept:
    maker: Equation | None = pair.loop.body.maker.get(value)
    name, where, scope = ("carry", "", "") if maker is None else (maker.name, maker.where, maker.scope)
    return Kept(name, tuple(value.aval.shape), str(value.aval.dtype), value.bytes, where, scope)


def report(told: Told) -> str:
    """The report of a fitted program."""
    before = "a program that does not compile" if told.original_footprint is None else _size(told.original_footprint)
    lines = [f"{_size(told.footprint)} of {before}, {100 * told.overhead:.1f} % of the estimated time again"]
    for scan in told.scans:
        part = f"iterations {scan.iterations.start} to {scan.iterations.stop - 1} of {scan.length}"
        lines.append(f"scan at {scan.where or 'a line that is not known'}, {part}: {_size(scan.bytes)}")
        if scan.group > 1:
            lines.append(f"  run again in groups of {scan.group}, from the carry of the first; within a group:")
        for kept in scan.kept:
            what = f"{kept.dtype}{list(kept.shape)}".replace(" ", "")
            lines.append(f"  keeps {_size(kept.bytes):>10}  {what} {kept.name} {kept.where} {kept.scope}".rstrip())
        lines += [f"  again {line}" for line in _counted(f"{name} {where}" for name, where in scan.again)]
    if told.plan is not None:
        again = sum(span.again for span in told.plan.timeline)
        lines.append(f"outside of loops: {again} operators run again")
    return "\n".join(lines)


def _counted(lines: Iterable[str]) -> list[str]:
    return [line if times == 1 else f"{line} ({times} times)" for line, times in Counter(lines).items()]


def _size(bytes: int) -> str:
    return f"{bytes / 2**20:.1f} MiB"
