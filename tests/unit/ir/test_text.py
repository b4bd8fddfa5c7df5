"""Text form: what is printed is read back as the same program; errors come all at once."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import BY_NAME, F32
from inlay.arith.expr import ceildiv, fresh, maximum, to_int
from inlay.base.diagnostics import CompileError
from inlay.ir import make, walk
from inlay.ir.builder import Builder
from inlay.ir.equal import equal, modules_equal, structural_hash
from inlay.ir.expr import Call, Const, Function, Let
from inlay.ir.loop_trace import Step
from inlay.ir.module import EntryNames, Module
from inlay.ir.parser import parse_expr, parse_module, parse_type
from inlay.ir.place import Origin, Place
from inlay.ir.printer import PrintOptions, digest, print_expr, print_module
from inlay.ir.type_printer import type_text
from tests.unit.ir.ops import ADD, NEG, NONZERO, TABLE


def round_trip(m: Module) -> Module:
    text = print_module(m)
    again = parse_module(text, TABLE)
    assert modules_equal(m, again), text
    for name, f in m.functions.items():
        assert structural_hash(f) == structural_hash(again.functions[name])
        assert equal(again.functions[name], f)
    return again


PROGRAM = """\
data List<'a> { Nil, Cons('a, List['a]) }

fn map<'a, 'b>(f: fn('a) -> 'b, xs: List['a]) -> List['b] {
  match xs {
    Nil() => Nil['b](),
    Cons(x: 'a, rest: List['a]) => Cons(f(x), @map(f, rest)),
  }
}

fn main<n in 1..512 step 8>(x: Tensor[n, 4, f32], k: int[n]) -> List[Tensor[4, f32]] {
  let r: Ref[Tensor[n, 4, f32]] = ref(x) @cpu;
  let _: () = write(r, neg(read(r)));
  let l: List[Tensor[n, 4, f32]] = Cons(x, Nil[Tensor[n, 4, f32]]());
  let y: Tensor[n, 4, f32] = if (true) { x } else if (false) { neg(x) } else {
    %1 = add(x, x);
    add(%1, %1)
  };
  @map(fn(y_1: Tensor[n, 4, f32]) -> Tensor[4, f32] { sum(y_1) }, l)
}

entry main("x", "k") -> ("y");
"""


def test_a_program_is_printed_as_it_was_written():
    m = parse_module(PROGRAM, TABLE)
    assert "".join(print_module(m).split()) == "".join(PROGRAM.split())
    round_trip(m)


def test_a_loop_round_trips():
    n, m = fresh("n"), fresh("m")
    b = Builder()
    xs = b.param("xs", make.tensor_type((n, 4), F32))
    ys = b.param("ys", make.tensor_type((m, 4), F32))
    h = b.param("h", make.tensor_type((4,), F32))

    def step(s, c, rows):
        new = s.emit(ADD, (c[0], s.emit(ADD, rows)))
        return Step([new], [new])

    done = b.scan([h], [xs, ys], step)
    found = b.emit(NONZERO, (h,))
    round_trip(Module({"main": b.function((*done.carried, *done.stacked, found))}))


def test_sharing_is_printed_and_read():
    x = make.var("x", make.tensor_type((4,), F32))
    e = x
    for _ in range(200):
        e = make.call(ADD, (e, e))
    f = make.function((x,), e)
    again = round_trip(Module({"main": f})).functions["main"]
    assert sum(isinstance(e, Call) for e in walk.postorder(again)) == 200


def test_a_node_shared_by_two_branches_stands_before_them():
    x = make.var("x", make.tensor_type((4,), F32))
    shared = make.call(NEG, (x,))
    yes = make.bool_const(True)
    inner = make.if_(yes, make.call(ADD, (shared, x)), x)
    outer = make.if_(yes, inner, make.call(ADD, (x, shared)))
    f = make.function((x,), outer)
    text = print_module(Module({"main": f}))
    assert text.index("%1 = ") < text.index("if ")
    round_trip(Module({"main": f}))


def test_deep_nests_are_broken_up():
    x = make.var("x", make.tensor_type((4,), F32))
    e = x
    for _ in range(3000):
        e = make.call(NEG, (e,))
    round_trip(Module({"main": make.function((x,), e)}))


def test_a_long_program():
    x = make.var("x", make.tensor_type((4,), F32))
    vs = [x, *(make.var(f"v{i}", x.type) for i in range(5_000))]
    body = vs[-1]
    for i in range(len(vs) - 1, 0, -1):
        body = make.let(vs[i], make.call(NEG, (vs[i - 1],)), body)
    round_trip(Module({"main": make.function((x,), body)}))


@pytest.mark.parametrize("dtype", [d for d in BY_NAME.values() if d.name != "string"])
def test_constants_keep_every_bit(dtype):
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 2 if dtype.name == "bool" else 256, 12 * dtype.itemsize)
    array = raw.astype(np.uint8).view(dtype.numpy)
    if dtype.is_float:
        array = np.where(np.isnan(array), np.array(np.nan, dtype.numpy), array)
    for value in (array, array.reshape(3, 4), array[:0].reshape(0, 3), array[:1].reshape(())):
        f = make.function((), make.const(value, dtype))
        round_trip(Module({"main": f}))


def test_large_constants_are_resources():
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    m = Module({"main": make.function((), make.const(array))})
    again = round_trip(m).functions["main"].body
    assert isinstance(again, Const)
    assert np.array_equal(again.value, array)
    bare = print_module(m, PrintOptions(resources=False))
    with pytest.raises(CompileError, match="no resource"):
        parse_module(bare, TABLE)
    given = parse_module(bare, TABLE, resources={digest(array): array})
    assert modules_equal(m, given)


def test_places_round_trip():
    x = make.var("x", make.tensor_type((4,), F32), place=Place("cpu", origin=Origin.USER))
    pair = make.tuple_((x, x), place=Place("npu", ("a", "b"), fields=(Place("cpu"), None)))
    f = make.function((x,), make.project(pair, 0, place=Place("cpu")))
    round_trip(Module({"main": f}))


def test_special_numbers():
    e = parse_expr("f32[4](nan, -inf, inf, -0.0)", TABLE)
    assert isinstance(e, Const)
    assert np.signbit(e.value[3])
    assert print_expr(e) == "f32[4](nan, -inf, inf, -0.0)"


def test_types():
    n = fresh("n")
    n_ = to_int(n)
    for text in (
        "Tensor[n, 2*n + 1, f32]",
        "(Tensor[f32],)",
        "fn<m <= 8, int k>(Tensor[m, f32], int[k]) -> some j >= 1. Tensor[j, m, i64]",
        "Ref[(int, bool, shape[_, 3, n])]",
        "fn<'a>('a) -> 'a",
        "()",
    ):
        assert type_text(parse_type(text, {"n": n})) == text
    assert parse_type("Tensor[(n + 15) / 16, max(n, 3), n % 4, f32]", {"n": n}) == (
        make.tensor_type((ceildiv(n_, 16), maximum(3, n_), n_ % 4), F32)
    )


def test_equality_is_up_to_names_and_no_more():
    def f(text: str) -> Function:
        return parse_module(f"fn main<n>(x: Tensor[n, f32]) {{ {text} }}", TABLE).functions["main"]

    same = f("let y = neg(x); add(y, x)")
    assert equal(same, f("let z = neg(x); add(z, x)"))
    for other in (
        "let y = neg(x); add(x, y)",
        "let y = neg(x); mul(y, x)",
        "add(neg(x), x)",
        "let y = neg(x); add(y, y)",
        "let y = neg(x) @cpu; add(y, x)",
    ):
        assert not equal(same, f(other)), other
        assert structural_hash(same) != structural_hash(f(other))
    shared, copied = f("%1 = neg(x); add(%1, %1)"), f("add(neg(x), neg(x))")
    assert not equal(shared, copied)
    assert not equal(copied, shared)


def test_dims_are_compared_up_to_names():
    def f(text: str) -> Function:
        return parse_module(text, TABLE).functions["main"]

    a = f("fn main<n, m>(x: Tensor[n, m, f32]) -> Tensor[n, m, f32] { x }")
    b = f("fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] { x }")
    c = f("fn main<n, m>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] { x }")
    d = f("fn main<n, m <= 8>(x: Tensor[n, m, f32]) -> Tensor[n, m, f32] { x }")
    assert equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    assert not equal(a, c)
    assert not equal(a, d)


def test_all_errors_are_reported():
    text = """\
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let a = ad(x, x);
  let b = add(x, q;
  let c = add(x, f32[3, 4](1));
  let d = add(x);
  let e = concat{axes=1}(x, x);
  let f: Tensor[n, q, f32] = x;
  add(a, zz)
}
fn other(x: Tensr[4, f32]) { neg(x) }
entry nowhere;
"""
    with pytest.raises(CompileError) as caught:
        parse_module(text, TABLE)
    assert [(d.id, d.span.line) for d in caught.value.diagnostics] == [
        ("name.unknown", 2),
        ("name.unknown", 3),
        ("parse.expected", 3),
        ("parse.bad-number", 4),
        ("type.arity", 5),
        ("parse.bad-attribute", 6),
        ("type.mismatch", 7),
        ("name.unknown", 7),
        ("name.unknown", 8),
        ("name.unknown", 10),
        ("name.unknown", 11),
    ]


def test_nesting_is_limited_with_an_error():
    with pytest.raises(CompileError) as caught:
        parse_expr("neg(" * 500 + "f32(1.0)" + ")" * 500, TABLE)
    assert "parse.nesting" in caught.value.ids


def test_unannotated_programs_have_unknown_types():
    m = parse_module("fn main(x, y) { let z = add(x, y); neg(z) }", TABLE)
    f = m.functions["main"]
    assert isinstance(f.body, Let)
    assert type_text(f.type) == "fn(?, ?) -> ?"
    round_trip(m)


def test_entries():
    m = parse_module('fn f(x: Tensor[f32]) { x } entry f("a b") -> ("y"); entry f;', TABLE)
    assert m.entry == "f"
    assert m.entries["f"] == EntryNames(("a b",), ("y",))
    round_trip(m)


@pytest.mark.parametrize(
    "text",
    [
        "int(9223372036854775808)",
        "int(-9223372036854775809)",
        "shape(3, 9223372036854775808)",
        "f32(1e400)",
        "f64(-1e309)",
        "f32(1e39)",
        "f16(70000)",
        "bf16(1e39)",
        "f32[2](1, 1e39)",
        "f32(1" + 400 * "0" + ")",
        "f64(0x1p1024)",
        "i64(9223372036854775808)",
    ],
)
def test_numbers_that_their_format_does_not_hold(text):
    with pytest.raises(CompileError) as caught:
        parse_expr(text, TABLE)
    assert caught.value.ids == ("parse.bad-number",)


def test_numbers_at_the_ends_of_their_formats():
    for text in (
        "int(9223372036854775807)",
        "int(-9223372036854775808)",
        "f32(inf)",
        "f32(-inf)",
        "f32(nan)",
        "f32(3.4028235e+38)",
        "f16(65504.0)",
    ):
        parse_expr(text, TABLE)
