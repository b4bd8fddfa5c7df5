"""Tests that documents name as the proof of something exist."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT

NAMED = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")


def test_what_documents_name_exists() -> None:
    found = [m.groups() for p in sorted((ROOT / "docs").rglob("*.md")) for m in NAMED.finditer(p.read_text())]
    assert found
    missing = [
        f"{file}::{name}"
        for file, name in found
        if not (path := ROOT / "tests" / file).exists() or f"def {name}(" not in path.read_text()
    ]
    assert not missing, "\n".join(missing)
