"""The joint graph of forward and backward as operators over blocks.

AOTAutograd traces both into one functional graph. A block is the storage of a tensor. Views are no operators: a view
has the block of the tensor that it looks at. Two operators are added that compute nothing: the loss, between forward
and backward, reads the results of the forward pass and makes the tangents; the end reads the gradients and the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._functorch import partitioners
from torch._functorch._aot_autograd import graph_compile
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

from .. import Graph
from .._problem import PERSISTENT, TRANSIENT
from ._measure import Cost, copy_ns, cost_of, device_of, draws, is_collective, made_by
from ._symbols import is_size

aten = torch.ops.aten
BATCH_NORM = aten._native_batch_norm_legit_functional.default
STATISTICS = (3, 4)
"""The positions of the running mean and variance among batch norm's arguments and outputs. Batch norm updates them when
it runs first, and does not when it is recomputed."""
ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: 3,
    aten._scaled_dot_product_flash_attention.default: 3,
    aten._scaled_dot_product_efficient_attention.default: 5,
    aten._scaled_dot_product_cudnn_attention.default: 5,
}
"""The operators for attention, and the position of the probability of dropout among the arguments of each."""

_collectives = getattr(torch.ops, "_c10d_functional", None)
WAIT = getattr(getattr(_collectives, "wait_tensor", None), "default", None)
"""The operator that waits for a collective and returns the collective's result. Until then the collective holds its
inputs."""
GATHER = getattr(getattr(_collectives, "all_gather_into_tensor", None), "default", None)
"""The collective that gives each rank the parts of all."""
ALIASES = {aten._unsafe_view.default, aten._reshape_alias.default, aten.lift_fresh.default, WAIT}
"""Operators that return the storage of their input although their schema does not say so."""

LOSS = END = None


is_opaque: Callable[[Any], bool] = getattr(graph_compile, "is_opaque_node", lambda node: False)
"""Whether a node is an object that operators are given and that is no tensor, such as the mesh of devices of a `DTensor`."""


def is_item(node: fx.Node) -> bool:
    """Whether a node takes one output of an operator that has several."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"


def is_view(node: fx.Node) -> bool:
    """Whether a node is a view: its storage is that of its first argument."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    returns = node.target._schema.returns
    return node.target in ALIASES or any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def root(node: fx.Node) -> fx.Node:
    """The node that a view looks at, through all views between; for other nodes the node itself."""
    while True:
        source = node.args[0] if is_item(node) and node.args else node
        if not isinstance(source, fx.Node) or not is_view(source):
            return node
        base = source.args[0]
        assert isinstance(base, fx.Node)
        node = base


def results_of(op: fx.Node) -> list[fx.Node]:
    """The results of an operator; of several those that are taken."""
    if not isinstance(op.meta.get("val"), (tuple, list)):
        return [op]
    return sorted((u for u in op.users if is_item(u)), key=lambda u: int(u.args[1]))


STORAGE = "sublet_storage"
"""The key, in a node's meta, of the bytes of its storage, where that is larger than PyTorch's graph says."""


def bytes_of(node: fx.Node) -> int:
    """The bytes of a node's storage; 0 if the node is no tensor."""
    value = node.meta.get("val")
    return node.meta.get(STORAGE) or value.untyped_storage().nbytes() if isinstance(value, torch.Tensor) else 0


def is_random(target: torch._ops.OpOverload, args: Sequence[Any]) -> bool:
    """Whether an operator draws random numbers. Attention has PyTorch's tag for this even without dropout."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    dropout = ATTENTION.get(target)
    return dropout is None or tuple(args[dropout : dropout + 1]) not in ((), (0.0,))


def keeps_its_place(node: fx.Node) -> bool:
    """Whether an operator has an effect beside its outputs: it draws random numbers, is a collective, or writes over
    its inputs. All such operators keep their order among each other."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or is_collective(node):
        return True
    return is_random(target, node.args) or target._schema.is_mutable


