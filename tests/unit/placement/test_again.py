"""A planned program plans to itself: what a plan says is never a contradiction of it."""

from __future__ import annotations

import pytest

from inlay.base.diagnostics import CompileError
from inlay.interp.tensor import evaluate
from inlay.ir.printer import print_module
from inlay.passes.contract import PassContext
from inlay.placement.infer import gather
from inlay.transforms import fuse_ops
from tests.unit.placement.cases import B2, B2X, M2, OPS, N, arguments, planned, read, same

CASES = {
    "a shared memory and a tuple": (
        N,
        """
fn main(x: T) { let n = on(npu0, neg(x)); (on(npu0, n), on(cpu, exp(n))) }""",
    ),
    "a value of two devices in a tuple": (
        N,
        """
fn main(x: T) { let n = on(cpu, neg(x)); let t = (on(npu0, n), on(cpu, n)); t }""",
    ),
    "names of one value on two devices": (
        N,
        """
fn main(x: T) { let n = on(cpu, neg(x)); let m = on(npu0, n); let k = on(cpu, m); (n, m, k) }""",
    ),
    "a tuple whose fields move": (
        M2,
        """
fn main(c: bool, x: T, y: T) {
  let t = if (c) { (on(npu0, neg(x)), on(cpu, y)) } else { (on(npu1, exp(x)), on(cpu, neg(y))) };
  on(npu1, add(t.0, t.1)) }""",
    ),
    "a function in an adapter": (
        M2,
        """
fn main(c: bool, x: T, y: T) {
  let f = fn(a: T, b: T) { on(npu0, add(on(npu0, a), on(npu0, b))) };
  let g = fn(a: T, b: T) { on(npu1, sub(on(npu1, a), on(npu1, b))) };
  let h = if (c) { f } else { g };
  h(x, y) }""",
    ),
    "a function written twice": (
        M2,
        """
fn main(x: T, y: T) {
  let a = on(cpu, neg(y));
  let f = fn(p: T) { on(npu0, add(p, a)) };
  (on(npu0, neg(f(on(npu0, neg(x))))), on(npu1, neg(f(on(npu1, exp(x)))))) }""",
    ),
    "a result of which a field moves": (
        B2,
        """
fn main(c: bool, x: T, y: T) {
  let f = fn(a: T, b: T) { (on(gpu, exp(a)), on(cpu, neg(b))) };
  let t = if (c) { f(x, y) } else { (on(gpu, neg(x)), on(gpu, exp(y))) };
  (on(gpu, neg(t.0)), on(gpu, neg(t.1))) }""",
    ),
    "a parameter of a loop, fixed where it is handed on": (
        B2X,
        """
fn main(x: T) {
  let down = fn<int i>(i: int[i], h: T, g: T) -> T {
    if (int_less(int(0), i)) { down(int(i - 2), fixed(gpu, h), g) } else { h } };
  on(cpu, neg(down(int(3), x, x))) }""",
    ),
    "a copy of a list": (
        B2,
        """
fn first(xs: List[T], x: T) { match xs { Cons(y, _) => y, Nil() => x } }
fn main(x: T, y: T) {
  let a = on(cpu, neg(x));
  let xs @_(cpu) = Cons(a, Nil());
  let ys @_(gpu) = Cons(on(gpu, exp(y)), xs);
  (on(cpu, neg(@first(xs, a))), on(gpu, neg(@first(ys, y)))) }""",
    ),
    "a copy": (
        B2,
        """
fn main(x: T) { on(gpu, exp(on(cpu, neg(x)))) }""",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_a_plan_plans_to_itself(name: str, fused: bool):
    board, text = CASES[name]
    once = planned(read(text), board)
    if fused:
        once = fuse_ops.PASS.run(once, PassContext(OPS))
    assert print_module(planned(once, board)) == print_module(once)


SHARED = {
    "cells on two devices": """
fn put(c: Ref[T], x: T) { write(c, x) }
fn main(x: T, y: T) {
  let a @cpu = ref(x);
  let b @npu0 = ref(y);
  let _ = @put(a, y);
  let _ = @put(b, x);
  (read(a), read(b)) }""",
    "cells that a function makes": """
fn cell(x: T) { ref(x) }
fn main(x: T, y: T) {
  let a @cpu = @cell(x);
  let b @npu0 = @cell(y);
  (read(a), read(b)) }""",
    "cells in lists": """
fn first(cs: List[Ref[T]], x: T) { match cs { Cons(c, _) => read(c), Nil() => x } }
fn main(x: T, y: T) {
  let a @cpu = ref(x);
  let b @npu0 = ref(y);
  (@first(Cons(a, Nil()), x), @first(Cons(b, Nil()), y)) }""",
    "fixed arguments": """
fn f(x: T) { exp(x) }
fn main(x: T, y: T) { (@f(fixed(cpu, neg(x))), @f(fixed(npu0, neg(y)))) }""",
}


@pytest.mark.parametrize("name", SHARED)
def test_a_program_too_large_to_write_out_is_not_refused(name: str, monkeypatch):
    """From the first value on, occurrences of a function share what they may share."""
    module = read(SHARED[name])
    written_out = planned(module, M2)
    monkeypatch.setattr(gather, "_MOST_VALUES", 0)
    once = planned(module, M2)
    assert print_module(planned(once, M2)) == print_module(once)
    arrays = arguments(module.functions["main"])
    assert same(evaluate(once, arrays), evaluate(written_out, arrays))


def test_functions_that_make_cells_over_many_levels(monkeypatch):
    """Each level doubles what is below; sharing would put cells together that may be apart."""
    levels = [
        f"fn f{k}(c: Ref[T], x: T) {{ let d = ref(x); let _ = @f{k - 1}(d, x); @f{k - 1}(c, read(d)) }}"
        for k in range(1, 40)
    ]
    text = "\n".join(["fn f0(c: Ref[T], x: T) { write(c, neg(x)) }", *levels])
    module = read(text + "fn main(x: T) { let a @cpu = ref(x); let _ = @f39(a, x); read(a) }")
    monkeypatch.setattr(gather, "_MOST_AGAIN", 2000)
    with pytest.raises(CompileError, match="once for each occurrence") as failure:
        planned(module, M2)
    assert failure.value.ids == ("placement.too-many-occurrences",)
