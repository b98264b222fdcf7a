"""ONNX models with the shapes and times of one run, and onnxruntime with planned memory.

    python -m sublet.onnx model.onnx recorded.onnx x=1,3,48,320
    sublet plan recorded.onnx --reorder --output planned.onnx

    session = sublet.onnx.session("planned.onnx")

To record a model whose file leaves shapes open, onnxruntime runs the model once on the processor, and the shape of every value is written down. So it does not matter
whether shapes can be inferred. Needs `pip install onnx onnxruntime`. Tried with onnx 1.23 and onnxruntime 1.32.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime

from . import _sublet

__all__ = ["Session", "install", "record", "session"]

TIME = "sublet.time_ns"
"""The key under which the metadata of an operator tells its time, in ns."""
NAME = "sublet"
"""Begins the names that operators have while they are timed, and conditions while they are asked for; a number
follows."""
RUNS = 3
"""How often the model is run to be timed."""


CAPACITY = 1 << 36
"""The most bytes that the runs of a session take at once, if `install` is not told: addresses, which take no memory."""

_installing = threading.Lock()
_installed = False


def install(capacity: int = CAPACITY) -> None:
    """Registers an allocator with onnxruntime's environment, once in a process: the first call counts. It plans the
    runs of each `Session`. Other sessions with the option `session.use_env_allocators` may use it too, without plans.
    `capacity` is the most bytes that the runs of one session take at once; they are only addresses until they are used.
    RuntimeError or PlanError if this onnxruntime has no way to register one: it takes 1.22 or later.
    """
    global _installed
    with _installing:
        if not _installed:
            # Its module for Python tells its C API to libraries of execution providers alone.
            onnxruntime.register_execution_provider_library("sublet", _sublet.__file__)
            _sublet.ort_install(capacity)
            _installed = True


class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
    """An `onnxruntime.InferenceSession` whose runs take their memory from a plan, from the second run on. Runs at once
    have a plan each; `run_async` has none. A session that is used by no one gives its memory back. RuntimeWarning: a run
    that was not planned, and why; what it requests comes from the C library, or beside the plan.
    """

    _numbers = itertools.count(1)

    def __init__(self, *args: Any, **options: Any) -> None:
        install()
        self._number = next(self._numbers)
        super().__init__(*args, **options)
        weakref.finalize(self, _sublet.ort_release, self._number)

    @contextlib.contextmanager
    def _iteration(self) -> Iterator[None]:
        begun = _sublet.ort_begin(self._number)
        why: str | None = "too many runs at once, or no addresses"
        try:
            yield
        finally:
            if begun is not None:
                why = _sublet.ort_end(*begun)
            if why is not None:
                warnings.warn(f"a run is not planned: {why}", RuntimeWarning, stacklevel=4)

    def run(self, *args: Any, **options: Any) -> Any:
        with self._iteration():
            return super().run(*args, **options)

    def run_with_ort_values(self, *args: Any, **options: Any) -> Any:
        with self._iteration():
            return super().run_with_ort_values(*args, **options)

    def run_with_iobinding(self, *args: Any, **options: Any) -> Any:
        with self._iteration():
            return super().run_with_iobinding(*args, **options)

    def statistics(self) -> dict[str, int]:
        """Of all runs so far: how many requests were served from a plan (`hits`) and how many were not while there was
        one (`misses`), and how many plans were made; the bytes of the largest arenas, of what lives, and of what takes
        memory now.
        """
        names = ("hits", "misses", "plans", "arena_peak", "live_bytes", "resident")
        return dict(zip(names, np.sum([[0] * len(names), *_sublet.ort_statistics(self._number)], axis=0).tolist()))


def session(model: str | os.PathLike[str] | bytes, options: Any = None, **more: Any) -> Session:
    """A `Session` on the processor, with the options that planned memory needs: operators in the order of the file, no
    memory pattern, and the allocator of the environment. Other options, of `onnxruntime.SessionOptions`, may be given,
    and more arguments of `InferenceSession`.
    """
    options = onnxruntime.SessionOptions() if options is None else options
    options.enable_mem_pattern = False
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.add_session_config_entry("session.use_env_allocators", "1")
    more.setdefault("providers", ["CPUExecutionProvider"])
    return Session(model if isinstance(model, bytes) else os.fspath(model), options, **more)


def record(model: str | os.PathLike[str] | Any, inputs: Mapping[str, Any], *, branches: bool = False) -> Any:
    """A copy of a model that has the shape of every value of its main graph, and how long each operator took.
    Operators that the file defines by others are replaced by these. With `branches`, so is each `If`, by the graph that
    ran: the copy is then for runs that take the same branches.

    `inputs` has a value for each input: an array, or a shape that is filled with random numbers, or with zeros for
    integers. An input of a fixed shape may be left out. The times are the least of three runs, without onnxruntime's
    optimizations. ValueError for an input whose shape is not known, or that the model does not have, and for strings,
    sequences, maps and optional values, which are not planned, unless they are made of weights alone.

    A shape that depends on the values of the inputs is that of this run, and a plan holds for no larger one. The run
    holds all values at once. A model of 2 GiB or more, weights included, is refused by protobuf.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model if isinstance(model, onnx.ModelProto) else onnx.load(os.fspath(model)))
    weights = {tensor.name for tensor in proto.graph.initializer}
    wanted = [value for value in proto.graph.input if value.name not in weights]
    unknown = sorted(inputs.keys() - {value.name for value in wanted})
    if unknown:
        raise ValueError(f"the model has no input {unknown[0]}; it has {', '.join(v.name for v in wanted)}")
    for value in wanted:
        _refuse(value)
    given = {value.name: _filled(value, inputs.get(value.name)) for value in wanted}
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    while branches and any(_is_if(node) for node in proto.graph.node):
        _take_branches(proto, given)
    found = _values(proto, given)
    changing = _changing(proto.graph, given)
    for value in found.values():
        if value.name in changing:
            _refuse(value)
    times = _times(proto, given)

    graph = proto.graph
    found = {name: value for name, value in found.items() if value.HasField("type")}
    for value in [*graph.input, *graph.output]:
        if value.name in found:
            value.CopyFrom(found[value.name])
    ends = {value.name for value in graph.output}
    del graph.value_info[:]
    graph.value_info.extend(value for name, value in found.items() if name not in ends | given.keys())
    for node, time_ns in zip(graph.node, times, strict=True):
        others = [entry for entry in node.metadata_props if entry.key != TIME]
        del node.metadata_props[:]
        node.metadata_props.extend([*others, onnx.StringStringEntryProto(key=TIME, value=str(time_ns))])
    return proto


