"""The files that the architecture tests look at."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

from inlay.base.garbage import paused

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "inlay"
TEXT = {".py", ".c", ".h", ".inc", ".md", ".toml", ".inl", ".sh", ".txt", ".cfg", ".yaml", ""}


@functools.cache
def modules() -> tuple[Path, ...]:
    """Return the Python files of the package, sorted."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    with paused():  # hundreds of thousands of nodes and no garbage
        return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of the syntax tree of a file."""
    with paused():
        return tuple(ast.walk(tree(path)))


def forget_trees() -> None:
    """Let go of a million objects, through which every collection of garbage would walk."""
    tree.cache_clear()
    nodes.cache_clear()


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Return the text files under version control; those of the tree where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        paths = [ROOT / name for name in listed]
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "tests", "docs", "tools", "runtime", "examples", "benchmarks")
        paths = [p for name in folders for p in (ROOT / name).rglob("*")]
    return tuple(sorted(p for p in paths if p.is_file() and p.suffix in TEXT))


def place(path: Path) -> str:
    """Return how a message names a file."""
    return path.relative_to(ROOT).as_posix()
