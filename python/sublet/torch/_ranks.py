"""One schedule for all ranks of a process group.

Each rank measures its own operators, and the times differ between ranks: planned apart, one rank might recompute a
value that another rank keeps. So the costs of all ranks are gathered, and each operator counts with its highest cost,
and the least limit counts. The planner is deterministic, so that all ranks get the same schedule; this is checked by a
hash of the schedule before anything runs. The ranks wait for one that has ended, or that plans nothing, no longer than
a timeout.

If a rank leaves in the middle of a step, by an error or because its process has ended, all others learn which one
(`Together`). Otherwise they would only see a collective fail with an error of the network, each at another time.
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
"""The number of stores that were made for a group so far, by the group's name: each has keys of its own."""


def _store_of(group: Any) -> dist.Store:
    """A new part of the store of `torch.distributed`, with a connection of its own. All ranks of a group that call this
    the same number of times get the same part."""
    name = f"sublet/{group.group_name}/{next(_made[group.group_name])}"
    return dist.PrefixStore(name, dist.distributed_c10d._get_default_store().clone())


class Speaking:
    """Exchanges values between the ranks of a group, over the store of `torch.distributed`. All ranks have to make it
    at the same place. No rank waits longer than `timeout` seconds.

    A collective is not used: one of gloo was seen to wait for ever because the other ranks had given up before it
    began.
    """

    def __init__(self, group: Any, timeout: float) -> None:
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._store, self._timeout = _store_of(group), timedelta(seconds=timeout)
        self._told = 0

    def gathered(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank; `value` is this rank's. PlanError if a rank sends none in time."""
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
    """The highest cost of each operator on any rank, and the least limit. PlanError on all ranks if their graphs have
    different numbers of operators, or if their limits differ and are not all in bytes."""
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
    """Raises PlanError on all ranks if their schedules differ."""
    digest = hashlib.sha256(repr(schedule).encode()).hexdigest()
    told = ranks.gathered(digest)
    if len(set(told)) > 1:
        apart = [rank for rank, theirs in enumerate(told) if theirs != told[0]]
        raise PlanError(f"the schedules of the ranks {', '.join(map(str, apart))} are not that of rank 0")


LEFT = "left"
"""The key of the store for the message why a rank has left. Only the first message is kept, and all ranks report that
one."""
CALLED = "called"
"""The key that a rank sets to call all others: each that is alive answers under a key of its own."""


def _cause(error: BaseException) -> BaseException:
    """The PlanError that an error comes from, or the error itself: compilers and schedules wrap errors in others."""
    at: BaseException | None = error
    while at is not None:
        inner = getattr(at, "inner_exception", at)
        if isinstance(inner, PlanError):
            return inner
        at = at.__cause__ or at.__context__
    return error


class Together:
    """A context for steps of all ranks of a group: if a rank ends with an error, all ranks raise the same PlanError,
    which names that rank.

        together = sublet.torch.Together()      # at the same place on all ranks
        for x, y in loader:
            with together:
                ...                             # forward, backward, collectives, optimizer

    Each rank has a thread that reads the store of `torch.distributed` and answers calls there, even while the rank
    waits in a collective. A rank that leaves writes the reason to the store, and waits until the others have read the
    reason, since its process may be the one that holds the store. A rank whose collective has failed reads the reason.
    If there is none, it calls all ranks, and those that do not answer within `patience` seconds count as ended. A rank
    that waits in a collective goes on waiting until the collective fails: when other ranks end, or after the timeout of
    the group.
    """

    LOOK = 0.1
    """How often the thread looks, in seconds."""

    def __init__(self, group: Any = None, patience: float = 30) -> None:
        group = group or dist.group.WORLD
        self._rank, self._size, self._patience = dist.get_rank(group), dist.get_world_size(group), patience
        self._store = _store_of(group)
        # The thread has a connection of its own, since the main thread may be waiting for an answer on the other one.
        self._looks = self._store.clone()
        self._left: str | None = None
        self._heard, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def __enter__(self) -> None:
        """Raises PlanError if a rank has left."""
        if self._heard.is_set():
            raise PlanError(self._left)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error: writes the reason to the store, and raises a PlanError that names the rank that has left."""
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
        """Ends the thread, before Python exits."""
        self._ends.set()
        self._thread.join(1)

    def _missing(self) -> list[int]:
        """Calls all ranks, and returns those that do not answer; none if a rank has written a reason meanwhile."""
        self._store.set(CALLED, "")
        missing = self._wait("here", [])
        return [] if self._heard.is_set() else missing

    def _wait(self, key: str, gone: list[int]) -> list[int]:
        """Waits until all ranks but those in `gone` have written a key, for `patience` seconds at most. Returns the
        ranks that have not."""
        end = time.monotonic() + self._patience
        missing = [rank for rank in range(self._size) if rank not in gone]
        while missing and time.monotonic() < end:
            missing = [rank for rank in missing if not self._store.check([f"{key} {rank}"])]
            time.sleep(self.LOOK)
        return missing

    def _look(self) -> None:
        """The loop of the thread: it answers a call, and reads the reason why a rank has left."""
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
            # The process that holds the store has ended. The main thread sees this at its next access.
            return
