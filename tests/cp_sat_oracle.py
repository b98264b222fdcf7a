#!/usr/bin/env python3
"""Ask a constraint solver for the least peak: OR-Tools' CP-SAT, with blocks as rectangles that may not overlap.

Reads from standard input one JSON list of instances, each a list of blocks [start, end, size].
Prints one JSON list: for each instance [bound, peak], what is proved and what is reached; they are equal but where the
solver runs out of its budget. That is counted in the solver's own steps, so that the answers are always the same.
Knows nothing of the project's code. Needs the package ortools.
"""
import json
import sys

from ortools.sat.python import cp_model

BUDGET = 2.0


def least_peak(blocks):
    model = cp_model.CpModel()
    most = sum(size for _, _, size in blocks)
    peak = model.new_int_var(0, most, "")
    lifetimes, places = [], []
    for start, end, size in blocks:
        offset = model.new_int_var(0, most - size, "")
        model.add(offset + size <= peak)
        lifetimes.append(model.new_fixed_size_interval_var(start, end - start, ""))
        places.append(model.new_fixed_size_interval_var(offset, size, ""))
    model.add_no_overlap_2d(lifetimes, places)
    # Follows from the above, and tells the solver of the load.
    model.add_cumulative(lifetimes, [size for _, _, size in blocks], peak)
    model.minimize(peak)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = BUDGET
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise RuntimeError(f"CP-SAT ended with {solver.status_name(status)} on {blocks}")
    return [round(solver.best_objective_bound), round(solver.objective_value)]


def main():
    json.dump([least_peak(blocks) for blocks in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
