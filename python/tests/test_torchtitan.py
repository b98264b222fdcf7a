"""torchtitan's own trainer within a limit, two ranks on gloo, on the processor.

Without PyTorch and torchtitan nothing here is run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

from processes import ran

long = pytest.mark.skipif(os.environ.get("SUBLET_TORCH") != "long", reason="long: SUBLET_TORCH=long runs it")
SMALL = "-- --training.local_batch_size 1 --training.seq_len 128 --training.mixed_precision_param float32".split()
FAULTS = [("gone", "plans alone"), ("killed", "by peer")]
SCRIPT = os.path.join(os.path.dirname(__file__), "titan.py")


def told(ranks: int, steps: int, *policies: str, options: Sequence[str] = (), ended: int = 0) -> dict[str, list[dict[str, Any]]]:
    """What the ranks tell of each policy, by rank; so many are `ended` before they tell."""
    done = ran([sys.executable, SCRIPT, str(ranks), str(steps), *policies, *options], 400)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines and "No module named" in done.stderr:
        pytest.skip("skipped: torchtitan or what it needs is not installed")
    assert len(lines) == ranks * len(policies) - ended, done.stderr[-4000:]
    lines.sort(key=lambda line: line["rank"])
    return {policy: [line for line in lines if line["policy"] == policy] for policy in policies}


@pytest.mark.parametrize(("type", "share"), [("float32", "50%"), pytest.param("bfloat16", "60%", marks=long)])
def test_two_ranks_train_within_their_limit_with_the_losses_of_the_default_policy(type: str, share: str) -> None:
    # Gradients add up over two passes.
    options = ["--", "--training.global_batch_size", "16", "--training.mixed_precision_param", type]
    by = told(2, 2, "default", f"sublet={share}", "sublet=10%", options=options)
    for ours, theirs in zip(by[f"sublet={share}"], by["default"]):
        assert ours["losses"] == theirs["losses"] and ours["weights"] == theirs["weights"]
        assert ours["taken"] <= 1.01 * ours["planned"] <= 1.01 * ours["limit"]
        assert ours["again"] > ours["gathers"] > 0
        # The control: the default policy takes more.
        assert theirs["peak"] > ours["beside"] + ours["inputs"]
    assert by[f"sublet={share}"][0]["order"] == by[f"sublet={share}"][1]["order"] != by["default"][0]["order"]
    errors = [rank.get("error", "none") for rank in by["sublet=10%"]]
    assert errors[0] == errors[1] and re.match("PlanError: the limit of [0-9.]+ MB cannot be met", errors[0]), errors


@long
def test_four_ranks_whose_collectives_take_most_stay_within_their_limit() -> None:
    by = told(4, 3, "sublet=80%", "sublet=80%@slow", options=SMALL)
    for ranks in by.values():
        assert all(rank["taken"] <= 1.01 * rank["planned"] <= 1.01 * rank["limit"] for rank in ranks), ranks
        assert len({rank["order"] for rank in ranks}) == 1 and ranks[0]["again"] > 0
    # The control: those times make another plan.
    assert by["sublet=80%"][0]["order"] != by["sublet=80%@slow"][0]["order"]


@long
@pytest.mark.parametrize(("fault", "error"), FAULTS)
def test_where_one_of_four_ranks_ends_the_others_end_with_an_error(fault: str, error: str) -> None:
    options = [*SMALL, "--comm.init_timeout_seconds", "60"]
    (survivors,) = told(4, 3, f"sublet=80%@{fault}", options=options, ended=1).values()
    assert len(survivors) == 3 and all(error in rank.get("error", "") for rank in survivors), survivors
