"""Runs the cells of a notebook one after the other, but for pictures where matplotlib is not installed.

    python notebook.py NOTEBOOK
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys


def main(file: str) -> None:
    cells = json.loads(pathlib.Path(file).read_text())["cells"]
    names = {"__name__": "__main__"}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or ("matplotlib" in source and not importlib.util.find_spec("matplotlib")):
            continue
        exec(compile(source, file, "exec"), names)


if __name__ == "__main__":
    main(sys.argv[1])
