"""What the file of a program says of itself; it goes with the program into the executable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the file of a program says of itself, for people; nothing depends on it.

    Attributes:
        graph: the name of its graph.
        producer: what wrote it.
        producer_version: of that.
        domain: whose model it is, as a reversed name of the internet.
        version: of the model.
        description: of the model, in words.
        graph_description: of the graph, in words.
        properties: whatever else its maker noted, by name.
    """

    graph: str = ""
    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    version: int = 0
    description: str = ""
    graph_description: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_json(self) -> dict[str, Any]:
        """Return plain data: what is said, without what is not."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if value}

    @staticmethod
    def from_text(text: str) -> Metadata:
        """Return what the text of a report says under `model`; other types are passed over."""
        try:
            report: Any = json.loads(text)
        except ValueError:
            return NOTHING_SAID
        said = _table(_table(report).get("model"))
        texts = {n: v for n, v in said.items() if isinstance(v, str) and n in _TEXTS}
        version = said.get("version")
        noted = _table(said.get("properties"))
        return Metadata(
            **texts,
            version=version if isinstance(version, int) else 0,
            properties={n: v for n, v in noted.items() if isinstance(v, str)},
        )


def _table(found: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


_TEXTS = frozenset(f.name for f in fields(Metadata)) - {"version", "properties"}
NOTHING_SAID = Metadata()
"""Of a program that was not read from a model."""
