#!/usr/bin/env python3
"""Fits every trace to a grid of limits and sets of means with one build, and has each schedule judged.

usage: grid.py SUBLET CHECK_SCHEDULE.py OUT.csv TRACE ... [--limits 90,80,70,60,50,40,30,20] [--means swap,recompute,both,all]
       grid.py --compare BEFORE.csv AFTER.csv

A limit is in percent of the trace's peak. OUT.csv has a row for each fit: the overhead (empty where no schedule was found), the user
seconds, the peak memory of the process in MiB, and what the judge said. The status is 1 if it refuses a schedule. Times of a
schedule are simulated on the default device.

--compare prints, of the fits that both files have: the geometric mean of 1 + overhead of each, the user seconds in all, the fits that
one of them alone found, and every overhead that was below 50 % and rose by more than a tenth of itself and by more than 0.3 points.
The status is 1 if the mean rose, or there is such a fit.
"""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MEANS = {"swap": "swap", "recompute": "recompute", "both": "swap,recompute", "all": "swap,recompute,in-place,relu"}


def fit(sublet, trace, limit, using, folder):
    """What `sublet fit` prints, its user seconds, and the most memory that it took, in MiB."""
    command = [sublet, "fit", trace, "--limit", limit, "--using", using, "--output", folder, "--json"]
    with open(Path(folder) / "said", "w+") as said:
        process = subprocess.Popen([*map(str, command)], stdout=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1, 3):
            sys.exit(f"{command}: status {process.returncode}")
        said.seek(0)
        return json.load(said), process.returncode == 0, used.ru_utime, used.ru_maxrss / 1024


def judged(judge, trace, limit, folder):
    """What the judge says of the schedule in a folder: `valid`, or why not."""
    files = [trace, Path(folder) / "rewritten.csv", "--plan", Path(folder) / "plan.csv"]
    ran = subprocess.run([sys.executable, judge, *map(str, files), "--limit", str(limit), "--cyclic"], capture_output=True, text=True)
    return "valid" if ran.returncode == 0 and json.loads(ran.stdout)["valid"] else f"refused: {ran.stdout}{ran.stderr}".strip()


def measure(asked):
    """Fits and judges the whole grid. Returns how many schedules were refused."""
    wrong = 0
    with open(asked.files[2], "w", newline="") as file, tempfile.TemporaryDirectory() as folder:
        write = csv.writer(file, lineterminator="\n").writerow
        write(["trace", "limit_percent", "means", "overhead", "user_s", "memory_mib", "judged"])
        sublet, judge = asked.files[:2]
        for trace in map(Path, asked.files[3:]):
            first, *_ = fit(sublet, trace, "100%", "recompute", folder)
            for means in asked.means.split(","):
                for percent in map(int, asked.limits.split(",")):
                    limit = first["original_peak"] * percent // 100
                    made, found, seconds, memory = fit(sublet, trace, limit, MEANS[means], folder)
                    said = judged(judge, trace, limit, folder) if found else ""
                    wrong += said not in ("", "valid")
                    overhead = f"{made['overhead']:.6f}" if found else ""
                    write([trace.stem, percent, means, overhead, f"{seconds:.2f}", f"{memory:.0f}", said])
                    file.flush()
    return wrong


def compare(before, after):
    """Compares two files of a grid. Returns how many things got worse."""
    def read(path):
        with open(path, newline="") as file:
            return {(r["trace"], r["limit_percent"], r["means"]): r for r in csv.DictReader(file)}

    old, new = read(before), read(after)
    grid = [key for key in old if key in new]
    found = [{key for key in grid if rows[key]["overhead"]} for rows in (old, new)]
    both = [key for key in grid if key in found[0] & found[1]]
    overhead = [{key: float(rows[key]["overhead"]) for key in both} for rows in (old, new)]
    means = [math.exp(sum(math.log1p(times[key]) for key in both) / len(both)) for times in overhead]
    seconds = [sum(float(rows[key]["user_s"]) for key in grid) for rows in (old, new)]
    print(f"{len(grid)} fits, found {len(found[0])} and {len(found[1])}, both {len(both)}")
    print(f"geometric mean of 1 + overhead: {means[0]:.6f} and {means[1]:.6f}")
    print(f"user seconds: {seconds[0]:.1f} and {seconds[1]:.1f}, {seconds[1] / seconds[0]:.2f} times")
    for key in sorted(found[0] - found[1]):
        print("found before alone:", *key, old[key]["overhead"])
    for key in sorted(found[1] - found[0]):
        print("found after alone:", *key, new[key]["overhead"])
    worse = [key for key in both if overhead[0][key] < 0.5 and overhead[1][key] - overhead[0][key] > max(0.1 * overhead[0][key], 0.003)]
    for key in worse:
        print("worse:", *key, f"{100 * overhead[0][key]:.2f} % and {100 * overhead[1][key]:.2f} %")
    return len(worse) + (means[1] > means[0]) + len(found[0] - found[1])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--limits", default="90,80,70,60,50,40,30,20")
    parser.add_argument("--means", default="swap,recompute,both,all")
    parser.add_argument("--compare", action="store_true")
    asked = parser.parse_args()
    wrong = compare(*asked.files) if asked.compare else measure(asked)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
