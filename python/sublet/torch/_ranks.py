"""Many ranks, one decision.

Each rank measures its own operators, and the times differ; decided apart, one rank would compute again what another keeps. So
the costs are gathered, the slowest rank's count, and the least limit; the planner is deterministic, and from the same figures
all ranks come to the same schedule. That is checked: its hash is compared before anything runs. A rank that has ended, or
that has nothing to plan while the others do, is waited for no longer than told.

A rank that leaves in the middle of a step, by an error or because it has ended, is named to all others (`Together`). What
they see by themselves is a collective that fails with an error of the network, at another time on each.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import pickle
import threading
import time
from collections import defaultdict
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch.distributed as dist

from .. import PlanError
from ._measure import Cost

_made: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
"""How much the ranks of a group have made together, by the group's name: each has keys of its own in the store."""


def _store_of(group: Any) -> dist.Store:
    """A part of the store of `torch.distributed` for what all ranks of a group make next, with a connection of its own."""
    name = f"sublet/{group.group_name}/{next(_made[group.group_name])}"
    return dist.PrefixStore(name, dist.distributed_c10d._get_default_store().clone())


class Speaking:
    """The ranks of a group, which tell each other what they have, over the store of `torch.distributed`. All ranks make it at the
    same place. Nobody waits longer than `timeout` seconds.

    Not by a collective: one of gloo was seen to wait for ever where the others had given up before it began.
    """

    def __init__(self, group: Any, timeout: float) -> None:
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._store, self._timeout = _store_of(group), timedelta(seconds=timeout)
        self._told = 0

    def gathered(self, value: Any) -> list[Any]:
        """What each rank says, by rank. PlanError where a rank says nothing."""
        keys = [f"{self._told} {rank}" for rank in range(self._size)]
        self._told += 1
        alone = f"rank {self._rank} plans alone: another has ended, or does something else"
        try:
            self._store.set(keys[self._rank], pickle.dumps(value))
            try:
                self._store.wait(keys, self._timeout)
            except dist.DistStoreError:
                silent = [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]
                raise PlanError(f"{alone} (nothing was heard of {', '.join(silent)})") from None
            return [pickle.loads(self._store.get(key)) for key in keys]
        except RuntimeError as e:
            raise PlanError(f"{alone} ({str(e).splitlines()[0]})") from None


def agree(costs: list[Cost], limit: int | str, ranks: Speaking) -> tuple[list[Cost], int | str]:
    """The costs of the slowest rank, operator by operator, and the least limit. PlanError on all ranks where their
    graphs differ."""
    told = ranks.gathered(([(c.time_ns, c.scratch) for c in costs], limit))
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


def check_equal(schedule: Any, ranks: Speaking) -> None:
    """PlanError on all ranks where their schedules differ."""
    digest = hashlib.sha256(repr(schedule).encode()).hexdigest()
    told = ranks.gathered(digest)
    if len(set(told)) > 1:
        apart = [rank for rank, theirs in enumerate(told) if theirs != told[0]]
        raise PlanError(f"the schedules of the ranks {', '.join(map(str, apart))} are not that of rank 0")


LEFT = "left"
"""The key of the store under which stands why a rank has left; the first that writes it is believed by all."""
CALLED = "called"
"""The key under which a rank asks who is there."""


def _cause(error: BaseException) -> BaseException:
    """The PlanError that an error comes from, or the error: compilers and schedules wrap what went wrong in them."""
    at: BaseException | None = error
    while at is not None:
        inner = getattr(at, "inner_exception", at)
        if isinstance(inner, PlanError):
            return inner
        at = at.__cause__ or at.__context__
    return error


class Together:
    """Steps that all ranks of a group take, or none: where one ends with an error, all get the same PlanError, which names it.

        together = sublet.torch.Together()      # at the same place on all ranks
        for x, y in loader:
            with together:
                ...                             # forward, backward, collectives, optimizer

    Each rank has a thread that looks at the store of `torch.distributed` and answers there, even while the rank waits in a
    collective. A rank that leaves writes why, and waits until the others have read it: one of them may hold the store. A rank
    whose collective has failed reads it; where nobody has written anything it calls all, and who does not answer has ended.
    A rank that waits in a collective goes on waiting until that fails, as it does when the others end, or by the timeout of
    its group. `patience` is how many seconds the others may take to answer.
    """

    LOOK = 0.1
    """How often the thread looks, in seconds."""

    def __init__(self, group: Any = None, patience: float = 30) -> None:
        group = group or dist.group.WORLD
        self._rank, self._size, self._patience = dist.get_rank(group), dist.get_world_size(group), patience
        self._store = _store_of(group)
        # A connection for the thread, for the other may be waiting for an answer.
        self._looks = self._store.clone()
        self._left: str | None = None
        self._heard, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def __enter__(self) -> None:
        """PlanError where a rank has left."""
        if self._heard.is_set():
            raise PlanError(self._left)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Tells the others of an error, and says on all ranks who has left."""
        if not isinstance(error, Exception):
            return
        lines = str(_cause(error)).strip().splitlines() or [type(error).__name__]
        try:
            gone: list[int] = []
            why = f"rank {self._rank} has left: {lines[0]}"
            if not self._heard.wait(2 * self.LOOK):
                gone = self._missing()
                if gone:
                    why = f"rank{'s' * (len(gone) > 1)} {', '.join(map(str, gone))} left without a word"
            self._left = self._store.compare_set(LEFT, "", why).decode()
            self._wait("heard", gone)
        except RuntimeError:
            # The holder of the store may have ended after the thread had read it.
            self._left = self._left or "a rank has left: the one that holds the store of torch.distributed"
        raise PlanError(self._left) from error

    def _end(self) -> None:
        """The thread ends before Python does."""
        self._ends.set()
        self._thread.join(1)

    def _missing(self) -> list[int]:
        """Who does not answer a call. Nobody is missed where somebody has written why meanwhile."""
        self._store.set(CALLED, "")
        missing = self._wait("here", [])
        return [] if self._heard.is_set() else missing

    def _wait(self, key: str, gone: list[int]) -> list[int]:
        """The ranks, but for those that are gone, that have not written a key before patience ends."""
        end = time.monotonic() + self._patience
        missing = [rank for rank in range(self._size) if rank not in gone]
        while missing and time.monotonic() < end:
            missing = [rank for rank in missing if not self._store.check([f"{key} {rank}"])]
            time.sleep(self.LOOK)
        return missing

    def _look(self) -> None:
        """What the thread does: answers a call, and reads why somebody has left."""
        called = False
        try:
            while not self._looks.check([LEFT]):
                if not called and self._looks.check([CALLED]):
                    called = True
                    self._looks.set(f"here {self._rank}", "")
                if self._ends.wait(self.LOOK):
                    return
            self._left = self._looks.get(LEFT).decode()
            self._heard.set()
            self._looks.set(f"heard {self._rank}", "")
        except RuntimeError:
            # The store has ended, and with it its holder, which the main thread will see.
            return
