"""A whole step as one graph: forward pass, loss and backward pass, with its collectives and writes in place.

The graph that comes out is one graph too. Values that another operator writes over later are made once: made again they would
lack those writes. Other tools may change the graph after that, so it has an estimate of its own, which needs no plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .. import Fit, PlanError, fit
from .._problem import problem_of
from .._results import max_load
from ._joint import WAIT, Joint, bytes_of, is_item, is_view, root, written_by
from ._measure import Cost, cost_of, is_collective
from ._partition import Step, Writer, _largest, _module, _without_last_frees, steps_of
from ._ranks import Speaking, agree, check_equal

PLACE = "sublet_place"
"""The key, in the meta of a node that is not made again, of its name in the graph that was planned."""


class Whole(Joint):
    """The operators of a whole step. The first output of its graph is the loss, the others are gradients. Collectives that
    only gather may run again, so all ranks have to follow one schedule."""

    def __init__(self, module: fx.GraphModule, ranks: Speaking | None) -> None:
        _without_own_writes(module)
        module.graph.eliminate_dead_code()
        super().__init__(module, 1, agree=lambda costs: _agreed(costs, ranks), gathers=True)
        self._scratch = list(self.graph.workspace)
        # Where a parameter is not divided evenly, ranks have other sizes: the largest count.
        if ranks is not None:
            self.graph.bytes = [max(each) for each in zip(*ranks.gathered(self.graph.bytes))]

    @property
    def persistent(self) -> int:
        """The bytes of parameters and inputs."""
        return sum(size for size, block in zip(self.graph.bytes, self.blocks) if block is not None and block.op == "placeholder")

    @property
    def original(self) -> int:
        """The most bytes that are alive at once without a plan."""
        return max_load(problem_of(self.graph))

    def make_room(self, by_plan: dict[str, int], module: fx.GraphModule, limit: int, ranks: Speaking | None) -> bool:
        """Has the plans that follow leave room at operators where a graph that passes have changed takes more than `limit` bytes
        beside parameters and inputs: as much as it takes there above its plan, which is `by_plan`, of `by_operator`. False if
        that is none, or no more than before."""
        taken = by_operator(module)
        names = ["" if op is None else op.name for op in self.ops]
        more = [taken[name] - by_plan.get(name, 0) if taken.get(name, 0) > limit else 0 for name in names]
        own = [scratch + size for scratch, size in zip(self._scratch, more)]
        before = self.graph.workspace
        self.graph.workspace = [max(each) for each in zip(before, *([own] if ranks is None else ranks.gathered(own)))]
        return self.graph.workspace != before

    def check_writes(self, steps: Iterable[Step]) -> None:
        """PlanError if a value is made again that needs the writes of other operators."""
        for step in steps:
            op = self.ops[step.at] if step.what == "run" and step.again else None
            if op is not None and not self._written.isdisjoint([*self.makes(op), *self.reads(op.all_input_nodes)]):
                raise PlanError(f"the operator {op.name} would run again without the writes to what it makes or reads")


@dataclass(frozen=True)
class Planned:
    """A step that was planned, and its graph."""

    module: fx.GraphModule
    peak: int
    """The most bytes at once by the plan, parameters and inputs included."""
    overhead: float
    """The time over the original's, minus 1, each operator as it was measured and each collective as a copy."""
    again: list[str]
    """The operators that run again."""


def planned(whole: Whole, limit: int, ranks: Speaking | None = None, reorder: bool = True) -> Planned | PlanError:
    """The graph of a step that stays within a limit, in bytes, with parameters and inputs; or the refusal where there is none.
    PlanError if the ranks do not come to one schedule, or if one has ended."""
    try:
        fitted: Fit = fit(whole.graph, limit, using=("recompute",), reorder=reorder, keep_persistent=True, alignment=1)
    except PlanError as e:
        refusal = PlanError(f"{e} ({_largest(whole)})")
        refusal.least, refusal.needed = e.least, e.needed
        return refusal
    steps = steps_of(fitted)
    whole.check_writes(steps)
    if ranks is not None:
        check_equal(steps, ranks)
    again = [op.name for op in (whole.ops[s.at] for s in steps if s.what == "run" and s.again) if op is not None]
    return Planned(_one_graph(whole, steps), fitted.schedule.peak_load, fitted.overhead, again)


def _agreed(costs: list[Cost], ranks: Speaking | None) -> list[Cost]:
    return costs if ranks is None else agree(costs, 0, ranks)[0]


def _without_own_writes(module: fx.GraphModule) -> None:
    """Lets operators that write over a value of their own, which nobody else reads, make a new value: so both can be made
    again."""
    for node in module.graph.nodes:
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
            continue
        base = node.args[0] if node.args else None
        name = target._schema.name.split("::")[1]
        packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") and target.namespace == "aten" else None
        other = getattr(packet, target._overloadname, None)
        if other is None or not isinstance(base, fx.Node) or base.op != "call_function" or written_by(node) != [base]:
            continue
        same = isinstance(base.meta.get("val"), torch.Tensor) and base.meta["val"].dtype == node.meta["val"].dtype
        if same and root(base) is base and len(base.users) == 1 and not other._schema.is_mutable:
            node.target = other
    module.recompile()


