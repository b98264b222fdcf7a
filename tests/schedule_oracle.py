#!/usr/bin/env python3
"""Ask a judge of rewritten traces, check_schedule.py in the folder SUBLET_JUDGES, about many of them in one process.

Reads one JSON list of cases:
    {"recorded": rows, "rewritten": rows, "flags": {op: [name, inplace, rerun]}, "offsets": {id: offset}, "cyclic": bool}
where rows are [time_ns, event, block, bytes, op]. Prints one JSON list: for each case what the judge says of it, or
null where it is not valid.
"""
import argparse
import csv
import json
import os
import sys
import tempfile


def main():
    sys.path.insert(0, os.environ["SUBLET_JUDGES"])
    sys.dont_write_bytecode = True
    import check_schedule

    def rows(cells):
        return [check_schedule.Row(*row) for row in cells]

    answers = []
    with tempfile.NamedTemporaryFile("w+", newline="") as plan:
        for case in json.load(sys.stdin):
            plan.seek(0)
            plan.truncate()
            csv.writer(plan).writerows([("id", "offset"), *case["offsets"].items()])
            plan.flush()
            flags = {op: check_schedule.Flags(*flag) for op, flag in case["flags"].items()}
            options = argparse.Namespace(
                plan=plan.name, limit=None, d2h=12e9, h2d=12e9, latency=10_000.0, cyclic=case["cyclic"])
            try:
                answers.append(check_schedule.judge(rows(case["recorded"]), flags, rows(case["rewritten"]), options))
            except (check_schedule.Invalid, KeyError, IndexError):
                answers.append(None)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
