"""The search for the fastest program within a limit, where only the compiler knows what a program takes, and the choice
of a smaller one that is hardly slower."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from .._sublet import PlanError
from ._xla import TooLarge

ATTEMPTS = 5
"""The most programs that are compiled for one limit between two that are known."""
NEAR = 50
"""A program is good enough if it leaves less than this part of the limit unused: 1/50."""


class Sized(Protocol):
    @property
    def footprint(self) -> int: ...
    @property
    def overhead(self) -> float: ...


S = TypeVar("S", bound=Sized)


def search(make: Callable[[float], S], most: int, low: tuple[float, S], high: tuple[float, float]) -> list[S]:
    """The programs within `most` bytes that were made. A program is made for a number, and takes more bytes for a higher
    one. `low` is the lowest number, with a program within the limit; `high` a number that is too high, with what its
    program takes."""
    number, least = low
    within = [least]
    taken = float(least.footprint)
    above, over = high
    narrow = (above - number) / (2 * NEAR)
    wanted = most - most // (2 * NEAR)
    row = 0
    for _ in range(ATTEMPTS):
        if (most - taken) * NEAR <= most or above - number <= narrow:
            break
        # Regula falsi; after two on the same side the middle, as what programs take is no line.
        part = (wanted - taken) / (over - taken)
        tried = number + (above - number) * (part if 0 < part < 1 and abs(row) < 2 else 0.5)
        try:
            made = make(tried)
        except TooLarge:
            above, over, row = tried, math.inf, max(row, 0) + 1
        except PlanError:
            number, row = tried, min(row, 0) - 1
        else:
            if made.footprint > most:
                above, over, row = tried, float(made.footprint), max(row, 0) + 1
            else:
                number, taken, row = tried, float(made.footprint), min(row, 0) - 1
                within.append(made)
    return within


def slowest(within: Sequence[Sized], slower: float) -> float:
    """The time that a program smaller than the fastest may take, in parts of the original's."""
    return (1 + min(made.overhead for made in within)) * (1 + slower)


def smallest(within: Sequence[S], slower: float) -> S:
    """The program of least memory that is at most so much slower than the fastest."""
    time = slowest(within, slower)
    return min((made for made in within if 1 + made.overhead <= time), key=lambda made: (made.footprint, made.overhead))
