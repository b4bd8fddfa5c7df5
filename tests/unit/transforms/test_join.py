"""Small kernels of a body that runs again and again become one, with several results."""

from __future__ import annotations

import numpy as np
import pytest

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.bytecode.verify import instructions
from inlay.interp.tensor import evaluate
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from tests.unit.transforms.programs import kernels, run, same

TURN = """
fn main<n>(x: Tensor[n, 4, f32], h: Tensor[1, 4, f32], c: Tensor[1, 4, f32]) {{
  let w = f32[8, 8](#"w");
  let turn = fn<i>(i: int[i], h: Tensor[1, 4, f32], c: Tensor[1, 4, f32])
      -> (Tensor[1, 4, f32], Tensor[1, 4, f32]) {{
    if (int_less(int(i), int(n))) {{
      {body}
    }} else {{ (h, c) }}
  }};
  turn(int(0), h, c)
}}
"""
CELL = """
      let row = reshape(get_row(x, int(i)), shape(1, 4));
      let g = matmul(concat{axis=1}(row, h), w);
      let p = split{axis=1}(g, shape(4, 4));
      let c2 = mul(sigmoid(p.0), tanh(c));
      let h2 = mul(sigmoid(p.1), tanh(c2));
      turn(int(i + 1), h2, c2)
"""


def program(body: str):
    w = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    return infer_types(parse_module(TURN.format(body=body), table(), resources={"w": w}))


def inputs(n: int = 5) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((n, 4), (1, 4), (1, 4)))


def fused(module):
    passes = "to-anf,decompose-ops,inline-functions,fold-constants,eliminate-common,simplify-algebra"
    return run(f"{passes},eliminate-dead,fuse-ops", module)


def test_a_cell_in_a_loop_is_one_kernel_with_two_results() -> None:
    before = program(CELL)
    after = fused(before)
    found = kernels(after)
    assert len(found) == 1 and {"matmul", "concat", "tanh"} <= set(found[0].split("+"))
    same(before, after, *inputs())


def test_a_cell_that_runs_once_keeps_its_kernels() -> None:
    module = infer_types(
        parse_module(
            """
        fn main(x: Tensor[1, 4, f32], y: Tensor[1, 4, f32], w: Tensor[8, 8, f32]) {
          let g = matmul(concat{axis=1}(x, y), w);
          let p = split{axis=1}(g, shape(4, 4));
          let c = mul(sigmoid(p.0), tanh(x));
          (c, mul(sigmoid(p.1), tanh(c)))
        }
    """,
            table(),
        )
    )
    assert len(kernels(fused(module))) > 1


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(
            """let a = tanh(matmul(concat{axis=1}(h, c), w));
            let b = split{axis=1}(matmul(a, w), shape(4, 4));
            turn(int(i + 1), b.0, b.1)""",
            2,
            id="a contraction each; what is between goes with one of them",
        ),
        pytest.param(
            """let a = tanh(h); let d = exp(h);
            let r = turn(int(i + 1), a, d);
            (mul(r.0, a), exp(mul(r.1, d)))""",
            3,
            id="no call is overtaken",
        ),
        pytest.param("turn(int(i + 1), tanh(h), exp(c))", 2, id="nothing in common"),
        pytest.param("turn(int(i + 1), add(h, c), mul(h, exp(c)))", 1, id="one operand in common"),
    ],
)
def test_what_is_joined(body: str, count: int) -> None:
    before = program(body)
    after = fused(before)
    assert len(kernels(after)) == count, kernels(after)
    same(before, after, *inputs(2))


def test_what_takes_long_stays_alone() -> None:
    text = TURN.format(body="turn(int(i + 1), tanh(h), exp(add(h, c)))").replace("1, 4,", "999, 4,")
    w = np.zeros((8, 8), np.float32)
    module = infer_types(parse_module(text, table(), resources={"w": w}))
    assert len(kernels(fused(module))) == 2


def test_results_that_are_rows_are_written_there() -> None:
    text = """
    fn main<n>(x: Tensor[n, 4, f32], h: Tensor[4, f32]) {
      let turn = fn<i>(i: int[i], h: Tensor[4, f32], ys: Tensor[n, 4, f32])
          -> (Tensor[4, f32], Tensor[n, 4, f32]) {
        if (int_less(int(i), int(n))) {
          let h2 = tanh(add(h, get_row(x, int(i))));
          turn(int(i + 1), h2, set_row(ys, int(i), mul(h2, h2)))
        } else { (h, ys) }
      };
      turn(int(0), h, zeros(shape(n, 4)))
    }
    """
    module = infer_types(parse_module(text, table()))
    x, h = (
        np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(((6, 4), (4,)))
    )
    executable = inlay.compile(module, cache="none")
    codes = [i.name for f in executable.program.functions for _, i, _ in instructions(f.code)]
    assert codes.count("ASSIGN") == 0 and codes.count("INVOKE") == 2  # zeros, and the turn
    for got, expected in zip(executable(x, h), evaluate(module, (x, h)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


def test_what_nobody_reads_is_joined_and_is_no_result() -> None:
    """Dead code is often gone before, but nothing says that it must be."""
    before = program("let a = add(h, c); let unused = mul(h, exp(c)); turn(int(i + 1), a, c)")
    after = run("to-anf,decompose-ops,fuse-ops", before)
    assert len(kernels(after)) == 1, kernels(after)
    same(before, after, *inputs(2))
