#!/usr/bin/env python3
"""What another order of the operators saves: least limits and overheads with and without it, each line judged.

usage: orders.py SUBLET CHECK_SCHEDULE.py OUT.csv TRACE ... [--limits 50,30,20]

For each trace that has a file of operators: the least limit that is found by recomputation, and by all means; and the overhead of all
means at each limit. `before` is in the recorded order, `after` with --reorder. What comes out is judged by CHECK_SCHEDULE.py, which
shares no code with the planner: with --reorder, --plan, --cyclic and --limit. OUT.csv has what `judged` said; the status is 1 if it
refuses a line, or if an order costs anything. Times are simulated.
"""
import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from program import run


def fit(sublet, trace, limit, options, folder=None):
    """What `sublet fit` prints."""
    output = ["--output", folder] if folder else []
    made, _, _ = run(sublet, "fit", trace, "--limit", limit, *options, *output)
    return made


def judged(judge, trace, limit, folder):
    """Whether the judge accepts what was written to a folder."""
    command = [sys.executable, judge, trace, folder / "rewritten.csv", "--plan", folder / "plan.csv", "--limit", limit]
    ran = subprocess.run([*map(str, command), "--cyclic", "--reorder", "--alignment", "256"], capture_output=True, text=True)
    return "valid" if ran.returncode == 0 and json.loads(ran.stdout)["valid"] else f"refused: {ran.stdout}{ran.stderr}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("sublet")
    parser.add_argument("judge")
    parser.add_argument("out")
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--limits", default="50,30,20")
    asked = parser.parse_args()
    wrong = 0
    with open(asked.out, "w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write = csv.writer(file, lineterminator="\n").writerow
        write(["trace", "what", "limit_percent", "before", "after", "judged"])
        for trace in asked.traces:
            peak = fit(asked.sublet, trace, "100%", ["--using", "recompute"])["original_peak"]
            for means, options in {"recompute": ["--using", "recompute"], "all": []}.items():
                least = [fit(asked.sublet, trace, 1, [*options, *order]).get("least_limit")
                         for order in ([], ["--reorder"])]
                said = ""
                if least[1]:
                    fit(asked.sublet, trace, least[1], [*options, "--reorder"], folder)
                    said = judged(asked.judge, trace, least[1], folder)
                wrong += said not in ("", "valid")
                write([trace.stem, f"least limit, {means}", "", *(f"{100 * l / peak:.2f}" if l else "" for l in least), said])
                file.flush()
            for percent in map(int, asked.limits.split(",")):
                limit = peak * percent // 100
                before = fit(asked.sublet, trace, limit, [])
                after = fit(asked.sublet, trace, limit, ["--reorder"], folder)
                told = [f"{f['overhead']:.4f}" if "overhead" in f else "" for f in (before, after)]
                said = judged(asked.judge, trace, limit, folder) if told[1] else ""
                wrong += said not in ("", "valid") or bool(told[0]) and (not told[1] or float(told[1]) > float(told[0]))
                write([trace.stem, "overhead, all", percent, *told, said])
                file.flush()
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
