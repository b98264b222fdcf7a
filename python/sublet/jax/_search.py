"""The search for the program of least overhead within a limit, where only the compiler knows what a program takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, TypeVar

from .._sublet import PlanError
from ._xla import TooLarge

ATTEMPTS = 6
"""The most programs that are compiled for one limit between two that are known."""
NEAR = 50
"""A program is good enough if it leaves less than this part of the limit unused: 1/50."""


class Sized(Protocol):
    @property
    def footprint(self) -> int: ...
    @property
    def overhead(self) -> float: ...


S = TypeVar("S", bound=Sized)


def search(make: Callable[[float], S], most: int, low: tuple[float, S], high: tuple[float, float]) -> S:
    """The program of least overhead within `most` bytes among those that were made. A program is made for a number, and
    takes more bytes for a higher one. `low` is the lowest number, with a program within the limit; `high` a number that
    is too high, with what its program takes."""
    number, best = low
    taken = float(best.footprint)
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
                best = min(best, made, key=lambda each: each.overhead)
    return best
