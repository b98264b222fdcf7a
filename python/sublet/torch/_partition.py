"""Cuts a joint graph into a forward graph and a backward graph that follow a fit, in place of PyTorch's own
partitioner.

The graphs follow the rows of the schedule: an operator runs at the first of its rows, and once more where it is
recomputed; a block that is freed is not used any more. A block that the forward pass makes and the backward pass uses
is saved between the passes. A block that is swapped is copied to the host, and later copied back to the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import uuid4

import torch
from torch import fx
from torch._functorch import partitioners
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils._pytree import tree_leaves

from .. import Device, Fit, PlanError, fit
from .._problem import FREE, MALLOC, READ, SWAP_IN, SWAP_OUT, WRITE
from .._results import DEFAULT_DEVICE
from .._results import bytes_of as size_in_bytes
from ._host import ARRIVED, BACK, LEFT, OUT
from ._joint import BATCH_NORM, STATISTICS, WAIT, Joint, bytes_of, inputs_anew, is_opaque, results_of, root
from ._measure import Cost, link_costs
from ._pipeline import Stage1F1B
from ._ranks import Speaking, agree, check_equal
from ._symbols import OPEN, Place, Sizes, is_size

aten = torch.ops.aten
ROOMS = (2.0, 1.5, 1.25)
"""How much larger than the largest sizes seen a graph of open sizes is planned for, as long as the limit holds."""
WORTH = 0.01
"""The overhead that room for larger sizes may cost."""
NO_PROMISE = (
    "under PyTorch's own compiler the limit of a Partitioner is no promise; sublet.torch.compile(model, limit, "
    'compiler="inductor") holds one'
)
HALVINGS = 10
"""If several passes share one limit: how often the range of limits for one pass is halved."""


@dataclass(frozen=True)
class Step:
    """A step of the schedule: an operator, a free or a copy."""

    what: Literal["run", "free", "out", "in"]
    """The kind: an operator runs, or a block is freed, copied to the host, or copied back."""
    at: int
    """The number of the operator that runs, or of the block."""
    again: bool = False
    """Whether the operator is recomputed."""


@dataclass
class Report:
    """The plan of one graph in figures. Peaks and the limit count parameters, inputs, gradients, activations and
    scratch."""

    limit: int
    """The limit, in bytes."""
    planned_peak: int
    """The most bytes that are alive at once by the plan, all passes together."""
    original_peak: int
    """The most bytes that are alive at once without a plan, in one pass."""
    persistent: int
    """The bytes of parameters, buffers and inputs."""
    kept: int
    """The bytes that a forward pass keeps for its backward pass, beside parameters and buffers."""
    gradients: int
    """The bytes of the gradients that the backward pass makes."""
    overhead: float
    """The simulated time over the original's, minus 1: for recomputed operators and for copies."""
    again: list[str] = field(default_factory=list)
    """The operators that are recomputed."""
    swapped: list[str] = field(default_factory=list)
    """The names of the blocks that are swapped."""
    held: int = 0
    """The bytes that the schedule of a pipeline holds beside the passes."""


def steps_of(fitted: Fit) -> list[Step]:
    """The schedule as operators, frees and copies."""
    s = fitted.schedule
    steps: list[Step] = []
    running: tuple[int, bool] | None = None
    rows = zip(s.event.tolist(), s.block.tolist(), s.op.tolist(), s.again.tolist())
    for event, block, op, again in rows:
        if event in (READ, WRITE) and op >= 0 and (op, again) != running:
            running = (op, again)
            steps.append(Step("run", op, again))
        elif event == FREE:
            steps.append(Step("free", block))
        elif event == SWAP_OUT:
            steps.append(Step("out", block))
        elif event == SWAP_IN:
            steps.append(Step("in", block))
    return steps


