"""From a pass's name to its record: the name is the file's, and the file is read when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from inlay.base.diagnostics import InternalError
from inlay.base.registry import ModuleTable
from inlay.passes.contract import Pass


def pass_table(package: str = "inlay.transforms") -> ModuleTable[Pass]:
    """Return the passes of a package, by kebab name; a file is imported on first use.

    Raises:
        InternalError: on use, a file that does not define `PASS`, or one of another name.
    """
    return ModuleTable("pass", package, _pick, packages=False)


def passes_named(text: str, tables: Iterable[ModuleTable[Pass]]) -> tuple[Pass, ...]:
    """Return the passes of a list such as `to-anf,eliminate-dead`.

    Underscores may be written for hyphens. Each name is looked for in the tables in order.

    Raises:
        CompileError: `name.unknown`, with near names.
    """
    searched = tuple(tables)
    names = [name.strip().replace("_", "-") for name in text.split(",")]
    return tuple(_find(name, searched) for name in names if name)


def _find(name: str, tables: tuple[ModuleTable[Pass], ...]) -> Pass:
    for table in tables[:-1]:
        if name in table:
            return table[name]
    return tables[-1][name]


def _pick(module: ModuleType) -> Pass:
    found = getattr(module, "PASS", None)
    if not isinstance(found, Pass):
        raise InternalError("a file of passes defines its record as PASS", where=module.__name__)
    if found.module != module.__name__:
        raise InternalError(f"PASS is made with __name__, not {found.module!r}", where=module.__name__)
    return found
