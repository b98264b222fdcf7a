#!/usr/bin/env python3
"""Holds `sublet fit` by several means against two calls by hand: recompute to a level, then swap down to the limit.

usage: two_calls.py SUBLET OUT.csv TRACE ... [--limits 60,40,30,20] [--levels 8] [--all]

The levels lie at even distances between the limit and the peak, the peak left out. The first call recomputes, with --all by masks
and in place too; what it wrote is read as a trace of its own, and the second call swaps. Times are simulated on the default device.
OUT.csv has a row for each trace and limit: the overhead of fit, its CPU seconds, the least of two calls, and the level that it was
of. The status is 1 if two calls win anywhere.
"""
import argparse
import csv
import sys
import tempfile
from pathlib import Path

from program import run


def flatten(rewritten, operators, out):
    """Writes a rewritten trace as if it had been recorded: each residency is a block, each run an operator."""
    with open(operators, newline="") as file:
        header, *known = csv.reader(file)
    inplace = header.index("inplace")
    residency, residencies, of_run, previous, last = {}, 0, [], "", 0.0
    with open(rewritten, newline="") as file, open(out, "w", newline="") as to:
        write = csv.writer(to, lineterminator="\n").writerow
        read = csv.reader(file)
        write(next(read))
        for time_ns, event, block, size, op in read:
            if event == "malloc":
                residency[block] = residencies
                residencies += 1
            number = ""
            if op and event in ("read", "write"):
                if op != previous:
                    of_run.append(int(op.rstrip("'")))
                previous, number = op, len(of_run) - 1
            write([time_ns, event, residency[block], size, number])
    with open(out.with_suffix(".ops.csv"), "w", newline="") as to:
        write = csv.writer(to, lineterminator="\n").writerow
        write(["op", "name", "phase", "inplace", "rerun"])
        for number, op in enumerate(of_run):
            write([number, "op", "fwd", known[op][inplace], 0])


def two_calls(sublet, trace, limit, level, every, folder):
    """The time of recomputing to a level and then swapping to the limit, in ns; infinite if that is not within it."""
    first = "recompute,in-place,relu" if every else "recompute"
    _, fits, _ = run(sublet, "fit", trace, "--limit", level, "--using", first, "--output", folder)
    if not fits:
        return float("inf")
    flat = Path(folder) / "flat.csv"
    flatten(Path(folder) / "rewritten.csv", trace.with_suffix(".ops.csv"), flat)
    second, fits, _ = run(sublet, "fit", flat, "--limit", limit, "--using", "swap,in-place" if every else "swap")
    return second["time_ns"] if fits else float("inf")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sublet")
    parser.add_argument("out")
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--limits", default="60,40,30,20")
    parser.add_argument("--levels", type=int, default=8)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    using = "swap,recompute,in-place,relu" if asked.all else "swap,recompute"
    lost = 0
    with open(asked.out, "w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["trace", "limit_percent", "means", "fit", "cpu_s", "two_calls", "level_percent"])
        for trace in asked.traces:
            peak, _, _ = run(sublet := asked.sublet, "fit", trace, "--limit", "100%", "--using", "recompute")
            peak, time_ns = peak["original_peak"], peak["time_ns"]
            for percent in map(int, asked.limits.split(",")):
                limit = peak * percent // 100
                made, fits, seconds = run(sublet, "fit", trace, "--limit", limit, "--using", using)
                levels = [limit + (peak - limit) * k // asked.levels for k in range(asked.levels)]
                best, level = min((two_calls(sublet, trace, limit, level, asked.all, folder), level) for level in levels)
                fit, hand = (made["overhead"] if fits else float("inf")), best / time_ns - 1
                lost += hand < fit - 1e-6
                row = [trace.stem, percent, "all" if asked.all else "both", f"{fit:.6f}", f"{seconds:.2f}"]
                out.writerow([*row, f"{hand:.6f}", f"{100 * level / peak:.1f}"])
                file.flush()
                print(f"| {trace.stem} | {percent} % | {100 * fit:.2f} % | {100 * hand:.2f} % | {seconds:.1f} |", flush=True)
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
