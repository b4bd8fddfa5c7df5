"""Which uses of `take` and `put` are right: programs that pass, and programs that are refused, with the reason."""

from __future__ import annotations

import pytest

from inlay.analysis.infer_types import infer_types
from inlay.analysis.linear_cells import check_cells
from inlay.base.diagnostics import CompileError
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.transforms import to_anf

PRELUDE = """
data List<'a> { Nil, Cons('a, List['a]) }
fn length<'a>(xs: List['a]) -> int { match xs { Nil() => int(0), Cons(_, rest) => @length(rest) } }
fn zero(x: Tensor[4, f32]) -> Tensor[4, f32] { neg(x) }
fn look(c: Ref[Tensor[4, f32]]) -> Tensor[4, f32] { read(c) }
fn keep(c: Ref[Tensor[4, f32]]) -> (Ref[Tensor[4, f32]], Tensor[4, f32]) { (c, read(c)) }
fn store(box: Ref[Ref[Tensor[4, f32]]], c: Ref[Tensor[4, f32]]) -> Tensor[4, f32] { write(box, c); read(c) }
fn apply(f: fn(Tensor[4, f32]) -> Tensor[4, f32], x: Tensor[4, f32]) -> Tensor[4, f32] { f(x) }
"""


def module_of(body: str, params: str = "") -> Module:
    """Return a program whose function `main` has this body, and one of cells where there are more params."""
    text = f"{PRELUDE}\nfn main(x: Tensor[4, f32], k: int{params}) {{ {body} }}"
    return to_anf.run(infer_types(parse_module(text, table())), PassContext(table()))


CELLS = ", a: Ref[Tensor[4, f32]], b: Ref[Tensor[4, f32]]"

RIGHT = {
    "in a row": ("let c = ref(x); put(c, neg(take(c))); put(c, add(take(c), x)); read(c)", ""),
    "never filled again": ("let c = ref(x); neg(take(c))", ""),
    "a parameter": ("put(a, neg(take(a))); read(a)", CELLS),
    "parameters in turn": ("put(a, neg(take(a))); put(b, neg(take(b))); read(b)", CELLS),
    "two at once": (
        "let c = ref(x); let d = ref(x); let t = take(c); let u = take(d); put(c, u); put(d, t); read(c)",
        "",
    ),
    "other contents": (
        "let t = take(a); let m = read(m_); put(a, t); m",
        ", a: Ref[Tensor[4, f32]], m_: Ref[Tensor[4, i32]]",
    ),
    "both arms": (
        "let t = take(a); if (int_less(k, int(3))) { put(a, t); x } else { put(a, neg(t)); x }",
        CELLS,
    ),
    "before the join": ("if (int_less(k, int(3))) { put(a, neg(take(a))) } else { () }; read(a)", CELLS),
    "taken in both": (
        "let t = if (int_less(k, int(3))) { take(a) } else { neg(take(a)) }; put(a, t); read(a)",
        CELLS,
    ),
    "a call that cannot see it": ("let t = take(a); put(a, @zero(t)); read(a)", CELLS),
    "a private cell and unknown code": (
        "let c = ref(x); let f = fn(y: Tensor[4, f32]) { neg(y) }; let t = take(c); put(c, @apply(f, t)); read(c)",
        "",
    ),
    "private behind a call that cannot keep it": ("let c = ref(x); @look(c); neg(take(c))", ""),
    "a loop": (
        """let loop = fn<i>(i: int[i]) {
             if (int_less(int(i), k)) { put(a, neg(take(a))); loop(int(i + 1)) } else { read(a) } };
           loop(int(0))""",
        CELLS,
    ),
    "two cells in a loop": (
        """let c = ref(x); let d = ref(x);
           let loop = fn<i>(i: int[i]) {
             if (int_less(int(i), k)) {
               let t = take(c); let u = take(d); put(d, t); put(c, u); loop(int(i + 1))
             } else { read(c) } };
           loop(int(0))""",
        "",
    ),
    "what is taken goes round": (
        """let loop = fn<i>(i: int[i], t: Tensor[4, f32]) {
             if (int_less(int(i), k)) { loop(int(i + 1), neg(t)) } else { t } };
           let t = take(a); put(a, loop(int(0), t)); read(a)""",
        CELLS,
    ),
    "out of a list": (
        "match Cons(a, Nil[Ref[Tensor[4, f32]]]()) { Nil() => x, Cons(c, _) => { put(c, neg(take(c))); x } }",
        CELLS,
    ),
    "another name": ("let c = ref(x); let d = c; let t = take(c); put(d, t); read(c)", ""),
}

