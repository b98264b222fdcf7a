"""Every relative link of every page leads to a file, and its fragment to a heading there."""

import pathlib
import re
import subprocess
import sys

MADE = {f"docs/reference/{name}.md" for name in ("cli", "python", "c")}


def anchors(page: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).lower()).replace(" ", "-") for h in headings]
    return set(plain)


broken = []
pages = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split()
for name in pages:
    page = pathlib.Path(name)
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        to = page.parent / path if path else page
        if str(to.resolve().relative_to(pathlib.Path.cwd())) in MADE:
            continue
        if not to.exists():
            broken.append(f"{name}: {target}: there is no such file")
        elif fragment and to.suffix == ".md" and fragment not in anchors(to):
            broken.append(f"{name}: {target}: there is no such heading")
print("\n".join(broken) or f"{len(pages)} pages, no link leads nowhere")
sys.exit(bool(broken))
