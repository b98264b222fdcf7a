#!/usr/bin/env python3
"""Whether a certificate says the truth of a plan: by addition and comparison, from the three files alone.

usage: check_certificate.py INPUT PLAN CERTIFICATE

INPUT is an instance (id,lower,upper,size[,alignment][,offset]; `end` in place of `upper` is inclusive) or a trace
(time_ns,event,block,bytes,op). PLAN has the columns id and offset. CERTIFICATE is the JSON object that
`sublet plan --certificate` writes. Exit status 0: everything in it is so; 1: something is not, and which.
Python's standard library only.
"""
import csv
import json
import sys


def intervals(path):
    """id -> (first step, step after the last, bytes, alignment, pin)."""
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    if rows and "event" in rows[0]:
        return stays(rows)
    blocks = {}
    for r in rows:
        upper = int(r["upper"]) if "upper" in r else int(r["end"]) + 1
        pin = int(r["offset"]) if r.get("offset") else None
        blocks[r["id"]] = (int(r["lower"]), upper, int(r["size"]), int(r.get("alignment") or 1), pin)
    assert len(blocks) == len(rows), "an id stands twice"
    return blocks


def stays(rows):
    """The blocks of a trace: the k-th later residency of B is called B#k."""
    blocks, begun, count = {}, {}, {}
    for step, r in enumerate(rows):
        b = r["block"]
        if r["event"] == "malloc":
            k = count[b] = count.get(b, -1) + 1
            begun[b] = f"{b}#{k}" if k else b
            blocks[begun[b]] = (step, len(rows), int(r["bytes"]), 1, None)
        elif r["event"] == "free":
            name = begun.pop(b)
            blocks[name] = (blocks[name][0], step, *blocks[name][2:])
    return blocks


def refuse_overlaps(blocks, offsets):
    """Every block against those that are alive when it begins."""
    alive = []
    for b in sorted(blocks, key=lambda b: blocks[b][0]):
        lower, _, size, *_ = blocks[b]
        alive = [c for c in alive if blocks[c][1] > lower]
        for c in alive:
            apart = offsets[b] + size <= offsets[c] or offsets[c] + blocks[c][2] <= offsets[b]
            assert apart, f"{b} and {c} are alive at step {lower} and share an address"
        alive.append(b)


def check(source, plan, certificate):
    blocks = intervals(source)
    with open(plan, newline="") as f:
        offsets = {r["id"]: int(r["offset"]) for r in csv.DictReader(f)}
    with open(certificate) as f:
        said = json.load(f)
    assert offsets.keys() == blocks.keys(), "the plan is not for these blocks"
    assert said["blocks"] == len(blocks), "another number of blocks"
    for b, (_, _, _, alignment, pin) in blocks.items():
        multiple = max(alignment, said["alignment"])
        assert offsets[b] >= 0 and offsets[b] % multiple == 0, f"the offset of {b} is not a multiple of {multiple}"
        assert pin is None or offsets[b] == pin, f"{b} is not where it is pinned"
    refuse_overlaps(blocks, offsets)
    peak = max((offsets[b] + blocks[b][2] for b in blocks), default=0)
    assert said["peak"] == peak, f"the peak is {peak}"
    step = said["witness_step"]
    load = sum(size for lower, upper, size, *_ in blocks.values() if step is not None and lower <= step < upper)
    assert said["lower_bound"] == load, f"{load} bytes are alive at step {step}"
    assert said["optimal"] == (peak == load), "whether it is optimal"
    return peak, load


if __name__ == "__main__":
    try:
        print("peak %d, at least %d: all of it is so" % check(*sys.argv[1:4]))
    except AssertionError as e:
        sys.exit(f"refused: {e}")
