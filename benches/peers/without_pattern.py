#!/usr/bin/env python3
"""Writes an instance without pattern: a block begins at each step, its size and lifetime are drawn at random.

usage: without_pattern.py BLOCKS ALIVE SEED FILE

Sizes are uniform from 1 byte to 4 MiB, lifetimes exponential with a mean of ALIVE steps, which is how many are alive together.
"""
import random
import sys


def main():
    blocks, alive, seed = map(int, sys.argv[1:4])
    draw = random.Random(seed)
    with open(sys.argv[4], "w") as out:
        print("id,lower,upper,size", file=out)
        for i in range(blocks):
            print(i, i, i + 1 + int(draw.expovariate(1 / alive)), draw.randint(1, 4 << 20), sep=",", file=out)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main()
