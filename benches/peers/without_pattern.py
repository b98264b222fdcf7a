#!/usr/bin/env python3
"""Writes an instance without pattern: a block begins at each step, its size and lifetime are drawn at random.

usage: without_pattern.py BLOCKS ALIVE SEED FILE [SIZES]

Lifetimes are exponential with a mean of ALIVE steps, which is how many are alive together. SIZES is uniform, from 1 byte to 4 MiB (if
not given); log, whose logarithm is uniform, from 64 bytes to 4 MiB; or pareto, from 1 KiB up, with shape 1.2.
"""
import random
import sys


SIZES = {
    "uniform": lambda draw: draw.randint(1, 4 << 20),
    "log": lambda draw: int(2 ** draw.uniform(6, 22)),
    "pareto": lambda draw: int(1024 * draw.paretovariate(1.2)),
}


def main():
    blocks, alive, seed = map(int, sys.argv[1:4])
    size = SIZES[sys.argv[5] if len(sys.argv) > 5 else "uniform"]
    draw = random.Random(seed)
    with open(sys.argv[4], "w") as out:
        print("id,lower,upper,size", file=out)
        for i in range(blocks):
            print(i, i, i + 1 + int(draw.expovariate(1 / alive)), size(draw), sep=",", file=out)


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6) or sys.argv[5:] and sys.argv[5] not in SIZES:
        sys.exit(__doc__)
    main()