def written_by(node: fx.Node) -> list[Any]:
    """The arguments that an operator writes over."""
    arguments = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else []
    given = zip(arguments, [*node.args, *(node.kwargs.get(a.name) for a in arguments[len(node.args) :])])
    written = [value for argument, value in given if argument.alias_info is not None and argument.alias_info.is_write]
    return [each for value in written for each in (value if isinstance(value, (list, tuple)) else [value])]


def returns_written(node: fx.Node) -> bool:
    """Whether an operator returns what it writes over, and makes nothing."""
    returns = node.target._schema.returns if isinstance(node.target, torch._ops.OpOverload) else []
    return bool(returns) and all(r.alias_info is not None and r.alias_info.is_write for r in returns)


POINTWISE = {"aten.gather.default", "aten.select_scatter.default", "prims.inductor_random.default"}
"""Operators that PyTorch's compiler computes point by point, and that have no tag for it."""
CONVOLUTIONS = {aten.convolution.default, aten.convolution_backward.default}
KERNELS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, *CONVOLUTIONS}
"""Operators for which PyTorch's compiler calls libraries, though it could generate code."""


def is_fusible(node: fx.Node) -> bool:
    """Whether PyTorch's compiler can compute an operator in one loop with its readers, or with the operators that it
    reads."""
    return is_pointwise(node) or torch.Tag.reduction in getattr(node.target, "tags", ())


def is_loop(node: fx.Node) -> bool:
    """Whether PyTorch's compiler generates the loops of an operator. These need no scratch memory, unlike the operator
    when it runs alone."""
    from torch._inductor import lowering

    return node.target in lowering.lowerings and node.target not in lowering.fallbacks and node.target not in KERNELS


def is_pointwise(node: fx.Node) -> bool:
    """Whether an operator computes each element of its output by itself."""
    return str(node.target) in POINTWISE or torch.Tag.pointwise in getattr(node.target, "tags", ())


def readers(node: fx.Node) -> list[fx.Node]:
    """The operators that read a value or a view of the value; the output of the graph counts as one."""
    found: list[fx.Node] = []
    for user in node.users:
        found += readers(user) if is_view(user) or is_item(user) else [user]
    return found


