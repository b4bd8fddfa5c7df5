"""Look-up of catalog entries by id.

An area is a file of TOML, an entry a table in it: `[rank-mismatch]` in `type.toml` is
`type.rank-mismatch`. Lines of a text are joined; an empty line is the end of a paragraph.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from inlay.base.catalog.entry import Entry


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Return all entries by id, sorted. Reads every area file once."""
    found: dict[str, Entry] = {}
    for file in resources.files("inlay.base.catalog").iterdir():
        area, dot, ending = file.name.rpartition(".")
        texts = tomllib.loads(file.read_text(encoding="utf-8")) if ending == "toml" else {}
        for name, parts in texts.items():
            joined = {key: text if key == "example" else _joined(text) for key, text in parts.items()}
            found[f"{area}{dot}{name}"] = Entry(f"{area}{dot}{name}", **joined)
    return MappingProxyType(dict(sorted(found.items())))


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def find(id: str) -> Entry | None:
    """Return the entry of an id, or None."""
    return entries().get(id)


def page(entry: Entry) -> str:
    """Return an entry as text for a person."""
    parts = [f"{entry.id}: {entry.title}", entry.explanation, f"What to do: {entry.remedy}"]
    if entry.example:
        parts.append("Example:\n\n" + "\n".join("    " + x for x in entry.example.splitlines()))
    return "\n\n".join(parts)
