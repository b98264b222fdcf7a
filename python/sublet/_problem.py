"""Problems for the planner: a recorded iteration, a static graph, blocks, or a file of any of these."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from numpy.typing import ArrayLike

from . import _sublet

Problem = _sublet.Problem

MALLOC, FREE, READ, WRITE, SWAP_OUT, SWAP_IN = range(6)
"""The events of a row of a trace."""

TRANSIENT, ITERATION, PERSISTENT = range(3)
"""How long the memory of a tensor is needed: to its last reader, to the end of the iteration, always."""


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
        """Adds an operator, and returns its number."""
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

    def tensor(self, name: str, bytes: int, storage: int = TRANSIENT) -> int:
        """Adds a tensor of so many bytes, and returns its number. `storage` is `sublet.TRANSIENT` (its memory is needed
        up to its last reader), `sublet.ITERATION` (to the end of the iteration) or `sublet.PERSISTENT` (always). In the
        rows of a fit, one more operator, whose number is that of the operators, reads all tensors of `sublet.ITERATION`
        at the end."""
        self.names.append(name)
        self.bytes.append(bytes)
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
        input or output is no number."""
        for what, tensors in (("inputs", inputs), ("outputs", outputs)):
            for tensor in tensors:
                if isinstance(tensor, bool) or not hasattr(tensor, "__index__"):
                    raise TypeError(f"{what} of {name}: expected the numbers that tensor() returns, found {tensor!r}")
        self.inputs += inputs
        self.outputs += outputs
        self.input_starts.append(len(self.inputs))
        self.output_starts.append(len(self.outputs))
        self.workspace.append(workspace)
        self.time_ns.append(time_ns)
        return self.operators.add(name, **known)

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
