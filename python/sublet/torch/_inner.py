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
    overhead: float
    """The time over the original's, minus 1."""
    plan: T
    """The plan."""


class Found(NamedTuple, Generic[T]):
    """What a search has found."""

    best: Tried[T] | None
    """The plan within the limit that takes the least time; None if there is none."""
    least: int | None
    """The least peak that was seen; None if there was no plan at all."""


def within(limit: int, floor: int, attempt: Callable[[int], Tried[T] | None], goes_on: Callable[[int], bool]) -> Found[T]:
    """Tries limits inside, from `limit` downwards, and between those that hold and those that do not. `attempt` makes the plan for
    one; None if there is none. No plan is below `floor`. `goes_on` is asked before each try but the first, by its number."""
    near = max(int(NEAR * (limit - floor)), 1)
    low, high, inner, tried = floor, limit, limit, 0
    best: Tried[T] | None = None
    least: int | None = None
    while tried == 0 or goes_on(tried):
        tried += 1
        over = 0
        found = attempt(inner)
        if found is None:
            low = inner
        else:
            least = found.peak if least is None else min(least, found.peak)
            if found.peak <= limit:
                if best is None or found.overhead < best.overhead:
                    best = found
                if inner == limit or limit - found.peak <= near:
                    break
                low = inner
            else:
                over, high = found.peak - limit, inner
        if high - low <= near:
            break
        lower = inner - max(over + over // 10, near)
        inner = lower if over and best is None and lower > low else (low + high) // 2
    return Found(best, least)
