"""The modules of a package as a table, found by file name; and what to say of an unknown name.

Nothing registers itself by being imported. The entries of a `ModuleTable` are files: the names come
from listing the package, and a file is imported when its name is first asked for, so that a command
that needs one pass does not load them all.

    PASSES = ModuleTable("pass", "inlay.transforms", pick=lambda module: module.PASS)
    PASSES["fold-constants"]          # imports inlay/transforms/fold_constants.py

Names are kebab; the file of ``fold-constants`` is ``fold_constants.py``. A file whose name begins
with an underscore holds no entry. An unknown name is an error that lists the nearest.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from inlay.base.diagnostics import InlayError, error

T = TypeVar("T")


def nearest(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that look most like one, best first."""
    return difflib.get_close_matches(name, list(names), n=count, cutoff=0.5)


def did_you_mean(close: Sequence[str], otherwise: str = "") -> str:
    """Return the hint that names what looks most like an unknown name."""
    return f"did you mean {' or '.join(close)}?" if close else otherwise


def suggestion(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the hint of an unknown name: the nearest ones, or what else helps."""
    return did_you_mean(nearest(name, names), otherwise)


def unknown_name(kind: str, name: str, names: Iterable[str]) -> InlayError:
    """Return the error ``name.unknown`` with the nearest names as its hint."""
    known = list(names)
    close = nearest(name, known)
    notes = () if close or len(known) > 20 else (f"known: {', '.join(known) or 'none'}",)
    message = f"found no {kind} named '{name}'"
    return error("name.unknown", message, notes=notes, hint=did_you_mean(close))


def module_names(package: str, *, packages: bool = True) -> dict[str, str]:
    """Return for each entry of a package, by kebab name, the full name of its module, sorted.

    Names that begin with an underscore are no entries.

    Args:
        package: the package.
        packages: whether its sub-packages are entries.
    """
    paths = importlib.import_module(package).__path__
    listed = pkgutil.iter_modules(paths)
    found = sorted(info.name for info in listed if packages or not info.ispkg)
    return {name.replace("_", "-"): f"{package}.{name}" for name in found if not name.startswith("_")}


class ModuleTable(Mapping[str, T]):
    """A table whose entries are the modules of a package, each imported when first used.

    Args:
        kind: What an entry is called in errors.
        package: The package that is listed.
        pick: Takes the entry out of its module.
        packages: Whether sub-packages are entries.
        group: Entry-point group by which installed packages add entries; each entry point names
            the module.
    """

    def __init__(
        self,
        kind: str,
        package: str,
        pick: Callable[[ModuleType], T],
        *,
        packages: bool = True,
        group: str = "",
    ) -> None:
        self.kind = kind
        self._pick = pick
        self._modules = module_names(package, packages=packages)
        self._loaded: dict[str, T] = {}
        for point in _entry_points(group) if group else ():
            if point.name in self._modules:
                raise error(
                    "name.duplicate",
                    f"found two {kind} entries named '{point.name}': "
                    f"{self._modules[point.name]} and {point.value}",
                    hint="rename the entry point of the installed package",
                )
            self._modules[point.name] = point.value

    def __getitem__(self, name: str) -> T:
        """Return the entry of a name.

        Raises:
            CompileError: ``name.unknown``.
        """
        if name not in self._loaded:
            if name not in self._modules:
                raise unknown_name(self.kind, name, self._modules)
            self._loaded[name] = self._pick(importlib.import_module(self._modules[name]))
        return self._loaded[name]

    def summary(self, name: str) -> str:
        """Return the first line of what the module of a name says of itself, without importing it.

        Raises:
            CompileError: ``name.unknown``.
        """
        if name not in self._modules:
            raise unknown_name(self.kind, name, self._modules)
        found = importlib.util.find_spec(self._modules[name])
        if found is None or found.origin is None:
            return ""
        text = Path(found.origin).read_text(encoding="utf-8")
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        """Return the entry of a name, or the default."""
        return self[name] if name in self._modules else default

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def _entry_points(group: str) -> Iterable[Any]:
    # Its parser of metadata costs more to import than all else that loading an executable needs.
    metadata = importlib.import_module("importlib.metadata")
    return metadata.entry_points(group=group)
