#!/usr/bin/env python3
"""Instances of temporal bin packing as instances of placement: one CSV file for every fifteenth.

usage: bins.py REPOSITORY FOLDER

REPOSITORY is a checkout of github.com/wotzlaff/tbpp-instances. Of its series b1 and b2 every fifteenth file, by name, goes to
FOLDER, where placement.py reads it. A file has a line with the number of items first, then for each item a line with its number,
the time at which it begins and the one at which it ends, and its size. The capacity of a bin is not used: all items lie in one.
"""
import csv
import sys
from pathlib import Path

EVERY = 15


def main():
    repository, folder = map(Path, sys.argv[1:])
    data = repository / "data"
    names = sorted(str(file.relative_to(data)) for file in data.glob("b*/**/*.txt"))
    for name in names[::EVERY]:
        first, *lines = (data / name).read_text().splitlines()
        items = [line.split() for line in lines[: int(first.split()[0])]]
        with open(folder / name.replace("/", "_").replace(".txt", ".csv"), "w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(["id", "lower", "upper", "size"])
            table.writerows(items)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
