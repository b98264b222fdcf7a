#!/usr/bin/env python3
"""Ask a MIP solver for the least cost of blocks in several banks.

Reads from standard input one JSON list of cases:
    {"blocks": [[start, end, size], ...], "uses": [[touched, [bank, ...]], ...], "banks": [[capacity, cost, alignment], ...]}
Prints one JSON list: for each case the least sum of touched times cost, or null where nothing fits.
Knows nothing of the project's code. Needs the package highspy.
"""
import json
import sys

import highspy


def least_cost(solver, case, seconds=None):
    """The least cost of a case, None if nothing fits; a RuntimeError if `seconds` were not enough. A binary for each block
    and bank that it may lie in, an offset for each block, and for each pair that is alive together which lies lower, which
    counts where both lie in one bank."""
    solver.clear()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.5)
    if seconds is not None:
        solver.setOptionValue("time_limit", float(seconds))
        solver.setOptionValue("threads", 1)
    banks = case["banks"]
    most = max(capacity for capacity, _, _ in banks)
    lies, offsets = [], []
    for (_, _, size), (touched, allowed) in zip(case["blocks"], case["uses"]):
        own = {k: solver.addBinary(obj=touched * banks[k][1]) for k in allowed}
        solver.addConstr(sum(own.values()) == 1)
        x = solver.addVariable(lb=0, ub=most)
        for k, here in own.items():
            capacity, _, alignment = banks[k]
            solver.addConstr(x + size <= capacity + (most + size) * (1 - here))
            if alignment > 1:
                units = solver.addIntegral(lb=0)
                solver.addConstr(x - alignment * units <= most * (1 - here))
                solver.addConstr(alignment * units - x <= 2 * most * (1 - here))
        lies.append(own)
        offsets.append(x)
    for j, (start_j, end_j, size_j) in enumerate(case["blocks"]):
        for i, (start_i, end_i, size_i) in enumerate(case["blocks"][:j]):
            if max(start_i, start_j) >= min(end_i, end_j):
                continue
            lower = solver.addBinary()
            for k in lies[i].keys() & lies[j].keys():
                apart = 2 * most * (2 - lies[i][k] - lies[j][k])
                solver.addConstr(offsets[i] + size_i <= offsets[j] + 2 * most * (1 - lower) + apart)
                solver.addConstr(offsets[j] + size_j <= offsets[i] + 2 * most * lower + apart)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return round(solver.getObjectiveValue())
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    raise RuntimeError(f"HiGHS ended with {status} on {case}")


def main():
    solver = highspy.Highs()
    json.dump([least_cost(solver, case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
