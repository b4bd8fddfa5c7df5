"""What streams of devices work in is in the sums, in budgets and in pictures, as it is in the process."""

from __future__ import annotations

import io

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.runtime import streams
from inlay.runtime.session import executable_of
from inlay.runtime.streams import BASE_ALIGN
from tests.unit.accel.test_saved_streams import MERGED, PROGRAM, X, fast_board

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("text", [PROGRAM, MERGED])
@pytest.mark.parametrize("dims", [(), ("n=3",)])
def test_regions_are_counted_as_they_are_made(text, dims, tmp_path, monkeypatch):
    board, made = fast_board(tmp_path), list[int]()
    compiled = compilation(io.StringIO(text), board=board, dims=dims, cache="none")
    (ram,) = inlay.explain(io.StringIO(text), view="memory", board=board, dims=dims).accounts
    one = streams.region_of

    def counted(size: int) -> np.ndarray:
        made.append(size + BASE_ALIGN)
        return one(size)

    monkeypatch.setattr(streams, "region_of", counted)
    exe = executable_of(compiled.program)
    for _ in range(2):
        exe(X)
    assert sum(made) == ram.regions > 0
    assert ram.total == ram.peak + ram.constants + ram.regions


def test_a_budget_counts_them(tmp_path, capsys):
    board, path = fast_board(tmp_path), tmp_path / "p.inl"
    path.write_text(PROGRAM)
    dims = ("n=3",)
    (ram,) = inlay.explain(path, view="memory", board=board, dims=dims).accounts
    inlay.compile(path, board=board, dims=dims, budget={"ram": ram.total}, threads=1)
    with pytest.raises(CompileError) as found:
        inlay.compile(path, board=board, dims=dims, budget={"ram": ram.total - 1}, threads=1)
    assert f"regions of streams {ram.regions:,}" in str(found.value)
    words = ["explain", str(path), "--board", board, "--view", "memory", "--fix-dim", "n=3"]
    assert main([*words, "--output", str(tmp_path / "m.svg")]) == 0
    assert f"what streams work in: {ram.regions:,} in ram bytes" in (tmp_path / "m.svg").read_text()
    capsys.readouterr()
    assert main(words) == 0
    assert f"regions {ram.regions:>21,}  what streams of devices work in" in capsys.readouterr().out
