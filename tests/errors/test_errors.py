"""Programs that are wrong, one for each diagnostic: tests/errors/<id>.inl.

The file says what it must be told, a line for each finding, all of them and no other, in order:

    //! type.cyclic 3:5

Adding a diagnostic of programs is adding its file; `test_every_id_has_a_program` sees to it. What
only an API or a model file can get wrong is tested where it is raised, and listed there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inlay.analysis.infer_types import infer_types
from inlay.analysis.linear_cells import check_cells
from inlay.base.catalog.table import entries
from inlay.base.diagnostics import CompileError, Diagnostic, render
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.transforms import to_anf

FOLDER = Path(__file__).parent
PROGRAMS = sorted(FOLDER.glob("*.inl"))
EXPECTED = re.compile(r"^//! (\S+) (\d+):(\d+)$", re.MULTILINE)

AREAS = ("type", "parse", "name", "cell")
ELSEWHERE = {
    "type.loop-carried": "the builder raises it: tests/unit/ir/test_builder.py",
    "type.stacked-rows": "the builder raises it: tests/unit/ir/test_builder.py",
}


def findings(path: Path) -> tuple[Diagnostic, ...]:
    try:
        module = infer_types(parse_module(path.read_text(encoding="utf-8"), table(), name=path.name))
        check_cells(to_anf.run(module, PassContext(table())))
    except CompileError as failure:
        return failure.diagnostics
    return ()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_wrong_program_is_told_what_is_wrong_and_where(path: Path) -> None:
    expected = EXPECTED.findall(path.read_text(encoding="utf-8"))
    found = findings(path)
    shown = "\n\n".join(map(render, found))
    assert [(d.id, str(d.span.line), str(d.span.column)) for d in found] == expected, shown
    assert path.stem in {d.id for d in found}


def test_every_id_has_a_program() -> None:
    ids = {i for i in entries() if i.split(".")[0] in AREAS}
    assert ids - set(ELSEWHERE) - {p.stem for p in PROGRAMS} == set()
