#!/usr/bin/env python3
"""Ask a MIP solver for the least peak where outputs may reach into dying inputs.

Reads from standard input one JSON list of cases:
    {"blocks": [[start, end, size, alignment, pin or null], ...], "overlaps": [[output, input, distance], ...]}
Prints one JSON list: the least peak of each. Knows nothing of the project's code. Needs the package highspy.
"""
import json
import sys

import highspy


def least_peak(solver, case):
    solver.clear()
    solver.setOptionValue("output_flag", False)
    blocks = case["blocks"]
    reach = {(output, input_): distance for output, input_, distance in case["overlaps"]}
    # Above all pins there is room for everything.
    most = max((pin + size for _, _, size, _, pin in blocks if pin is not None), default=0)
    most += sum(size + alignment for _, _, size, alignment, _ in blocks)
    peak = solver.addVariable(lb=0, ub=most, obj=1)
    x = []
    for _, _, size, alignment, pin in blocks:
        units = solver.addIntegral(lb=0)
        x_i = solver.addVariable(lb=0 if pin is None else pin, ub=most if pin is None else pin)
        solver.addConstr(x_i == alignment * units)
        solver.addConstr(x_i + size <= peak)
        x.append(x_i)
    for j, (start_j, end_j, size_j, _, _) in enumerate(blocks):
        for i, (start_i, end_i, size_i, _, _) in enumerate(blocks[:j]):
            if max(start_i, start_j) < min(end_i, end_j):
                j_is_lower = solver.addBinary()
                solver.addConstr(x[i] + min(size_i, reach.get((i, j), size_i)) <= x[j] + most * j_is_lower)
                solver.addConstr(x[j] + min(size_j, reach.get((j, i), size_j)) <= x[i] + most * (1 - j_is_lower))
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal, case
    return round(solver.getObjectiveValue())


def main():
    solver = highspy.Highs()
    json.dump([least_peak(solver, case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
