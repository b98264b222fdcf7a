"""ONNX models that leave shapes open, recorded in one run of onnxruntime and planned with its shapes; and runs with planned
memory.

Without onnx and onnxruntime nothing here is run.
"""

from __future__ import annotations

import concurrent.futures
import gc
import pathlib
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import sublet
import sublet.onnx
from onnx import TensorProto, helper

ROWS, WIDTH = 6, 1024


def value(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model() -> Any:
    """Rows above 0 are chosen, which no inference can count; then one of two graphs runs."""
    branches = {
        f"{which}_branch": helper.make_graph(
            [helper.make_node("Mul", ["chosen", factor], [which])], which, [], [value(which, "n", WIDTH)]
        )
        for which, factor in (("then", "two"), ("else", "half"))
    }
    nodes = [
        helper.make_node("ReduceMax", ["x", "axis"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["above"]),
        helper.make_node("Compress", ["x", "above"], ["chosen"], axis=0),
        helper.make_node("If", ["flag"], ["scaled"], **branches),
        helper.make_node("Exp", ["scaled"], ["y"]),
    ]
    numbers = (("zero", 0), ("two", 2), ("half", 0.5))
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in numbers]
    constants.append(helper.make_tensor("axis", TensorProto.INT64, [1], [1]))
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    graph = helper.make_graph(nodes, "g", [value("x", "rows", WIDTH), flag], [value("y", "n", WIDTH)], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    return made


def inputs() -> dict[str, Any]:
    x = -np.ones((ROWS, WIDTH), np.float32)
    x[:4] = 1
    return {"x": x, "flag": np.array(True)}


def test_a_model_with_open_shapes_is_planned_by_those_of_a_run(tmp_path: pathlib.Path) -> None:
    open_shapes, recorded = tmp_path / "open.onnx", tmp_path / "recorded.onnx"
    onnx.save(model(), open_shapes)
    with pytest.raises(ValueError, match="the shape of tensor x is not known"):
        sublet.plan(str(open_shapes))
    onnx.save(sublet.onnx.record(open_shapes, inputs()), recorded)
    # While the graph inside runs: 4 of 6 rows are chosen, and 4 are written.
    row = 4 * WIDTH
    plan = sublet.plan(str(recorded))
    assert plan.optimal and 10 * row <= plan.peak < 11 * row
    # The model computes what it did.
    given = inputs()
    outputs = [onnxruntime.InferenceSession(str(file)).run(None, given)[0] for file in (open_shapes, recorded)]
    assert outputs[0].shape == (4, WIDTH) and np.array_equal(*outputs)
    # It has the times of its operators.
    fit = sublet.fit(str(recorded), plan.peak + 512, using=("recompute",))
    assert fit.overhead == 0 and fit.schedule.end_ns.max() > 0


def branching() -> Any:
    """One of two graphs, in one of which is one of two more. One gives a constant."""
    constant = helper.make_tensor("five", TensorProto.FLOAT, [1], [5])

    def graph(name: str, nodes: list[Any], outputs: list[str], *constants: Any) -> Any:
        return helper.make_graph(nodes, name, [], [value(each, "n") for each in outputs], constants)

    inner = {
        "then_branch": graph("deep", [helper.make_node("Mul", ["twice", "x"], ["deep"])], ["deep"]),
        "else_branch": graph("flat", [helper.make_node("Add", ["twice", "five"], ["flat"])], ["flat"]),
    }
    outer = {
        "then_branch": graph(
            "then",
            [
                helper.make_node("Add", ["x", "x"], ["twice"]),
                helper.make_node("Neg", ["twice"], ["less"]),
                helper.make_node("If", ["second"], ["chosen"], **inner),
            ],
            ["twice", "less", "chosen"],
            constant,
        ),
        "else_branch": graph(
            "else",
            [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["f"])],
            ["e", "f", "five"],
            constant,
        ),
    }
    flags = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("first", "second")]
    nodes = [
        helper.make_node("If", ["first"], ["a", "b", "c"], **outer),
        helper.make_node("Sum", ["a", "b", "c"], ["y"]),
    ]
    whole = helper.make_graph(nodes, "g", [value("x", "n"), *flags], [value("y", "n"), value("b", "n")])
    made = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(made)
    return made


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_the_graph_that_ran_takes_the_place_of_its_branch(first: bool, second: bool) -> None:
    given = {"x": np.arange(8, dtype=np.float32), "first": np.array(first), "second": np.array(second)}
    kept, taken = (sublet.onnx.record(branching(), given, branches=branches) for branches in (False, True))
    assert any(node.op_type == "If" for node in kept.graph.node)
    assert not any(node.op_type == "If" for node in taken.graph.node)
    onnx.checker.check_model(taken)
    results = [onnxruntime.InferenceSession(m.SerializeToString()).run(None, given) for m in (branching(), kept, taken)]
    assert all(np.array_equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


def whole(nodes: list[Any], x: Any, y: Any, **more: Any) -> Any:
    """A model of some operators, with one input and one output."""
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 18), ("ai.onnx.ml", 2), ("own", 1))]
    made = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=10, **more)
    onnx.checker.check_model(made)
    return made


