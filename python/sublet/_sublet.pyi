"""The compiled part."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

class PlanError(ValueError):
    least: int | None
    """The least limit or capacity that is known to work, in bytes, if one was too low and another is known."""
    needed: int | None
    """Bytes that no limit or capacity can be below, if it is proved that one was."""

class _Operators(Protocol):
    @property
    def names(self) -> list[str]: ...
    @property
    def rerun(self) -> ArrayLike: ...
    @property
    def in_place(self) -> ArrayLike: ...
    @property
    def ordered(self) -> ArrayLike: ...
    @property
    def kind(self) -> list[str]: ...
    @property
    def element(self) -> ArrayLike: ...

class Problem:
    ids: list[str]
    names: list[str]
    blocks: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64]]
    @staticmethod
    def read(file: str) -> Problem: ...
    @staticmethod
    def from_blocks(
        start: ArrayLike,
        end: ArrayLike,
        size: ArrayLike,
        alignment: ArrayLike | None,
        pin: ArrayLike | None,
        ids: list[str] | None,
    ) -> Problem: ...
    @staticmethod
    def from_trace(
        time_ns: ArrayLike,
        event: ArrayLike,
        block: ArrayLike,
        bytes: ArrayLike,
        op: ArrayLike,
        names: list[str] | None,
        operators: _Operators | None,
    ) -> Problem: ...
    @staticmethod
    def from_graph(
        bytes: ArrayLike,
        storage: ArrayLike,
        input_starts: ArrayLike,
        inputs: ArrayLike,
        output_starts: ArrayLike,
        outputs: ArrayLike,
        workspace: ArrayLike,
        time_ns: ArrayLike,
        names: list[str] | None,
        operators: _Operators,
    ) -> Problem: ...
    def usual_means(self) -> list[str]: ...
    def compare(self) -> str: ...
    def page(self, offsets: ArrayLike, solver: str) -> str: ...
    def save(self, file: str, offsets: ArrayLike, solver: str) -> None: ...

class Fitted:
    event: NDArray[np.uint8]
    block: NDArray[np.uint32]
    bytes: NDArray[np.uint64]
    op: NDArray[np.int64]
    again: NDArray[np.bool_]
    begin_ns: NDArray[np.float64]
    end_ns: NDArray[np.float64]
    offsets: NDArray[np.uint64]
    footprint: int
    peak_load: int
    original_peak: int
    overhead: float
    swapped_bytes: int
    recomputed_ns: int
    lower_bound: float | None
    lower_bound_in_order: float | None
    def tried(self) -> str: ...
    def gaps(self, problem: Problem, block: str) -> str: ...
    def page(self, problem: Problem) -> str: ...
    def save(self, problem: Problem, file: str) -> None: ...

def place(
    problem: Problem,
    *,
    capacity: int | None,
    alignment: int,
    solver: str,
    effort: int,
    time_limit: float | None,
) -> tuple[NDArray[np.uint64], int, int, int, str]: ...
def verify(
    problem: Problem, offsets: ArrayLike, *, capacity: int | None, alignment: int
) -> tuple[int, int]: ...
def fit(
    problem: Problem,
    *,
    limit: int,
    using: Sequence[str],
    device: str | tuple[float, float, float],
    keep_persistent: bool,
    alignment: int,
    effort: int,
    time_limit: float | None,
    progress: Callable[[float, int, float | None], object] | None,
) -> Fitted: ...
def bytes_of(text: str, peak: int | None) -> int: ...
def doctor(file: str, before: str | None = None) -> tuple[str, str]: ...
def throw_by(
    allocate: int, throw: int, construct: int, out_of_memory_vtable: int, out_of_memory_type: int, error_type: int
) -> None: ...
def heap_install() -> bool: ...
def heap_bytes() -> tuple[int, int]: ...
def heap_mark() -> tuple[int, int]: ...
def heap_reset() -> None: ...
def heap_alarm(at: int | None) -> None: ...
def heap_on_alarm(function: Callable[[], None]) -> None: ...
def device_statistics(device: int) -> list[int]: ...
def run(args: list[str]) -> int: ...

def ort_install(capacity: int) -> None: ...
def ort_begin(session: int) -> tuple[int, int | None] | None: ...
def ort_end(number: int, around: int | None) -> str | None: ...
def ort_release(session: int) -> None: ...
def ort_statistics(session: int) -> list[list[int]]: ...
