"""The package without PyTorch."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from processes import ran

import sublet
from sublet import FREE, ITERATION, PERSISTENT, READ, TRANSIENT, _results

TRACES = pathlib.Path(__file__).parents[2] / "traces"
RESNET = str(TRACES / "resnet50_train_b32.csv")
VGG = str(TRACES / "vgg16_cifar_train_b100.csv")


def test_plans_a_trace_to_its_optimum() -> None:
    plan = sublet.plan(RESNET)
    assert plan.optimal and plan.peak == plan.max_load == 2987625984
    assert sublet.verify(RESNET, plan.offsets) == plan.peak


def test_a_spoiled_plan_is_refused_and_the_blocks_are_named() -> None:
    plan = sublet.plan(start=[0, 1], end=[2, 3], size=[8, 8], ids=["a", "b"])
    with pytest.raises(sublet.PlanError, match="blocks a and b"):
        sublet.verify(plan.problem, np.zeros(2, np.uint64))


def test_columns_may_be_arrays_of_any_integers() -> None:
    start, end = np.array([0, 1, 2], np.int64), np.array([2, 3, 4], np.int16)
    plan = sublet.plan(start=start, end=end, size=np.array([4, 8, 4], np.uint32), alignment=4)
    assert plan.peak == 12 and plan.offsets.dtype == np.uint64


@pytest.mark.parametrize(
    "size", [[4.0, 8.0], np.array([4, 8], ">f4"), np.array([4, 8], ">i2"), np.array([4, 8], object), range(4, 9, 4)]
)
def test_columns_may_be_of_any_whole_numbers(size: Any) -> None:
    assert sublet.plan(start=[0, 0], end=[1, 1], size=size).peak == 12
    assert sublet.plan(start=[0.0], end=[1], size=[2**63]).peak == 2**63


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ([4, 10.9], "block b: size is 10.9, not a whole number"),
        ([4, float("nan")], "block b: size is nan, not a whole number"),
        ([4, float("inf")], "block b: size is inf, not a whole number"),
        ([4, -1], "block b: size is -1, not a whole number from 0 to 18446744073709551615"),
        ([4, 2**64], "block b: size is 18446744073709551616, not"),
        # Numpy makes floats of them, and another number of the second.
        ([4, 2**63 + 1], "block b: size is 9.2233.*, not a whole number from 0 to 9007199254740992"),
        ([4, None], "block b: size is None, not a whole number"),
        (np.array([4, True], object), "block b: size is True, not a whole number"),
        ([True, True], "size: expected whole numbers, found bool"),
        (["4", "8"], "size: expected whole numbers, found <U1"),
        (np.array([4, 8], "M8[s]"), "size: expected whole numbers, found datetime64"),
        (np.array([4, 8], "m8[s]"), "size: expected whole numbers, found timedelta64"),
        (np.ma.array([4, 8], mask=[0, 1]), "size: expected whole numbers, found a masked array"),
        ([[4, 8]], "size has 2 dimensions, not 1"),
        (4, "size has 0 dimensions, not 1"),
        ([[4], [8, 8]], "size: setting an array element"),
    ],
)
def test_what_is_no_column_of_whole_numbers_is_refused(size: Any, message: str) -> None:
    with pytest.raises(sublet.PlanError, match=message):
        sublet.plan(start=[0, 0], end=[1, 1], size=size, ids=["a", "b"])


def test_every_column_is_one_of_whole_numbers() -> None:
    blocks: dict[str, Any] = {"start": [0], "end": [1], "size": [8], "block_alignment": [4], "pin": [0]}
    for name in blocks:
        with pytest.raises(sublet.PlanError, match=f"block 0: {name} is 0.5, not"):
            sublet.plan(**blocks | {name: [0.5]})
    for name in ("start", "end"):
        with pytest.raises(sublet.PlanError, match=f"block 0: {name} is 4294967296, not a whole number from 0 to 429"):
            sublet.plan(**blocks | {name: [2**32]})
    with pytest.raises(sublet.PlanError, match="block 0: pin is -9223372036854775809, not"):
        sublet.plan(**blocks | {"pin": [-(2**63) - 1]})
    rows: dict[str, Any] = {"time_ns": [0, 1], "event": [0, 1], "block": [0, 0], "bytes": [4, 0], "op": [-1, -1]}
    assert sublet.plan(sublet.Trace(**rows)).peak == 4
    for name in rows:
        with pytest.raises(sublet.PlanError, match=f"row 1: {name} is 0.5, not"):
            sublet.plan(sublet.Trace(**rows | {name: [0, 0.5]}))
    plan = sublet.plan(start=[0, 0, 0], end=[1, 1, 1], size=[4, 4, 4], ids=["a", "b", "c"])
    for offsets in ([0, 4.9, 8], np.array([0, 4.9, 8])):
        with pytest.raises(sublet.PlanError, match="block b: offset is 4.9, not"):
            sublet.verify(plan.problem, offsets)
    assert sublet.verify(plan.problem, [0.0, 4.0, 8.0]) == 12


def test_the_numbers_of_a_graph_are_whole() -> None:
    def graph(**columns: Any) -> sublet.Graph:
        graph = sublet.Graph()
        graph.op("op", [], [graph.tensor("x", 8)])
        for column, number in columns.items():
            setattr(graph.operators if column == "element" else graph, column, [number])
        return graph

    operators = sublet.Operators(["op"], rerun=[True], in_place=[False], ordered=[True], kind=[""], element=[4])
    one = graph()
    one.operators = operators
    assert sublet.plan(one).peak == sublet.plan(graph(bytes=8.0)).peak == 8
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"bytes": 1.5}, "tensor x: bytes is 1.5"),
        ({"storage": 0.5}, "tensor x: storage is 0.5"),
        ({"storage": "ITERATION"}, "storage: expected whole numbers"),
        ({"outputs": -1}, "entry 0: outputs is -1"),
        ({"workspace": -1}, "operator 0: workspace is -1"),
        ({"time_ns": 0.5}, "operator 0: time_ns is 0.5"),
        ({"element": 4.5}, "operator 0: element is 4.5"),
    ]
    for how, message in wrong:
        with pytest.raises(sublet.PlanError, match=message):
            graph(**how).problem()


def test_a_file_and_columns_are_not_both_taken() -> None:
    columns: list[dict[str, Any]] = [{"start": [0], "end": [1], "size": [5]}, {"ids": ["a"]}, {"pin": np.zeros(1)}]
    for given in columns:
        with pytest.raises(TypeError, match="not both"):
            sublet.plan(VGG, **given)


WHOLE = "expected a whole number from 0 to 18446744073709551615"


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (0.6, 'limit 0.6: expected bytes, or a share as text, such as "60%"'),
        (1.0, 'limit 1.0: expected bytes, or a share as text, such as "100%"'),
        ("0.6", "limit: expected a size such as .*, or 80%, found \"0.6\""),
        ("200%", "limit: expected more than 0 and at most 100 % of the peak"),
        (10.5, f"limit 10.5: {WHOLE}"),
        (float("nan"), f"limit nan: {WHOLE}"),
        (float("inf"), f"limit inf: {WHOLE}"),
        (-1, f"limit -1: {WHOLE}"),
        (2**64, f"limit 18446744073709551616: {WHOLE}"),
        (True, f"limit True: {WHOLE}"),
        (None, f"limit None: {WHOLE}"),
    ],
)
def test_a_limit_that_is_none_is_refused(limit: Any, message: str) -> None:
    for fit in (sublet.fit, lambda source, limit: sublet.sweep(source, [limit])):
        with pytest.raises(ValueError, match=message):
            fit(VGG, limit)


def test_sizes_are_those_of_the_command_line() -> None:
    sizes = [_results.bytes_of(size) for size in ("2.4G", "0.9GiB", "1MB", "9007199254740993", 4e9, np.uint8(7))]
    assert sizes == [2576980377, 966367641, 10**6, 9007199254740993, 4 * 10**9, 7]
    assert sublet.fit(VGG, "99.9999999%", using="swap").limit == 574592511


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"capacity": "60%"}, 'capacity: expected a size such as 4096, 512MiB, 8G or 1.5GiB, found "60%"'),
        ({"capacity": -1}, f"capacity -1: {WHOLE}"),
        ({"capacity": 2**64}, f"capacity 18446744073709551616: {WHOLE}"),
        ({"capacity": 0.5}, f"capacity 0.5: {WHOLE}"),
        ({"alignment": -1}, f"alignment -1: {WHOLE}"),
        ({"effort": -1}, f"effort -1: {WHOLE}"),
        ({"solver": "x"}, "there is no solver x; there are auto,"),
        ({"time_limit": -1}, "a time limit is in seconds, 0 or more, not -1"),
        ({"time_limit": float("nan")}, "a time limit is in seconds, 0 or more, not NaN"),
    ],
)
def test_a_wrong_argument_is_named(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sublet.plan(start=[0], end=[1], size=[4], **how)


def test_a_time_limit_may_be_longer_than_any_clock() -> None:
    for seconds in (1e300, float("inf")):
        assert sublet.plan(start=[0], end=[1], size=[4], time_limit=seconds).peak == 4


def test_more_effort_finds_a_faster_schedule() -> None:
    trace = VGG.replace("vgg16_cifar_train_b100", "googlenet_infer_b1")
    usual, more = (sublet.fit(trace, "75%", using="swap", effort=effort).overhead for effort in (1, 8))
    assert more < usual
    with pytest.raises(ValueError, match=f"effort -1: {WHOLE}"):
        sublet.fit(trace, "70%", effort=-1)
    assert sublet.fit(trace, "100%", effort=0, alignment=1).overhead == 0


def test_one_means_may_be_a_name_and_a_wrong_one_is_no_matter_of_the_network() -> None:
    fitted = sublet.fit(VGG, "60%", using="swap")
    assert {span.again for span in fitted.timeline} == {False}
    for using in ("swop", ["swop"]):
        with pytest.raises(ValueError, match="there is no means swop; there are swap, recompute,") as told:
            sublet.fit(VGG, "60%", using=using)
        # PyTorch's part adds to a PlanError what the network takes.
        assert not isinstance(told.value, sublet.PlanError)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"start": [0], "end": [1, 2], "size": [1]}, "end has 2 elements, not 1"),
        ({"start": [0], "end": [1], "size": [0]}, "block x"),
        ({"start": [1], "end": [1], "size": [4]}, "block x"),
        ({"start": [0], "end": [1], "size": [4], "block_alignment": [3]}, "block x"),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, list[int]], message: str) -> None:
    with pytest.raises(sublet.PlanError, match=message):
        sublet.plan(ids=["x"], **columns)  # type: ignore[arg-type]


def test_a_recording_is_planned_as_its_trace_is() -> None:
    class Recording:
        trace = sublet.Trace([0, 1, 2], [0, 3, 1], [0] * 3, [4, 0, 0], [-1] * 3)

    assert sublet.plan(Recording()).peak == sublet.plan(Recording.trace).peak == 4
    with pytest.raises(TypeError):
        sublet.plan(object())  # type: ignore[arg-type]


def test_numbers_of_blocks_may_have_gaps_but_not_any() -> None:
    def planned(block: int, names: list[str] | None = None) -> sublet.Plan:
        return sublet.plan(sublet.Trace([0, 1, 2], [0, 3, 1], 3 * [block], [4, 0, 0], 3 * [-1], names))

    assert planned(65_535).problem.ids == ["65535"]
    assert planned(70_000, 70_001 * ["x"]).peak == 4
    with pytest.raises(sublet.PlanError, match="block 4294967295: without names, .* below 65536"):
        planned(2**32 - 1)


def test_a_capacity_that_is_missed_says_what_it_would_take() -> None:
    with pytest.raises(sublet.PlanError, match="12") as refused:
        sublet.plan(start=[0, 1, 2], end=[2, 3, 4], size=[4, 8, 4], capacity=11)
    assert (refused.value.least, refused.value.needed) == (12, 12)
    assert sublet.plan(start=[0, 1, 2], end=[2, 3, 4], size=[4, 8, 4], capacity=12).peak == 12


def test_a_plan_is_saved_and_shown(tmp_path: pathlib.Path) -> None:
    plan = sublet.plan(VGG)
    for name, begin in [("plan.csv", "id,lower"), ("plan.html", "<!doctype"), ("plan.svg", "<svg")]:
        plan.save(tmp_path / name)
        assert (tmp_path / name).read_text().lower().startswith(begin)
    assert plan._repr_html_().startswith("<iframe")
    for pictured in (plan, sublet.fit(VGG, "60%")):
        with pytest.raises(ValueError, match=r"x.png: a picture is a page \(.html\) or .svg"):
            pictured.save(tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


def test_a_fit_is_saved_shown_and_explained_as_the_command_line_does(tmp_path: pathlib.Path) -> None:
    fitted = sublet.fit(VGG, "45%")
    fitted.save(tmp_path / "fitted")
    fitted.save(tmp_path / "fit.html")
    fitted.save(tmp_path / "fit.svg")
    assert fitted.html() == (tmp_path / "fit.html").read_text() and "<svg" in (tmp_path / "fit.svg").read_text()
    assert fitted._repr_html_().startswith("<iframe")
    folder, command = tmp_path / "by_command", [sys.executable, "-m", "sublet"]
    explained = f"--explain={fitted.timeline[0].blocks[0]}"
    done = ran([*command, "fit", VGG, "--limit", "45%", "--output", str(folder), explained, "--json"], 300)
    assert done.returncode == 0, done.stderr
    # The same means by default, the same schedule, the same files.
    for file in sorted(folder.iterdir()):
        assert (tmp_path / "fitted" / file.name).read_bytes() == file.read_bytes(), file.name
    told = json.loads(done.stdout)
    assert fitted.lower_bound == told.get("overhead_lower_bound")
    assert fitted.lower_bound_in_order == told.get("overhead_lower_bound_in_order", fitted.lower_bound)
    assert [row["won"] for row in rows_of(fitted.explain())] == [row["won"] for row in told["tried"]]
    gaps = rows_of(fitted.explain(fitted.timeline[0].blocks[0]))
    assert gaps and [gap["choice"] for gap in gaps] == [gap["choice"] for gap in told["gaps"]]
    with pytest.raises(ValueError, match="the trace has no block nothing"):
        fitted.explain("nothing")
    checked = ran([*command, "verify", VGG, f"{tmp_path}/fitted/plan.csv", "--rewritten", f"{tmp_path}/fitted/rewritten.csv", "--reorder"], 120)
    assert checked.returncode == 0, checked.stderr


def test_no_schedule_is_faster_than_the_lower_bound() -> None:
    fitted = sublet.fit(VGG, "50%", using="recompute")
    assert fitted.lower_bound is not None and 0 < fitted.lower_bound <= fitted.overhead


def test_a_trace_that_does_not_say_what_may_be_recomputed_is_warned_of() -> None:
    silent = sublet.Trace([0, 10, 20, 30], [0, 3, 2, 1], [0] * 4, [4, 0, 0, 0], [0, 0, 1, -1])
    with pytest.warns(UserWarning, match="no operator is recomputed"):
        sublet.fit(silent, 256)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sublet.fit(silent, 256, using="swap")
        sublet.fit(crossed(ordered=True), "100%", alignment=1)


def test_a_network_fits_and_the_limit_is_kept() -> None:
    whole = sublet.plan(VGG).max_load
    fitted = sublet.fit(VGG, "60%", using=["swap"])
    assert fitted.footprint <= 0.6 * whole < fitted.original_peak
    assert any(span.what == "swap_out" for span in fitted.timeline)
    ends = [span.end_ns for span in fitted.timeline if span.what == "op"]
    assert ends == sorted(ends) and all(span.begin_ns <= span.end_ns for span in fitted.timeline)
    with pytest.raises(sublet.PlanError):
        sublet.fit(VGG, "1%")


def crossed(ordered: bool) -> sublet.Graph:
    """Two values are made, and then read one after the other: each could be read before the next is made."""
    graph = sublet.Graph()
    made = [graph.tensor(name, 8 << 20) for name in "ab"]
    read = [graph.tensor(name, 1) for name in "cd"]
    for block in made:
        graph.op("make", [], [block], time_ns=1000, ordered=ordered)
    for block, small in zip(made, read):
        graph.op("read", [block], [small], time_ns=1000, ordered=ordered)
    return graph


def test_operators_that_may_move_do_where_that_is_asked_for() -> None:
    fitted = sublet.fit(crossed(ordered=False), "60%", using=[], reorder=True, alignment=1)
    assert fitted.footprint <= (8 << 20) + 2 and fitted.overhead == 0
    # Each operator once, in the order of their rows.
    assert [span.op for span in fitted.timeline] == [0, 2, 1, 3]
    for graph, reorder in [(crossed(ordered=False), False), (crossed(ordered=True), True)]:
        with pytest.raises(sublet.PlanError, match="no schedule (by these means )?within") as refused:
            sublet.fit(graph, "60%", using=[], reorder=reorder, alignment=1)
        limit = refused.value.least or refused.value.needed
        assert limit is not None and str(limit) in str(refused.value)
        assert sublet.fit(graph, limit, using=[], reorder=reorder, alignment=1).overhead == 0
    with pytest.raises(sublet.PlanError) as unlimited:
        sublet.fit(sublet.plan(start=[0], end=[1], size=[1]).problem, 1)
    assert unlimited.value.least is None


def keeping(storage: int) -> sublet.Graph:
    """A value that is read at once, and something large after it."""
    graph, block = sublet.Graph(), 16 << 20
    weights, kept = graph.tensor("weights", block, PERSISTENT), graph.tensor("kept", block, storage)
    large, larger = graph.tensor("large", block), graph.tensor("larger", block)
    loss, done = graph.tensor("loss", 1), graph.tensor("done", 1)
    rows = [([weights], [kept]), ([kept], [loss]), ([weights], [large]), ([large], [larger]), ([larger], [done])]
    for reads, writes in rows:
        graph.op("op", reads, writes, time_ns=10_000_000, rerun=True, ordered=False)
    return graph


def test_weights_stay_on_the_device_where_that_is_asked_for() -> None:
    graph, block = sublet.Graph(), 16 << 20
    weights = graph.tensor("weights", block, PERSISTENT)
    a, b, c, d = (graph.tensor(name, size) for name, size in (("a", 1), ("b", block), ("c", block), ("d", 1)))
    for reads, writes in [([weights], [a]), ([a], [b]), ([b], [c]), ([c], [d]), ([weights, d], [])]:
        graph.op("op", reads, writes, time_ns=10_000_000)
    fitted = sublet.fit(graph, (2 << 24) + 16, using=["swap"], alignment=1)
    # Nothing writes the weights, so the host has them, and a copy back is enough.
    assert [span.blocks for span in fitted.timeline if span.what == "swap_in"] == [("weights",)]
    with pytest.raises(sublet.PlanError, match="no schedule (by these means )?within"):
        sublet.fit(graph, (2 << 24) + 16, using=["swap"], alignment=1, keep_persistent=True)


def test_a_device_may_be_given_by_its_measured_links() -> None:
    def overhead(bandwidth: float) -> float:
        return sublet.fit(VGG, "50%", using=["swap"], device=sublet.Device(bandwidth, bandwidth, 10_000)).overhead

    assert overhead(5e9) > overhead(5e10)
    with pytest.raises(ValueError, match="more than 0 bytes per second, not 0 out and 0 in"):
        overhead(0)
    with pytest.raises(ValueError, match="a latency of 0 ns or more, not -1"):
        sublet.fit(VGG, "50%", device=sublet.Device(55e9, 55e9, -1))


@pytest.mark.parametrize("how", [{"using": ["recompute"]}, {"using": ["swap"]}, {"using": [], "reorder": True}])
def test_what_is_kept_for_the_iteration_is_there_at_its_end(how: dict[str, Any]) -> None:
    limit = (3 << 24) + 16

    def last(storage: int) -> list[int]:
        """What happens to it after the last operator."""
        s = sublet.fit(keeping(storage), limit, alignment=1, **how).schedule
        end = int(np.flatnonzero(s.op >= 0)[-1])
        return [int(event) for event, block in zip(s.event[end:], s.block[end:]) if block == 1]

    assert [event for event in last(ITERATION) if event in (READ, FREE)] == [READ, FREE]
    assert last(TRANSIENT) == []


def test_state_that_an_operator_updates_is_left_alone_when_it_runs_again() -> None:
    graph, block = sublet.Graph(), 16 << 20
    x, state = graph.tensor("x", block, PERSISTENT), graph.tensor("state", 4, PERSISTENT)
    y, a, b = (graph.tensor(name, block) for name in "yab")
    for reads, writes in [([x, state], [y, state]), ([y], [a]), ([a], [b]), ([b], []), ([y], [])]:
        writes = writes or [graph.tensor(f"end {len(graph.bytes)}", 1)]
        graph.op("op", reads, writes, time_ns=10_000_000, rerun=not graph.workspace)
    fitted = sublet.fit(graph, (3 << 24) + 16, using=["recompute"], alignment=1)
    assert [span.blocks for span in fitted.timeline if span.again] == [("x", "y")]


def rectified(element: int) -> sublet.Graph:
    """A rectifier whose gradient reads what it wrote, which something else has read before."""
    graph = sublet.Graph()
    x, y, z, g, dx = (graph.tensor(name, 16 << 20) for name in ("x", "y", "z", "g", "dx"))
    graph.op("relu", [x], [y], time_ns=1000, rerun=True, kind="relu", element=element)
    graph.op("wide", [y], [z], time_ns=1000, rerun=True)
    graph.op("narrow", [z], [g], time_ns=1000)
    graph.op("relu gradient", [g, y], [dx], time_ns=1000, kind="relu_backward", element=element)
    return graph


def test_a_mask_is_as_long_as_its_elements_say() -> None:
    # Beside two blocks a mask of a 16th of one, but not of an 8th.
    limit = (33 << 20) + 1
    fitted = sublet.fit(rectified(element=2), limit, using=["relu"], alignment=1)
    assert {block for span in fitted.timeline for block in span.blocks if block.endswith("~")} == {"y~"}
    with pytest.raises(sublet.PlanError, match="no schedule within"):
        sublet.fit(rectified(element=1), limit, using=["relu"], alignment=1)
    for column, wrong, message in [("kind", "gelu", "no kind gelu"), ("element", 3, "1, 2, 4 or 8 bytes, not 3")]:
        bad = rectified(element=4)
        getattr(bad.operators, column)[0] = wrong
        with pytest.raises(sublet.PlanError, match=f"operator 0: .*{message}"):
            bad.problem()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g: g.op("x", ["a"], [1]), TypeError, "inputs of x: expected the numbers that tensor\\(\\) returns, found 'a'"),
        (lambda g: g.op("x", "a", [1]), TypeError, "inputs of x: expected the numbers"),
        (lambda g: g.op("x", [0], [True]), TypeError, "outputs of x: expected the numbers"),
        (lambda g: g.op("x", [7], [1]), ValueError, "inputs of x: there is no tensor 7; there are 4"),
        (lambda g: g.op("x", [-1], [1]), ValueError, "there is no tensor -1"),
        (lambda g: g.op("x", [0], [2]), ValueError, "x writes c, which first writes"),
        (lambda g: g.op("x", [0], [1, 1]), ValueError, "x writes b, which x writes"),
        (lambda g: g.op("x", [0], [1], workspace=-1), ValueError, f"workspace of x -1: {WHOLE}"),
        (lambda g: g.op("x", [0], [1], time_ns=0.5), ValueError, f"time_ns of x 0.5: {WHOLE}"),
        (lambda g: g.op("x", [0], [1], kind="gelu"), ValueError, "x: there is no kind gelu"),
        (lambda g: g.op("x", [0], [1], element=3), ValueError, "x: an element has 1, 2, 4 or 8 bytes, not 3"),
        (lambda g: g.tensor("x", -4), ValueError, f"bytes of x -4: {WHOLE}"),
        (lambda g: g.tensor("x", 4, 3), ValueError, "x: storage 3 is none of"),
    ],
)
def test_a_graph_refuses_at_the_call_that_is_wrong(call: Any, error: type[Exception], message: str) -> None:
    graph = sublet.Graph()
    a, _, c, state = (graph.tensor(name, 16, storage) for name, storage in zip("abcd", [0, 0, 0, PERSISTENT]))
    graph.op("first", [a, np.int64(state)], [c, state])
    before = repr(graph)
    with pytest.raises(error, match=message):
        call(graph)
    # What is refused leaves nothing behind.
    assert repr(graph) == before
    graph.op("second", [c], [1, state])
    assert sublet.plan(graph).peak == 48


def test_a_fit_tells_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, int, float | None]] = []
    monkeypatch.setattr(_results.Line, "__call__", lambda line, *args: told.append(args))
    fitted = sublet.fit(RESNET, "60%", progress=True)
    assert told and all(best is None or best >= fitted.overhead - 1e-7 for _, _, best in told)
    told.clear()
    sublet.fit(VGG, "60%", using=["swap"], progress=False)
    assert not told
    monkeypatch.undo()
    line = _results.Line()
    line(0.5, 1, 0.1)
    assert capsys.readouterr().err == ""
    line(2, 3, 0.0125)
    line.end()
    shown = capsys.readouterr().err
    assert "2 s, 3 schedules tried, overhead 1.250 %" in shown and shown.endswith("\r")


def test_a_fit_ends_at_its_time_limit() -> None:
    assert sublet.fit(VGG, "60%", time_limit=1e6).overhead == sublet.fit(VGG, "60%").overhead
    with pytest.raises(sublet.PlanError):
        sublet.fit(VGG, "60%", time_limit=0)
    with pytest.raises(ValueError, match="in seconds"):
        sublet.fit(VGG, "60%", time_limit=-1)


def rows_of(swept: Any) -> list[dict[str, Any]]:
    return swept if isinstance(swept, list) else swept.to_dict("records")


def test_a_sweep_is_a_row_for_each_limit() -> None:
    rows = rows_of(sublet.sweep(VGG, ["80%", "1%"], using=["swap"]))
    assert [row["overhead"] is not None and row["overhead"] == row["overhead"] for row in rows] == [True, False]
    assert "bytes" in rows[1]["error"]


def test_no_limit_of_a_sweep_costs_more_than_a_lower_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {100: (100, 0.3), 80: (60, 0.1), 70: (65, 0.2), 50: (50, 0.4)}

    def fit(problem: Any, limit: int, **options: Any) -> Any:
        footprint, overhead = found[limit]
        return SimpleNamespace(footprint=footprint, overhead=overhead)

    monkeypatch.setattr(_results, "fit", fit)
    rows = rows_of(sublet.sweep(VGG, [100, 80, 70, 50]))
    assert [(row["overhead"], row["fitted_to"]) for row in rows] == [(0.1, 80), (0.1, 80), (0.1, 80), (0.4, 50)]


def test_rows_are_frames_where_pandas_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = sublet.fit(VGG, "60%", using="swap")
    tables: list[Callable[[], Any]] = [
        lambda: sublet.compare(VGG),
        lambda: sublet.sweep(VGG, ["80%"], using="swap"),
        fitted.explain,
        lambda: fitted.explain(fitted.timeline[0].blocks[0]),
    ]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: ("frame", len(rows))))
    frames = [table() for table in tables]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert frames == [("frame", len(table())) for table in tables]


def test_compare_has_the_allocators_of_today() -> None:
    rows = rows_of(sublet.compare(VGG))
    assert {"cnmem", "pytorch"} <= {row["name"] for row in rows if row["kind"] == "allocator"}
    assert min(row["peak"] for row in rows) == next(row["peak"] for row in rows if row["name"] == "auto")


def test_a_graph_knows_what_is_alive() -> None:
    graph = sublet.Graph()
    a, b, c = (graph.tensor(name, 100) for name in "abc")
    graph.op("first", [a], [b])
    graph.op("second", [b], [c], workspace=50)
    assert sublet.plan(graph).peak == 250


def test_the_command_line_comes_with_it() -> None:
    command = [sys.executable, "-m", "sublet", "plan", VGG, "--json"]
    done = ran(command, 120)
    assert done.returncode == 0 and '"optimal":true' in done.stdout
    wrong = ran([*command, "--capacity", "-1"], 120)
    assert wrong.returncode == 2


def test_ctrl_c_ends_a_fit() -> None:
    # A shell's background jobs begin with the signal ignored.
    begin = "import signal, sublet; signal.signal(signal.SIGINT, signal.default_int_handler); print('begun', flush=True)"
    program = f"{begin}\nwhile True: sublet.fit({RESNET!r}, '35%')"
    running = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # It ends even where it hears nothing.
    watch = threading.Timer(120, running.kill)
    watch.start()
    assert running.stdout is not None and running.stdout.readline() == "begun\n"
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in running.communicate()[1]
    watch.cancel()


def test_a_process_that_hangs_is_ended_with_its_children_and_says_where_it_was() -> None:
    child = "import time; print('begun', flush=True); time.sleep(600)"
    parent = f"import subprocess, sys\ndef waits(): subprocess.run([sys.executable, '-c', {child!r}])\nwaits()"
    begin = time.monotonic()
    with pytest.raises(AssertionError, match="more than 10 s") as told:
        ran([sys.executable, "-c", parent], 10)
    assert "begun" in str(told.value) and "in waits" in str(told.value)
    assert time.monotonic() - begin < 300, "the child sleeps for 600 s"
    assert ran([sys.executable, "-c", "print(1)"], 120).stdout == "1\n"


def test_a_snapshot_as_pytorch_pickles_it_is_diagnosed(tmp_path: pathlib.Path) -> None:
    frame = {"name": "forward", "filename": "/home/me/net.py", "line": 12}
    inner = {"name": "linear", "filename": "/opt/torch/nn/functional.py", "line": 2000}
    frames = [inner, frame]

    def event(action: str, addr: int, size: int) -> dict[str, object]:
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": addr, "frames": list(frames)}

    events = [event("segment_alloc", 0, 4096), event("alloc", 0, 1000), event("alloc", 1024, 500)]
    events += [event("free_requested", 0, 1000), event("free_completed", 0, 1000)]
    blocks = [{"size": 1024, "state": "inactive", "frames": []}]
    blocks += [{"size": 512, "requested_size": 500, "address": 1024, "state": "active_allocated", "frames": frames}]
    segment = {"device": 0, "address": 0, "total_size": 4096, "stream": 0, "blocks": blocks}
    file = tmp_path / "snapshot.pickle"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        file.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [events]}, protocol))
        found = sublet.doctor(file)
        # The second block begins at the next multiple of 512.
        assert (found.reserved, found.in_use, found.lost, found.lower_bound, found.plan) == (4096, 1500, 2596, 1512, 1512)
        assert [(h.place, h.bytes, h.blocks) for h in found.holders] == [("/home/me/net.py:12 forward", 1500, 2)]
        assert "who holds the" in str(found)
        assert (found.persistent, found.largest_free, found.changes) == (0, 1024, None)
        assert sublet.doctor(file, file).changes == []
    file.write_bytes(pickle.dumps({"segments": [], "device_traces": [[os.system]]}))
    with pytest.raises(sublet.PlanError, match="nothing was run"):
        sublet.doctor(file)


def test_columns_that_nobody_reads_are_warned_of(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "net.csv"
    file.write_text("id,lower,upper,size,alignmnt\na,0,1,8.0,64\n")
    with pytest.warns(UserWarning, match='not read: the column "alignmnt"'):
        assert sublet.plan(file).peak == 8


def test_what_is_no_tensor_is_refused_where_it_is_given() -> None:
    graph = sublet.Graph()
    graph.tensor("a", 1)
    with pytest.raises(TypeError, match="inputs of conv: expected the numbers that tensor\\(\\) returns, found 'a'"):
        graph.op("conv", ["a"], [0])  # type: ignore[list-item]
    assert graph.op("conv", [], [0]) == 0


def test_the_version_is_that_of_the_crate() -> None:
    assert sublet.__version__.split(".")[:2] == ["0", "2"]
