#!/usr/bin/env python3
"""Placement: two builds of sublet beside omnimalloc, in one run; each optimum of the later build is checked.

usage: placement.py OUT.csv BEFORE NOW FILE ...

BEFORE and NOW are programs `sublet`, run by plain `plan`. Needs the package omnimalloc: its peak is the lower of its default
allocator and its best fit; search.py has its SuperMalloc, which ends by wall-clock time. FILE is anything that `sublet convert` reads.
Seconds are CPU seconds, of sublet the whole process, of omnimalloc the calls alone. Column `checked`: 1 where
tests/check_certificate.py agrees that the plan is optimal; empty where nothing is claimed, or where the proof is a search's,
for which a certificate gives no witness.
"""
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from omnimalloc.allocators import BestFitAllocator, OmniAllocator
from omnimalloc.primitives import Allocation

CHECKER = Path(__file__).parents[2] / "tests" / "check_certificate.py"


def sublet(program, file, *more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads(subprocess.run([program, "plan", file, "--json", *more], capture_output=True, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def checked(file, plan, certificate):
    """What the checker says of a plan: 1 if it is optimal; nothing if the certificate does not claim it."""
    if not json.loads(certificate.read_text())["optimal"]:
        return ""
    return int(subprocess.run([sys.executable, CHECKER, file, plan, certificate], capture_output=True).returncode == 0)


def omnimalloc(program, file):
    with tempfile.TemporaryDirectory() as folder:
        instance = Path(folder) / "instance.csv"
        subprocess.run([program, "convert", file, instance, "--to", "instance"], check=True, capture_output=True)
        with open(instance, newline="") as rows:
            blocks = tuple(
                Allocation(id=i, start=int(r["lower"]), end=int(r["upper"]), size=int(r["size"]))
                for i, r in enumerate(csv.DictReader(rows))
            )
    begin = time.process_time()
    peaks = [max(a.offset + a.size for a in by().allocate(blocks)) for by in (OmniAllocator, BestFitAllocator)]
    return min(peaks), time.process_time() - begin


def main():
    out, before, now, *files = sys.argv[1:]
    with open(out, "w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["instance", "blocks", "max_load", "lower_bound", "before_peak", "before_cpu_s", "now_peak", "now_cpu_s"]
            + ["optimal", "checked", "omnimalloc_peak", "omnimalloc_cpu_s"]
        )
        plan, certificate = Path(folder) / "plan.csv", Path(folder) / "certificate.json"
        for name in files:
            old, old_s = sublet(before, name)
            new, new_s = sublet(now, name, "--output", plan, "--certificate", certificate)
            bound = new.get("lower_bound", new["max_load"])
            peer, peer_s = omnimalloc(now, name)
            row = [Path(name).stem, new["blocks"], new["max_load"], bound, old["peak"], f"{old_s:.2f}"]
            row += [new["peak"], f"{new_s:.2f}", int(new["optimal"]), checked(name, plan, certificate), peer, f"{peer_s:.2f}"]
            table.writerow(row)
            file.flush()


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main()
