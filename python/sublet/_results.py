"""Plans and fits."""

from __future__ import annotations

import html
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _sublet
from ._problem import Input, Problem, problem_of

UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DEFAULT_DEVICE = "gtx1080ti"


@dataclass(frozen=True)
class Plan:
    """A verified plan: an address for every block."""

    problem: Problem
    offsets: NDArray[np.uint64]
    """Where each block lies, in bytes from the start of the arena."""
    peak: int
    """The highest end of a block, in bytes."""
    max_load: int
    """The most bytes that are alive at one step."""
    lower_bound: int
    """No plan has a lower peak than this, in bytes."""
    solver: str
    """The method that made it."""

    @property
    def optimal(self) -> bool:
        """Whether no plan has a lower peak."""
        return self.peak == self.lower_bound

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the plan: `.html` and `.svg` are pictures of it, other names its rows."""
        self.problem.save(os.fspath(file), self.offsets, self.solver)

    def html(self) -> str:
        """The memory map as a page that needs nothing beside it."""
        return self.problem.page(self.offsets, self.solver)

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 36em; border: 0"></iframe>'

    def __repr__(self) -> str:
        ratio = self.peak / self.max_load if self.max_load else 1.0
        known = "optimal" if self.optimal else f"at least {self.lower_bound}"
        return f"<sublet.Plan: {len(self.offsets)} blocks in {self.peak} bytes, ratio {ratio:.6f}, {known}>"


@dataclass(frozen=True)
class Fit:
    """A verified schedule: what leaves the device, what is computed again, and where everything lies."""

    problem: Problem
    schedule: _sublet.Fitted
    """Its rows, as columns: event, block, bytes, op, again, end_ns; and offsets, in the order of the mallocs."""
    limit: int
    """What was asked for, in bytes."""

    @property
    def overhead(self) -> float:
        """What it takes longer than the original, as simulated, as a fraction of it."""
        return self.schedule.overhead

    @property
    def footprint(self) -> int:
        """The bytes that it needs."""
        return self.schedule.footprint

    @property
    def original_peak(self) -> int:
        """The most bytes that were alive in the original."""
        return self.schedule.original_peak

    @property
    def timeline(self) -> list[dict[str, Any]]:
        """Every row that is an operator or a copy: what, which block or operator, when it is done in ns."""
        kinds = {2: "op", 3: "op", 4: "swap_out", 5: "swap_in"}
        s, names = self.schedule, self.problem.names
        rows = zip(s.event.tolist(), s.block.tolist(), s.op.tolist(), s.again.tolist(), s.end_ns.tolist())
        return [
            {
                "what": kinds[event],
                "block": names[block] if block < len(names) else f"{names[block - len(names)]}~",
                "op": op,
                "again": again,
                "end_ns": end,
            }
            for event, block, op, again, end in rows
            if event in kinds
        ]

    def __repr__(self) -> str:
        s = self.schedule
        return f"<sublet.Fit: {s.original_peak} bytes in {s.footprint}, {100 * s.overhead:.2f} % of time>"


def bytes_of(size: int | float | str, peak: int | None = None) -> int:
    """A size in bytes: a number, `8GiB`, `250MB`, or `60%` of the peak.

    >>> bytes_of("1.5KiB"), bytes_of("2MB"), bytes_of("50%", 100)
    (1536, 2000000, 50)
    """
    if not isinstance(size, str):
        return int(size)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:(%)|([KMGT]?)(i?)B?)\s*", size, re.IGNORECASE)
    if match is None or (match[2] and peak is None):
        raise ValueError(f"{size!r} is no size: expected bytes, or something like 8GiB or 60%")
    number = float(match[1])
    if match[2]:
        return int(number / 100 * (peak or 0))
    unit = match[3].upper()
    scale = UNITS[unit] if match[4] or not unit else 1000 ** "KMGT".index(unit) * 1000
    return int(number * scale)


def plan(
    source: Input | None = None,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    size: ArrayLike | None = None,
    block_alignment: ArrayLike | None = None,
    pin: ArrayLike | None = None,
    ids: Sequence[str] | None = None,
    capacity: int | str | None = None,
    alignment: int = 1,
    solver: str = "auto",
    effort: int = 1,
    time_limit: float | None = None,
) -> Plan:
    """An address for every block, proved.

    Blocks come from a file, a trace or a graph; or as columns: alive in `[start, end)`, sizes in bytes, with alignments
    and pins (offsets that are given; negative for none) where there are any. `effort` multiplies the work of the search,
    `time_limit` is in seconds. PlanError names the block that cannot be planned, or says what it would take.
    """
    if source is not None:
        problem = problem_of(source)
    elif start is None or end is None or size is None:
        raise TypeError("expected a file, a trace or a graph, or start, end and size")
    else:
        names = None if ids is None else list(ids)
        problem = Problem.from_blocks(start, end, size, block_alignment, pin, names)
    most = None if capacity is None else bytes_of(capacity)
    placed = _sublet.place(
        problem, capacity=most, alignment=alignment, solver=solver, effort=effort, time_limit=time_limit
    )
    return Plan(problem, *placed)


def verify(source: Input, offsets: ArrayLike, *, capacity: int | str | None = None, alignment: int = 1) -> int:
    """Proves that offsets are a plan; its peak in bytes. PlanError names the constraint and the blocks that break it."""
    most = None if capacity is None else bytes_of(capacity)
    peak, _ = _sublet.verify(problem_of(source), offsets, capacity=most, alignment=alignment)
    return peak


class Line:
    """A line on standard error that tells of a fit which takes longer than a second."""

    def __init__(self) -> None:
        self._shown = 0

    def __call__(self, seconds: float, tried: int, overhead: float | None) -> None:
        if seconds >= 1:
            best = "nothing within the limit yet" if overhead is None else f"overhead {100 * overhead:.3f} %"
            self._show(f"fitting: {seconds:.0f} s, {tried} schedules tried, {best}")

    def end(self) -> None:
        """Takes the line away."""
        if self._shown:
            self._show("")

    def _show(self, text: str) -> None:
        print("\r" + text.ljust(self._shown), end="" if text else "\r", file=sys.stderr, flush=True)
        self._shown = len(text)


def fit(
    source: Input,
    limit: int | str,
    *,
    using: Iterable[str] = ("swap", "recompute"),
    reorder: bool = False,
    device: str = DEFAULT_DEVICE,
    alignment: int = 256,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Fit:
    """Rewrites a recorded iteration so that it needs at most `limit` bytes, at as little time as is found.

    `limit` is bytes, `8GiB`, or `60%` of the most bytes alive. `using` names the means: swap, recompute, in-place, relu.
    With `reorder`, operators that do not keep their place may run at another. After `time_limit` seconds the best so far
    counts. `progress` shows a line on standard error; None where that is a terminal. PlanError names the least limit that
    is known to work, or says that nothing was within it in time.
    """
    problem = problem_of(source)
    most = bytes_of(limit, max_load(problem)) if isinstance(limit, str) else int(limit)
    means = [*using, "order"] if reorder else list(using)
    line = Line() if progress or (progress is None and sys.stderr.isatty()) else None
    try:
        fitted = _sublet.fit(
            problem, limit=most, using=means, device=device, alignment=alignment, time_limit=time_limit, progress=line
        )
    finally:
        if line is not None:
            line.end()
    return Fit(problem, fitted, most)


def sweep(source: Input, limits: Iterable[int | str] | None = None, **options: Any) -> Any:
    """What each limit costs: a DataFrame where pandas is there, else a list of rows. What fits a lower limit is a schedule
    for a higher one as it stands: each limit has the quickest that was found, and `fitted_to` says for which limit. So none
    costs more than a lower one. Limits that nothing meets have no overhead; `options` are those of `fit`."""
    problem = problem_of(source)
    most = max_load(problem)
    asked = [f"{percent}%" for percent in range(95, 15, -5)] if limits is None else list(limits)
    wanted = [bytes_of(limit, most) for limit in asked]
    found: list[dict[str, Any]] = []
    errors: dict[int, str] = {}
    for limit in wanted:
        try:
            fitted = fit(problem, limit, **options)
            found.append({"footprint": fitted.footprint, "overhead": fitted.overhead, "fitted_to": limit})
        except _sublet.PlanError as e:
            errors[limit] = str(e)
    rows: list[dict[str, Any]] = []
    for limit in wanted:
        within = [row for row in found if row["footprint"] <= limit]
        # Of equals the limit's own comes first.
        nothing = {"footprint": None, "overhead": None, "fitted_to": None, "error": errors.get(limit)}
        quickest = min(within, key=lambda row: (row["overhead"], row["fitted_to"] != limit), default=nothing)
        rows.append({"limit": limit, **quickest})
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def compare(source: Input) -> dict[str, Any]:
    """Every solver, and the allocators that users have today, on the same blocks."""
    compared: dict[str, Any] = json.loads(problem_of(source).compare())
    return compared


def read_snapshot(file: str | os.PathLike[str]) -> Problem:
    """Reads a memory snapshot of PyTorch: what `torch.cuda.memory._dump_snapshot` writes."""
    return Problem.read(os.fspath(file))


@dataclass(frozen=True)
class Holder:
    """What one place of a program holds at the peak."""

    place: str
    """The innermost frame outside of PyTorch: file, line, function."""
    bytes: int
    blocks: int
    frames: list[str]
    """The stack that holds most of it, innermost first."""


@dataclass(frozen=True)
class Diagnosis:
    """What a memory snapshot of PyTorch tells of one device; `print` shows it. Sizes in bytes."""

    input: str
    device: int
    events: int
    blocks: int
    reserved: int | None
    """The most that the allocator had reserved; None where the snapshot does not tell."""
    in_use: int
    """The most that the program had in use."""
    lost: int | None
    """Reserved at most, less in use at most: fragmentation, rounding, memory kept free."""
    plan: int
    """What a plan of the same blocks takes."""
    lower_bound: int
    """No plan takes less."""
    refused: list[dict[str, int | None]]
    """Requests that could not be served: event, bytes, device_free, reserved_free."""
    holders: list[Holder]
    """Who holds what is in use at the peak, the largest first."""
    page: str

    def __str__(self) -> str:
        return self.page


def doctor(file: str | os.PathLike[str]) -> Diagnosis:
    """What a memory snapshot of PyTorch tells: what fragmentation costs, what a plan would take, who holds the peak.

    The file may be of any length: about 250 bytes of memory are taken for each event, and nothing in it is run.
    PlanError says where it is no snapshot.
    """
    told, page = _sublet.doctor(os.fspath(file))
    found = json.loads(told)
    found["holders"] = [Holder(**holder) for holder in found["holders"]]
    return Diagnosis(**found, page=page)


def max_load(problem: Problem) -> int:
    """The most bytes that are alive at one step."""
    start, end, size, _ = problem.blocks
    change = np.zeros(int(end.max(initial=0)) + 1, np.int64)
    np.add.at(change, start, size.astype(np.int64))
    np.subtract.at(change, end, size.astype(np.int64))
    return int(np.cumsum(change).max(initial=0))
