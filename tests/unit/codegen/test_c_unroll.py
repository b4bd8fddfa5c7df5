"""Loops before they become text: what is written out, and what a tile in registers needs for it."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.codegen.c_unroll import with_short_loops
from inlay.interp.loop import run
from inlay.loop.buffer import Scope
from inlay.loop.stmt import Alloc, For, If, LoopKind
from inlay.loop.walk import stmts_below
from tests.unit.codegen.support import parsed

TILE = """
lowered func f(x: f32[8, 20], w: f32[20, 16]) -> (y: f32[8, 16]) {
  alloc acc: f32[8, 16] @register
  for i in 0..8 unroll { for j in 0..16 vector { acc[i, j] = 0.0:f32 } }
  for k in 0..20 {
    for i2 in 0..8 unroll {
      for j2 in 0..16 vector {
        if [k + i2] < [26] { acc[i2, j2] = acc[i2, j2] + (x[i2, k] * w[k, j2]) }
      }
    }
  }
  for i3 in 0..8 unroll { for j3 in 0..16 vector { y[i3, j3] = FINISHED } }
}
"""
LONG = "exp(exp(exp(exp(exp(acc[i3, j3]) - 9.0:f32) - 2.0:f32)))"


def tile(finished: str):
    f = parsed(TILE.replace("FINISHED", finished))
    short = with_short_loops(f)
    x = np.linspace(-1, 1, 160, dtype=np.float32).reshape(8, 20)
    w = np.linspace(-1, 1, 320, dtype=np.float32).reshape(20, 16)
    for a, b in zip(run(f, [x, w], {}), run(short, [x, w], {}), strict=True):
        np.testing.assert_array_equal(a, b)
    return list(stmts_below(short.body))


def kinds(stmts) -> dict[str, LoopKind]:
    return {s.var.name: s.kind for s in stmts if isinstance(s, For)}


def test_short_bodies_are_written_out_and_need_no_copy():
    found = tile("acc[i3, j3] + 1.0:f32")
    assert sum(isinstance(s, Alloc) for s in found) == 1
    assert kinds(found)["i3"] is LoopKind.UNROLL
    assert kinds(found)["j3"] is LoopKind.VECTOR


def test_what_is_done_to_a_finished_tile_is_a_loop_over_a_copy():
    found = tile(LONG)
    tiles = [s.buffer for s in found if isinstance(s, Alloc)]
    assert [b.scope for b in tiles] == [Scope.REGISTER, Scope.STACK]
    assert kinds(found)["i3"] is LoopKind.SERIAL
    assert kinds(found)["j3"] is LoopKind.SERIAL
    assert kinds(found)["j2"] is LoopKind.VECTOR


def test_conditions_are_asked_in_front_of_the_loops_that_do_not_change_them():
    found = tile("acc[i3, j3]")
    [branch] = [s for s in found if isinstance(s, If)]
    assert isinstance(branch.then, For)
    assert branch.then.var.name == "j2"


@pytest.mark.parametrize("writes", [True, False])
def test_a_copy_goes_back_where_it_is_changed(writes):
    text = """
lowered func f(x: f32[8, 16]) -> (y: f32[8, 16]) {
  alloc acc: f32[8, 16] @register
  for i in 0..8 unroll { for j in 0..16 vector { acc[i, j] = x[i, j] } }
  for i2 in 0..8 unroll { for j2 in 0..16 vector { CHANGED = exp(exp(exp(exp(exp(acc[i2, j2]))))) } }
  for i3 in 0..8 unroll { for j3 in 0..16 vector { STORED } }
}
""".replace("CHANGED", "acc[i2, j2]" if writes else "y[i2, j2]")
    text = text.replace("STORED", "y[i3, j3] = acc[i3, j3]" if writes else "acc[i3, j3] = 1.0:f32")
    f = parsed(text)
    x = np.full((8, 16), -3, np.float32)
    short = with_short_loops(f)
    for a, b in zip(run(f, [x], {}), run(short, [x], {}), strict=True):
        np.testing.assert_array_equal(a, b)
    copies = [s for s in stmts_below(short.body) if isinstance(s, Alloc)]
    assert len(copies) == 2


def test_a_tile_that_a_loop_steps_through_again_and_again_is_not_copied():
    f = parsed("""
lowered func f(x: f32[64, 16]) -> (y: f32[64, 16]) {
  alloc acc: f32[64, 16] @register
  for i in 0..64 unroll { for j in 0..16 vector { acc[i, j] = 0.0:f32 } }
  for k in 0..3 { for i2 in 0..64 unroll { for j2 in 0..16 vector { acc[i2, j2] = acc[i2, j2] + x[i2, j2] } } }
  for i3 in 0..64 unroll { for j3 in 0..16 vector { y[i3, j3] = acc[i3, j3] } }
}
""")
    found = list(stmts_below(with_short_loops(f).body))
    assert sum(isinstance(s, Alloc) for s in found) == 1
    assert kinds(found)["i2"] is LoopKind.SERIAL
    assert kinds(found)["j2"] is LoopKind.VECTOR