class Joint:
    """The operators of a joint graph, the blocks that they read and make, and the position at which forward ends."""

    def __init__(
        self,
        module: fx.GraphModule,
        num_fwd_outputs: int,
        copies: Sequence[Cost] = (),
        agree: Callable[[list[Cost]], list[Cost]] = lambda costs: costs,
        static: Sequence[int] = (),
        fuses: bool = False,
        gathers: bool = False,
    ) -> None:
        self.module = module
        self._gathers = gathers
        """Whether collectives that only gather may run again: all ranks must do so at the same place."""
        for node in module.graph.nodes:
            # It may be of a plan for other sizes.
            node.meta.pop(STORAGE, None)
            if returns_written(node) and len(written_by(node)) == 1:
                node.replace_all_uses_with(written_by(node)[0])
        nodes = list(module.graph.nodes)
        fwd, bwd, self.fwd_desc, self.bwd_desc = partitioners._extract_fwd_bwd_outputs(
            module, num_fwd_outputs=num_fwd_outputs
        )
        self.fwd_outputs, self.bwd_outputs = fwd, bwd
        self.primals = [n for n in nodes if n.op == "placeholder" and not partitioners._is_tangent(n)]
        self.static = {self.primals[i] for i in static if i < len(self.primals)}
        """Parameters and buffers."""
        self.tangents = [n for n in nodes if n.op == "placeholder" and partitioners._is_tangent(n)]
        self.fused: dict[fx.Node, list[fx.Node]] = {}
        """Operators that PyTorch's compiler computes within each of their readers, and the blocks that it reads for
        them. They have no block of their own."""
        self._written = {root(x) for node in nodes for x in written_by(node) if isinstance(x, fx.Node)}
        """The blocks that are written over. The operators that make or read one keep their place, and are not
        recomputed: a rewrite of the graph would not know of the writes."""
        mutated = [d.mutated_input for d in self.fwd_desc if isinstance(d, InputMutationAOTOutput)]
        self._replaced = {n for n in self.primals if n.meta.get("desc") in mutated}
        """The inputs that AOTAutograd writes over after the forward pass. The backward pass must not read them."""
        for node in nodes if fuses else []:
            sources = self.reads(node.all_input_nodes)
            if (self._written | self._replaced).isdisjoint(sources) and self._is_fused(node, sources):
                self.fused[node] = sources
        called = (n for n in nodes if n.op == "call_function" and n not in self.fused)
        body = [n for n in called if not (is_view(n) or is_item(n) or is_size(n) or is_opaque(n))]
        needed = _closure(n for n in fwd if isinstance(n, fx.Node))
        last = max((i for i, n in enumerate(body) if n in needed), default=-1)
        self.loss = last + 1
        self.ops: list[fx.Node | None] = [*body[: self.loss], LOSS, *body[self.loss :], END]
        self.graph = Graph()
        self.blocks: list[fx.Node | None] = []
        """By tensor of `graph`: its node; None for the mark of an operator without an output."""
        for op in body:
            _correct_outputs(op, fuses and is_loop(op))
        costs = [self._compiled(op) for op in body] if fuses else [cost_of(op) for op in body]
        agreed = agree([*costs, *copies])
        self.device = device_of(agreed[len(costs) :])
        """The device by its copies as they were measured; None if they were not."""
        self._build(agreed[: len(costs)])

    def roots(self, nodes: list[Any]) -> list[fx.Node]:
        """The tensors that are read for these nodes, each once. For a view it is the tensor that the view looks at.

        Tensors of no bytes are among them: they are no blocks, but operators need them. Constants are left out, because
        both graphs have them.
        """
        roots = (root(n) for n in nodes if isinstance(n, fx.Node))
        read = dict.fromkeys(each for r in roots for each in self.fused.get(r, [r]))
        return [r for r in read if r.op != "get_attr" and isinstance(r.meta.get("val"), torch.Tensor)]

    def reads(self, nodes: list[Any]) -> list[fx.Node]:
        """The blocks that are read for these nodes, each once: the tensors of `roots` that have bytes."""
        return [each for each in self.roots(nodes) if bytes_of(each)]

    @staticmethod
    def _is_fused(node: fx.Node, sources: list[fx.Node]) -> bool:
        """Whether PyTorch's compiler computes an operator within each of its readers, so that its output is never
        written. The operator must compute point by point, its readers must be in loops too, and the blocks that it
        reads must have no more bytes than it makes. They may have an eighth more, for small inputs such as the
        statistics of batch norm."""
        if node.op != "call_function" or is_view(node) or is_item(node):
            return False
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        if not is_pointwise(node) or not is_loop(node) or keeps_its_place(node):
            return False
        if not all(is_fusible(reader) and not written_by(reader) for reader in readers(node)):
            return False
        return 8 * sum(map(bytes_of, sources)) <= 9 * bytes_of(node)

    def _compiled(self, op: fx.Node) -> Cost:
        """The cost of an operator when PyTorch's compiler generates its code. Its time is that of its memory traffic,
        plus the time that it takes beside its traffic when it runs alone. If all its readers can be fused with the
        operator, its output is not written, and the readers read its inputs instead."""
        alone = cost_of(op)
        if not is_loop(op):
            return alone
        if not is_fusible(op):
            return replace(alone, scratch=0)
        reads, makes = (sum(map(bytes_of, nodes)) for nodes in (self.reads(op.all_input_nodes), self.makes(op)))
        traffic = max(reads - makes, 0) if all(map(is_fusible, readers(op))) else reads + makes
        values = (a.meta["val"] for a in (op, *op.all_input_nodes))
        device = next(value.device for value in values if isinstance(value, torch.Tensor))
        begins = copy_ns(0, device)
        beside = max(alone.time_ns - copy_ns(reads + makes, device), 0)
        return Cost(max(copy_ns(traffic, device) - begins, 0) + beside, 0)

    def makes(self, node: fx.Node) -> list[fx.Node]:
        """The blocks that an operator makes; of several outputs only those that are taken."""
        return [] if returns_written(node) else [result for result in results_of(node) if bytes_of(result)]

    def unread(self, node: fx.Node) -> int:
        """The bytes of the outputs that no node takes: they are alive only while the operator runs."""
        value = node.meta.get("val")
        if not isinstance(value, (tuple, list)):
            return 0
        read = {u.args[1] for u in node.users if is_item(u)}
        unread = (v for i, v in enumerate(value) if isinstance(v, torch.Tensor) and i not in read)
        return sum(v.untyped_storage().nbytes() for v in unread)

    def _build(self, costs: list[Cost]) -> None:
        number: dict[fx.Node, int] = {}
        measured = iter(costs)

        # The caller of the network holds the results: they cannot be dropped.
        returned = set(self.reads(self.fwd_outputs))

        def tensor(node: fx.Node, storage: int = TRANSIENT) -> int:
            number[node] = self.graph.tensor(node.name, bytes_of(node), storage)
            self.blocks.append(node)
            return number[node]

        for node in self.primals:
            if bytes_of(node):
                tensor(node, PERSISTENT)
        for k, op in enumerate(self.ops):
            time_ns = scratch = 0
            again, ordered = False, True
            if op is not None:
                reads, makes = self.reads(op.all_input_nodes), self.makes(op)
                cost = next(measured)
                time_ns, scratch = cost.time_ns, cost.scratch + self.unread(op)
                is_written = not self._written.isdisjoint([*reads, *makes])
                ordered = keeps_its_place(op) or draws(op)
                again = k < self.loss and not is_written and returned.isdisjoint(_anew(op, makes))
                again = again and (not ordered or (self._gathers and op.target is GATHER))
                ordered = ordered or is_written
                again = again and self._replaced.isdisjoint(self.reads(inputs_anew(op)))
            elif k == self.loss:
                reads, makes = self.reads(self.fwd_outputs), [t for t in self.tangents if bytes_of(t)]
            else:
                # The caller of the network holds its results until the iteration ends.
                reads, makes = self.reads([*self.bwd_outputs, *self.fwd_outputs]), []
            outputs = [tensor(n) for n in makes]
            if not outputs:
                # An operator without an output leaves a mark of one byte.
                outputs = [self.graph.tensor(f"done {k}", 1)]
                self.blocks.append(None)
            name = "loss" if k == self.loss else "end" if op is None else str(op.target)
            inputs = [number[n] for n in reads if n in number]
            self.graph.op(name, inputs, outputs, workspace=scratch, time_ns=time_ns, rerun=again, ordered=ordered)


