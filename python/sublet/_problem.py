"""Problems for the planner: a recorded iteration, a static graph, blocks, or a file of any of these."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from . import _sublet

Problem = _sublet.Problem

MALLOC, FREE, READ, WRITE, SWAP_OUT, SWAP_IN = range(6)
"""The events of a row of a trace."""

TRANSIENT, ITERATION, PERSISTENT = range(3)
"""How long the memory of a tensor is needed: to its last reader, to the end of the iteration, always."""


def whole(what: str, number: int | float) -> int:
    """The number as an integer. ValueError says that it is none, is negative, or has more than 64 bits.

    >>> whole("capacity", 4.0)
    4
    """
    is_number = isinstance(number, (int, float, np.integer, np.floating)) and not isinstance(number, bool)
    if not is_number or not 0 <= number < 2**64 or number != int(number):
        raise ValueError(f"{what} {number}: expected a whole number from 0 to {2**64 - 1}")
    return int(number)


@dataclass
class Operators:
    """Descriptions of operators, as columns with an element for each operator."""

    names: list[str] = field(default_factory=list)
    rerun: list[int] = field(default_factory=list)
    """1: the operator may be recomputed, and gives the same result then. 0: it may not."""
    in_place: list[int] = field(default_factory=list)
    """1: the operator's kernel may write its first output over its first input. 0: it may not."""
    ordered: list[int] = field(default_factory=list)
    """1: the operator keeps its place in the order among all operators that have a 1 here (random numbers,
    collectives). 0: it may run as soon as its inputs are there."""
    kind: list[str] = field(default_factory=list)
    """`relu`, `relu_backward`, or nothing."""
    element: list[int] = field(default_factory=list)
    """The bytes of an element of the operator's blocks: 1, 2, 4 or 8. A mask has one bit for each element."""

    def add(
        self,
        name: str,
        *,
        rerun: bool = False,
        in_place: bool = False,
        ordered: bool = True,
        kind: str = "",
        element: int = 4,
    ) -> int:
        """Adds an operator, and returns its number. ValueError if there is no such kind or element."""
        if kind not in ("", "relu", "relu_backward"):
            raise ValueError(f'{name}: there is no kind {kind}; there are "relu", "relu_backward", and "" for all others')
        if element not in (1, 2, 4, 8):
            raise ValueError(f"{name}: an element has 1, 2, 4 or 8 bytes, not {element}")
        self.names.append(name)
        self.rerun.append(int(rerun))
        self.in_place.append(int(in_place))
        self.ordered.append(int(ordered))
        self.kind.append(kind)
        self.element.append(element)
        return len(self.names) - 1


@dataclass
class Trace:
    """A recorded iteration, as columns with an element for each row."""

    time_ns: ArrayLike
    """The time of the row, in ns."""
    event: ArrayLike
    """MALLOC, FREE, READ or WRITE."""
    block: ArrayLike
    """The number of the block."""
    bytes: ArrayLike
    """The size of the block, in bytes; only for MALLOC."""
    op: ArrayLike
    """The number of the operator; -1 for a row without an operator."""
    names: list[str] | None = None
    """The names of the blocks, by number; None for their numbers."""
    operators: Operators | None = None
    """The descriptions of the operators, by number."""

    def problem(self) -> Problem:
        """The trace as a problem for the planner. PlanError names the row that cannot follow the rows before it."""
        return Problem.from_trace(
            self.time_ns, self.event, self.block, self.bytes, self.op, self.names, self.operators
        )


