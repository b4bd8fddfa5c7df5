"""The generated pages of docs/reference are what the generator would write."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_pages_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("gen", ROOT / "tools" / "gen_reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, make in module.PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert text == make(), f"{name} is stale: run python tools/gen_reference.py"
