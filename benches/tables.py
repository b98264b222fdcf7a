#!/usr/bin/env python3
"""Measures the tables of docs/benchmarks: writes one CSV of raw rows for each, and prints the headline rows as Markdown.

usage: tables.py SUBLET DATA OUT [placement] [fit]

SUBLET is the program, DATA the folder of the larger corpus, OUT where the CSV files go. Seconds are CPU seconds, user and
system, of the whole process. A fit that is refused has an empty overhead.
"""
import csv
import sys
from pathlib import Path

from program import run

LIMITS = [80, 60, 50, 40]
MEANS = {"swap": "swap", "recompute": "recompute", "both": "swap,recompute", "all": "swap,recompute,in-place,relu"}
HEADLINE = ["resnet50_train_b32", "preresnet200_train_b32", "googlenet_train_b32", "vgg16_cifar_train_b100", "gpt2_train_b8"]


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def placement(sublet, data, out):
    rows = []
    files = [*sorted((data / "traces").glob("*.csv")), *sorted((data / "minimalloc").glob("*.csv")), *sorted((data / "idealloc").glob("*.csv"))]
    for file in files:
        if file.name.endswith(".ops.csv"):
            continue
        plan, _, seconds = run(sublet, "plan", file)
        rows.append([file.stem, plan["blocks"], plan["max_load"], plan["peak"], int(plan["optimal"]), f"{seconds:.3f}"])
        print(f"| {file.stem} | {plan['blocks']} | {plan['ratio']:.6f} | {'yes' if plan['optimal'] else 'no'} | {seconds:.2f} |", flush=True)
    write(out / "placement.csv", ["instance", "blocks", "max_load", "peak", "optimal", "cpu_s"], rows)


def fit(sublet, data, out):
    rows = []
    for name in HEADLINE:
        for limit in LIMITS:
            cells = []
            for means, using in MEANS.items():
                trace = data / "traces" / f"{name}.csv"
                made, _, seconds = run(sublet, "fit", trace, "--limit", f"{limit}%", "--using", using)
                overhead = made.get("overhead")
                rows.append([name, limit, means, "" if overhead is None else f"{overhead:.6f}", made.get("footprint", ""), f"{seconds:.2f}"])
                cells.append("–" if overhead is None else f"{100 * overhead:.2f} %")
            print(f"| {name} | {limit} % | {' | '.join(cells)} |", flush=True)
    write(out / "fit.csv", ["trace", "limit_percent", "means", "overhead", "footprint", "cpu_s"], rows)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sublet, data, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    for table in sys.argv[4:] or ["placement", "fit"]:
        {"placement": placement, "fit": fit}[table](sublet, data, out)
