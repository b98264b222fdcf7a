#!/usr/bin/env python3
"""How time and ratio grow with the number of blocks: sublet's solvers beside omnimalloc's greedy ones.

usage: growth.py [--alive N] [--seed N] [--limit SECONDS] [FILE ...]

Build first: cargo build --release --workspace --bins --examples. Needs the package omnimalloc and GNU time.

Prints markdown. First table: seeded instances of 1,000 to 1,000,000 blocks, the same files for both sides, CPU
seconds (user and system, all threads) and ratio (peak over max load). sublet's seconds are those of its whole process:
reading the file, placing, verifying. omnimalloc's are those of its call alone, with the blocks in its own objects.
A method is not run on a size if it took more than a tenth of the limit on the size before.
Second table, where FILEs are named: plain `sublet plan` on each, the whole process.
"""
import argparse
import csv
import importlib.metadata
import json
import os
import subprocess
import tempfile
import time
from datetime import date
from pathlib import Path

from omnimalloc import allocators
from omnimalloc.primitives import Allocation

RELEASE = Path(__file__).parents[2] / "target" / "release"
SIZES = [1_000, 10_000, 100_000, 1_000_000]
SOLVERS = ["auto", "multistart", "best-fit", "coloring-first-fit", "coloring-best-fit"] + [
    f"{order}-{fit}-fit" for order in ["size", "size-lifetime", "area", "lifetime", "start"] for fit in ["first", "best"]
]
PEERS = ["GreedyBySize", "GreedyByArea", "GreedyByDuration", "GreedyByStart", "GreedyByConflict",
         "GreedyByConflictSize", "GreedyByAll", "BestFit", "Omni"]


def run(file, solver="auto"):
    """Plan a file; what the program prints, with the seconds and the bytes that its process took."""
    begin = time.perf_counter()
    # A child begins with the memory of its parent, which is large here; GNU time's is small.
    command = ["/usr/bin/time", "-f", "%M", RELEASE / "sublet", "plan", file, "--solver", solver, "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.stdout.read(), child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(err.decode())
    wall, cpu = time.perf_counter() - begin, used.ru_utime + used.ru_stime
    return json.loads(out) | {"wall": wall, "cpu": cpu, "memory": int(err) * 1024}


def sublet(file, solver):
    said = run(file, solver)
    return said["cpu"], said["ratio"]


def omnimalloc(blocks, max_load, name):
    allocator = getattr(allocators, f"{name}Allocator")()
    begin = time.process_time()
    placed = allocator.allocate(blocks)
    seconds = time.process_time() - begin
    return seconds, max(a.offset + a.size for a in placed) / max_load


def read_for_omnimalloc(file):
    with open(file, newline="") as f:
        return tuple(
            Allocation(id=int(r["id"]), start=int(r["lower"]), end=int(r["upper"]), size=int(r["size"]))
            for r in csv.DictReader(f)
        )


def growth(alive, seed, limit):
    names = [f"sublet {s}" for s in SOLVERS] + [f"omnimalloc {p}" for p in PEERS]
    cells = {name: [] for name in names}
    last = dict.fromkeys(names, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        for n in SIZES:
            file = Path(folder) / f"{n}.csv"
            with open(file, "wb") as out:
                subprocess.run([RELEASE / "examples" / "generate", "random", str(n), str(alive), str(seed)],
                               stdout=out, check=True)
            max_load = run(file, "best-fit")["max_load"]
            blocks = read_for_omnimalloc(file)
            for name in names:
                if last[name] > limit / 10:
                    cells[name].append("–")
                    continue
                peer, method = name.split()
                ours = peer == "sublet"
                seconds, ratio = sublet(file, method) if ours else omnimalloc(blocks, max_load, method)
                last[name] = seconds
                cells[name].append(f"{seconds:.3f} s, {ratio:.4f}")
    print("| | " + " | ".join(f"{n:,} blocks" for n in SIZES) + " |")
    print("| - |" + " - |" * len(SIZES))
    for name in names:
        print(f"| {name} | " + " | ".join(cells[name]) + " |")


def whole_process(files):
    print("| | blocks | wall s | CPU s | memory MB | ratio |")
    print("| - | - | - | - | - | - |")
    for file in files:
        said = run(file)
        print(f"| {Path(file).stem} | {said['blocks']:,} | {said['wall']:.3f} | {said['cpu']:.3f} "
              f"| {said['memory'] / 1e6:.1f} | {said['ratio']:.6f} |")


def machine():
    with open("/proc/cpuinfo") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "unknown CPU")
    return f"{cpu}, {os.cpu_count()} cores"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--alive", type=int, default=60, help="blocks alive at a time")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--limit", type=float, default=60, help="seconds that a run may take")
    p.add_argument("files", nargs="*", metavar="FILE")
    a = p.parse_args()
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    version = subprocess.run([RELEASE / "sublet", "--version"], capture_output=True, text=True, check=True)
    print(f"{date.today()}, {machine()}; {version.stdout.strip()} at commit {git.stdout.strip()}, "
          f"omnimalloc {importlib.metadata.version('omnimalloc')}; {a.alive} blocks alive, seed {a.seed}.\n")
    growth(a.alive, a.seed, a.limit)
    if a.files:
        print()
        whole_process(a.files)


if __name__ == "__main__":
    main()