def _refuse(value: Any) -> None:
    """ValueError for a value that has no size which a plan could count."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ValueError(f"{value.name} is no tensor: sequences, maps and optional values are not planned")
    if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        raise ValueError(f"tensor {value.name} holds strings, which are not planned")


def _changing(graph: Any, inputs: Iterable[str]) -> set[str]:
    """The inputs, and of the values that are read those that are not made of weights alone."""
    constant = {"", *(t.name for t in graph.initializer), *(t.values.name for t in graph.sparse_initializer)}
    changing = set(inputs)
    for node in graph.node:
        has_graphs = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
        if node.op_type != "Constant" and (has_graphs or not node.input or not constant.issuperset(node.input)):
            changing.update(node.output)
        else:
            constant.update(node.output)
    read = {name for node in _nodes(graph) for name in node.input} | {value.name for value in graph.output}
    return changing & (read | set(inputs))


def _nodes(graph: Any) -> Iterator[Any]:
    """The operators of a graph, and those of the graphs inside of them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from _nodes(inner)


def _filled(value: Any, given: Any) -> Any:
    """The array for an input."""
    tensor = value.type.tensor_type
    if isinstance(given, np.ndarray):
        return given
    shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim) if given is None else given
    if given is None and not tensor.HasField("shape"):
        raise ValueError(f"input {value.name} is no tensor of a known shape: give its value")
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape of input {value.name} is open: give it, as {value.name}=1,3,48,320")
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(kind, np.floating):
        return np.random.default_rng(1).standard_normal(shape).astype(kind)
    return np.zeros(shape, kind)


def _session(proto: Any, **options: Any) -> Any:
    """onnxruntime on the processor, with the operators as they are in the file."""
    chosen = onnxruntime.SessionOptions()
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, option in options.items():
        setattr(chosen, name, option)
    return onnxruntime.InferenceSession(proto.SerializeToString(), chosen, providers=["CPUExecutionProvider"])


def _asking(proto: Any, names: Iterable[str]) -> Any:
    """A copy of a model whose outputs are the values of these names."""
    asking = onnx.ModelProto()
    asking.CopyFrom(proto)
    del asking.graph.output[:]
    asking.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return asking