def test_functions_of_the_file_are_replaced_by_their_operators(tmp_path: pathlib.Path) -> None:
    body = [helper.make_node("Exp", ["a"], ["e"]), helper.make_node("Add", ["a", "e"], ["b"])]
    function = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    nodes = [helper.make_node("Twice", ["x"], ["t"], domain="own"), helper.make_node("Relu", ["t"], ["y"])]
    recorded = sublet.onnx.record(whole(nodes, value("x", "n"), value("y", "n"), functions=[function]), {"x": [256]})
    assert [node.op_type for node in recorded.graph.node] == ["Exp", "Add", "Relu"]
    onnx.save(recorded, tmp_path / "r.onnx")
    assert sublet.plan(str(tmp_path / "r.onnx")).peak == 3 * 1024


STRINGS = {"keys_int64s": [0, 1], "values_strings": ["no", "yes"]}


@pytest.mark.parametrize(
    ("nodes", "x", "y", "message"),
    [
        (
            [
                helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0, keepdims=1),
                helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0),
            ],
            value("x", 4, 8),
            value("y", 4, 8),
            "parts is no tensor: sequences, maps and optional values are not planned",
        ),
        (
            [
                helper.make_node("ArgMax", ["x"], ["best"], axis=0, keepdims=0),
                helper.make_node("LabelEncoder", ["best"], ["label"], domain="ai.onnx.ml", **STRINGS),
            ],
            value("x", 2),
            helper.make_tensor_value_info("label", TensorProto.STRING, []),
            "tensor label holds strings, which are not planned",
        ),
        (
            [helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER")],
            helper.make_tensor_value_info("x", TensorProto.STRING, [2]),
            helper.make_tensor_value_info("y", TensorProto.STRING, [2]),
            "tensor x holds strings, which are not planned",
        ),
        (
            [helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)],
            helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2]),
            value("y", "n"),
            "x is no tensor: sequences, maps and optional values are not planned",
        ),
    ],
)
def test_what_has_no_size_is_refused_at_once(nodes: list[Any], x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        sublet.onnx.record(whole(nodes, x, y), {})


def test_what_is_made_of_weights_alone_may_be_a_sequence(tmp_path: pathlib.Path) -> None:
    constant = helper.make_tensor("v", TensorProto.FLOAT, [256], np.ones(256, np.float32).tobytes(), raw=True)
    nodes = [
        helper.make_node("Constant", [], ["c"], value=constant),
        helper.make_node("SequenceConstruct", ["c", "c"], ["both"]),
        helper.make_node("ConcatFromSequence", ["both"], ["long"], axis=0),
        helper.make_node("Add", ["x", "long"], ["y"]),
    ]
    onnx.save(sublet.onnx.record(whole(nodes, value("x", "n"), value("y", "n")), {"x": [512]}), tmp_path / "r.onnx")
    assert sublet.plan(str(tmp_path / "r.onnx")).peak == 2 * 2048


def test_the_command_records_and_says_what_it_needs(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, recorded, values = tmp_path / "m.onnx", tmp_path / "r.onnx", tmp_path / "v.npz"
    onnx.save(model(), source)
    np.savez(values, x=inputs()["x"])
    assert sublet.onnx.main([str(source), str(recorded), "--values", str(values), "flag="]) == 0
    told = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in onnx.load(recorded).graph.value_info}
    assert told == {"top": [ROWS], "above": [ROWS], "chosen": [4, WIDTH], "scaled": [4, WIDTH]}
    for arguments, message in (
        ([], "the shape of input x is open: give it, as x=1,3,48,320"),
        (["x=6,1024", "z=1"], "the model has no input z; it has x, flag"),
        (["x=six"], "invalid literal"),
        (["x=6,1023"], "Got invalid dimensions for input: x"),
    ):
        with pytest.raises(SystemExit) as ended:
            sublet.onnx.main([str(source), str(recorded), *arguments])
        assert ended.value.code == 2 and message in capsys.readouterr().err
    source.write_bytes(b"no model")
    with pytest.raises(SystemExit):
        sublet.onnx.main([str(source), str(recorded)])
    assert f"error: {source}: " in capsys.readouterr().err


def widening(layers: int = 6) -> Any:
    """Layers of convolution and gating over an open batch, of which each third adds what came two before."""
    rng, nodes, weights, x = np.random.default_rng(0), [], [], "x"
    for i in range(layers):
        weights.append(onnx.numpy_helper.from_array((rng.standard_normal((8, 8, 3, 3)) * 0.1).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(helper.make_node("Tanh", [f"c{i}"], [f"t{i}"]))
        nodes.append(helper.make_node("Mul", [f"c{i}", f"t{i}"], [f"m{i}"]))
        x = f"m{i}"
        if i % 3 == 2:
            nodes.append(helper.make_node("Add", [x, f"m{i - 2}"], [f"a{i}"]))
            x = f"a{i}"
    sizes = [value("x", "n", 8, 32, 32)], [value(x, "n", 8, 32, 32)]
    graph = helper.make_graph(nodes, "g", *sizes, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def images(rows: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(rows).standard_normal((rows, 8, 32, 32)).astype(np.float32)}


def test_runs_of_a_session_are_planned_and_equal(tmp_path: pathlib.Path) -> None:
    proto = widening().SerializeToString()
    stock = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    session = sublet.onnx.session(proto)
    before: dict[str, int] = {}
    for round in range(3):
        for rows in (1, 8, 1):
            assert np.array_equal(session.run(None, images(rows))[0], stock.run(None, images(rows))[0])
        done = session.statistics()
        if round > 0:
            # All is hit, and no memory is added.
            new = {name: done[name] - before[name] for name in done}
            assert new["plans"] == 0 and new["misses"] == 0 and new["hits"] >= 9 and done["live_bytes"] == 0
            assert round == 1 or new["resident"] == 0
        before = done
    assert before["resident"] <= 1.1 * before["arena_peak"]
    # Another session has memory of its own, and a plan.
    other = sublet.onnx.session(proto)
    assert other.statistics()["hits"] == 0 and np.array_equal(*(s.run(None, images(2))[0] for s in (other, stock)))
    assert session.statistics() == before


def test_runs_at_once_have_a_plan_each() -> None:
    proto = widening().SerializeToString()
    stock = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    sessions = [sublet.onnx.session(proto) for _ in range(2)]
    wanted = [stock.run(None, images(rows))[0] for rows in range(1, 5)]

    def work(thread: int) -> bool:
        own = sessions[thread % 2]
        return all(
            np.array_equal(own.run(None, images(rows))[0], wanted[rows - 1]) for _ in range(5) for rows in (1, 4, 2, 3)
        )

    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))
    for session in sessions:
        # Two of the four threads use it: at most two runs at once, each with a plan.
        contexts = sublet._sublet.ort_statistics(session._number)
        assert len(contexts) in (1, 2) and all(plans > 0 for _, _, plans, *_ in contexts)
        done = session.statistics()
        assert done["live_bytes"] == 0 and done["hits"] > 2 * done["misses"]


def test_a_run_within_a_run_leaves_the_outer_its_plan() -> None:
    proto = widening().SerializeToString()
    stock = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    outer, inner, other = (sublet.onnx.session(proto) for _ in range(3))
    wanted = stock.run(None, images(4))[0]
    begun, ended = threading.Event(), threading.Event()

    def run_on() -> None:
        # A request without a context of its own would belong to the only run.
        with other._iteration():
            begun.set()
            ended.wait()

    thread = threading.Thread(target=run_on)
    thread.start()
    begun.wait()
    try:
        for _ in range(3):
            with outer._iteration():
                assert np.array_equal(inner.run(None, images(4))[0], wanted)
                assert np.array_equal(onnxruntime.InferenceSession.run(outer, None, images(4))[0], wanted)
    finally:
        ended.set()
        thread.join()
    for session in (outer, inner):
        done = session.statistics()
        assert done["plans"] <= 2 and done["misses"] == 0 < done["hits"] and done["live_bytes"] == 0


def open_order() -> Any:
    """Two values whose sizes follow two inputs: no plan of one shape serves the other."""
    nodes = [
        helper.make_node("Relu", [end], [f"{end}0"]) for end in ("a", "b")
    ] + [helper.make_node("Tanh", [f"{end}0"], [f"{end}1"]) for end in ("a", "b")]
    nodes += [helper.make_node("ReduceSum", [f"{end}1"], [f"{end}2"], keepdims=0) for end in ("a", "b")]
    nodes.append(helper.make_node("Add", ["a2", "b2"], ["y"]))
    graph = helper.make_graph(nodes, "g", [value("a", "n", 64), value("b", "m", 64)], [value("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_shapes_that_change_and_come_back_are_planned_once() -> None:
    proto = open_order().SerializeToString()
    stock = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    session = sublet.onnx.session(proto)
    rng = np.random.default_rng(0)
    shapes = [
        {"a": rng.standard_normal((n, 64)).astype(np.float32), "b": rng.standard_normal((m, 64)).astype(np.float32)}
        for n, m in ((100, 2000), (2000, 100), (700, 700))
    ]
    for round in range(4):
        before = session.statistics()
        for given in shapes:
            assert np.array_equal(session.run(None, given)[0], stock.run(None, given)[0])
        done = session.statistics()
        if round > 0:
            # One at the end of its first run; one with its result, when the next run begins.
            assert done["plans"] == 6 and done["misses"] == before["misses"]
            assert round == 1 or done["resident"] == before["resident"]


def test_a_run_that_is_not_planned_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = widening().SerializeToString()
    session = sublet.onnx.session(proto)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = session.run(None, images(2))[0]
    monkeypatch.setattr(sublet._sublet, "ort_begin", lambda _: None)
    with pytest.warns(RuntimeWarning, match="not planned: too many runs at once"):
        assert np.array_equal(session.run(None, images(2))[0], wanted)


@pytest.mark.parametrize("capacity, told", [(1 << 16, "had no room in the capacity of `install`"), (1 << 30, "")])
def test_a_run_that_has_no_room_says_so(tmp_path: pathlib.Path, capacity: int, told: str) -> None:
    # An environment has one allocator: another capacity is that of another process.
    onnx.save(widening(), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", images(8)["x"])
    code = f"import numpy, sublet.onnx as o; o.install({capacity}); s = o.session('m.onnx'); x = numpy.load('x.npy'); "
    code += "a, b = (s.run(None, {'x': x})[0] for _ in range(2)); assert (a == b).all(); numpy.save('y.npy', a)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told in done.stderr and ("RuntimeWarning" in done.stderr) == bool(told)
    stock = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert np.array_equal(np.load(tmp_path / "y.npy"), stock.run(None, images(8))[0])


def test_a_session_that_is_gone_gives_its_memory_back() -> None:
    proto = widening().SerializeToString()
    session = sublet.onnx.session(proto)
    number = session._number
    for _ in range(3):
        session.run(None, images(4))
    assert sublet._sublet.ort_statistics(number)
    del session
    gc.collect()
    assert not sublet._sublet.ort_statistics(number)
    # The next session gets what it had, without its plan.
    session = sublet.onnx.session(proto)
    session.run(None, images(1))
    assert session.statistics()["resident"] < 4 * images(4)["x"].nbytes


def test_operators_run_in_the_order_that_is_written(tmp_path: pathlib.Path) -> None:
    # Calibration: reductions of all that convolutions have written, at the end of the file.
    nodes, weights, x, ends = [], [], "x", []
    rng = np.random.default_rng(0)
    for i in range(6):
        weights.append(onnx.numpy_helper.from_array((rng.standard_normal((16, 16, 1, 1)) * 0.2).astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"]))
        nodes.append(helper.make_node("LeakyRelu", [f"c{i}"], [f"r{i}"]))
        x = f"r{i}"
    for i in range(6):
        nodes.append(helper.make_node("ReduceMax", [f"c{i}"], [f"max{i}"], keepdims=0))
        ends.append(value(f"max{i}"))
    shape = (1, 16, 64, 64)
    graph = helper.make_graph(nodes, "g", [value("x", *shape)], [value(x, *shape), *ends], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    source, ordered = tmp_path / "m.onnx", tmp_path / "ordered.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(proto), source)
    assert sublet._sublet.run(["sublet", "plan", str(source), "--reorder", "--output", str(ordered)]) == 0
    given = {"x": rng.standard_normal(shape).astype(np.float32)}
    arenas, results = [], []
    for file in (source, ordered):
        # Its optimizations have an order of their own.
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = sublet.onnx.session(file, options)
        for _ in range(3):
            results.append(session.run(None, given))
        arenas.append(session.statistics()["arena_peak"])
    assert all(np.array_equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))
    block = 4 * 16 * 64 * 64
    # Two blocks, in place of all that wait for their reductions.
    assert arenas[0] > 6 * block and arenas[1] < 2.1 * block
