"""A planned program plans to itself: what a plan says is never a contradiction of it."""

from __future__ import annotations

import pytest

from inlay.ir.printer import print_module
from inlay.passes.contract import PassContext
from inlay.transforms import fuse_ops
from tests.unit.placement.cases import B2, M2, OPS, N, planned, read

CASES = {
    "a shared memory and a tuple": (N, """
fn main(x: T) { let n = on(npu0, neg(x)); (on(npu0, n), on(cpu, exp(n))) }"""),
    "a value of two devices in a tuple": (N, """
fn main(x: T) { let n = on(cpu, neg(x)); let t = (on(npu0, n), on(cpu, n)); t }"""),
    "names of one value on two devices": (N, """
fn main(x: T) { let n = on(cpu, neg(x)); let m = on(npu0, n); let k = on(cpu, m); (n, m, k) }"""),
    "a tuple whose fields move": (M2, """
fn main(c: bool, x: T, y: T) {
  let t = if (c) { (on(npu0, neg(x)), on(cpu, y)) } else { (on(npu1, exp(x)), on(cpu, neg(y))) };
  on(npu1, add(t.0, t.1)) }"""),
    "a function in an adapter": (M2, """
fn main(c: bool, x: T, y: T) {
  let f = fn(a: T, b: T) { on(npu0, add(on(npu0, a), on(npu0, b))) };
  let g = fn(a: T, b: T) { on(npu1, sub(on(npu1, a), on(npu1, b))) };
  let h = if (c) { f } else { g };
  h(x, y) }"""),
    "a function written twice": (M2, """
fn main(x: T, y: T) {
  let a = on(cpu, neg(y));
  let f = fn(p: T) { on(npu0, add(p, a)) };
  (on(npu0, neg(f(on(npu0, neg(x))))), on(npu1, neg(f(on(npu1, exp(x)))))) }"""),
    "a copy": (B2, """
fn main(x: T) { on(gpu, exp(on(cpu, neg(x)))) }"""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_a_plan_plans_to_itself(name: str, fused: bool):
    board, text = CASES[name]
    once = planned(read(text), board)
    if fused:
        once = fuse_ops.PASS.run(once, PassContext(OPS))
    assert print_module(planned(once, board)) == print_module(once)
