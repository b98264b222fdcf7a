"""Plans and fits."""

from __future__ import annotations

import html
import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _sublet
from ._problem import Input, Problem, problem_of, whole

DEFAULT_DEVICE = "gtx1080ti"
NOT_RECOMPUTED = (
    "no operator is recomputed, since nothing says which give the same result: Operators and NAME.ops.csv beside NAME.csv do; "
    'with using=["swap", "recompute"] it is assumed that all do'
)


@dataclass(frozen=True)
class Device:
    """A device by the figures of its links to the host, as they were measured."""

    out_bandwidth: float
    """Copies to the host, in bytes per second."""
    in_bandwidth: float
    """Copies back to the device, in bytes per second."""
    latency_ns: float = 0
    """The time that a copy takes beside that for its bytes, in ns."""


@dataclass(frozen=True)
class Plan:
    """A verified plan: an address for every block."""

    problem: Problem
    offsets: NDArray[np.uint64]
    """The offset of each block, in bytes from the start of the arena."""
    peak: int
    """The highest end of a block, in bytes."""
    max_load: int
    """The most bytes that are alive at one step."""
    lower_bound: int
    """No plan has a lower peak than this, in bytes."""
    solver: str
    """The name of the solver that made the plan."""

    @property
    def optimal(self) -> bool:
        """Whether no plan has a lower peak."""
        return self.peak == self.lower_bound

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the plan to a file: a picture if the name ends in `.html` or `.svg`, otherwise the rows of the
        plan."""
        self.problem.save(os.fspath(file), self.offsets, self.solver)

    def html(self) -> str:
        """The memory map as a page of HTML that needs no other file."""
        return self.problem.page(self.offsets, self.solver)

    def _repr_html_(self) -> str:
        return framed(self.html())

    def __repr__(self) -> str:
        ratio = self.peak / self.max_load if self.max_load else 1.0
        known = "optimal" if self.optimal else f"at least {self.lower_bound}"
        return f"<sublet.Plan: {len(self.offsets)} blocks in {self.peak} bytes, ratio {ratio:.6f}, {known}>"


def framed(page: str) -> str:
    """A page as a part of a notebook."""
    return f'<iframe srcdoc="{html.escape(page, quote=True)}" style="width: 100%; height: 36em; border: 0"></iframe>'


@dataclass(frozen=True)
class Span:
    """A run of an operator, or a copy, in simulated time."""

    what: str
    """`op`, `swap_out` (a copy to the host) or `swap_in` (a copy back)."""
    op: int
    """The number of the operator; -1 for none."""
    blocks: tuple[str, ...]
    """The blocks that are accessed or copied, in order. `B~` is the mask of the block `B`."""
    again: bool
    """Whether this is a recomputation."""
    begin_ns: float
    """When it begins, in ns from the start of the iteration."""
    end_ns: float
    """When it ends."""


@dataclass(frozen=True)
class Fit:
    """A verified schedule: which blocks are swapped, which operators are recomputed, and the offset of each
    residency."""

    problem: Problem
    schedule: _sublet.Fitted
    """The rows as columns: event, block, bytes, op, again, begin_ns, end_ns; and the offset of each residency in bytes, in the
    order of the mallocs."""
    limit: int
    """The limit that was asked for, in bytes."""

    @property
    def overhead(self) -> float:
        """The overhead: simulated time over the original's, minus 1."""
        return self.schedule.overhead

    @property
    def footprint(self) -> int:
        """The highest end of a residency, in bytes: the memory that the schedule needs."""
        return self.schedule.footprint

    @property
    def original_peak(self) -> int:
        """The most bytes that were alive in the original."""
        return self.schedule.original_peak

    @property
    def timeline(self) -> list[Span]:
        """What runs when, in the order of the schedule: a span for each run of an operator, and for each copy. Rows without
        an operator are spans of their own."""
        kinds = {2: "op", 3: "op", 4: "swap_out", 5: "swap_in"}
        s, names = self.schedule, self.problem.names
        rows = zip(s.event.tolist(), s.block.tolist(), s.op.tolist(), s.again.tolist(), s.begin_ns.tolist(), s.end_ns.tolist())
        spans: list[Span] = []
        for event, number, op, again, begin, end in rows:
            if event not in kinds:
                continue
            block = names[number] if number < len(names) else f"{names[number - len(names)]}~"
            last = spans[-1] if spans else None
            if last and last.what == kinds[event] == "op" and op >= 0 and (last.op, last.again) == (op, again):
                spans[-1] = replace(last, blocks=(*last.blocks, block), end_ns=end)
            else:
                spans.append(Span(kinds[event], op, (block,), again, begin, end))
        return spans

    @property
    def lower_bound(self) -> float | None:
        """No schedule within the limit has a lower overhead; None where no bound is known, as where operators may move."""
        return self.schedule.lower_bound

    @property
    def lower_bound_in_order(self) -> float | None:
        """No schedule within the limit that keeps the recorded order has a lower overhead; None where no bound is known."""
        return self.schedule.lower_bound_in_order

    def explain(self, block: str | None = None) -> Any:
        """Why the schedule is as it is, in rows: a DataFrame if pandas is installed, otherwise a list.

        Without a block: the ways to combine the means that were tried, in order. `tried` schedules were placed, `fit` of them
        within the limit, at `overhead_ns` at least; `over` is the least footprint of the others, in bytes; `won` tells which way
        made the result. With a block: what was done between its uses (`choice`: kept, swapped, recomputed), what that costs
        (`cost_ns`), and what the alternatives would have: `swap_ns`, `recompute_ns`, `load_if_kept` in bytes.
        """
        if block is not None:
            return frame(json.loads(self.schedule.gaps(self.problem, block)))
        columns = ("strategy", "as_recorded", "order", "tried", "fit", "overhead_ns", "over", "won")
        return frame([{column: way.get(column) for column in columns} for way in json.loads(self.schedule.tried())])

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the schedule: a picture if the name ends in `.html` or `.svg`, otherwise a folder with `rewritten.csv`,
        `plan.csv` and, for Perfetto, `timeline.json`."""
        self.schedule.save(self.problem, os.fspath(file))

    def html(self) -> str:
        """The memory map, and what runs and is copied when, as a page of HTML that needs no other file."""
        return self.schedule.page(self.problem)

    def _repr_html_(self) -> str:
        return framed(self.html())

    def __repr__(self) -> str:
        s = self.schedule
        return f"<sublet.Fit: {s.original_peak} bytes in {s.footprint}, {100 * s.overhead:.2f} % of time>"


def bytes_of(size: int | float | str, peak: int | None = None, what: str = "limit") -> int:
    """A size in whole bytes: a number, or a text such as `8GiB` or `250MB`; or `60%` of the peak, where there is one.
    ValueError calls the size by the name `what`.

    >>> bytes_of("1.5KiB"), bytes_of("2MB"), bytes_of("50%", 100), bytes_of(4e9)
    (1536, 2000000, 50, 4000000000)
    """
    if not isinstance(size, str):
        if peak is not None and isinstance(size, float) and 0 < size <= 1:
            raise ValueError(f"{what} {size}: expected bytes, or a share as text, such as \"{100 * size:g}%\"")
        return whole(what, size)
    try:
        return _sublet.bytes_of(size, peak)
    except ValueError as e:
        raise ValueError(f"{what}: {e}") from None


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
    """A verified plan: an offset for every block.

    The blocks come from a file, a trace or a graph; or as columns: `start` and `end` in steps, a block being alive in
    `[start, end)`, and `size` in bytes. `block_alignment` is the alignment of each block in bytes; `pin` is the offset
    at which a block must lie in bytes, negative for none. `effort` multiplies the work of the search, `time_limit` is
    in seconds. Floats in columns have to be whole. PlanError names the block that cannot be planned, or says what
    capacity would be enough, and has it as `least`; where none is, `needed` is what every plan takes. ValueError names an argument that is wrong whatever the blocks are.
    """
    if source is not None:
        if any(column is not None for column in (start, end, size, block_alignment, pin, ids)):
            raise TypeError("expected a file, a trace or a graph, or columns of blocks: not both")
        problem = problem_of(source)
    elif start is None or end is None or size is None:
        raise TypeError("expected a file, a trace or a graph, or start, end and size")
    else:
        names = None if ids is None else list(ids)
        problem = Problem.from_blocks(start, end, size, block_alignment, pin, names)
    placed = _sublet.place(
        problem,
        capacity=None if capacity is None else bytes_of(capacity, what="capacity"),
        alignment=whole("alignment", alignment),
        solver=solver,
        effort=whole("effort", effort),
        time_limit=time_limit,
    )
    return Plan(problem, *placed)


def verify(source: Input, offsets: ArrayLike, *, capacity: int | str | None = None, alignment: int = 1) -> int:
    """Verifies that offsets are a plan, and returns the plan's peak in bytes. PlanError names the constraint that does
    not hold, and the blocks."""
    most = None if capacity is None else bytes_of(capacity, what="capacity")
    peak, _ = _sublet.verify(problem_of(source), offsets, capacity=most, alignment=whole("alignment", alignment))
    return peak


class Line:
    """A line on standard error that shows the progress of a fit, if the fit takes longer than a second."""

    def __init__(self) -> None:
        self._shown = 0

    def __call__(self, seconds: float, tried: int, overhead: float | None) -> None:
        if seconds >= 1:
            best = "nothing within the limit yet" if overhead is None else f"overhead {100 * overhead:.3f} %"
            self._show(f"fitting: {seconds:.0f} s, {tried} schedules tried, {best}")

    def end(self) -> None:
        """Erases the line."""
        if self._shown:
            self._show("")

    def _show(self, text: str) -> None:
        print("\r" + text.ljust(self._shown), end="" if text else "\r", file=sys.stderr, flush=True)
        self._shown = len(text)


def fit(
    source: Input,
    limit: int | str,
    *,
    using: str | Iterable[str] | None = None,
    reorder: bool | None = None,
    device: str | Device = DEFAULT_DEVICE,
    keep_persistent: bool = False,
    alignment: int = 256,
    effort: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Fit:
    """Rewrites a recorded iteration so that its footprint is at most `limit`, at the least overhead that is found.

    `limit` is a number of bytes, a size such as `8GiB`, or a share such as `60%` of the max load. `using` names the
    means: swap, recompute, in-place, relu, order; or it is the name of one; by default, as on the command line, all of which
    some operator makes use, recomputation only where it is said which give the same result. `reorder` adds the means order, or
    with False leaves it out: operators run in another order, except those that keep their place. `device` is a name, or the measured figures of a device. With `keep_persistent`, the blocks that persist all stay on the
    device, because their memory belongs to somebody else.
    `alignment` is that of all blocks, in bytes. `effort` multiplies the work of the search: with 8 many small networks
    get faster schedules, and a few slower ones. After `time_limit` seconds the result is the best schedule so far.
    `progress` tells whether a line on standard error shows the progress; None shows it if standard error is a terminal.
    PlanError names the least limit that is known to work, and has it as `least`; or it says what a limit cannot be below,
    and has that as `needed`; or that no schedule was within the limit in time.
    ValueError names an argument that is wrong whatever the iteration is.
    """
    problem = problem_of(source)
    most = bytes_of(limit, max_load(problem))
    if using is None:
        means = problem.usual_means()
        if problem.names and "recompute" not in means:
            warnings.warn(NOT_RECOMPUTED, stacklevel=2)
    else:
        means = [using] if isinstance(using, str) else list(using)
    if reorder is not None:
        means = [name for name in means if name != "order"] + ["order"] * reorder
    line = Line() if progress or (progress is None and sys.stderr.isatty()) else None
    try:
        fitted = _sublet.fit(
            problem,
            limit=most,
            using=means,
            device=device if isinstance(device, str) else astuple(device),
            keep_persistent=keep_persistent,
            alignment=whole("alignment", alignment),
            effort=whole("effort", effort),
            time_limit=time_limit,
            progress=line,
        )
    finally:
        if line is not None:
            line.end()
    return Fit(problem, fitted, most)


def sweep(
    source: Input,
    limits: Iterable[int | str] | None = None,
    *,
    using: str | Iterable[str] | None = None,
    reorder: bool | None = None,
    device: str | Device = DEFAULT_DEVICE,
    keep_persistent: bool = False,
    alignment: int = 256,
    effort: int = 1,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> Any:
    """Fits to each limit, and returns a row for each: a DataFrame if pandas is installed, otherwise a list.

    A schedule that fits a lower limit fits a higher one too. So the row of a limit has the schedule of least overhead
    among all that are within the limit: `footprint` and `overhead`; `fitted_to` is the limit, in bytes, for which that schedule
    was made. A higher limit therefore never has a higher overhead than a lower one. A limit that no schedule meets has no
    overhead, and an `error`. The default is each twentieth of the max load from 95% to 20%; other arguments are those of `fit`,
    `time_limit` for each limit.
    """
    using = using if using is None or isinstance(using, str) else list(using)
    problem = problem_of(source)
    most = max_load(problem)
    asked = [f"{percent}%" for percent in range(95, 15, -5)] if limits is None else list(limits)
    wanted = [bytes_of(limit, most) for limit in asked]
    found: list[dict[str, Any]] = []
    errors: dict[int, str] = {}
    for limit in wanted:
        try:
            fitted = fit(
                problem,
                limit,
                using=using,
                reorder=reorder,
                device=device,
                keep_persistent=keep_persistent,
                alignment=alignment,
                effort=effort,
                time_limit=time_limit,
                progress=progress,
            )
            found.append({"footprint": fitted.footprint, "overhead": fitted.overhead, "fitted_to": limit})
        except _sublet.PlanError as e:
            errors[limit] = str(e)
    rows: list[dict[str, Any]] = []
    for limit in wanted:
        within = [row for row in found if row["footprint"] <= limit]
        # Of schedules of equal overhead, the one that was made for this limit comes first.
        nothing = {"footprint": None, "overhead": None, "fitted_to": None, "error": errors.get(limit)}
        quickest = min(within, key=lambda row: (row["overhead"], row["fitted_to"] != limit), default=nothing)
        rows.append({"limit": limit, **quickest})
    return frame(rows)


def compare(source: Input) -> Any:
    """Places the same blocks by every solver and by the allocators that users have today, and returns a row for each: a
    DataFrame if pandas is installed, otherwise a list. `name` is the solver or allocator, `kind` which of both it is, `peak`
    is in bytes, `ratio` is the peak over the max load."""
    found = json.loads(problem_of(source).compare())
    rows = [{"name": row.pop("solver"), "kind": "solver", **row} for row in found["solvers"]]
    rows += [{"name": row.pop("allocator"), "kind": "allocator", **row} for row in found["today"]]
    return frame(rows)


def frame(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def read_snapshot(file: str | os.PathLike[str]) -> Problem:
    """Reads a memory snapshot of PyTorch: what `torch.cuda.memory._dump_snapshot` writes."""
    return Problem.read(os.fspath(file))


@dataclass(frozen=True)
class Holder:
    """The memory that one place of a program holds at the peak."""

    place: str
    """The innermost frame outside of PyTorch: file, line, function."""
    bytes: int
    """The bytes that it holds."""
    blocks: int
    """The number of blocks that it holds."""
    frames: list[str]
    """The call stack that holds most of these bytes, innermost frame first."""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of one device in a memory snapshot of PyTorch or a log of RMM, with sizes in bytes; `print` shows it as
    text."""

    input: str
    device: int | None
    """The number of the device; None if the file does not say."""
    events: int
    blocks: int
    reserved: int | None
    """The most bytes that the allocator had reserved; None if the snapshot does not say."""
    in_use: int
    """The most bytes that the program had in use."""
    lost: int | None
    """`reserved` less `in_use`: fragmentation, rounding, memory kept free."""
    plan: int
    """The peak of a plan of the same blocks."""
    lower_bound: int
    """A lower bound on the peak of all plans of these blocks."""
    persistent: int
    """The bytes in use that are there from the first event to the last."""
    largest_free: int | None
    """The largest free piece that the allocator has reserved at the end; None if the snapshot does not say."""
    refused: list[dict[str, Any]]
    """The requests that could not be served: for each event, bytes, device_free, reserved, reserved_free, plan (what a plan
    of the blocks up to then and of the request takes) and verdict: fragmented, full or unknown."""
    holders: list[Holder]
    """The places of the program that hold memory at the peak, the largest first."""
    page: str
    changes: list[dict[str, Any]] | None = None
    """By place, the bytes that it holds at the peak less what it held in the snapshot before; None without one."""

    def __str__(self) -> str:
        return self.page


def doctor(file: str | os.PathLike[str], before: str | os.PathLike[str] | None = None) -> Diagnosis:
    """Diagnoses a memory snapshot of PyTorch, or a log of RMM: the bytes lost to fragmentation, the peak of a plan, and the places of
    the program that hold memory at the peak; for a request that was refused, whether the memory was full or in pieces. With
    a snapshot from `before`, also what holds more since then, and what less.

    The file may be of any length: reading it takes about 250 bytes of memory for each event, and runs no code in the
    file. PlanError says where the file is neither.
    """
    told, page = _sublet.doctor(os.fspath(file), None if before is None else os.fspath(before))
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
