"""The evaluator of loop functions: results, formats, and the checks it makes."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError
from inlay.interp import loop as interp
from inlay.loop.parser import parse_function

GEMM = """
schedulable func gemm(A: f32[m, k], B: f32[k, 5]) -> (C: f32[m, 5]) over (m, k) {
  for i in 0..m parallel { for j in 0..5 { for r in 0..k {
    block mm(vi: spatial m = i, vj: spatial 5 = j, vr: reduce k = r) {
      init { C[vi, vj] = 0.0:f32 }
      C[vi, vj] = C[vi, vj] + (A[vi, vr] * B[vr, vj])
    }
  } } }
}
"""


def test_schedulable_gemm() -> None:
    f = parse_function(GEMM)
    a = np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)
    b = np.random.default_rng(1).standard_normal((3, 5), dtype=np.float32)
    (c,) = interp.run(f, [a, b], dict(zip(f.dims, (4, 3), strict=True)))
    expected = np.zeros((4, 5), np.float32)
    for r in range(3):
        expected += a[:, r : r + 1] * b[r]
    np.testing.assert_array_equal(c, expected)


def _scalar(text: str, *inputs: np.generic, result: str) -> np.generic:
    params = ", ".join(f"x{i}: {_name(v)}[]" for i, v in enumerate(inputs))
    text = f"lowered func f({params}) -> (y: {result}[]) {{ y[] = {text} }}"
    (y,) = interp.run(parse_function(text), [np.asarray(v) for v in inputs])
    return y[()]


def _name(v: np.generic) -> str:
    return "bool" if v.dtype.kind == "b" else f"{v.dtype.kind}{8 * v.dtype.itemsize}"


@pytest.mark.parametrize(
    ("text", "args", "result", "expected"),
    [
        ("x0[] + x1[]", (np.int8(127), np.int8(1)), "i8", -128),
        ("x0[] * x1[]", (np.uint8(200), np.uint8(2)), "u8", 144),
        ("x0[] / x1[]", (np.int32(-7), np.int32(2)), "i32", -3),
        ("rem(x0[], x1[])", (np.int32(-7), np.int32(2)), "i32", -1),
        ("floordiv(x0[], x1[])", (np.int32(-7), np.int32(2)), "i32", -4),
        ("floormod(x0[], x1[])", (np.int32(-7), np.int32(2)), "i32", 1),
        ("shl(x0[], x1[])", (np.int32(1), np.int32(40)), "i32", 0),
        ("shr(x0[], x1[])", (np.int32(-8), np.int32(40)), "i32", -1),
        ("mul_high(x0[], x1[])", (np.int32(2**30), np.int32(8)), "i32", 2),
        ("bitcast:i32(x0[])", (np.float32(1.0),), "i32", 0x3F800000),
        ("i8(x0[])", (np.float32(-2.9),), "i8", -2),
        ("i64(x0[])", (np.bool_(True),), "i64", 1),
        ("bool(x0[])", (np.float32(0.5),), "bool", True),
        ("x0[] + x1[]", (np.float32(1), np.float32(2**-30)), "f32", np.float32(1)),
        ("fma(x0[], x0[], -1.0:f64)", (np.float64(1 + 2**-52),), "f64", 2.0**-51 + 2.0**-104),
        ("round_even(x0[])", (np.float32(2.5),), "f32", 2.0),
        ("sigmoid(x0[])", (np.float32(-200),), "f32", np.float32(1.3838965e-87)),
        ("select(x0[], 1:i64, 2:i64)", (np.bool_(False),), "i64", 2),
        ("not(x0[]) | is_nan(nan:f32)", (np.bool_(True),), "bool", True),
    ],
)
def test_operations(text: str, args: tuple, result: str, expected: object) -> None:
    assert _scalar(text, *args, result=result) == expected


@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_propagate_nan(op: str) -> None:
    for args in ((np.float32("nan"), np.float32(1)), (np.float32(1), np.float32("nan"))):
        assert np.isnan(_scalar(f"{op}(x0[], x1[])", *args, result="f32"))


WRONG = {
    "out-of-bounds": "for i in 0..5 { y[i] = x[i] }",
    "undefined": "alloc t: f32[4] @stack for i in 0..4 { y[i] = t[i] }",
    "race": "alloc t: f32[1] @workspace for i in 0..4 parallel { t[0] = x[i] y[i] = t[0] }",
    "assert": 'for i in 0..4 { assert x[i] < 2.0:f32, "too big" y[i] = x[i] }',
}


@pytest.mark.parametrize("kind", WRONG)
def test_checks(kind: str) -> None:
    f = parse_function(f"lowered func f(x: f32[4]) -> (y: f32[4]) {{ {WRONG[kind]} }}")
    with pytest.raises(CompileError) as caught:
        interp.run(f, [np.arange(4, dtype=np.float32)])
    assert caught.value.ids == (f"loop.{kind}",)


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..3 parallel { y[i] = 0.0:f32 }",  # an output without a value
        "let k = rem(1:i64, 0:i64) for i in 0..4 { y[i] = f32(k) }",
    ],
)
def test_undefined_values(body: str) -> None:
    f = parse_function(f"lowered func f() -> (y: f32[4]) {{ {body} }}")
    with pytest.raises(CompileError) as caught:
        interp.run(f, [])
    assert caught.value.ids == ("loop.undefined",)


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..4 vector { y[i] = x[i] + y[(i + 3) % 4] }",
        "for i in 0..4 parallel { y[i] = x[i] y[(i + 1) % 4] = x[i] }",
        "for j in 0..4 { y[j] = x[j] } for i in 0..3 vector { y[i + 1] = y[i] }",
    ],
)
def test_iterations_that_share_an_element_race(body: str) -> None:
    f = parse_function(
        "lowered func f(x: f32[4]) -> (y: f32[4]) { for z in 0..4 { y[z] = 0.0:f32 }" + body + "}"
    )
    with pytest.raises(CompileError) as caught:
        interp.run(f, [np.ones(4, np.float32)])
    assert caught.value.ids == ("loop.race",)


def test_private_buffers_do_not_race() -> None:
    f = parse_function(
        """lowered func f(x: f32[4]) -> (y: f32[4]) uses (w: f32[1] @workspace per_part) {
          for i in 0..4 parallel {
            alloc t: f32[1] @stack
            t[0] = x[i]
            w[0] = t[0] * 2.0:f32
            y[i] = w[0]
          } }"""
    )
    (y,) = interp.run(f, [np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(y, [0, 2, 4, 6])


def test_contents_of_a_part_do_not_outlive_an_iteration() -> None:
    f = parse_function(
        """lowered func f(x: f32[4]) -> (y: f32[4]) uses (w: f32[1] @workspace per_part) {
          for i in 0..4 parallel { if [i] == [0] { w[0] = x[0] } y[i] = w[0] } }"""
    )
    with pytest.raises(CompileError) as caught:
        interp.run(f, [np.ones(4, np.float32)])
    assert caught.value.ids == ("loop.undefined",)


def test_gather_guarded_by_select() -> None:
    f = parse_function(
        """lowered func f(x: f32[4], k: i64[3]) -> (y: f32[3]) {
          for i in 0..3 {
            let at = k[i]
            y[i] = select([at] < 4:i64, x[at], -1.0:f32)
          } }"""
    )
    (y,) = interp.run(f, [np.arange(4, dtype=np.float32), np.array([2, 9, 0])])
    np.testing.assert_array_equal(y, [2, -1, 0])


def test_block_outside_its_domain() -> None:
    f = parse_function(
        """schedulable func f() -> (y: f32[4]) {
          for i in 0..2 { for j in 0..3 { block b(v: spatial 4 = 3*i + j) { y[v] = 1.0:f32 } } } }"""
    )
    with pytest.raises(CompileError) as caught:
        interp.run(f, [])
    assert caught.value.ids == ("loop.out-of-bounds",)


def test_arguments_are_checked() -> None:
    f = parse_function("lowered func f(x: f32[4]) -> (y: f32[4]) { y[0] = x[0] }")
    for wrong in (np.zeros(3, np.float32), np.zeros(4)):
        with pytest.raises(CompileError) as caught:
            interp.run(f, [wrong])
        assert caught.value.ids == ("loop.argument",)


def test_dots_widen_as_their_formats_say_and_wrap() -> None:
    f = parse_function(
        "lowered func f(x: u8[n], w: i8[n]) -> (y: i32[1]) over (n) "
        "{ y[0] = dot(j < 3, 2147483647:i32, x[j], w[j]) }"
    )
    x, w = np.array([255, 1, 2], np.uint8), np.array([-1, 3, 127], np.int8)
    (y,) = interp.run(f, [x, w], {f.dims[0]: 3})
    assert y[0] == 2**31 - 1 - 255 + 3 + 254 - 2**32
    with pytest.raises(CompileError) as caught:
        interp.run(f, [x[:2], w[:2]], {f.dims[0]: 2})
    assert caught.value.ids == ("loop.out-of-bounds",)
