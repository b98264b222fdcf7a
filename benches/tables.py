#!/usr/bin/env python3
"""Measures what limits cost, for docs/benchmarks: writes a CSV of raw rows, and prints the headline rows as Markdown.

usage: tables.py SUBLET DATA OUT

SUBLET is the program, DATA the folder of the larger corpus, OUT where fit.csv goes. Seconds are CPU seconds, user and
system, of the whole process. A fit that is refused has an empty overhead.
"""
import csv
import json
import resource
import subprocess
import sys
from pathlib import Path

LIMITS = [80, 60, 50, 40]
MEANS = {"swap": "swap", "recompute": "recompute", "both": "swap,recompute", "all": "swap,recompute,in-place,relu"}
HEADLINE = ["resnet50_train_b32", "preresnet200_train_b32", "googlenet_train_b32", "vgg16_cifar_train_b100", "gpt2_train_b8"]


def run(*command):
    """The JSON that a command prints, and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: {ran.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(ran.stdout), seconds


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def fit(sublet, data, out):
    rows = []
    for name in HEADLINE:
        for limit in LIMITS:
            cells = []
            for means, using in MEANS.items():
                trace = str(data / "traces" / f"{name}.csv")
                made, seconds = run(sublet, "fit", trace, "--limit", f"{limit}%", "--using", using, "--json")
                overhead = made.get("overhead")
                rows.append([name, limit, means, "" if overhead is None else f"{overhead:.6f}", made.get("footprint", ""), f"{seconds:.2f}"])
                cells.append("–" if overhead is None else f"{100 * overhead:.2f} %")
            print(f"| {name} | {limit} % | {' | '.join(cells)} |", flush=True)
    write(out / "fit.csv", ["trace", "limit_percent", "means", "overhead", "footprint", "cpu_s"], rows)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sublet, data, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    fit(sublet, data, out)