def _correct_outputs(op: fx.Node, is_generated: bool) -> None:
    """Gives the outputs of an operator the types and the storages that they have when it runs. PyTorch's graph may say
    otherwise. An example is layer norm of half-precision values with weights of single precision: its statistics are of
    single precision, and the graph says half. Another is `mse_loss`, whose one number lies in the memory of its
    inputs' differences, unless the compiler generates its code."""
    made = made_by(op)
    if isinstance(op.meta["val"], torch.Tensor):
        outputs = {op: made[0]} if made else {}
    else:
        outputs = {u: made[int(u.args[1])] for u in op.users if is_item(u) and int(u.args[1]) < len(made)}
    for output, real in outputs.items():
        value = output.meta.get("val")
        if not isinstance(value, torch.Tensor) or real is None:
            continue
        if value.dtype != real.type:
            output.meta["val"] = value = value.to(real.type)
        if not is_generated:
            output.meta[STORAGE] = max(real.bytes, value.untyped_storage().nbytes())


def _anew(op: fx.Node, makes: list[fx.Node]) -> list[fx.Node]:
    """The blocks that an operator makes when it is recomputed."""
    return [n for n in makes if op.target is not BATCH_NORM or n.args[1] not in STATISTICS]


def inputs_anew(op: fx.Node) -> list[fx.Node]:
    """The nodes that an operator reads when it is recomputed."""
    if op.target is not BATCH_NORM:
        return op.all_input_nodes
    return [a for i, a in enumerate(op.args) if isinstance(a, fx.Node) and i not in STATISTICS]


def _closure(nodes: Any) -> set[fx.Node]:
    """These nodes and all nodes that they depend on."""
    needed: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += node.all_input_nodes
    return needed
