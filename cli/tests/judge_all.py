#!/usr/bin/env python3
"""Judge many plans in one process, with the check_plan.py of a folder.

usage: judge_all.py FOLDER < PAIRS

PAIRS has a line for each plan: problem, plan and alignment, separated by tabs.
Prints what check_plan.py prints for each: one JSON object in a line.
"""
import functools
import sys


def main():
    sys.path.insert(0, sys.argv[1])
    sys.dont_write_bytecode = True
    import check_plan

    # A problem is read once for all of its plans.
    check_plan.read_problem = functools.lru_cache(maxsize=1)(check_plan.read_problem)
    for line in sys.stdin:
        problem, plan, alignment = line.rstrip("\n").split("\t")
        sys.argv[1:] = [problem, plan, "--alignment", alignment]
        check_plan.main()


if __name__ == "__main__":
    main()