WRONG = {
    "read while empty": ("let t = take(a); let u = read(a); put(a, t); u", CELLS, "cell.empty"),
    "taken twice": ("let t = take(a); let u = take(a); put(a, t); u", CELLS, "cell.empty"),
    "written while empty": ("let t = take(a); write(a, t); put(a, t); t", CELLS, "cell.empty"),
    "handed on while empty": ("let t = take(a); let u = @look(a); put(a, t); u", CELLS, "cell.empty"),
    "private and handed on": ("let c = ref(x); let t = take(c); let p = (c, t); put(c, t); p.1", "", "cell.empty"),
    "put twice": ("let t = take(a); put(a, t); put(a, t); t", CELLS, "cell.full"),
    "never put": ("take(a)", CELLS, "cell.left-empty"),
    "put in one arm": (
        "let t = take(a); if (int_less(k, int(3))) { put(a, t); x } else { x }",
        CELLS,
        "cell.left-empty",
    ),
    "arms differ": (
        "let t = take(a); let u = if (int_less(k, int(3))) { put(a, t); x } else { x }; put(a, u); x",
        CELLS,
        "cell.arms-differ",
    ),
    "shared and left": ("let c = ref(x); let p = @keep(c); let t = take(c); add(t, p.1)", "", "cell.left-empty"),
    "stored and left": (
        "let c = ref(x); let box = ref(ref(x)); @store(box, c); neg(take(c))",
        "",
        "cell.left-empty",
    ),
    "maybe the same": ("let t = take(a); put(a, add(t, read(b))); x", CELLS, "cell.reached"),
    "maybe the same, taken": (
        "let t = take(a); let u = take(b); put(a, u); put(b, t); x",
        CELLS,
        "cell.reached",
    ),
    "given to a call": ("let t = take(a); let u = @look(b); put(a, t); u", CELLS, "cell.reached"),
    "unknown code": (
        "let t = take(a); put(a, f(t)); x",
        CELLS + ", f: fn(Tensor[4, f32]) -> Tensor[4, f32]",
        "cell.reached",
    ),
    "given a function": (
        "let t = take(a); put(a, @apply(f, t)); x",
        CELLS + ", f: fn(Tensor[4, f32]) -> Tensor[4, f32]",
        "cell.reached",
    ),
    "a function that mentions it": (
        "let c = ref(x); let f = fn(y: Tensor[4, f32]) { add(y, read(c)) }; let t = take(c); put(c, f(t)); x",
        "",
        "cell.reached",
    ),
    "a function that mentions such a one": (
        """let c = ref(x); let f = fn(y: Tensor[4, f32]) { add(y, read(c)) };
           let g = fn(y: Tensor[4, f32]) { f(f(y)) }; let t = take(c); put(c, g(t)); x""",
        "",
        "cell.reached",
    ),
    "a function that is handed on": (
        """let c = ref(x); let f = fn(y: Tensor[4, f32]) { add(y, read(c)) };
           let t = take(c); let u = @apply(f, t); put(c, u); x""",
        "",
        "cell.reached",
    ),
    "handed on before, in another function": (
        """let c = ref(x); let f = fn(y: Tensor[4, f32]) { add(y, read(c)) };
           let g = fn(y: Tensor[4, f32]) { @apply(f, y) }; let u = g(x); neg(take(c))""",
        "",
        "cell.left-empty",
    ),
    "a turn that leaves it empty": (
        """let loop = fn<i>(i: int[i], t: Tensor[4, f32]) {
             if (int_less(int(i), k)) { loop(int(i + 1), take(a)) } else { t } };
           loop(int(0), x)""",
        CELLS,
        "cell.reached",
    ),
    "a list that may hold it": (
        "let xs = Cons(a, Nil[Ref[Tensor[4, f32]]]()); let t = take(a); let n = @length(xs); put(a, t); x",
        CELLS,
        "cell.reached",
    ),
    "another name while empty": ("let c = ref(x); let d = c; let t = take(c); let u = read(d); put(c, u); t", "", "cell.empty"),
    "known in an arm only": (
        """let y = match Cons(a, Nil[Ref[Tensor[4, f32]]]()) { Nil() => x, Cons(c, _) => take(c) }; y""",
        CELLS,
        "cell.left-empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    body, params = RIGHT[name]
    check_cells(module_of(body, params))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    body, params, expected = WRONG[name]
    module = module_of(body, params)
    with pytest.raises(CompileError) as found:
        check_cells(module)
    assert expected in found.value.ids, str(found.value)
