"""A heap of so many bytes: what surely needs more is refused, by who explains and who compiles alike."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.machine.board import Board
from inlay.machine.board_file import find_board

PROGRAM = """
fn main<n in 1..8>(x: Tensor[n, 64, f32]) -> Tensor[n, 64, f32] {
  let a = softmax{axis=0}(x);
  add(softmax{axis=1}(a), a)
}
entry main("x") -> ("y");
"""


def sized(size: int) -> Board:
    board = find_board("host")
    return replace(board, memories=(replace(board.memories[0], bytes=size),))


def refusals(size: int, **options: object) -> set[str]:
    """Return what both say."""
    found: set[str] = set()
    with pytest.raises(CompileError) as caught:
        inlay.explain(io.StringIO(PROGRAM), sized(size), view="memory", threads=1, **options)
    found.add(str(caught.value))
    with pytest.raises(CompileError) as caught:
        inlay.compile(io.StringIO(PROGRAM), board=sized(size), threads=1, cache="none", **options)
    return found | {str(caught.value)}


def test_what_needs_more_for_its_smallest_sizes_is_refused() -> None:
    (said,) = refusals(500)
    assert "memory.no-room" in said
    assert "found no memory for a call of 'main', needed" in said
    assert "host: it has 500 bytes" in said


def test_what_may_be_small_is_left_to_the_run() -> None:
    """Eight rows need more, one does not."""
    inlay.explain(io.StringIO(PROGRAM), sized(2000), view="memory", threads=1)
    (said,) = refusals(2000, dims=("n=8",))
    assert "it has 2000 bytes" in said
    inlay.explain(io.StringIO(PROGRAM), sized(100_000), view="memory", threads=1, dims=("n=8",))
