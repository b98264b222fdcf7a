"""Runs a tutorial word by word: its blocks `sh` and `python` in one shell, in the order of the page.

A block with a title is written to that file. A block `text` is what the block before it prints, where `…` stands for any rest of
a line, a line of `…` alone for any lines, and two spaces or more for any number. The first command that fails, and the first output that differs, end the run.
"""

import pathlib
import re
import subprocess
import sys

MARK = "---- the end of a block ----"


def blocks(page: str) -> list[tuple[str, str | None, str]]:
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', page, re.M | re.S)
    return [(kind, title or None, body) for kind, title, body in found]


def pattern(expected: str) -> str:
    lines = []
    for line in expected.splitlines(keepends=True):
        lines.append("(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…"))))
    return re.sub(r"(?:\\ ){2,}", " +", "".join(lines))


def run(page: pathlib.Path) -> int:
    script, expected = ["set -euo pipefail"], []
    for kind, title, body in blocks(page.read_text()):
        if kind == "text":
            expected[-1] = body
            continue
        if title:
            script.append(f"cat > {title} << 'END_OF_FILE'\n{body}END_OF_FILE")
        elif kind == "sh":
            script.append(body)
        elif kind == "python":
            script.append(f"python3 - << 'END_OF_FILE'\n{body}END_OF_FILE")
        else:
            continue
        script.append(f"echo '{MARK}'")
        expected.append(None)
    ran = subprocess.run(["bash"], input="\n".join(script), capture_output=True, text=True, check=False)
    printed = ran.stdout.split(MARK + "\n")
    if ran.returncode != 0 or len(printed) != len(expected) + 1:
        print(f"{page}: block {len(printed)} fails\n{printed[-1]}{ran.stderr}", file=sys.stderr)
        return 1
    for number, (wanted, got) in enumerate(zip(expected, printed, strict=False), 1):
        if wanted is not None and not re.fullmatch(pattern(wanted), got):
            print(f"{page}: block {number} prints\n{got}in place of\n{wanted}", file=sys.stderr)
            return 1
    print(f"{page}: {len(expected)} blocks ran as printed, {sum(w is not None for w in expected)} outputs were compared")
    return 0


sys.exit(max(run(pathlib.Path(page)) for page in sys.argv[1:]))
