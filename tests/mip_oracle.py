#!/usr/bin/env python3
"""Ask a MIP solver whether plans satisfy the mixed integer program of Sekiyama et al. 2018, section 3.1.

Reads from standard input one JSON list of cases:
    {"blocks": [[start, end, size, alignment, pin or null], ...], "offsets": [...], "alignment": A, "capacity": W}
Prints one JSON list: for each case the least u with the offsets as they are, or null where the program is infeasible.
Knows nothing of the project's code. Needs the package highspy.
"""
import json
import sys

import highspy


def least_peak(solver, case):
    """min u (1) over the constraints (2) to (6), with x fixed to the offsets."""
    solver.clear()
    solver.setOptionValue("output_flag", False)
    blocks, offsets, capacity = case["blocks"], case["offsets"], case["capacity"]
    u = solver.addVariable(lb=0, ub=capacity, obj=1)  # (1), (5)
    x = []
    for (_, _, size, alignment, pin), offset in zip(blocks, offsets):
        x_i = solver.addVariable(lb=0 if pin is None else pin, ub=highspy.kHighsInf if pin is None else pin)  # (6)
        units = solver.addIntegral(lb=0)
        solver.addConstr(x_i == max(alignment, case["alignment"]) * units)
        solver.addConstr(x_i + size <= u)  # (2)
        solver.addConstr(x_i == offset)
        x.append(x_i)
    for j, (start_j, end_j, size_j, _, _) in enumerate(blocks):
        for i, (start_i, end_i, size_i, _, _) in enumerate(blocks[:j]):
            if max(start_i, start_j) < min(end_i, end_j):  # the pair is in E
                z = solver.addBinary()
                solver.addConstr(x[i] + size_i <= x[j] + capacity * z)  # (3)
                solver.addConstr(x[j] + size_j <= x[i] + capacity * (1 - z))  # (4)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        return round(solver.getObjectiveValue())
    # Presolve may leave it at "unbounded or infeasible"; with x fixed and u ≥ 0 nothing is unbounded.
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    raise RuntimeError(f"HiGHS ended with {status} on {case}")


def main():
    solver = highspy.Highs()
    json.dump([least_peak(solver, case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
