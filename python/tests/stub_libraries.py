"""Lets PyTorch's build for CUDA be imported where NVIDIA's libraries are not installed.

For each library that PyTorch's own ones ask for and nobody has, a library is compiled whose functions return 100, "no
device". PyTorch then runs on the processor. Needs binutils and a C compiler.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import tempfile
from collections import defaultdict

Symbols = dict[str, str]
"""Names, and the versions that they are asked for in."""


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library: pathlib.Path) -> tuple[set[str], Symbols]:
    """The functions that a library has, and those that it wants."""
    has, wants = set(), {}
    row = re.compile(r"\s*\d+: \S+\s+\d+\s+\S+\s+(\S+)\s+\S+\s+(\S+)\s+([^@\s]+)(?:@@?(\S+))?")
    for line in output_of("readelf", "--dyn-syms", "--wide", str(library)).splitlines():
        found = row.match(line)
        if found and found[2] != "UND":
            has.add(found[3])
        elif found and found[1] == "GLOBAL":
            wants[found[3]] = found[4] or ""
    return has, wants


def needed(library: pathlib.Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "--dynamic", "--wide", str(library))))


def main() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin, "PyTorch is not installed"
    folder = pathlib.Path(spec.origin).parent / "lib"
    own = [p for p in folder.glob("*.so*") if p.is_file()]
    known = dict(re.findall(r"^\s*(\S+) \(.*x86-64.*\) => (\S+)$", output_of("ldconfig", "-p"), re.MULTILINE))
    asked = set().union(*map(needed, own))
    missing = sorted(asked - known.keys() - {p.name for p in own} - {"libcuda.so.1", "ld-linux-x86-64.so.2"})
    has: set[str] = set()
    wants: Symbols = {}
    for library in [*own, *(pathlib.Path(known[name]) for name in asked & known.keys())]:
        there, wanted = symbols(library)
        has |= there
        if library in own:
            wants |= wanted
    # A library's name is often the version of its symbols; what no name tells goes to the first.
    stubs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, version in wants.items():
        if name not in has and not name.startswith(("Py", "_Py")):
            stubs[version if version in missing else missing[0]][version].append(name)
    for library_name in missing:
        compile_stub(folder / library_name, stubs[library_name])
    print(f"{len(missing)} libraries stubbed")


def compile_stub(path: pathlib.Path, versions: dict[str, list[str]]) -> None:
    """A shared library whose functions return 100."""
    with tempfile.TemporaryDirectory() as folder:
        code, script = pathlib.Path(folder, "stub.c"), pathlib.Path(folder, "stub.map")
        code.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for names in versions.values() for name in names))
        parts = [f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items() if v]
        script.write_text("".join(parts))
        command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{path.name}", str(code), "-o", str(path)]
        subprocess.run([*command, f"-Wl,--version-script={script}"] if parts else command, check=True)


if __name__ == "__main__":
    main()
