"""PyTorch within a limit: equal bits, and a measured peak that is the planned one.

Each case runs in a process of its own under a counter of the heap, whose library SUBLET_HEAP names; without it, or without
PyTorch, nothing here is run.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

HERE = pathlib.Path(__file__).parent
HEAP = os.environ.get("SUBLET_HEAP", "")
pytest.importorskip("torch")
if not HEAP:
    pytest.skip("skipped: SUBLET_HEAP does not name the counter of the heap", allow_module_level=True)

SLACK = 200 * 1024
"""What a measured peak may be above the planned one, in bytes."""


@functools.cache
def run(script: str, *args: str) -> dict[str, Any]:
    """What a script prints, or its error."""
    environment = {**os.environ, "LD_PRELOAD": HEAP}
    command = [sys.executable, "-W", "ignore", str(HERE / script), *args]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0 and lines, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(lines[-1])
    print(args, result["peak"] if "peak" in result else result)
    return result


CASES = [
    ("gpt", "sgd", "60%"),
    ("gpt", "sgd", "35%"),
    ("gpt_dropout", "adam", "50%"),
    ("gpt_small", "adam", "70%"),
    ("resnet18", "sgd", "80%"),
    ("resnet50", "sgd", "60%"),
]


@pytest.mark.parametrize(("network", "optimizer", "limit"), CASES)
def test_training_within_a_limit_is_equal_and_takes_what_was_planned(network: str, optimizer: str, limit: str) -> None:
    eager, planned = run("train.py", network, "eager", optimizer), run("train.py", network, f"sublet={limit}", optimizer)
    for what in ("losses", "gradients", "weights"):
        assert planned[what] == eager[what], what
    assert planned["again"] > 0
    assert planned["peak"] <= planned["planned"] + SLACK
    assert planned["peak"] < 0.9 * eager["peak"]


def test_operators_that_run_again_and_give_something_else_are_seen() -> None:
    eager, spoiled = run("train.py", "gpt_small", "eager", "adam"), run("train.py", "gpt_small", "spoiled=60%", "adam")
    assert spoiled["again"] > 0 and spoiled["gradients"] != eager["gradients"]


def test_under_inductor_the_bits_are_those_of_its_own_cut_in_less_memory() -> None:
    own, cut = run("train.py", "gpt_small", "inductor"), run("train.py", "gpt_small", "inductor=70%")
    for what in ("losses", "gradients", "weights"):
        assert cut[what] == own[what], what
    assert cut["peak"] < 0.9 * own["peak"]


@pytest.mark.parametrize(("network", "optimizer", "limit"), [("gpt_dropout", "adam", "60%"), ("resnet18", "sgd", "85%")])
def test_a_taped_step_is_equal_and_takes_what_was_planned(network: str, optimizer: str, limit: str) -> None:
    both = run("tape.py", network, limit, optimizer)
    eager, taped = both["eager"], both["taped"]
    assert taped["losses"] == eager["losses"] and taped["weights"] == eager["weights"]
    assert taped["peak"] <= taped["planned"] + SLACK
    assert taped["peak"] < 0.95 * eager["peak"]


def test_a_limit_that_cannot_be_met_names_the_operator() -> None:
    command = [sys.executable, "-W", "ignore", str(HERE / "train.py"), "gpt_small", "sublet=5%"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LD_PRELOAD": HEAP})
    assert done.returncode != 0 and "bytes persist, and the operator" in done.stderr


@pytest.mark.parametrize("case", ["slow", "small"])
def test_ranks_that_measure_different_things_decide_one_thing(case: str) -> None:
    ranks = run("ranks.py", case)["ranks"]
    assert len(ranks) == 4 and ranks[0]["again"]
    for what in ("again", "planned", "gradients"):
        assert len({str(rank[what]) for rank in ranks}) == 1, what


def test_ranks_with_different_graphs_all_get_the_error() -> None:
    ranks = run("ranks.py", "differ")["ranks"]
    assert ["the ranks run different graphs" in str(rank.get("error")) for rank in ranks] == [True] * 4


def test_ranks_that_decide_apart_decide_otherwise() -> None:
    ranks = run("ranks.py", "apart")["ranks"]
    assert len({str(rank["again"]) for rank in ranks}) > 1
