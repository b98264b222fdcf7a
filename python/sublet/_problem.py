"""What is planned: blocks, a recorded iteration, a static graph, or a file of any of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from . import _sublet

Problem = _sublet.Problem

MALLOC, FREE, READ, WRITE, SWAP_OUT, SWAP_IN = range(6)
"""What happens in a row of a trace."""

TRANSIENT, ITERATION, PERSISTENT = range(3)
"""How long the memory of a tensor is needed: to its last reader, to the end of the iteration, always."""


@dataclass
class Operators:
    """What is known of operators, one element each."""

    names: list[str] = field(default_factory=list)
    rerun: list[int] = field(default_factory=list)
    """1: it may run again, and gives the same result."""
    in_place: list[int] = field(default_factory=list)
    """1: its kernel may write its first output over its first input."""
    ordered: list[int] = field(default_factory=list)
    """1: it keeps its place among those that do (random numbers, collectives); 0: it may run whenever its inputs are there."""
    kind: list[str] = field(default_factory=list)
    """`relu`, `relu_backward`, or nothing."""
    element: list[int] = field(default_factory=list)
    """Bytes of an element of what it reads and writes, which say how long a mask is: 1, 2, 4 or 8."""

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
        """Adds an operator; its number."""
        self.names.append(name)
        self.rerun.append(int(rerun))
        self.in_place.append(int(in_place))
        self.ordered.append(int(ordered))
        self.kind.append(kind)
        self.element.append(element)
        return len(self.names) - 1


@dataclass
class Trace:
    """A recorded iteration, one element a row.

    `event` is MALLOC, FREE, READ or WRITE; `bytes` counts for MALLOC alone; `op` is -1 where no operator does it.
    """

    time_ns: ArrayLike
    event: ArrayLike
    block: ArrayLike
    bytes: ArrayLike
    op: ArrayLike
    names: list[str] | None = None
    operators: Operators | None = None

    def problem(self) -> Problem:
        """As the planner takes it. PlanError names the row that cannot follow the rows before it."""
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
    storage: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    operators: Operators = field(default_factory=Operators)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    input_starts: list[int] = field(default_factory=lambda: [0])
    output_starts: list[int] = field(default_factory=lambda: [0])
    workspace: list[int] = field(default_factory=list)
    time_ns: list[int] = field(default_factory=list)

    def tensor(self, name: str, bytes: int, storage: int = TRANSIENT) -> int:
        """Adds a tensor of so many bytes; its number."""
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
        """Adds an operator that reads and writes tensors; its number. `workspace` is in bytes, while it runs; what else is
        `known` of it is as in `Operators.add`."""
        self.inputs += inputs
        self.outputs += outputs
        self.input_starts.append(len(self.inputs))
        self.output_starts.append(len(self.outputs))
        self.workspace.append(workspace)
        self.time_ns.append(time_ns)
        return self.operators.add(name, **known)

    def problem(self) -> Problem:
        """As the planner takes it. PlanError names the tensor or operator that is wrong."""
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


Input: TypeAlias = "Problem | Trace | Graph | str | os.PathLike[str]"
"""What can be planned: a problem, a trace, a graph, or the name of a file."""


def problem_of(source: Input) -> Problem:
    """Reads or builds the problem."""
    if isinstance(source, Problem):
        return source
    if isinstance(source, (Trace, Graph)):
        return source.problem()
    return Problem.read(os.fspath(source))
