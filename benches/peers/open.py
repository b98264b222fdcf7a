#!/usr/bin/env python3
"""Instances that are not solved: several builds of sublet beside omnimalloc, in one run.

usage: open.py OUT.csv NAME=SUBLET [NAME=SUBLET ...] -- FILE ...

Needs the package omnimalloc. Ratios are of peak to max load; seconds are CPU seconds, of sublet the whole process by plain
`plan`, of omnimalloc its default allocator's call alone.
"""
import csv
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from omnimalloc.allocators import OmniAllocator
from omnimalloc.primitives import Allocation


def sublet(program, file):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads(subprocess.run([program, "plan", file, "--json"], capture_output=True, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return said, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def omnimalloc(file):
    with open(file, newline="") as rows:
        blocks = tuple(
            Allocation(id=i, start=int(r["lower"]), end=int(r["upper"]), size=int(r["size"]))
            for i, r in enumerate(csv.DictReader(rows))
        )
    begin = time.process_time()
    placed = OmniAllocator().allocate(blocks)
    return max(a.offset + a.size for a in placed), time.process_time() - begin


def main():
    split = sys.argv.index("--")
    builds = dict(build.split("=", 1) for build in sys.argv[2:split])
    with open(sys.argv[1], "w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        names = [f"{name}_{what}" for name in [*builds, "omnimalloc"] for what in ["ratio", "cpu_s"]]
        table.writerow(["instance", "blocks", "max_load", *names])
        for file in sys.argv[split + 1 :]:
            cells = []
            for program in builds.values():
                said, seconds = sublet(program, file)
                cells += [f"{said['peak'] / said['max_load']:.6f}", f"{seconds:.2f}"]
            peak, seconds = omnimalloc(file)
            cells += [f"{peak / said['max_load']:.6f}", f"{seconds:.2f}"]
            table.writerow([Path(file).stem, said["blocks"], said["max_load"], *cells])
            out.flush()


if __name__ == "__main__":
    if len(sys.argv) < 5 or "--" not in sys.argv:
        sys.exit(__doc__)
    main()
