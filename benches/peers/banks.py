#!/usr/bin/env python3
"""Two memories, one of them four times as fast: sublet beside ExecuTorch's banked_greedy, and beside a MIP solver where there
are few blocks.

usage: banks.py OUT.csv SUBLET MODEL ...

The fast memory has 0.25, 0.5, 1, 2, 3 and 4 MiB, and half of the model's max load; the slow one has no limit. The cost is the modelled
time of all reads and writes: a byte costs 1 in fast memory and 4 in slow memory. Shares are of the bytes that are read and
written. Needs the package highspy; the solver gets SECONDS for a case.
"""
import csv
import json
import subprocess
import sys
import tempfile
from math import gcd
from pathlib import Path

import highspy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from banks_oracle import least_cost

MIB = 1 << 20
SIZES = [MIB // 4, MIB // 2, MIB, 2 * MIB, 3 * MIB, 4 * MIB]
SLOW, COST, ALIGNMENT = 1 << 30, 4, 16
MOST_BLOCKS, SECONDS = 70, 20
PEER = "executorch-banked-greedy"


def ask(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, check=True, text=True).stdout


def instance(program, model):
    """Lifetimes and sizes of the blocks of a model, and the bytes of each that are read and written."""
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for format in ("instance", "trace"):
            out = Path(folder, format + ".csv")
            ask(program, "convert", model, str(out), "--to", format)
            with out.open(newline="") as lines:
                rows.append(list(csv.DictReader(lines)))
    blocks = {r["id"]: [int(r["lower"]), int(r["upper"]), int(r["size"])] for r in rows[0]}
    times = dict.fromkeys(blocks, 0)
    for r in rows[1]:
        times[r["block"]] += r["event"] in ("read", "write")
    return list(blocks.values()), [times[name] * blocks[name][2] for name in blocks]


def max_load(blocks):
    return max(sum(size for start, end, size in blocks if start <= step < end) for step, _, _ in blocks)


def exact(solver, blocks, touched, fast):
    """The least cost; none if the solver does not end in time. Sizes are divided by their greatest common divisor: in a
    placement in which each block lies on another one or at 0, all offsets are multiples of it."""
    unit = gcd(*(size for _, _, size in blocks))
    if unit % ALIGNMENT:
        return None
    small = [[start, end, size // unit] for start, end, size in blocks]
    # The slow bank has room for all blocks side by side.
    slow = sum(size for _, _, size in small)
    banks = [[fast // unit, 1, 1], [slow, COST, 1]]
    uses = [[bytes_ // unit, [0, 1] if size <= fast // unit else [1]] for bytes_, (_, _, size) in zip(touched, small)]
    try:
        return least_cost(solver, {"blocks": small, "uses": uses, "banks": banks}, SECONDS) * unit
    except RuntimeError:
        return None


def row(program, solver, model, blocks, touched, fast):
    banks = ["--bank", f"fast={fast}", "--bank", f"slow={SLOW}:{COST}"]
    said = json.loads(ask(program, "compare", model, *banks, "--json"))
    assert said["touched"] == sum(touched), model
    mine, peer = ({p["planner"]: p for p in said["planners"]}[name] for name in ("sublet", PEER))
    least = exact(solver, blocks, touched, fast) if len(blocks) <= MOST_BLOCKS else None
    # The bound and the plan of sublet have the solver's answer between them.
    assert least is None or said["lower_bound"] <= least <= mine["cost"], (model, fast, least, said)
    shares = [f"{p['fast_percent']:.2f}" if p["cost"] is not None else "" for p in (mine, peer)]
    costs = [said["lower_bound"], least, mine["cost"], peer["cost"]]
    return ["/".join(Path(model).with_suffix("").parts[-2:]), len(blocks), fast, sum(touched), *("" if c is None else c for c in costs), *shares]


def tell(rows):
    """Prints the sums that the documents name."""
    kept = [r for r in rows if r[7] != ""]
    asked = [r for r in rows if r[5] != ""]
    tight = [r for r in kept if r[4] > r[3]]
    print(f"{len({r[0] for r in rows})} models, {len(rows)} cases, in {len(rows) - len(kept)} banked_greedy does not fit")
    print(f"at the bound {sum(r[6] == r[4] for r in rows)}, within 0.1 % of it {sum(r[6] <= 1.001 * r[4] for r in rows)}, ", end="")
    print(f"at most {100 * max(r[6] / r[4] - 1 for r in rows if r[4]):.2f} % above")
    print(f"dearer than banked_greedy {sum(r[6] > r[7] for r in kept)}, cheaper {sum(r[6] < r[7] for r in kept)}")
    print(f"the MIP solver ends in {len(asked)} cases; sublet is at its cost in {sum(r[6] == r[5] for r in asked)}, ", end="")
    print(f"at most {100 * max((r[6] / r[5] - 1 for r in asked if r[5]), default=0):.2f} % above")
    print(f"in the {len(tight)} cases where not all fits in fast memory the time is ", end="")
    print(f"{100 * sum(r[6] / r[7] for r in tight) / len(tight):.1f} % of banked_greedy's on average, the share in fast memory ", end="")
    print(f"{sum(float(r[8]) for r in tight) / len(tight):.1f} % in place of {sum(float(r[9]) for r in tight) / len(tight):.1f} %")


def main(out, program, models):
    solver, rows = highspy.Highs(), []
    with open(out, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        head = ["model", "blocks", "fast_bytes", "touched_bytes", "lower_bound", "mip", "sublet", "banked_greedy"]
        table.writerow([*head, "sublet_fast_percent", "banked_greedy_fast_percent"])
        for model in models:
            blocks, touched = instance(program, model)
            half = max_load(blocks) // 2 // ALIGNMENT * ALIGNMENT
            for fast in sorted({half, *SIZES}):
                rows.append(row(program, solver, model, blocks, touched, fast))
                table.writerow(rows[-1])
            file.flush()
    tell(rows)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
