"""List what the package defines and uses nowhere: modules, functions, classes, fields, constants.

A name counts as used where it is read, called, matched or written as a string: which object it belongs
to is not asked, so what is listed is dead and not all that is dead is listed. What lessons,
examples, tools and the code in documents use and what C asks for by name count as used; tests do not. A
module is dead if nothing imports it and it is no entry of a table, which finds its modules by listing a
package.
``tools/dead_allowed.txt`` has the names that may stay, each with its reason: a name that is not in it
fails, and so does one in it that is not dead any more.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "inlay"
ALLOWED = ROOT / "tools" / "dead_allowed.txt"
TEXTS = (
    "README.md",
    "docs/**/*.md",
    "docs/**/*.py",
    "examples/**/*.py",
    "tools/gen_*.py",
    "src/inlay/**/*.c",
)
"""Who may use names of the package besides itself."""
TABLES = ("cli", "ops", "importers/onnx", "codegen/backends", "transforms", "memory", "placement", "compat")
"""Packages whose modules are found by listing."""
FOREIGN = "compat/"
"""Interfaces of other projects: who calls them is not here."""
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
"""Of a document, what is no prose."""
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a module defines, with their lines; none of protocols and enumerations."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node.lineno
            case _:
                pass
        if isinstance(node, ast.ClassDef):
            yield from _members(node)


def _members(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    bases = {ast.unparse(b).split("[")[0] for b in node.bases}
    if bases & {"Protocol", "StrEnum", "IntEnum", "Enum", "IntFlag"}:
        return  # members of enumerations are looked up by value
    for member in node.body:
        match member:
            case ast.FunctionDef(name=name):
                yield name, member.lineno
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, member.lineno
            case _:
                pass


def used(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module uses. A keyword of a call gives a field its value and is no use."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.Constant(value=str(text)) if WORD.fullmatch(text):
                yield text
            case ast.alias(name=name, asname=str()):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names
            case _:
                pass


def dead() -> dict[str, str]:
    """Return what is used nowhere, by `module:name`, with its place."""
    trees = {p: ast.parse(p.read_text(encoding="utf-8")) for p in sorted(PACKAGE.rglob("*.py"))}
    imported = {name for tree in trees.values() for name in imports(tree)}
    uses = {name for tree in trees.values() for name in used(tree)}
    for pattern in TEXTS:
        for path in ROOT.glob(pattern):
            text = path.read_text(encoding="utf-8")
            for part in CODE.findall(text) if path.suffix == ".md" else [text]:
                uses.update(WORD.findall(part))
    found: dict[str, str] = {}
    for path, tree in trees.items():
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        own = () if module.startswith(FOREIGN) else defined(tree)
        for name, line in own:
            if name not in uses and not name.startswith("__"):
                found[f"{module}:{name}"] = f"{path.relative_to(ROOT).as_posix()}:{line}"
        is_entry = path.stem.startswith("__") or module.rpartition("/")[0] in TABLES
        if not is_entry and "inlay." + module.replace("/", ".") not in imported:
            found[module] = path.relative_to(ROOT).as_posix()
    return found


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a module may import."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.Constant(value=str(text)):
                yield text
            case _:
                pass


def main() -> int:
    """Print what is dead and not allowed, and what is allowed and not dead; return the exit status."""
    rows = [row for row in ALLOWED.read_text(encoding="utf-8").splitlines() if row[:1] not in ("", "#")]
    allowed = {row.split(" ", 1)[0] for row in rows}
    found = dead()
    new = sorted(found.keys() - allowed)
    gone = sorted(allowed - found.keys())
    print(f"dead code: {len(found)} names used nowhere, {len(allowed)} allowed")
    for name in new:
        print(f"  {found[name]}: {name} is used nowhere: use it, delete it, or give a reason")
    for name in gone:
        print(f"  {name} is used or gone: take it out of {ALLOWED.relative_to(ROOT)}")
    return int(bool(new or gone))


if __name__ == "__main__":
    sys.exit(main())