def _is_if(node: Any) -> bool:
    return node.op_type == "If" and node.domain in ("", "ai.onnx")


def _take_branches(proto: Any, given: Mapping[str, Any]) -> None:
    """Puts the operators of the graph that runs in the place of each `If`."""
    graph = proto.graph
    # Each condition by a name of its own: it may be a constant, or an input.
    conditions = {f"{NAME} {number}": node.input[0] for number, node in enumerate(graph.node) if _is_if(node)}
    asked = _asking(proto, conditions)
    asked.graph.node.extend(onnx.helper.make_node("Identity", [name], [own]) for own, name in conditions.items())
    holds = dict(zip(conditions, _session(asked).run(None, dict(given)), strict=True))
    nodes = []
    for number, node in enumerate(graph.node):
        if not _is_if(node):
            nodes.append(node)
            continue
        which = "then_branch" if holds[f"{NAME} {number}"].item() else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == which)
        own = {name for inner in branch.node for name in inner.output} | {t.name for t in branch.initializer}
        begin = next(filter(None, node.output))
        names = {name: f"{begin}/{name}" for name in own if name}
        names |= {result.name: output for result, output in zip(branch.output, node.output) if output}
        _rename(branch, names)
        nodes += branch.node
        graph.initializer.extend(branch.initializer)
    # The operators are messages inside of the list that is made anew.
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Gives values other names, in the graphs inside of operators too."""
    for node in graph.node:
        for each in (node.input, node.output):
            each[:] = [names.get(name, name) for name in each]
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                _rename(inner, names)
    for named in [*graph.initializer, *graph.output]:
        named.name = names.get(named.name, named.name)


def _values(proto: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The types and shapes of the inputs and of all that operators write, as one run has them."""
    names = dict.fromkeys(name for node in proto.graph.node for name in node.output if name)
    tensors = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in given.items()}
    made = zip(names, _session(_asking(proto, names)).run_with_ort_values(list(names), tensors), strict=True)
    return {name: _described(name, value) for name, value in [*tensors.items(), *made]}


def _described(name: str, value: Any) -> Any:
    """The name, type and shape of a value; of one that is no tensor the name alone."""
    if value.has_value() and value.is_tensor():
        return onnx.helper.make_tensor_value_info(name, value.element_type(), value.shape())
    return onnx.ValueInfoProto(name=name)


def _times(proto: Any, given: Mapping[str, Any]) -> list[int]:
    """How long each operator takes, in ns: the least of some runs. 0 for one that onnxruntime does not run."""
    timed = onnx.ModelProto()
    timed.CopyFrom(proto)
    for number, node in enumerate(timed.graph.node):
        node.name = f"{NAME} {number}"
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "profile")
        session = _session(timed, enable_profiling=True, profile_file_prefix=prefix)
        for _ in range(RUNS):
            session.run(None, dict(given))
        events = json.loads(Path(session.end_profiling()).read_text())
    least: dict[str, int] = {}
    for event in events:
        name = event["name"].removesuffix("_kernel_time")
        if event["cat"] == "Node" and name != event["name"]:
            least[name] = min(event["dur"] * 1000, least.get(name, sys.maxsize))
    return [least.get(node.name, 0) for node in timed.graph.node]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m sublet.onnx MODEL RECORDED [INPUT=SHAPE ...] [--branches] [--values FILE]`"""
    parser = argparse.ArgumentParser(prog="python -m sublet.onnx", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("recorded", help="where the model is written with the shapes and times of one run")
    parser.add_argument("shape", nargs="*", help="an input and its shape: x=1,3,48,320")
    parser.add_argument("--branches", action="store_true", help="puts the graph that runs in the place of each If")
    parser.add_argument("--values", metavar="NPZ", help="arrays of NumPy for inputs, by their names")
    args = parser.parse_intermixed_args(arguments)
    try:
        inputs: dict[str, Any] = dict(np.load(args.values)) if args.values else {}
        for each in args.shape:
            name, _, sizes = each.rpartition("=")
            inputs[name] = tuple(int(size) for size in sizes.split(",") if size)
        onnx.save(record(args.model, inputs, branches=args.branches), args.recorded)
    except Exception as e:
        # Errors of protobuf and of onnxruntime have no class in common but this.
        parser.exit(2, f"error: {args.model}: {e}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
