"""Look-up of catalog entries by id."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from inlay.base import catalog
from inlay.base.catalog.entry import Entry

_NOT_AREAS = {"entry", "table"}


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Return all entries by id, sorted. Reads every area file once."""
    found: dict[str, Entry] = {}
    for area in areas():
        module = importlib.import_module(f"{catalog.__name__}.{area}_")
        for entry in module.ENTRIES:
            assert entry.id.startswith(area + "."), f"{entry.id} does not belong in {area}_.py"
            assert entry.id not in found, f"{entry.id} is in the catalog twice"
            found[entry.id] = entry
    return MappingProxyType(dict(sorted(found.items())))


def areas() -> list[str]:
    """Return the areas, which are the file names without their trailing underscore."""
    names = {info.name for info in pkgutil.iter_modules(catalog.__path__)} - _NOT_AREAS
    assert all(name.endswith("_") for name in names), "an area file is named <area>_.py"
    return sorted(name.removesuffix("_") for name in names)


def find(id: str) -> Entry | None:
    """Return the entry of an id, or None."""
    return entries().get(id)


def near(id: str) -> list[str]:
    """Return the ids that look most like one that is absent, best first."""
    return difflib.get_close_matches(id, entries(), n=5, cutoff=0.5)


def page(entry: Entry) -> str:
    """Return an entry as text for a person."""
    parts = [f"{entry.id}: {entry.title}", entry.explanation, f"What to do: {entry.remedy}"]
    if entry.example:
        parts.append("Example:\n\n" + "\n".join("    " + x for x in entry.example.splitlines()))
    return "\n\n".join(parts)
