"""Loops made straight: rows are set as in the loop, where it is not seen that turns set all of them."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.blocks import values
from inlay.base.diagnostics import RunError
from inlay.ir.expr import Function
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.transforms.unroll_loops import UnrollOptions
from tests.unit.transforms.programs import OPS, noise, run, same, value_of

EVERYTHING = UnrollOptions(4, lambda module, _: frozenset(map(id, values(module.functions["main"].body))))


def straight(rows: int, row: str) -> tuple[Module, Module]:
    """A program whose loop sets a row in each of its turns, before and after."""
    text = f"""
    fn main(x: Tensor[{rows}, 2, f32], y0: Tensor[{rows}, 2, f32]) -> Tensor[{rows}, 2, f32] {{
      let loop = fn<i>(i: int[i], y: Tensor[{rows}, 2, f32]) -> Tensor[{rows}, 2, f32] {{
        if (int_less(int(i), int({rows}))) {{
          loop(int(i + 1), set_row(y, int({row}), get_row(x, int(i))))
        }} else {{ y }}
      }};
      loop(int(0), y0)
    }}
    """
    before = run("infer-types,to-anf", parse_module(text, OPS))
    after = run("unroll-loops,eliminate-dead", before, EVERYTHING)
    assert not any(isinstance(v, Function) for v in values(after.functions["main"].body))
    return before, after


@pytest.mark.parametrize(("row", "stay"), [("i", False), ("1 - i", False), ("0", True), ("1", True)])
def test_rows_are_set_again_where_turns_may_meet(row: str, stay: bool):
    before, after = straight(2, row)
    assert ("set_row" in print_module(after)) == stay
    same(before, after, noise(2, 2), noise(2, 2, seed=1), exact=True)


def test_a_row_that_is_not_there_stays_an_error():
    _, after = straight(1, "i + 1")
    with pytest.raises(RunError, match="row 1"):
        value_of(after, noise(1, 2), np.zeros((1, 2), np.float32))
