"""Dims that are fixed while compiling: numbers in types, bodies and signatures."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, InlayError, UnsupportedError
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline.fixed_dims import with_bounds, with_dims

PROGRAM = """
fn main<n in 1..64 step 4, m <= n>(x: Tensor[n, 3, f32], y: Tensor[m, 3, f32]) -> (Tensor[n * 3, f32], int[m]) {
  let flat = reshape(x, shape(n * 3));
  (flat, int(m))
}
"""
WEIGHTED = """
fn main<n, k>(x: Tensor[n, k, f32], w: Tensor[k, 4, f32]) -> Tensor[n, 4, f32] { tanh(matmul(x, w)) }
"""


def test_the_program_means_the_same_for_that_size():
    x, w = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    w = np.ascontiguousarray(w[:, :4])
    free = inlay.compile(module(WEIGHTED))
    fixed = inlay.compile(module(WEIGHTED), dims=("n=5", "k=5"))
    np.testing.assert_allclose(fixed(x, w), free(x, w), rtol=1e-6)
    assert [d.text for d in fixed.entries[0].inputs[0].dims] == ["5", "5"]
    assert fixed.entries[0].symbols == ()
    with pytest.raises(InlayError, match="5"):
        fixed(x[:3], w)


def module(text: str):
    return parse_module(text, table())


def test_other_dims_stay_and_their_bounds_follow():
    made = with_dims(module(PROGRAM), ("n=8",))
    (left,) = made.functions["main"].dims
    assert left.sym.name == "m"
    assert left.high is not None
    assert left.high.value == 8


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        (("q=3",), "--fix-dim q, which is no dim of the inputs"),
        (("n=3",), "needed at least 1 and at most 64 in steps of 4"),
        (("n=68",), "needed at least 1 and at most 64"),
        (("n=-4",), "--fix-dim n=-4, needed NAME=SIZE"),
        (("n=4", "n=8"), "found two sizes of n"),
    ],
)
def test_what_cannot_be(dims, said):
    with pytest.raises(CompileError) as failure:
        with_dims(module(PROGRAM), dims)
    assert said in str(failure.value)


def test_an_entry_that_is_called():
    text = "fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { if (true) { x } else { @main(x) } }"
    with pytest.raises(UnsupportedError, match="calling its entry"):
        with_dims(module(text), ("n=4",))


def test_explain_sees_the_same_sizes():
    assert set(inlay.explain(module(WEIGHTED)).sizes) == {"n", "k"}
    assert not inlay.explain(module(WEIGHTED), dims=("n=5", "k=7")).sizes


def test_a_dim_that_is_bounded_stays_open():
    made = inlay.compile(module(WEIGHTED), bounds=("n=6",), dims=("k=5",))
    for n in (1, 6):
        assert made(np.ones((n, 5), np.float32), np.ones((5, 4), np.float32)).shape == (n, 4)
    with pytest.raises(InlayError, match="n <= 6; found n = 7"):
        made(np.ones((7, 5), np.float32), np.ones((5, 4), np.float32))
    (n, m) = with_bounds(module(PROGRAM), ("n=9", "m=3")).functions["main"].dims
    assert (str(n.high), str(m.high)) == ("9", "min(3, n)")


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (("q=3",), "--bound-dim q, which is no dim of the inputs"),
        (("n=68",), "found --bound-dim n=68, needed at least 1 and at most 64"),
        (("n=0",), "found --bound-dim n=0, needed at least 1"),
        (("n",), "found --bound-dim n, needed NAME=SIZE"),
        (("n=4", "n=8"), "found two sizes of n"),
    ],
)
def test_bounds_that_cannot_be(bounds, said):
    with pytest.raises(CompileError) as failure:
        with_bounds(module(PROGRAM), bounds)
    assert said in str(failure.value)
