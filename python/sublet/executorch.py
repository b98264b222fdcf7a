"""Plans for ExecuTorch: sublet chooses the offset of each tensor, and if there are several memories, its bank.

    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass
    from sublet.executorch import Bank, planner

    fast, slow = Bank(mem_id=1, size=512 << 10), Bank(mem_id=2, size=8 << 20, cost=4)
    planning = MemoryPlanningPass(memory_planning_algo=planner(banks=[fast, slow]))
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))

Tried with ExecuTorch 1.5.1.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executorch.exir.memory_planning import MemoryAlgoResult, MemoryPlanningAlgorithmSuite, SpecAllocResult

from ._results import plan
from ._sublet import PlanError

__all__ = ["Bank", "planner"]


@dataclass(frozen=True)
class Bank:
    """One of several memories."""

    mem_id: int
    """The number of its arena in ExecuTorch, from 1 on."""
    size: int
    """Its size, in bytes."""
    cost: int = 1
    """The cost of reading or writing a byte there, relative to the other banks."""


def planner(banks: Sequence[Bank] | None = None) -> Any:
    """An algorithm for `MemoryPlanningPass(memory_planning_algo=...)`.

    Tensors to which another pass has given a `mem_id` stay in that arena. Without banks, all other tensors lie in arena
    1, and each arena is planned to be small. With banks, the other tensors are spread over the banks so that their
    accesses cost little in sum; each operator that touches a tensor counts as one access. PlanError if a tensor fits in
    no bank.
    """
    ids = [bank.mem_id for bank in banks or ()]
    if len(set(ids)) < len(ids) or any(mem_id < 1 for mem_id in ids):
        raise ValueError("banks have different numbers from 1 on: arena 0 holds constants")

    def sublet(alignment: int, specs: Iterable[Any], graph: Any, signature: Any = None, extra_padding: int = 0) -> Any:
        every = list(specs)
        for spec in every:
            spec.realign(alignment)
        whole = [spec for spec in every if spec.storage_base is None]
        taken = dict(enumerate(getattr(graph, "input_mem_buffer_sizes", None) or []))
        placed: dict[Any, tuple[int, int]] = {}
        told: dict[int, list[Any]] = {}
        free = []
        for spec in whole:
            if spec.allocated_memory == 0:
                placed[spec] = (spec.mem_id or (banks[0].mem_id if banks else 1), 0)
            elif spec.mem_id is None and banks:
                free.append(spec)
            else:
                told.setdefault(1 if spec.mem_id is None else spec.mem_id, []).append(spec)
        for mem_id, pool in told.items():
            base = taken.get(mem_id, 0)
            peak, offsets = _one_bank(pool, alignment)
            placed.update({spec: (mem_id, base + offset) for spec, offset in zip(pool, offsets, strict=True)})
            taken[mem_id] = base + peak
        if banks and free:
            for spec, (mem_id, offset) in zip(free, _several(free, banks, taken, alignment, graph, extra_padding), strict=True):
                placed[spec] = (mem_id, taken.get(mem_id, 0) + offset)
        return _result(every, placed, taken, extra_padding)

    return MemoryPlanningAlgorithmSuite([sublet])


def _one_bank(pool: Sequence[Any], alignment: int) -> tuple[int, list[int]]:
    """The peak, and the offset of each tensor, in bytes: a plan for one arena. The last step of a lifetime of
    ExecuTorch belongs to the lifetime, so the end of the live range is one step later."""
    start, end = ([spec.lifetime[side] + side for spec in pool] for side in (0, 1))
    found = plan(start=start, end=end, size=[spec.allocated_memory for spec in pool], alignment=alignment)
    return found.peak, found.offsets.tolist()


def _touched(free: Sequence[Any], graph: Any) -> list[int]:
    """The number of operators that touch each tensor, and at least 2: its first and its last."""
    times = {id(spec): 0 for spec in free}
    for node in graph.graph.nodes:
        around = [node, *node.all_input_nodes]
        seen = {id(spec) for other in around for spec in _specs(other.meta.get("spec"))}
        for spec in seen & times.keys():
            times[spec] += 1
    return [max(times[id(spec)], 2) for spec in free]


def _specs(found: Any) -> list[Any]:
    return [] if found is None else list(found) if isinstance(found, (list, tuple)) else [found]


def _several(
    free: Sequence[Any], banks: Sequence[Bank], taken: dict[int, int], alignment: int, graph: Any, padding: int
) -> list[tuple[int, int]]:
    """The bank and the offset of each tensor, by `sublet plan --bank` on their trace."""
    rows = []
    for number, (spec, times) in enumerate(zip(free, _touched(free, graph), strict=True)):
        first, last = spec.lifetime
        rows.append((first, 0, number, "malloc", spec.allocated_memory))
        rows += [(first, 1, number, "write", "")] + [(last, 1, number, "read", "")] * (times - 1)
        rows.append((last, 2, number, "free", ""))
    rows.sort(key=lambda row: row[:3])
    arguments = []
    for bank in banks:
        room = (bank.size - taken.get(bank.mem_id, 0) - padding) // alignment * alignment
        if room > 0:
            arguments += ["--bank", f"{bank.mem_id}={room}:{bank.cost}"]
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder, "trace.csv"), Path(folder, "plan.csv")
        lines = [f"{time},{event},{number},{size},\n" for time, _, number, event, size in rows]
        trace.write_text("time_ns,event,block,bytes,op\n" + "".join(lines))
        command = [sys.executable, "-m", "sublet", "plan", str(trace), "--alignment", str(alignment), "--output", str(out)]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True)
        if ran.returncode != 0:
            raise PlanError(ran.stderr.strip())
        found = {row["id"]: (int(row["bank"]), int(row["offset"])) for row in csv.DictReader(out.open())}
    return [found[str(number)] for number in range(len(free))]


def _result(every: Sequence[Any], placed: dict[Any, tuple[int, int]], taken: dict[int, int], padding: int) -> Any:
    """The plan in ExecuTorch's form. A view lies inside its base, and each arena ends with its highest tensor, plus the
    padding in bytes if the arena holds a tensor."""
    found = MemoryAlgoResult({}, [])
    sizes = dict(taken)
    for number, spec in enumerate(every):
        base, inside = spec, 0
        while base.storage_base is not None:
            base, inside = base.storage_base, inside + base.storage_base_offset
        mem_id, offset = placed[base]
        found.spec_dict[spec] = SpecAllocResult(mem_id, number, offset + inside)
        sizes[mem_id] = max(sizes.get(mem_id, 0), offset + base.allocated_memory)
    used = {mem_id for mem_id, _ in placed.values()}
    most = max([1, *sizes])
    found.bufsizes = [sizes.get(mem_id, 0) + (padding if mem_id in used else 0) for mem_id in range(most + 1)]
    return found