class _OneWriter(Writer):
    """Writes both passes into one graph."""

    def _run(self, op: fx.Node, again: bool) -> None:
        before = len(self.graph.nodes)
        super()._run(op, again)
        for node in itertools.islice(reversed(self.graph.nodes), len(self.graph.nodes) - before):
            if not again and node.target is op.target:
                node.meta = {**node.meta, PLACE: op.name}
            elif again:
                # Passes that follow tell the backward pass by this.
                node.meta = {**node.meta, "custom": dict(node.meta.get("custom") or {}), "autograd_backward": True}


def _one_graph(whole: Whole, steps: list[Step]) -> fx.GraphModule:
    outputs = [*whole.fwd_outputs, *whole.bwd_outputs]
    writer = _OneWriter(whole, whole.primals, set())
    bwd, whole.bwd_outputs = whole.bwd_outputs, outputs
    try:
        writer.play(_without_last_frees(whole, steps))
    finally:
        whole.bwd_outputs = bwd
    writer.finish([writer.get(n) if isinstance(n, fx.Node) else n for n in outputs])
    return _module(whole, writer.graph)


def peak_of(module: fx.GraphModule, scratch: Callable[[fx.Node], int] | None = None) -> int:
    """The most bytes that a graph takes at once as it stands, beside its inputs, as `taken_at` counts them."""
    return max(taken_at(module, scratch).values(), default=0)


def by_operator(module: fx.GraphModule) -> dict[str, int]:
    """The most bytes that a planned graph takes from after one operator that is not made again until the next one has run, by the
    name of the latter; what follows the last one counts with it."""
    found: dict[str, int] = {}
    most, last = 0, ""
    for node, size in taken_at(module).items():
        most = max(most, size)
        if PLACE in node.meta:
            last = node.meta[PLACE]
            found[last], most = most, 0
    return {**found, last: max(found.get(last, 0), most)}


def taken_at(module: fx.GraphModule, scratch: Callable[[fx.Node], int] | None = None) -> dict[fx.Node, int]:
    """The bytes that a graph takes while each of its nodes runs, beside its inputs: each storage from the operator that makes it
    to its last reader, inputs and scratch of a collective until its wait, and the scratch of other operators."""
    of_node = scratch if scratch is not None else _scratch
    storages = _storages(module)
    sizes: dict[fx.Node, int] = {}
    last: dict[fx.Node, int] = {}
    held: dict[fx.Node, list[fx.Node]] = {}
    began: dict[fx.Node, int] = {}
    beside: dict[int, int] = {}
    until: dict[int, int] = {}
    nodes = list(module.graph.nodes)
    for i, node in enumerate(nodes):
        read = [storage for source in node.all_input_nodes for storage in storages[source]]
        own = storages[node] if node.op == "call_function" else set[fx.Node]()
        if node in own:
            sizes[node] = bytes_of(node)
        if is_collective(node) and node.target is not WAIT:
            held |= dict.fromkeys(own, read)
            began |= dict.fromkeys(own, i)
            beside[i] = of_node(node)
        if node.target is WAIT:
            read = [*read, *(source for storage in own for source in held.get(storage, ()))]
            until |= {began[storage]: i for storage in own if storage in began}
        last |= dict.fromkeys([*read, *own], i)
    ends: dict[int, list[fx.Node]] = {}
    for storage, i in last.items():
        ends.setdefault(i, []).append(storage)
    freed: dict[int, int] = {}
    for i, at in until.items():
        freed[at] = freed.get(at, 0) + beside[i]
    now = 0
    taken: dict[fx.Node, int] = {}
    for i, node in enumerate(nodes):
        now += sizes.get(node, 0) + beside.get(i, 0)
        taken[node] = now + (of_node(node) if node.op == "call_function" and i not in beside else 0)
        now -= freed.get(i, 0) + sum(sizes.get(storage, 0) for storage in ends.get(i, ()))
    return taken


def _scratch(node: fx.Node) -> int:
    target = node.target
    if is_collective(node):
        return 0 if target is WAIT else cost_of(node).scratch
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims") or is_view(node):
        return 0
    return 0 if target._schema.is_mutable else cost_of(node).scratch


def _storages(module: fx.GraphModule) -> dict[fx.Node, set[fx.Node]]:
    """For each node the storages that its value lies in, each by the node that makes it."""
    found: dict[fx.Node, set[fx.Node]] = {}

    def of(values: Iterable[Any]) -> set[fx.Node]:
        return set().union(*(found[x] for x in values if isinstance(x, fx.Node)))

    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        several = isinstance(node.meta.get("val"), (tuple, list))
        if node.op != "call_function":
            found[node] = {node}
        elif is_item(node):
            # Of an operator that makes several values, each is a storage; of one that returns views, all are those of its input.
            source = node.args[0]
            found[node] = {node} if found[source] == {source} else found[source]
        elif is_view(node) and not several:
            found[node] = of(node.args[:1])
        elif schema is not None and any(r.alias_info is not None for r in schema.returns):
            given = list(zip(schema.arguments, [*node.args, *(node.kwargs.get(a.name) for a in schema.arguments[len(node.args) :])]))
            aliased = [value for a, value in given if a.alias_info is not None]
            flat = [x for value in aliased for x in (value if isinstance(value, (list, tuple)) else [value])]
            found[node] = of(flat) or {node}
        else:
            found[node] = {node}
    return found
