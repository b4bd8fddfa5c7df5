"""The verifier: each rule has a program that breaks it, and all findings come at once."""

from __future__ import annotations

import pytest

from inlay.arith import dtype as dt
from inlay.arith.expr import fresh, lit, to_int
from inlay.base.diagnostics import CompileError
from inlay.loop.buffer import Buffer
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.parser import parse_function
from inlay.loop.scalar import Binary, BinaryOp, Cast, Dot, Index, Lit, Load, Name
from inlay.loop.stmt import For, LoopKind, Store
from inlay.loop.verify import check, verify

HEAD = "lowered func f(x: f32[n, 4]) -> (y: f32[n]) over (n) {"

WRONG = {
    "rank": "for i in 0..n { y[i] = x[i] }",
    "dtype": "for i in 0..n { y[i] = f64(x[i, 0]) }",
    "write": "for i in 0..n { x[i, 0] = 0.0:f32 }",
    "race": "for i in 0..n parallel { y[0] = x[i, 0] }",
    "stage": "for i in 0..n { block b(v: spatial n = i) { y[v] = 0.0:f32 } }",
    "buffer": "alloc t: f32[n] @stack y[0] = 0.0:f32",
    "kind": "for i in 0..n vector { y[i] = 0.0:f32 }",
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_rule_is_held(kind: str) -> None:
    found = verify(parse_function(HEAD + WRONG[kind] + "}"))
    assert [d.id for d in found] == [f"loop.{kind}"]


@pytest.mark.parametrize(
    "body",
    [
        "for i in 0..n { for j in 0..4 parallel { y[j] = 0.0:f32 } }",
        "for i in 0..4 vector { for j in 0..4 { y[i] = 0.0:f32 } }",
        "for i in 0..4 vector { alloc t: f32[1] @stack t[0] = 0.0:f32 y[i] = t[0] }",
        "for i in 0..n unroll { y[i] = 0.0:f32 }",
    ],
)
def test_rules_of_loop_kinds(body: str) -> None:
    assert {d.id for d in verify(parse_function(HEAD + body + "}"))} == {"loop.kind"}


@pytest.mark.parametrize(
    "value",
    [
        "x[0, 0] + 1.0:f64",
        "sqrt(1:i32)",
        "not(1.0:f32)",
        "select(1.0:f32, 1.0:f32, 1.0:f32)",
        "fma(1.0:f32, 1.0:f32)",
        "mul_high(1.0:f32, 1.0:f32)",
        "bitcast:f32(1:i64)",
        "xor(1.0:f32, 1.0:f32)",
    ],
)
def test_dtypes_of_operations(value: str) -> None:
    assert "loop.dtype" in {d.id for d in verify(parse_function(f"{HEAD} y[0] = {value} }}"))}


DOT = "lowered func f(x: i8[n, 4], h: u16[n], s: i64[n]) -> (y: i32[n], z: i64[n]) over (n) {"


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("y[0] = dot(j < 4, 0:i32, x[0, j], x[1, j])", []),
        ("y[0] = dot(j < 2, dot(j < 2, 0:i32, x[0, j], x[0, j]), x[1, j], x[1, j])", []),
        ("z[0] = dot(j < 4, 0:i64, x[0, j], x[1, j])", ["loop.dtype"]),
        ("y[0] = dot(j < 4, 0:i32, h[j], x[1, j])", ["loop.dtype"]),
        ("y[0] = dot(j < 0, 0:i32, x[0, j], x[1, j])", ["loop.dtype"]),
        ("y[0] = dot_saturating(j < 4, 0:i32, x[0, j], x[1, j])", []),
        ("y[0] = dot_saturating(j < 3, 0:i32, x[0, j], x[1, j])", ["loop.dtype"]),
    ],
)
def test_rules_of_dots(statement: str, found: list[str]) -> None:
    assert [d.id for d in verify(parse_function(f"{DOT} {statement} }}"))] == found


def test_the_number_of_a_product_is_known_to_its_factors_only() -> None:
    with pytest.raises(CompileError, match="j"):
        parse_function(f"{DOT} y[0] = dot(j < 4, i32(x[0, j]), x[0, j], x[1, j]) }}")
    x, y = Buffer("x", (lit(4),), dt.I8), Buffer("y", (lit(1),), dt.I32)
    j = fresh("j")
    load = Load(x, (to_int(j),))
    value = Dot(j, 4, Cast(load, dt.I32), load, load)
    f = LoopFunction("f", (x, y), 1, (), Store(y, (lit(0),), value), Stage.LOWERED)
    assert [d.id for d in verify(f)] == ["loop.scope"]


def test_all_findings_are_reported_with_their_statement() -> None:
    body = "".join(WRONG[k] for k in ("rank", "write", "race"))
    with pytest.raises(CompileError) as caught:
        check(parse_function(HEAD + body + "}"))
    assert caught.value.ids == ("loop.rank", "loop.write", "loop.race")
    assert any("y[i] = x[i]" in note for note in caught.value.diagnostics[0].notes)


def test_symbols_and_buffers_have_scopes() -> None:
    n, i, stray = fresh("n"), fresh("i"), fresh("stray")
    x, y = Buffer("x", (to_int(n),), dt.F32), Buffer("y", (to_int(n),), dt.F32)
    unknown = Buffer("unknown", (to_int(n),), dt.F32)
    value = Binary(BinaryOp.ADD, Load(unknown, (to_int(stray),)), Name(stray, dt.F32), dt.F32)
    body = For(i, lit(0), to_int(n), LoopKind.SERIAL, Store(y, (to_int(i),), value))
    f = LoopFunction("f", (x, y), 1, (n,), body, Stage.LOWERED)
    assert [d.id for d in verify(f)] == ["loop.scope"] * 3


def test_block_body_sees_iters_only() -> None:
    text = """schedulable func f() -> (y: f32[n]) over (n) {
      for i in 0..n { block b(v: spatial n = i) { y[v] = f32([v]) } } }"""
    f = parse_function(text)
    assert verify(f) == ()
    assert isinstance(f.body, For)
    block = f.body.body
    bad = Store(f.params[0], (to_int(f.body.var),), Lit(0.0, dt.F32))
    wrong = type(block)(block.name, block.iters, block.bindings, bad)  # type: ignore[union-attr]
    outer = For(f.body.var, f.body.lo, f.body.extent, f.body.kind, wrong)
    assert [d.id for d in verify(LoopFunction("f", f.params, 0, f.dims, outer))] == ["loop.scope"]


def test_init_needs_a_reduction() -> None:
    text = """schedulable func f() -> (y: f32[4]) {
      for i in 0..4 { block b(v: spatial 4 = i) { init { y[v] = 0.0:f32 } y[v] = 1.0:f32 } } }"""
    assert [d.id for d in verify(parse_function(text))] == ["loop.block"]


def test_let_of_i64_may_index() -> None:
    ok = "for i in 0..n { let k = i64(x[i, 0]) y[k] = 0.0:f32 }"
    assert verify(parse_function(HEAD + ok + "}")) == ()
    wrong = ok.replace("i64(", "i32(")
    assert [d.id for d in verify(parse_function(HEAD + wrong + "}"))] == ["loop.dtype"]
    assert Index(lit(1)).dtype == dt.I64