class Writer:
    """Writes one of the two graphs, step by step."""

    def __init__(self, joint: Joint, placeholders: Iterable[fx.Node], on_host: set[fx.Node]) -> None:
        self.joint = joint
        self.graph = fx.Graph()
        self.device: dict[fx.Node, fx.Node] = {}
        """The blocks that are on the device: their nodes in the new graph, by their nodes in the joint graph."""
        self.host: dict[fx.Node, fx.Node] = {}
        """The blocks that are on the host, in the same form as in `device`."""
        self._leaving: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
        """The blocks whose copy to the host may not be done: their nodes on the host and on the device."""
        self._arriving: set[fx.Node] = set()
        """The blocks whose copy back to the device may not be done."""
        self._views: dict[fx.Node, fx.Node] = {}
        """The views of blocks, the operators that are fused into their readers, and constants, in the same form as in
        `device`."""
        self._views_of: dict[fx.Node, list[fx.Node]] = {}
        """By block: the keys of `_views` that read it."""
        for old in placeholders:
            new = self.graph.placeholder(old.name)
            new.meta = dict(old.meta)
            (self.host if old in on_host else self.device)[old] = new

    def get(self, node: fx.Node) -> fx.Node:
        """The node in the new graph for a node of the joint graph."""
        if is_size(node) or is_opaque(node):
            if node not in self.device:
                self.device[node] = self.graph.node_copy(node, self.get)
            return self.device[node]
        base = root(node)
        self._await(base)
        if base is node and node.op != "get_attr" and node not in self.joint.fused:
            return self.device[node]
        if node not in self._views:
            self._views[node] = self.graph.node_copy(node, self.get)
            for block in self.joint.reads([node]):
                self._views_of.setdefault(block, []).append(node)
        return self._views[node]

    def play(self, steps: Iterable[Step]) -> None:
        """Writes the nodes for these steps."""
        for step in steps:
            if step.what == "run":
                op = self.joint.ops[step.at]
                if op is not None:
                    self._run(op, step.again)
                continue
            block = self.joint.blocks[step.at] if step.at < len(self.joint.blocks) else None
            if block is None:
                continue
            if step.what == "free":
                self._drop(block)
            elif step.what == "out" and block in self.device:
                self.host[block] = self._copy(OUT, block, (self.device[block],))
                self._leaving[block] = self.host[block], self.device[block]
            elif step.what == "in" and block in self.host:
                self._put(block, self._copy(BACK, block, (self.host[block], block.meta["val"].device)))
                self._arriving.add(block)

    def finish(self, outputs: Any) -> None:
        """Writes the output, after the waits for all copies that may not be done."""
        for block in [*self._leaving, *self._arriving]:
            self._drop(block)
        self.graph.output(outputs)

    def _await(self, block: fx.Node) -> None:
        """Writes the wait for a block's copy back to the device, if that may not be done."""
        if block in self._arriving:
            self._arriving.remove(block)
            self.graph.call_function(ARRIVED, (self.device[block],))

    def _run(self, op: fx.Node, again: bool) -> None:
        if again and op.target is BATCH_NORM:
            # The running statistics are updated once: not by a recomputation.
            args = [a for i, a in enumerate(op.args) if i not in STATISTICS]
            target = aten._native_batch_norm_legit.no_stats
            new = self.graph.call_function(target, fx.node.map_arg(tuple(args), self.get))
            new.meta = {**op.meta, "val": op.meta["val"][:3]}
        else:
            new = self.graph.node_copy(op, self.get)
        if not isinstance(op.meta.get("val"), (tuple, list)):
            self._put(op, new)
        else:
            for item in results_of(op):
                if int(item.args[1]) < len(new.meta["val"]):
                    self._put(item, self.graph.node_copy(item, lambda _: new))
        for waits in (user for result in results_of(op) for user in result.users if user.target is WAIT):
            # Until then the collective holds its inputs, which the plan counts as freed.
            self.get(waits)

    def _put(self, block: fx.Node, new: fx.Node) -> None:
        self._drop(block)
        self.device[block] = new

    def _drop(self, block: fx.Node) -> None:
        self._await(block)
        if block in self._leaving:
            self.graph.call_function(LEFT, self._leaving.pop(block))
        self.device.pop(block, None)
        for view in self._views_of.pop(block, []):
            self._views.pop(view, None)

    def _copy(self, target: Callable[..., Any], block: fx.Node, args: tuple[Any, ...]) -> fx.Node:
        new = self.graph.call_function(target, args)
        new.meta = {key: block.meta[key] for key in ("val", OPEN) if key in block.meta}
        return new


