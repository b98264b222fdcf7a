"""Finds the limit inside with which a step stays within its limit, where what follows a plan takes more than the plan says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

NEAR = 0.02
"""A limit inside is raised no more where this part of the limit is left, and no two are tried that are nearer."""

T = TypeVar("T")


class Tried(NamedTuple, Generic[T]):
    """A plan for a limit inside."""

    peak: int
    """The most bytes at once, with all that follows the plan."""
    time_ns: int
    """How long the step takes."""
    plan: T
    """The plan."""


class Found(NamedTuple, Generic[T]):
    """What a search has found."""

    best: Tried[T] | None
    """The plan within the limit that takes the least time; None if there is none."""
    least: int
    """The least peak that was seen."""


def within(
    limit: int, floor: int, first: Tried[T], attempt: Callable[[int], Tried[T] | None], goes_on: Callable[[int], bool]
) -> Found[T]:
    """Tries limits inside, below `limit`, for which `first` was made, and between those that hold and those that do not. `attempt`
    makes the plan for one; None if there is none. No plan is below `floor`. `goes_on` is asked before each try, by its number."""
    near = max(int(NEAR * (limit - floor)), 1)
    low, high, inner, tried = floor, limit, limit, 1
    best: Tried[T] | None = None
    least = first.peak
    found: Tried[T] | None = first
    while True:
        over = 0
        if found is None:
            low = inner
        else:
            least = min(least, found.peak)
            if found.peak <= limit:
                if best is None or found.time_ns < best.time_ns:
                    best = found
                if inner == limit or limit - found.peak <= near:
                    break
                low = inner
            else:
                over, high = found.peak - limit, inner
        if high - low <= near or not goes_on(tried):
            break
        lower = inner - max(over + over // 10, near)
        inner = lower if over and best is None and lower > low else (low + high) // 2
        tried, found = tried + 1, attempt(inner)
    return Found(best, least)
