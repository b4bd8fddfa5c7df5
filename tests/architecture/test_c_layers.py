"""`tools/check_c_layers.py` finds circles of C files, and references to layers above."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.data import REPOSITORY

TOOL = runpy.run_path(str(REPOSITORY / "tools/check_c_layers.py"))
LAYERS = ("low", "high")


def findings(root: Path, sources: dict[str, str]) -> list[str]:
    for name, text in sources.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    made = [name for name in sources if name.endswith(".c")]
    graphs = TOOL["includes"](root, sorted(sources)), TOOL["uses"](root, made, [root])
    return [line for graph in graphs for line in TOOL["findings"](graph, LAYERS)]


def test_references_in_one_direction_pass(tmp_path):
    sources = {
        "high/a.c": '#include "low/b.h"\nint a(void) { return b(); }\n',
        "low/b.h": "int b(void);\n",
        "low/b.c": '#include "low/b.h"\nint b(void) { return 1; } /* not a() */\n',
    }
    assert findings(tmp_path, sources) == []


def test_calls_in_a_circle_are_found_through_macros_and_other_files(tmp_path):
    sources = {
        "low/a.c": "int b(void);\nint a(void) { return b(); }\n",
        "low/b.c": "int c(void);\nint b(void) { return c(); }\n",
        "low/c.c": "int a(void);\n#define CALL a()\nint c(void) { return CALL; }\n",
        "low/d.c": "int a(void);\nint d(void) { return a(); }\n",
    }
    assert findings(tmp_path, sources) == [
        "3 files refer to each other in a circle",
        "  low/a.c -> low/b.c: b",
        "  low/b.c -> low/c.c: c",
        "  low/c.c -> low/a.c: a",
    ]


def test_includes_in_a_circle_are_found(tmp_path):
    sources = {
        "low/a.h": '#pragma once\n#include "b.h"\n',
        "low/b.h": '#pragma once\n#include "low/a.h"\n',
        "low/c.c": '#include "a.h"\nint c;\n',
    }
    assert findings(tmp_path, sources)[0] == "2 files refer to each other in a circle"


def test_a_reference_to_a_layer_above_is_found(tmp_path):
    sources = {"low/a.c": "extern int b;\nint a(void) { return b; }\n", "high/b.c": "int b;\n"}
    assert findings(tmp_path, sources) == [
        "low/a.c refers to a file of a layer above it",
        "  low/a.c -> high/b.c: b",
    ]
