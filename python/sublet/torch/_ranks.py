"""Many ranks, one decision.

Each rank measures its own operators, and the times differ; decided apart, one rank would compute again what another keeps. So
the costs are gathered, the slowest rank's count, and the least limit; the planner is deterministic, and from the same figures
all ranks come to the same schedule. That is checked: its hash is compared before anything runs. A rank that has ended, or
that has nothing to plan while the others do, is waited for no longer than told.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .. import PlanError
from ._measure import Cost


def speaking(group: Any, timeout: float) -> Any:
    """The ranks of a group as one of their own, in which nobody waits longer than `timeout` seconds. All ranks make it."""
    ranks = dist.get_process_group_ranks(group)
    return dist.new_group(ranks, timedelta(seconds=timeout), backend="gloo", use_local_synchronization=True)


def agree(costs: list[Cost], limit: int | str, group: Any) -> tuple[list[Cost], int | str]:
    """The costs of the slowest rank, operator by operator, and the least limit. PlanError on all ranks where their
    graphs differ."""
    told = _gathered(([(c.time_ns, c.scratch) for c in costs], limit), group)
    if len({len(theirs) for theirs, _ in told}) > 1:
        counts = ", ".join(str(len(theirs)) for theirs, _ in told)
        raise PlanError(f"the ranks run different graphs: they have {counts} operators")
    slowest = [Cost(max(t for t, _ in each), max(s for _, s in each)) for each in zip(*(theirs for theirs, _ in told))]
    limits = [theirs for _, theirs in told]
    if all(isinstance(x, int) for x in limits):
        return slowest, min(limits)
    if len(set(limits)) > 1:
        raise PlanError(f"the ranks have different limits: {', '.join(map(str, limits))}; give them in bytes")
    return slowest, limit


def check_equal(schedule: Any, group: Any) -> None:
    """PlanError on all ranks where their schedules differ."""
    digest = hashlib.sha256(repr(schedule).encode()).hexdigest()
    told = _gathered(digest, group)
    if len(set(told)) > 1:
        apart = [rank for rank, theirs in enumerate(told) if theirs != told[0]]
        raise PlanError(f"the schedules of the ranks {', '.join(map(str, apart))} are not that of rank 0")


def _gathered(value: Any, group: Any) -> list[Any]:
    """What each rank says, by rank. PlanError where a rank says nothing."""
    told: list[Any] = [None] * dist.get_world_size(group)
    # The compiler that calls this computes with tensors that have no values.
    with unset_fake_temporarily():
        try:
            dist.all_gather_object(told, value, group=group)
        except RuntimeError as e:
            rank, why = dist.get_rank(group), str(e).splitlines()[0]
            raise PlanError(f"rank {rank} plans alone: another has ended, or does something else ({why})") from None
    return told
