"""Writes the pages of reference that come from sources: docs/reference/python.md of the package's docstrings, docs/reference/c.md of
the headers' comments. What has no comment has no place there."""

import ast
import pathlib
import re

HEADERS = ["sublet.h", "sublet_torch.h", "sublet_runtime.h", "sublet_relu.h", "sublet.hpp", "sublet_fit.hpp"]
MODULES = ["__init__", "torch/__init__", "jax/__init__", "onnx", "executorch"]


def documented(tree: ast.Module) -> dict[str, ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def signature(function: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    bare = ast.FunctionDef(function.name, function.args, [ast.Pass()], [], None, None, type_params=[], lineno=0, col_offset=0)
    head = ast.unparse(bare).splitlines()[0].removeprefix("def ").removesuffix(":")
    parts = re.sub(r"(?<=[(,]) ?(?=[\w*]+[:=,)])", "\n    ", head) if len(head) > 100 else head
    return parts + returns


def prose(text: str) -> str:
    """A docstring as Markdown: its indented examples are code as they are."""
    return re.sub(r"(?m)^>>>(.*(?:\n(?!\s*$).*)*)", lambda m: "```pycon\n>>>" + m[1] + "\n```", text)


def python(package: pathlib.Path) -> str:
    page = ["# Python", "", "Made from the package's docstrings.", ""]
    for module in MODULES:
        file = package / f"{module}.py"
        tree = ast.parse(file.read_text())
        known = documented(tree)
        names = next((ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"), list(known))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.level > 0 and node.module:
                base = file.parent if node.level == 1 else file.parent.parent
                source = base.joinpath(*node.module.split("."))
                for path in (source.with_suffix(".py"), source.with_suffix(".pyi"), source / "__init__.py"):
                    if path.exists():
                        there = documented(ast.parse(path.read_text()))
                        known.update({a.asname or a.name: there[a.name] for a in node.names if a.name in there})
        title = "sublet" + "".join(f".{part}" for part in module.split("/") if part != "__init__")
        page += [f"## {title}", "", prose(ast.get_docstring(tree) or ""), ""]
        for name in sorted(n for n in names if not n.startswith("_") and n in known):
            node = known[name]
            told = ast.get_docstring(node)
            if not told:
                continue
            page += [f"### {name}", ""]
            if isinstance(node, ast.ClassDef):
                page += [prose(told), ""]
                for at, member in enumerate(node.body):
                    after = node.body[at + 1] if at + 1 < len(node.body) else None
                    if isinstance(member, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                        page += [f"- `{ast.unparse(member.target)}: {ast.unparse(member.annotation)}`: {' '.join(str(after.value.value).split())}"]
                    if isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
                        if any(ast.unparse(d) == "property" for d in member.decorator_list):
                            page += [f"- `{member.name}: {ast.unparse(member.returns)}`: {' '.join(ast.get_docstring(member).split())}"]
                        else:
                            page += ["", f"`{signature(member)}`", "", prose(ast.get_docstring(member)), ""]
            else:
                page += ["```python", signature(node), "```", "", prose(told)]
            page += [""]
    return "\n".join(page)


def c(headers: pathlib.Path) -> str:
    page = ["# C and C++", "", "Made from the comments of the headers.", ""]
    for name in HEADERS:
        # The type that an enum is stored in is told to C++ and C23 alone.
        text = re.sub(r"(?m)\n#if defined\(__cplusplus\) \|\| __STDC_VERSION__.*\n  : \w+\n#endif.*$", "", (headers / name).read_text())
        page += [f"## {name}", ""]
        # A comment at the left edge, and what it is about: up to the end of the declaration, without the body of a function.
        for told, declared in re.findall(r"^/\*\*?\n((?: \*.*\n)+?) \*/\n((?:.*\n)*?)(?=^/\*|^#|^$)", text, re.M):
            comment = re.sub(r"(?m)^ \* ?", "", told).strip()
            declared = declared.strip()
            if not declared or declared.startswith(("#", "//")):
                continue
            found = re.search(r"\b(\w+)\s*\(|(?:struct|enum|union|class)\s+(\w+)|typedef .*?(\w+);", declared)
            title = next((g for g in found.groups() if g), None) if found else None
            if title:
                page += [f"### {title}", "", comment, "", "```c", declared, "```", ""]
        bare = re.sub(r"/\*.*?\*/|//.*", "", text, flags=re.S) if name.endswith(".h") else ""
        lacking = set(re.findall(r"^(?:\w[\w *]*?)\b(sublet_\w+)\(", bare, re.M)) - {line[4:] for line in page if line.startswith("### ")}
        if lacking:
            raise SystemExit(f"{name}: without a comment, or not found: {sorted(lacking)}")
    return "\n".join(page)


to = pathlib.Path("docs/reference")
to.mkdir(exist_ok=True)
for name, text in [("python", python(pathlib.Path("python/sublet"))), ("c", c(pathlib.Path("include")))]:
    (to / f"{name}.md").write_text(text)
    print(f"docs/reference/{name}.md: {len(re.findall('^### ', text, re.M))} entries")
