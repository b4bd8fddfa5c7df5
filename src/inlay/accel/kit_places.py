"""Where in the file of a description a section is that a check names: the line to look at first."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from inlay.accel.accelerator import Accelerator


def place_of(cls: type[Accelerator], section: str, failure: str) -> str:
    """Return the file and the line to look at first; empty where nobody knows.

    That is the first attribute which the name of the section has, as `pattern conv`, `encoding of gemm and
    finish`, `memory act`, `drivers`; else the first that the failure has.
    """
    try:
        file = next(_files(cls))
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, StopIteration, SyntaxError):
        return ""
    body = next((x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == cls.__name__), None)
    if body is None:
        return ""
    lines = {**_declared(body), **(_encoders(body) if section.startswith("encoding of ") else {})}
    words = re.findall(r"\w+", f"{section} {failure}")
    return next((f"{Path(file).name}:{lines[w]}" for w in words if w in lines), "")


def _files(cls: type[Accelerator]) -> Iterator[str]:
    """Yield the files of functions of a class: a module that was run from a file is not known by its name."""
    for x in vars(cls).values():
        for name in ("build", "write", "meaning", "run"):
            function = getattr(x, name, None)
            if inspect.isfunction(function):
                yield function.__code__.co_filename


def _declared(body: ast.ClassDef) -> dict[str, int]:
    """Return the lines of attributes and functions of a class."""
    found: dict[str, int] = {}
    for x in body.body:
        if isinstance(x, ast.FunctionDef):
            found[x.name] = x.lineno
        elif isinstance(x, ast.Assign):
            names = (n for target in x.targets for n in ast.walk(target) if isinstance(n, ast.Name))
            found.update((n.id, x.lineno) for n in names)
        elif isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name):
            found[x.target.id] = x.lineno
    return found


def _encoders(body: ast.ClassDef) -> dict[str, int]:
    """Return the lines of the functions that write commands, by the names of what they write."""
    found: dict[str, int] = {}
    for x in body.body:
        if isinstance(x, ast.FunctionDef):
            names = [n for d in x.decorator_list for n in ast.walk(d) if isinstance(n, ast.Name)]
            if any(n.id == "encodes" for n in names):
                found.update((n.id, x.lineno) for n in names)
    return found
