"""Writes what a product is made of, as CycloneDX 1.5: each crate that is linked into it, with version, licence and checksum.

sbom.py MANIFEST PACKAGE TARGET: the crates of PACKAGE in the workspace of MANIFEST for TARGET, without those of tests,
builds and macros.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

manifest, package, target = sys.argv[1:]
command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", manifest, "--filter-platform", target]
told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
lock = tomllib.loads((pathlib.Path(told["workspace_root"]) / "Cargo.lock").read_text())
checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
packages = {p["id"]: p for p in told["packages"]}
macros = {p["id"] for p in told["packages"] if any("proc-macro" in t["kind"] for t in p["targets"])}
needs = {node["id"]: [d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"])] for node in told["resolve"]["nodes"]}
root = next(p["id"] for p in told["packages"] if p["name"] == package and p["source"] is None)
reached, left = {root}, [root]
while left:
    for crate in needs[left.pop()]:
        if crate not in reached | macros:
            reached.add(crate)
            left.append(crate)


def purl(crate: dict) -> str:
    return f"pkg:cargo/{crate['name']}@{crate['version']}"


def component(crate: dict, kind: str) -> dict:
    sha256 = checksums.get((crate["name"], crate["version"]))
    return {
        "type": kind,
        "bom-ref": purl(crate),
        "name": crate["name"],
        "version": crate["version"],
        "purl": purl(crate),
        "licenses": [{"expression": (crate["license"] or "NOASSERTION").replace("/", " OR ")}],
        **({"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {}),
    }


crates = sorted((packages[crate] for crate in reached - {root}), key=purl)
bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(packages[root], "application"), "properties": [{"name": "target", "value": target}]},
    "components": [component(crate, "library") for crate in crates],
    "dependencies": [
        {"ref": purl(packages[crate]), "dependsOn": sorted(purl(packages[c]) for c in needs[crate] if c in reached)}
        for crate in sorted(reached, key=lambda c: purl(packages[c]))
    ],
}
json.dump(bom, sys.stdout, indent=1)
print()