@dataclass
class Graph:
    """A static graph, which is built an operator at a time.

    >>> from sublet import Graph, plan
    >>> g = Graph()
    >>> image, maps, scores = g.tensor("image", 3072), g.tensor("maps", 8192), g.tensor("scores", 40)
    >>> g.op("conv", [image], [maps], time_ns=900)
    0
    >>> g.op("pool", [maps], [scores])
    1
    >>> plan(g).peak
    11264
    """

    bytes: list[int] = field(default_factory=list)
    """By tensor: its size, in bytes."""
    storage: list[int] = field(default_factory=list)
    """By tensor: TRANSIENT, ITERATION or PERSISTENT."""
    names: list[str] = field(default_factory=list)
    """By tensor: its name."""
    operators: Operators = field(default_factory=Operators)
    """The descriptions of the operators."""
    inputs: list[int] = field(default_factory=list)
    """The numbers of the tensors that operators read, one operator after the other."""
    outputs: list[int] = field(default_factory=list)
    """The numbers of the tensors that operators write, one operator after the other."""
    input_starts: list[int] = field(default_factory=lambda: [0])
    """By operator: where its part of `inputs` begins; one element more for the end of the last part."""
    output_starts: list[int] = field(default_factory=lambda: [0])
    """By operator: where its part of `outputs` begins; one element more for the end of the last part."""
    workspace: list[int] = field(default_factory=list)
    """By operator: the memory that it needs only while it runs, in bytes."""
    time_ns: list[int] = field(default_factory=list)
    """By operator: how long it runs, in ns."""
    writers: dict[int, str] = field(default_factory=dict, repr=False)
    """The operator that writes each tensor, of those that are not persistent."""

    def tensor(self, name: str, bytes: int, storage: int = TRANSIENT) -> int:
        """Adds a tensor of so many bytes, and returns its number. `storage` is `sublet.TRANSIENT` (its memory is needed
        up to its last reader), `sublet.ITERATION` (to the end of the iteration) or `sublet.PERSISTENT` (always). In the
        rows of a fit, one more operator, whose number is that of the operators, reads all tensors of `sublet.ITERATION`
        at the end. ValueError if the size or the storage is none."""
        if storage not in (TRANSIENT, ITERATION, PERSISTENT):
            raise ValueError(f"{name}: storage {storage} is none of TRANSIENT, ITERATION and PERSISTENT")
        self.bytes.append(whole(f"bytes of {name}", bytes))
        self.names.append(name)
        self.storage.append(storage)
        return len(self.bytes) - 1

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        workspace: int = 0,
        time_ns: int = 0,
        **known: Any,
    ) -> int:
        """Adds an operator that reads and writes tensors, and returns its number. `workspace` is the memory that the
        operator needs only while it runs, in bytes; `known` are the other arguments of `Operators.add`. TypeError if an
        input or output is no number; ValueError if no tensor has the number, if a tensor would be written twice, or if another
        argument is wrong. The graph is then as it was."""
        reads = self._numbers(f"inputs of {name}", inputs)
        writes = self._numbers(f"outputs of {name}", outputs)
        for tensor in writes:
            again = writes.count(tensor) > 1
            if again or tensor in self.writers:
                writer = name if again else self.writers[tensor]
                raise ValueError(f"{name} writes {self.names[tensor]}, which {writer} writes; one operator writes a tensor")
        workspace, time_ns = whole(f"workspace of {name}", workspace), whole(f"time_ns of {name}", time_ns)
        number = self.operators.add(name, **known)
        self.writers.update((tensor, name) for tensor in writes if self.storage[tensor] != PERSISTENT)
        self.inputs += reads
        self.outputs += writes
        self.input_starts.append(len(self.inputs))
        self.output_starts.append(len(self.outputs))
        self.workspace.append(workspace)
        self.time_ns.append(time_ns)
        return number

    def _numbers(self, what: str, tensors: Sequence[int]) -> list[int]:
        numbers = []
        for tensor in tensors:
            if isinstance(tensor, bool) or not hasattr(tensor, "__index__"):
                raise TypeError(f"{what}: expected the numbers that tensor() returns, found {tensor!r}")
            number = operator.index(tensor)
            if not 0 <= number < len(self.bytes):
                raise ValueError(f"{what}: there is no tensor {number}; there are {len(self.bytes)}")
            numbers.append(number)
        return numbers

    def problem(self) -> Problem:
        """The graph as a problem for the planner. PlanError names the tensor or operator that is wrong."""
        return Problem.from_graph(
            self.bytes,
            self.storage,
            self.input_starts,
            self.inputs,
            self.output_starts,
            self.outputs,
            self.workspace,
            self.time_ns,
            self.names,
            self.operators,
        )


class Recorded(Protocol):
    """What has recorded an iteration, such as `sublet.torch.record`."""

    @property
    def trace(self) -> Trace: ...


Input: TypeAlias = "Problem | Trace | Graph | Recorded | str | os.PathLike[str]"
"""What can be planned: a problem, a trace, a recording, a graph, or the name of a file."""


def problem_of(source: Input) -> Problem:
    """Reads or builds the problem."""
    if isinstance(source, Problem):
        return source
    if isinstance(source, (Trace, Graph)):
        return source.problem()
    other: Any = source
    trace = getattr(other, "trace", None)
    return trace.problem() if isinstance(trace, Trace) else Problem.read(os.fspath(other))