class Partitioner(CustomPartitionerFn):
    """Cuts a joint graph into forward and backward so that both stay within a limit.

    `limit` is a number of bytes, a size such as `8GiB`, or a share such as `60%` of the graph's peak; it counts
    parameters, inputs, the gradients that this backward pass makes, activations and scratch. Gradients that are there
    before the forward pass come on top, unless `stage` is `Stage1F1B(0, 1, 2, outputs=False)`. `using` names the means,
    or one of them: recompute, swap. PlanError names the least limit that is known to work. `reports` has a report for
    each graph.

    `device` is the device whose copies are simulated, by name or by figures; None is the GPU that the network is on, as
    it is measured, or a GTX 1080 Ti for a network on the host.

    `group` is a process group of `torch.distributed`: all its ranks get the same schedule. All of them have to make a
    partitioner at the same place; a rank that waits for the others longer than `timeout` seconds raises PlanError.

    `passes` is how many forward passes may be alive at once, as in a pipeline, or where equal blocks share one plan:
    the bytes that a forward pass keeps for its backward pass count as many times. `stage` is a stage of a pipeline: it
    sets `passes`, and the bytes that its schedule holds beside the passes count too.

    Among the options of PyTorch's own compiler its limit is no promise, and a warning says so.
    """

    is_lowered = False
    """Whether what the compiler makes of a cut is known before the cut is chosen."""
    channels_last = False
    """Whether the compiler computes the convolutions of the last cut with the channels last."""

    def __init__(
        self,
        limit: int | str,
        using: str | Iterable[str] = ("recompute",),
        device: str | Device | None = None,
        group: Any = None,
        timeout: float = 300,
        reorder: bool = True,
        passes: int = 1,
        stage: Stage1F1B | None = None,
    ) -> None:
        self.limit = limit
        self.ranks = None if group is None else Speaking(group, timeout)
        self.using = (using,) if isinstance(using, str) else tuple(using)
        self.device = device
        self.reorder = reorder
        self.stage = stage
        self.passes = passes if stage is None else stage.passes
        self.reports: list[Report] = []
        self.refused = ""
        """What of the last graph cannot be planned; empty if it has a plan."""
        self._seen: dict[Place, int] = {}

    def __call__(
        self,
        joint_module: fx.GraphModule,
        inputs: Any,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: list[int] | None = None,
        **options: Any,
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Cuts a joint graph into forward and backward; AOTAutograd calls this."""
        sizes = Sizes(joint_module)
        self.refused = _cannot_be_planned(joint_module) or sizes.refused()
        if self.refused:
            warnings.warn(f"sublet: {self.refused} cannot be planned; PyTorch's own partition runs", stacklevel=2)
            return partitioners.min_cut_rematerialization_partition(
                joint_module,
                inputs,
                num_fwd_outputs=num_fwd_outputs,
                static_lifetime_input_indices=static_lifetime_input_indices,
                **options,
            )
        joint_module.graph.eliminate_dead_code()
        # Marks the nodes that may be saved without a check of their version.
        partitioners.classify_nodes(joint_module, static_lifetime_input_indices or [], num_fwd_outputs)
        fuses = options.get("compiler") == "inductor"
        if fuses and not self.is_lowered:
            warnings.warn(f"sublet: {NO_PROMISE}", stacklevel=2)
        gpu = _gpu(joint_module)
        copies = link_costs(gpu) if gpu is not None and self.device is None and "swap" in self.using else []
        static = static_lifetime_input_indices or []
        self._see(sizes.seen())
        joint, fitted = self._planned(
            sizes, lambda: Joint(joint_module, num_fwd_outputs, copies, self._agree, static, fuses)
        )
        self._guard(sizes)
        steps = steps_of(fitted)
        if self.ranks is not None:
            check_equal(steps, self.ranks)
        s = fitted.schedule
        names = [step for step in steps if step.what == "run" and step.again]
        self.reports.append(
            Report(
                limit=fitted.limit,
                planned_peak=self._taken(joint, fitted),
                original_peak=s.original_peak,
                kept=self._kept(joint, steps),
                held=0 if self.stage is None else self.stage.held(joint),
                persistent=sum(bytes_of(n) for n in joint.primals),
                gradients=sum(map(bytes_of, joint.reads(joint.bwd_outputs))),
                overhead=s.overhead,
                again=[str(op.target) for op in (joint.ops[step.at] for step in names) if op is not None],
                swapped=[joint.graph.names[step.at] for step in steps if step.what == "out"],
            )
        )
        passes = cut(joint, steps)
        sizes.restore(joint_module, *passes)
        return passes

    def __deepcopy__(self, memo: Any) -> Partitioner:
        """The partitioner itself: PyTorch and others copy the options of a compiler, and the reports are in this one."""
        return self

    def uuid(self) -> str:
        """Another text each time, so that PyTorch's compiler finds no cut of an earlier run in its cache: operators are
        measured anew, and all ranks must cut alike. PyTorch says that None would do, but looks its cache up all the
        same."""
        return uuid4().hex

    def _agree(self, costs: list[Cost]) -> list[Cost]:
        if self.ranks is None:
            return costs
        costs, self.limit = agree(costs, self.limit, self.ranks)
        return costs

    def _guard(self, sizes: Sizes) -> None:
        """Has larger sizes than those of the plan compiled anew."""
        sizes.guard()

    def _see(self, seen: dict[Place, int]) -> None:
        """Notes sizes of inputs."""
        self._seen |= {place: max(size, self._seen.get(place, 0)) for place, size in seen.items()}

    def _planned(self, sizes: Sizes, make: Callable[[], Joint]) -> tuple[Joint, Fit]:
        """The joint graph and its fit: where sizes are open, at the largest that were seen, or at larger ones where
        that costs little time."""
        largest = sizes.largest(self._seen)
        sizes.fix(largest)
        joint = make()
        fitted = self._fit(joint)
        for room in ROOMS if largest else ():
            sizes.fix(sizes.times(largest, room))
            larger = make()
            try:
                more = self._fit_one(larger, fitted.limit)
            except PlanError:
                continue
            if more.overhead <= fitted.overhead + WORTH:
                return larger, more
        if largest:
            sizes.fix(largest)
            joint = make()
        return joint, fitted

    def _fit(self, joint: Joint) -> Fit:
        try:
            several = self.passes > 1 or self.stage is not None
            return self._fit_passes(joint) if several else self._fit_one(joint, self.limit)
        except PlanError as e:
            refusal = PlanError(f"{e} ({_largest(joint)})")
            refusal.least, refusal.needed = e.least, e.needed
            raise refusal from None

    def _fit_one(self, joint: Joint, limit: int | str) -> Fit:
        device = self.device or joint.device or DEFAULT_DEVICE
        # The caller of the network holds its parameters and inputs, so they cannot leave the device.
        return fit(
            joint.graph,
            limit,
            using=self.using,
            reorder=self.reorder,
            device=device,
            keep_persistent=True,
            alignment=1,
        )

    def _kept(self, joint: Joint, steps: list[Step]) -> int:
        """The bytes that one more pass keeps. The inputs of a pipeline's first stage are parts of one batch, and do not
        count: the batch is in memory anyway."""
        given = set(joint.primals) if self.stage is not None and self.stage.index == 0 else joint.static
        return sum(map(bytes_of, saved_nodes(joint, steps) - given))

    def _taken(self, joint: Joint, fitted: Fit) -> int:
        """The most bytes that all passes take together."""
        more = (self.passes - 1) * self._kept(joint, steps_of(fitted)) if self.passes > 1 else 0
        if self.stage is None:
            return fitted.schedule.peak_load + more
        return max(fitted.schedule.peak_load + more + self.stage.held(joint), self.stage.at_the_end(joint))

    def _fit_passes(self, joint: Joint) -> Fit:
        """The fit of one pass with the highest limit found at which all passes together are within their limit."""
        found = self._fit_one(joint, "100%")
        least = most = self._taken(joint, found)
        limit = size_in_bytes(self.limit, most)
        low, high = 0, found.schedule.peak_load
        if most <= limit:
            return replace(found, limit=limit)
        best: Fit | None = None
        for _ in range(HALVINGS):
            middle = (low + high) // 2
            try:
                found = self._fit_one(joint, middle)
            except PlanError:
                low = middle
                continue
            taken = self._taken(joint, found)
            least = min(least, taken)
            if taken <= limit:
                low, best = middle, found
            else:
                high = middle
        if best is None:
            raise PlanError(f"{self.passes} passes do not stay within {limit} bytes; {least} bytes are enough")
        return replace(best, limit=limit)


def saved_nodes(joint: Joint, steps: list[Step]) -> set[fx.Node]:
    """The blocks that a forward pass keeps on the device for its backward pass."""
    end = _end_of_forward(joint, steps)
    left = {step.at for step in steps[:end] if step.what == "out"}
    return _saved(joint, steps[end:], left)[0]


def loads(joint: Joint, fitted: Fit) -> tuple[int, int]:
    """The most bytes that are alive while the forward pass runs, and while the backward pass runs."""
    s = fitted.schedule
    sizes: dict[int, int] = {}
    now, most, is_backward = 0, [0, 0], False
    for event, block, size, op in zip(s.event.tolist(), s.block.tolist(), s.bytes.tolist(), s.op.tolist()):
        if event == MALLOC:
            sizes[block] = size
            now += size
        elif event == FREE:
            now -= sizes.pop(block)
        else:
            is_backward = is_backward or op == joint.loss
            most[is_backward] = max(most[is_backward], now)
    return most[0], most[1]


def _cannot_be_planned(module: fx.GraphModule) -> str:
    """What in a graph is no dense tensor, or has names in place of numbers; empty if there is nothing."""
    if any(isinstance(node.meta.get("val"), dict) for node in module.graph.nodes):
        return "kernels whose results have names"
    values = (value for node in module.graph.nodes for value in tree_leaves(node.meta.get("val")))
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return "sparse tensors" if any(tensor.layout is not torch.strided for tensor in tensors) else ""


def _gpu(module: fx.GraphModule) -> torch.device | None:
    """The GPU that a graph's inputs are on; None if they are on the host."""
    values = (node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder")
    return next((v.device for v in values if isinstance(v, torch.Tensor) and v.device.type == "cuda"), None)


def _largest(joint: Joint) -> str:
    """The part of an error that adds up what there is at the operator where that is most: parameters and inputs, the gradients
    that were made before it and stay, and its own inputs, outputs and scratch."""
    persistent = sum(bytes_of(n) for n in joint.primals)
    gradients = {*joint.reads(joint.bwd_outputs)} - {*joint.primals}
    stay: set[fx.Node] = set()
    needs = [(0, 0, "none")]
    for k, op in enumerate(joint.ops):
        if op is None:
            continue
        own = {*joint.reads(op.all_input_nodes), *joint.makes(op)} - {*joint.primals}
        needs.append((sum(map(bytes_of, stay - own)), joint.graph.workspace[k] + sum(map(bytes_of, own)), op.name))
        stay |= gradients.intersection(joint.makes(op))
    kept, most, name = max(needs, key=lambda each: each[0] + each[1])
    beside = f", {kept} are gradients that stay," if kept else ""
    return f"{persistent} bytes persist{beside} and the operator {name} needs {most} beside them: {persistent + kept + most} together"


def _end_of_forward(joint: Joint, steps: list[Step]) -> int:
    return 1 + next(i for i, step in enumerate(steps) if step == Step("run", joint.loss))


def cut(joint: Joint, steps: list[Step]) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward graph, of the steps up to the loss, and the backward graph, of the steps after it."""
    end = _end_of_forward(joint, steps)
    before, after = steps[:end], steps[end:]
    left = {step.at for step in before if step.what == "out"}
    saved, on_host = _saved(joint, after, left)
    order = {node: i for i, node in enumerate(joint.module.graph.nodes)}
    values = sorted(saved | on_host, key=lambda n: (bool(n.meta.get("saved_tensor_with_no_vc_check")), order[n]))
    checked = sum(not n.meta.get("saved_tensor_with_no_vc_check") for n in values)
    # The caller frees the results of the forward pass, and the saved blocks.
    kept = {*joint.reads(joint.fwd_outputs), *joint.primals, *saved}
    forward = Writer(joint, joint.primals, set())
    forward.play(step for step in before if not (step.what == "free" and _block(joint, step) in kept))
    saves = [forward.host[n] if n in on_host else forward.get(n) for n in values]
    outputs = [forward.get(n) if isinstance(n, fx.Node) else n for n in joint.fwd_outputs]
    sizes = [n for n in joint.primals if is_size(n)]
    objects = [n for n in joint.primals if is_opaque(n)]
    forward.finish((*outputs, *saves, *map(forward.get, objects), *map(forward.get, sizes)))
    save = (partitioners.SavedForBackwardsAOTOutput, partitioners.SavedForBackwardsNoVcCheckAOTOutput)
    saved_desc = [save[checked <= i < len(values)](i) for i in range(len(values) + len(objects) + len(sizes))]
    forward.graph.output_node().meta["desc"] = [*joint.fwd_desc, *saved_desc]
    backward = Writer(joint, [*sizes, *values, *objects, *joint.tangents], on_host)
    backward.play(_without_last_frees(joint, after))
    backward.finish(tuple(backward.get(n) if isinstance(n, fx.Node) else n for n in joint.bwd_outputs))
    backward.graph.output_node().meta["desc"] = list(joint.bwd_desc)
    return _module(joint, forward.graph), _module(joint, backward.graph)


def _module(joint: Joint, graph: fx.Graph) -> fx.GraphModule:
    graph.eliminate_dead_code()
    graph.lint()
    return fx._lazy_graph_module._make_graph_module(joint.module, graph)


def _block(joint: Joint, step: Step) -> fx.Node | None:
    return joint.blocks[step.at] if step.at < len(joint.blocks) else None


def _saved(joint: Joint, after: list[Step], left: set[int]) -> tuple[set[fx.Node], set[fx.Node]]:
    """The blocks that the backward pass needs and does not make: those on the device, and those on the host."""
    made: set[fx.Node] = set(joint.tangents)
    saved: set[fx.Node] = set()
    on_host: set[fx.Node] = set()

    def need(nodes: Iterable[Any]) -> None:
        saved.update(r for r in joint.roots(list(nodes)) if r not in made)

    for step in after:
        op = joint.ops[step.at] if step.what == "run" else None
        if op is not None:
            norm = step.again and op.target is BATCH_NORM
            need(inputs_anew(op) if step.again else op.all_input_nodes)
            made |= {n for n in results_of(op) if not (norm and int(n.args[1]) >= 3)}
        block = None if step.what == "run" else _block(joint, step)
        if block is not None and step.what == "in" and block not in made:
            if step.at in left:
                on_host.add(block)
            else:
                saved.add(block)
            made.add(block)
        elif block is not None and step.what == "out" and block not in made:
            saved.add(block)
    need(joint.bwd_outputs)
    return saved, on_host


def _without_last_frees(joint: Joint, steps: list[Step]) -> list[Step]:
    """The steps without the last free of each gradient: the backward pass returns the gradients."""
    results = set(joint.reads(joint.bwd_outputs))
    kept: list[Step] = []
    comes_back: set[int] = set()
    for step in reversed(steps):
        if step.what == "run":
            op = joint.ops[step.at]
            made = set() if op is None else set(joint.makes(op))
            if made & results:
                comes_back |= {i for i, b in enumerate(joint.blocks) if b in made and b in results}
        elif step.what == "in":
            comes_back.add(step.at)
        elif step.what == "free" and _block(joint, step) in results and step.at not in comes_back:
            continue
        kept.append(step)
    return kept[::-1]
