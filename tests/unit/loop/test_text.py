"""The text form: parse(print(f)) is f."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.arith import dtype as dt
from inlay.arith.expr import fresh, lit, maximum, minimum, to_int
from inlay.base.diagnostics import CompileError
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.parser import parse_function
from inlay.loop.printer import print_function
from inlay.loop.scalar import (
    Binary,
    BinaryOp,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    IntrinsicOp,
    Lit,
    Load,
    Name,
    Select,
    Unary,
    UnaryOp,
)
from inlay.loop.stmt import (
    Alloc,
    Assert,
    Block,
    BlockIter,
    For,
    If,
    IterKind,
    Let,
    LoopKind,
    Seq,
    Store,
    While,
)
from inlay.loop.verify import verify
from tests.loop_equal import equal

GEMM = """\
schedulable func gemm(A: f32[m, k], B: f32[k, 48]) -> (C: f32[m, 48]) over (m, k) {
  alloc T: f32[m, 48] @workspace
  for i in 0..m parallel (grain="8") {
    for j in 0..48 {
      for r in 0..k {
        block mm(vi: spatial m = i, vj: spatial 48 = j, vr: reduce k = r) where [2*i + 1] < [m] {
          init {
            T[vi, vj] = 0.0:f32
          }
          T[vi, vj] = T[vi, vj] + (A[vi, vr] * B[vr, vj])
        }
      }
    }
  }
  for i2 in 0..m {
    for j2 in 0..48 vector {
      block out(wi: spatial m = i2, wj: spatial 48 = j2) {
        let t = T[wi, wj]
        C[wi, wj] = t * sigmoid(t)
      }
    }
  }
}
"""

LOWERED = """\
lowered func odd(x: i64[n], y: u8[n, (n / 4), min(3, n)]) -> (z: bool[n]) over (n) uses (w: f64[n] @workspace per_part) {
  for i in 0..n {
    {
      let k = select(x[i] < 0:i64, x[i] + [n], x[i])
      assert k <= [n - 1], "index \\"k\\" of range\\n"
      z[k] = (i8(-3:i8) == 4:i8) | is_nan(f32(inf:f64))
    }
    while z[i] {
      w[(i % 7)] = f64(bitcast:f32(7:i32)) + -inf:f64
      z[i] = not(z[i])
    }
    if false {
    } else {
      z[i] = true
    }
  }
}
"""


@pytest.mark.parametrize("text", [GEMM, LOWERED])
def test_text_is_reproduced(text: str) -> None:
    assert print_function(parse_function(text)) == text


def test_gemm_is_well_formed() -> None:
    assert verify(parse_function(GEMM)) == ()


def test_names_are_made_unique_and_legal() -> None:
    a = Buffer("for", (lit(4),), dt.F32)
    b = Buffer("x.1", (lit(4),), dt.F32)
    outer, inner = fresh("i"), fresh("i")
    body = For(
        outer,
        lit(0),
        lit(4),
        LoopKind.SERIAL,
        For(
            inner,
            to_int(outer),
            lit(1),
            LoopKind.SERIAL,
            Store(b, (to_int(inner),), Load(a, (to_int(outer),))),
        ),
    )
    f = LoopFunction("f", (a, b), 1, (), body)
    text = print_function(f)
    assert "for_1: f32[4]" in text
    assert "for i_1 in i..i + 1" in text
    assert equal(parse_function(text), f)


def test_functions_that_differ_are_not_equal() -> None:
    f = parse_function(GEMM)
    assert equal(f, parse_function(GEMM.replace("vi", "q")))
    for old, new in [
        ("A[vi, vr]", "A[vr, vi]"),
        ("0.0:f32", "-0.0:f32"),
        ("m parallel", "m"),
        ("T[wi, wj]\n", "T[wj, wi]\n"),
    ]:
        assert old in GEMM
        assert not equal(f, parse_function(GEMM.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("C[wi, wj] =", "C[wi, wj]"),
        ("for i in", "for i of"),
        ("A[vi", "Q[vi"),
        ("* sigmoid", "* sigm"),
        ("0.0:f32", "0.0"),
        ("= t *", "= wi *"),
        ("spatial m = i,", "spacial m = i,"),
    ],
)
def test_syntax_errors_name_what_was_needed(old: str, new: str) -> None:
    assert old in GEMM
    with pytest.raises(CompileError) as caught:
        parse_function(GEMM.replace(old, new, 1))
    assert caught.value.ids == ("parse.expected",)
    assert caught.value.diagnostics[0].span


def test_grammar_page_examples_parse() -> None:
    page = Path(__file__).parents[3] / "docs" / "language" / "loop_ir.md"
    examples = re.findall(r"```loops\n(.*?)```", page.read_text(), re.S)
    assert examples
    for text in examples:
        assert verify(parse_function(text)) == ()


# --------------------------------------------------------------------------- generated programs

_N = fresh("n")
_SYMS = [fresh(f"v{k}") for k in range(3)]
_BUF = Buffer("buf", (to_int(_N), lit(8)), dt.F32)
_OUT = Buffer("out", (to_int(_N), lit(8)), dt.F32)


def _ints() -> st.SearchStrategy:
    leaf = st.one_of(st.integers(-40, 40).map(lit), st.sampled_from([to_int(s) for s in (*_SYMS, _N)]))
    return st.recursive(
        leaf,
        lambda e: st.one_of(
            st.tuples(e, e).map(lambda p: p[0] + p[1]),
            st.tuples(e, e).map(lambda p: p[0] * p[1]),
            st.tuples(e, st.integers(1, 17)).map(lambda p: p[0] // p[1]),
            st.tuples(e, st.integers(1, 17)).map(lambda p: p[0] % p[1]),
            st.tuples(e, e).map(lambda p: minimum(*p)),
            st.tuples(e, e).map(lambda p: maximum(*p)),
        ),
        max_leaves=6,
    )


def _floats() -> st.SearchStrategy:
    leaf = st.one_of(
        st.floats(width=32).map(lambda v: Lit(v, dt.F32)),
        st.tuples(_ints(), _ints()).map(lambda p: Load(_BUF, p)),
        _ints().map(lambda e: Cast(Index(e), dt.F32)),
    )
    binary = st.sampled_from([BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MAX_NUMBER, BinaryOp.DIV])
    return st.recursive(
        leaf,
        lambda x: st.one_of(
            st.tuples(binary, x, x).map(lambda p: Binary(*p, dt.F32)),
            x.map(lambda a: Unary(UnaryOp.SQRT, a, dt.F32)),
            st.tuples(x, x, x).map(lambda p: Intrinsic(IntrinsicOp.FMA, p, dt.F32)),
            st.tuples(x, x).map(
                lambda p: Select(Binary(BinaryOp.LE, p[0], p[1], dt.BOOL), p[1], p[0], dt.F32)
            ),
            st.tuples(_ints(), x).map(lambda p: Bind(_SYMS[0], Index(p[0]), p[1])),
            st.tuples(x, x, x).map(lambda p: Dot(_SYMS[0], 4, *p)),
        ),
        max_leaves=5,
    )


def _stmts() -> st.SearchStrategy:
    store = st.tuples(_ints(), _ints(), _floats()).map(lambda p: Store(_OUT, p[:2], p[2]))
    condition = st.tuples(_ints(), _ints()).map(
        lambda p: Binary(BinaryOp.LT, Index(p[0]), Index(p[1]), dt.BOOL)
    )
    temp = Buffer("tmp", (lit(4),), dt.F32, Scope.REGISTER)

    def let(p):
        x = fresh("x")
        return Let(x, p[0], Store(_OUT, (lit(0), lit(0)), Name(x, dt.F32)))

    return st.recursive(
        store,
        lambda s: st.one_of(
            st.tuples(st.sampled_from(_SYMS), _ints(), _ints(), st.sampled_from(LoopKind), s).map(
                lambda p: For(*p)
            ),
            st.lists(s, max_size=3).map(lambda p: Seq(tuple(p))),
            st.tuples(condition, s, s).map(lambda p: If(*p)),
            st.tuples(condition, s).map(lambda p: While(*p)),
            st.tuples(_floats(), s).map(let),
            s.map(lambda b: Alloc(temp, b)),
            condition.map(lambda c: Assert(c, 'say "why"')),
            st.tuples(_ints(), s).map(
                lambda p: Block("blk", (BlockIter(_SYMS[1], to_int(_N), IterKind.SPATIAL),), (p[0],), p[1])
            ),
        ),
        max_leaves=6,
    )


@given(_stmts())
def test_parse_of_print_is_the_function(body) -> None:
    # Every symbol is a dim, so that whatever a generated statement mentions is in scope.
    f = LoopFunction("f", (_BUF, _OUT), 1, (_N, *_SYMS), body, Stage.LOWERED)
    again = parse_function(print_function(f))
    text = print_function(again)
    assert print_function(parse_function(text)) == text
