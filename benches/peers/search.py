#!/usr/bin/env python3
"""The search beside omnimalloc's SuperMalloc, on the same files in the same run.

usage: search.py [--seconds N] [--threads N] FILE [FILE ...]

Build first: cargo build --release --workspace --bins. Needs the package omnimalloc and GNU time.

Prints markdown: the ratio (peak over max load), whether it is proved optimal, and CPU seconds. sublet's seconds are
those of its whole process; omnimalloc's are those of its call alone, all threads, with a limit on its wall seconds.
"""
import argparse
import time
from pathlib import Path

from growth import machine, read_for_omnimalloc, run
from omnimalloc import allocators


def supermalloc(file, threads, seconds):
    blocks = read_for_omnimalloc(file)
    allocator = allocators.SupermallocAllocator(timeout=seconds, num_threads=threads)
    begin = time.process_time()
    placed = allocator.allocate(blocks)
    return time.process_time() - begin, max(a.offset + a.size for a in placed)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("files", nargs="+", metavar="FILE")
    a = p.parse_args()
    print(f"{machine()}; SuperMalloc with {a.threads} threads and {a.seconds:g} s.\n")
    print("| | blocks | sublet ratio | optimal | CPU s | SuperMalloc ratio | CPU s | time ratio |")
    print("| - | - | - | - | - | - | - | - |")
    ours = theirs = 0.0
    for file in a.files:
        said = run(file)
        cpu, peak = supermalloc(file, a.threads, a.seconds)
        ours, theirs = ours + said["cpu"], theirs + cpu
        print(f"| {Path(file).stem} | {said['blocks']} | {said['ratio']:.6f} | {'yes' if said['optimal'] else 'no'} "
              f"| {said['cpu']:.3f} | {peak / said['max_load']:.6f} | {cpu:.3f} | {cpu / said['cpu']:.1f} |", flush=True)
    print(f"| together | | | | {ours:.3f} | | {theirs:.3f} | {theirs / ours:.1f} |")


if __name__ == "__main__":
    main()
