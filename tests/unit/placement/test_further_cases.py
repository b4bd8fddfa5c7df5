"""Cases beyond the floor: each worked out from the rules, on what they have to say about each other."""

from __future__ import annotations

import random

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, RefCreate, RefPut, RefRead, RefTake, RefWrite, Var
from inlay.ir.module import Module
from inlay.ir.walk import postorder, spine
from tests.unit.placement.cases import B2, BOARDS, assert_alike, normal, planned, read, verify_case
from tests.unit.placement.test_cases import CASES as FLOOR

CASES = {
    "one function at three places": (
        "M2",
        """
fn f(x: T) { relu(x) }
fn main(a @cpu!: T, b @npu0!: T, c @npu1!: T) { (@f(a), @f(b), @f(c)) }
""",
        """
fn f(x @cpu: T) -> T @cpu { let r @cpu = relu(x); r }
fn f0(x @npu0: T) -> T @npu0 { let r @npu0 = relu(x); r }
fn f1(x @npu1: T) -> T @npu1 { let r @npu1 = relu(x); r }
fn main(a @cpu: T, b @npu0: T, c @npu1: T) -> (T, T, T) @_(cpu, npu0, npu1) {
  let p @cpu = @f(a); let q @npu0 = @f0(b); let r @npu1 = @f1(c); let t = (p, q, r); t }
""",
    ),
    "what a specialised function calls is specialised": (
        "B2",
        """
fn f(x: T) { relu(x) }
fn g(x: T) { @f(neg(x)) }
fn main(a @cpu!: T, b @gpu!: T, c @gpu!: T) { (@g(a), @g(b), @g(c)) }
""",
        """
fn f1(x @cpu: T) -> T @cpu { let r @cpu = relu(x); r }
fn f2(x @gpu: T) -> T @gpu { let r @gpu = relu(x); r }
fn g1(x @cpu: T) -> T @cpu { let n @cpu = neg(x); @f1(n) }
fn g2(x @gpu: T) -> T @gpu { let n @gpu = neg(x); @f2(n) }
fn main(a @cpu: T, b @gpu: T, c @gpu: T) -> (T, T, T) @_(cpu, gpu, gpu) {
  let p @cpu = @g1(a); let q @gpu = @g2(b); let r @gpu = @g2(c); let t = (p, q, r); t }
""",
    ),
    "an identity moves nothing": (
        "B2",
        """
fn id(x: T) { x }
fn main(a @cpu!: T, b @gpu!: T) { (@id(a), @id(b)) }
""",
        """
fn id1(x @cpu: T) -> T @cpu { x }
fn id2(x @gpu: T) -> T @gpu { x }
fn main(a @cpu: T, b @gpu: T) -> (T, T) @_(cpu, gpu) {
  let p @cpu = @id1(a); let q @gpu = @id2(b); let t = (p, q); t }
""",
    ),
    "a parameter that nothing reads stays": (
        "B2",
        """
fn f(x: T, y: T) { x }
fn main(a @cpu!: T, b @gpu!: T) { @f(a, b) }
""",
        """
fn f(x @cpu: T, y @gpu: T) -> T @cpu { x }
fn main(a @cpu: T, b @gpu: T) -> T @cpu { @f(a, b) }
""",
    ),
    "operands exchanged are other instances": (
        "B2",
        """
fn h(x: T, y: T) { (neg(x), exp(y)) }
fn main(a @cpu!: T, b @gpu!: T) { let t = @h(a, b); let u = @h(b, a); (t.0, u.0) }
""",
        """
fn h1(x @cpu: T, y @gpu: T) -> (T, T) @_(cpu, gpu) {
  let n @cpu = neg(x); let e @gpu = exp(y); let r = (n, e); r }
fn h2(x @gpu: T, y @cpu: T) -> (T, T) @_(gpu, cpu) {
  let n @gpu = neg(x); let e @cpu = exp(y); let r = (n, e); r }
fn main(a @cpu: T, b @gpu: T) -> (T, T) @_(cpu, gpu) {
  let t = @h1(a, b); let u = @h2(b, a); let p @cpu = t.0; let q @gpu = u.0; let r = (p, q); r }
""",
    ),
    "fields change places in a tuple": (
        "B2",
        """
fn swap(t: (T, T)) { (t.1, t.0) }
fn main(a @cpu!: T, b @gpu!: T) { let w = (a, b); let s = @swap(w); s.0 }
""",
        """
fn swap(t @_(cpu, gpu): (T, T)) -> (T, T) @_(gpu, cpu) {
  let q @gpu = t.1; let r @cpu = t.0; let u = (q, r); u }
fn main(a @cpu: T, b @gpu: T) -> T @gpu {
  let w = (a, b); let s = @swap(w); let p @gpu = s.0; p }
""",
    ),
    "a nested tuple is in several places": (
        "B2",
        """
fn main(t: ((T, T), T)) {
  let p = t.0; let x = on(cpu, neg(p.0)); let y = exp(p.1); let z = add(y, t.1); (x, z) }
""",
        """
fn main(t @_(_(cpu, gpu), gpu): ((T, T), T)) -> (T, T) @_(cpu, gpu) {
  let p = t.0; let q @cpu = p.0; let x @cpu = neg(q); let r @gpu = p.1; let y @gpu = exp(r);
  let u @gpu = t.1; let z @gpu = add(y, u); let w = (x, z); w }
""",
    ),
    "a field that is defined somewhere draws its neighbours": (
        "B2",
        """
fn main(a: T, b: T) { let t = (on(cpu, neg(a)), exp(b)); add(t.0, t.1) }
""",
        """
fn main(a @cpu: T, b @cpu: T) -> T @cpu {
  let n @cpu = neg(a); let e @cpu = exp(b); let t = (n, e); let z @cpu = add(n, e); z }
""",
    ),
    "a closure meets what it captures": (
        "B2",
        """
fn main(a @cpu!: T, y @gpu!: T) { let f = fn(x: T) { add(x, y) }; f(a) }
""",
        """
fn main(a @cpu: T, y @gpu: T) -> T @gpu {
  let f = fn(x @gpu: T) -> T @gpu { let s @gpu = add(x, y); s };
  let a2 @gpu = copy(cpu, gpu, a); f(a2) }
""",
    ),
    "what is captured is copied outside": (
        "B2",
        """
fn main(a: T, y @cpu!: T) { let f = fn(x: T) { on(gpu, add(x, y)) }; (f(a), f(a)) }
""",
        """
fn main(a @gpu: T, y @cpu: T) -> (T, T) @_(gpu, gpu) {
  let y2 @gpu = copy(cpu, gpu, y);
  let f = fn(x @gpu: T) -> T @gpu { let s @gpu = add(x, y2); s };
  let p @gpu = f(a); let q @gpu = f(a); let t = (p, q); t }
""",
    ),
    "and outside of both where functions nest": (
        "B2",
        """
fn main(a: T, y @gpu!: T) {
  let f = fn(x: T) { let g = fn(u: T) { on(cpu, add(u, y)) }; g(x) }; f(a) }
""",
        """
fn main(a @cpu: T, y @gpu: T) -> T @cpu {
  let y2 @cpu = copy(gpu, cpu, y);
  let f = fn(x @cpu: T) -> T @cpu {
    let g = fn(u @cpu: T) -> T @cpu { let s @cpu = add(u, y2); s }; g(x) };
  f(a) }
""",
    ),
    "a list decides about what enters it": (
        "B2",
        """
fn main(a @gpu!: T, xs @_(cpu!): List[T]) { Cons(a, xs) }
""",
        """
fn main(a @gpu: T, xs @_(cpu): List[T]) -> List[T] @_(cpu) {
  let a2 @cpu = copy(gpu, cpu, a); let l @_(cpu) = Cons(a2, xs); l }
""",
    ),
    "arms from two devices meet at the first": (
        "B2",
        """
fn main(z @cpu!: T, xs @_(gpu!): List[T]) { match xs { Nil() => z, Cons(h, t) => h, } }
""",
        """
fn main(z @cpu: T, xs @_(gpu): List[T]) -> T @cpu {
  match xs { Nil() => z, Cons(h @gpu, t @_(gpu)) => { let h2 @cpu = copy(gpu, cpu, h); h2 }, } }
""",
    ),
    "a contested join with operations is at the default": (
        "B2",
        """
fn main(c: bool, a @gpu!: T, b: T) { let r = if (c) { neg(a) } else { exp(b) }; on(cpu, relu(r)) }
""",
        """
fn main(c: bool, a @gpu: T, b @gpu: T) -> T @cpu {
  let r @gpu = if (c) { let n @gpu = neg(a); n } else { let e @gpu = exp(b); e };
  let r2 @cpu = copy(gpu, cpu, r); let z @cpu = relu(r2); z }
""",
    ),
    "needed in both branches: copied before": (
        "B2",
        """
fn main(c: bool, s @gpu!: T) { if (c) { on(cpu, neg(s)) } else { on(cpu, exp(s)) } }
""",
        """
fn main(c: bool, s @gpu: T) -> T @cpu {
  let s2 @cpu = copy(gpu, cpu, s);
  if (c) { let n @cpu = neg(s2); n } else { let e @cpu = exp(s2); e } }
""",
    ),
    "needed in one branch: copied there": (
        "B2",
        """
fn main(c: bool, s @gpu!: T, z @cpu!: T) { if (c) { on(cpu, neg(s)) } else { z } }
""",
        """
fn main(c: bool, s @gpu: T, z @cpu: T) -> T @cpu {
  if (c) { let s2 @cpu = copy(gpu, cpu, s); let n @cpu = neg(s2); n } else { z } }
""",
    ),
    "needed in both inner branches: copied in the outer one": (
        "B2",
        """
fn main(c: bool, d: bool, s @gpu!: T, z @cpu!: T) {
  if (c) { if (d) { on(cpu, neg(s)) } else { on(cpu, exp(s)) } } else { z } }
""",
        """
fn main(c: bool, d: bool, s @gpu: T, z @cpu: T) -> T @cpu {
  if (c) {
    let s2 @cpu = copy(gpu, cpu, s);
    if (d) { let n @cpu = neg(s2); n } else { let e @cpu = exp(s2); e } }
  else { z } }
""",
    ),
    "an annotation is a barrier for what is written to a cell": (
        "B2",
        """
fn main(z @gpu!: T, y: T) {
  let r = ref(z); let u = write(r, on(cpu, neg(y))); let v = read(r); exp(v) }
""",
        """
fn main(z @gpu: T, y @cpu: T) -> T @gpu {
  let r @_(gpu) = ref(z); let n @cpu = neg(y); let n2 @gpu = copy(cpu, gpu, n);
  let u = write(r, n2); let v @gpu = read(r); let e @gpu = exp(v); e }
""",
    ),
    "a cell that is pinned gets a copy": (
        "B2",
        """
fn main(z @gpu!: T) { let r @_(cpu!) = ref(z); let v = read(r); neg(v) }
""",
        """
fn main(z @gpu: T) -> T @cpu {
  let z2 @cpu = copy(gpu, cpu, z); let r @_(cpu) = ref(z2); let v @cpu = read(r);
  let n @cpu = neg(v); n }
""",
    ),
    "a copy by an engine stays": (
        "B2",
        """
fn main(x: T) { let y = device_copy{src="cpu", dst="gpu", engine="dma"}(neg(x)); add(y, y) }
""",
        """
fn main(x @cpu: T) -> T @gpu {
  let n @cpu = neg(x); let y @gpu = copy(cpu, gpu, n); let z @gpu = add(y, y); z }
""",
    ),
    "copies there and back vanish": (
        "B2",
        """
fn main(x: T) { on(cpu, relu(copy(gpu, cpu, copy(cpu, gpu, neg(x))))) }
""",
        """
fn main(x @cpu: T) -> T @cpu { let n @cpu = neg(x); let r @cpu = relu(n); r }
""",
    ),
    "a copy to where it is vanishes": (
        "B2",
        """
fn main(x: T) { copy(cpu, cpu, neg(x)) }
""",
        """
fn main(x @cpu: T) -> T @cpu { let n @cpu = neg(x); n }
""",
    ),
    "a definition that nobody reads still asks": (
        "B2",
        """
fn main(a: T) { let s = neg(a); let y = on(cpu, s); exp(s) }
""",
        """
fn main(a @cpu: T) -> T @cpu { let s @cpu = neg(a); let e @cpu = exp(s); e }
""",
    ),
    "a hop serves who needs the value there": (
        "M2",
        """
fn main(x: T) {
  let n = on(npu0, neg(x)); let a = on(npu1, exp(n)); let b = on(cpu, relu(n)); (a, b) }
""",
        """
fn main(x @npu0: T) -> (T, T) @_(npu1, cpu) {
  let n @npu0 = neg(x); let h @cpu = copy(npu0, cpu, n); let m @npu1 = copy(cpu, npu1, h);
  let a @npu1 = exp(m); let b @cpu = relu(h); let t = (a, b); t }
""",
    ),
    "contested without the default: the host is last": (
        "M2",
        """
fn main(x @npu1!: T, y @cpu!: T) { add(x, y) }
""",
        """
fn main(x @npu1: T, y @cpu: T) -> T @npu1 {
  let y2 @npu1 = copy(cpu, npu1, y); let z @npu1 = add(x, y2); z }
""",
    ),
    "between two of one device nothing leaves it": (
        "M2",
        """
fn main(x @npu1!: T) { on(npu1, relu(neg(exp(x)))) }
""",
        """
fn main(x @npu1: T) -> T @npu1 {
  let e @npu1 = exp(x); let n @npu1 = neg(e); let r @npu1 = relu(n); r }
""",
    ),
    "constants are where they are used": (
        "B2",
        """
fn main(a: T, b: T) { let k = f32(2); (on(cpu, add(a, k)), on(gpu, add(b, k))) }
""",
        """
fn main(a @cpu: T, b @gpu: T) -> (T, T) @_(cpu, gpu) {
  let p @cpu = add(a, f32(2)); let q @gpu = add(b, f32(2)); let t = (p, q); t }
""",
    ),
    "a parameter of a loop is where the loop needs it": (
        "B2",
        """
fn loop<i>(i: int[i], w: T, x: T) -> T {
  if (int_equal(int(i), int(0))) { x } else { @loop(int(i - 1), w, on(gpu, add(x, w))) } }
fn main(w @cpu!: T, x: T) { @loop(int(3), w, x) }
""",
        """
fn loop<i>(i: int[i], w @gpu: T, x @gpu: T) -> T @gpu {
  let c = int_equal(int(i), int(0));
  if (c) { x } else { let s @gpu = add(x, w); @loop(int(i - 1), w, s) } }
fn main(w @cpu: T, x @gpu: T) -> T @gpu { let w2 @gpu = copy(cpu, gpu, w); @loop(int(3), w2, x) }
""",
    ),
    "an invariant needed on both is brought by the caller": (
        "B2",
        """
fn loop<i>(i: int[i], w: T, x: T) -> T {
  if (int_equal(int(i), int(0))) { x }
  else { @loop(int(i - 1), w, on(gpu, add(on(cpu, neg(w)), w))) } }
fn main(w @cpu!: T, x @gpu!: T) { @loop(int(3), w, x) }
""",
        """
fn loop<i>(i: int[i], w @cpu: T, x @gpu: T, v @gpu: T) -> T @gpu {
  let c = int_equal(int(i), int(0));
  if (c) { x } else {
    let n @cpu = neg(w); let n2 @gpu = copy(cpu, gpu, n); let s @gpu = add(n2, v);
    @loop(int(i - 1), w, s, v) } }
fn main(w @cpu: T, x @gpu: T) -> T @gpu {
  let v @gpu = copy(cpu, gpu, w); @loop(int(3), w, x, v) }
""",
    ),
    "an operand that is fixed fixes who reads it": (
        "B2",
        """
fn main(x: T) { neg(fixed(cpu, exp(x))) }
""",
        """
fn main(x @cpu: T) -> T @cpu { let e @cpu = exp(x); let n @cpu = neg(e); n }
""",
    ),
    "a coherent memory serves both": (
        "N",
        """
fn main(x: T) { let n = on(cpu, neg(x)); (on(npu0, exp(n)), on(cpu, relu(n))) }
""",
        """
fn main(x @cpu: T) -> (T, T) @_(npu0, cpu) {
  let n @cpu[ram] = neg(x); let e @npu0 = exp(n); let r @cpu = relu(n); let t = (e, r); t }
""",
    ),
    "branches in two memories meet in the first": (
        "S",
        """
fn main(c: bool, x @cpu![A]: T, y @cpu![B]: T) { if (c) { x } else { y } }
""",
        """
fn main(c: bool, x @cpu[A]: T, y @cpu[B]: T) -> T @cpu[A] {
  if (c) { x } else { let y2 @cpu[A] = copy(cpu, cpu, y); y2 } }
""",
    ),
    "kernels that want two memories of one value": (
        "B2x",
        """
fn k1 "k" (p @_[gpu.tex]: T) -> T { neg(p) }
fn k2 "k" (p @_[gpu.buf]: T) -> T { neg(p) }
fn main(x: T) { let s = neg(x); add(@k1(s), @k2(s)) }
""",
        """
fn k1 "k" (p @_[gpu.tex]: T) -> T { neg(p) }
fn k2 "k" (p @_[gpu.buf]: T) -> T { neg(p) }
fn main(x @gpu: T) -> T @gpu {
  let s @gpu[gpu.buf] = neg(x); let s2 @gpu[gpu.tex] = copy(gpu, gpu, s);
  let a @gpu = @k1(s2); let b @gpu = @k2(s); let z @gpu = add(a, b); z }
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    machine, source, expected = CASES[name]
    verify_case(source, expected, BOARDS[machine])


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_declarations_changes_nothing(name: str) -> None:
    machine, source, _ = CASES[name]
    module = read(source)
    turned = module.with_functions(dict(reversed(module.functions.items())))
    one, other = planned(module, BOARDS[machine]), planned(turned, BOARDS[machine])
    assert_alike(one, other)
    assert_alike(other, one)


def shuffled(function: Function, rng: random.Random) -> Function | None:
    """Return a function whose lets are in another order that means the same; None if it has cells."""
    if any(isinstance(e, RefCreate | RefRead | RefWrite | RefTake | RefPut) for e in postorder(function)):
        return None
    lets, tail = spine(function.body)
    bound = {x.var for x in lets}
    waits = {x.var: {e for e in postorder(x.value) if isinstance(e, Var)} & bound for x in lets}
    done: list[Let] = []
    while len(done) < len(lets):
        placed = {x.var for x in done}
        ready = [x for x in lets if x.var not in placed and waits[x.var] - {x.var} <= placed]
        done.append(rng.choice(ready))
    body: Expr = tail
    for x in reversed(done):
        body = Let(x.var, x.value, body, body.type, x.span, x.place)
    return Function(function.params, body, function.type, function.span, function.place)


def summary(module: Module) -> list[tuple[str, ...]]:
    """Return what is where: operators and their places, by function, in no order."""
    found: list[tuple[str, ...]] = []
    for function in module.functions.values():
        if function.primitive is not None:
            continue
        found.append(
            tuple(
                sorted(
                    f"{e.callee.op.name if isinstance(e.callee, OpRef) else 'call'} {e.place}"
                    for e in postorder(function)
                    if isinstance(e, Call)
                )
            )
            + tuple(str(p.place) for p in function.params)
            + (str(function.place),)
        )
    return sorted(found)


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", [*CASES, *FLOOR])
def test_the_order_of_lets_changes_nothing(name: str) -> None:
    machine, source, _ = (CASES | FLOOR)[name]
    module = normal(read(source))
    expected = summary(planned(module, BOARDS[machine]))
    for seed in range(3):
        rng = random.Random(seed)
        functions = {
            n: (f if f.primitive is not None else shuffled(f, rng)) or f for n, f in module.functions.items()
        }
        assert summary(planned(module.with_functions(functions), BOARDS[machine])) == expected


def test_a_contradiction_through_calls_names_both_ends():
    from inlay.base.diagnostics import CompileError

    text = """
fn put(c: Ref[T], v: T) { let u = write(c, v); c }
fn main(z: T, v: T) {
  let r @_(cpu!) = ref(z); let s = @put(r, v); let q @_(gpu!) = @put(s, v); read(q) }
"""
    with pytest.raises(CompileError) as failure:
        planned(read(text), BOARDS["B2"])
    (found,) = failure.value.diagnostics
    assert found.id == "placement.contradiction"
    assert "on cpu and on gpu" in found.message
    said = " ".join(found.notes)
    assert "'r'" in said or "the cell" in said
    assert "r is passed to parameter 0 of put" in said
    assert "s is passed to parameter 0 of put" in said


INNER = {
    "asked elsewhere": "fn main(x: T, y: T) { add(on(gpu, fixed(cpu, neg(x))), y) }",
    "fixed elsewhere": "fn main(x: T, y: T) { add(fixed(gpu, fixed(cpu, neg(x))), y) }",
    "defined elsewhere": "fn main(x: T, y: T) { let v = on(gpu, fixed(cpu, neg(x))); v }",
    "copied from elsewhere": "fn main(x: T, y: T) { copy(gpu, cpu, fixed(cpu, neg(x))) }",
    "in a cell elsewhere": "fn main(x: T, y: T) { let c @gpu = ref(fixed(cpu, x)); read(c) }",
    "written elsewhere": """
fn main(x: T, y: T) { let c @gpu = ref(y); let _ = write(c, fixed(cpu, x)); read(c) }""",
    "under an annotation that asks for nothing": """
fn main(x: T, y: T) { add(free(fixed(cpu, neg(x))), fixed(gpu, neg(y))) }""",
}


@pytest.mark.parametrize("name", INNER)
def test_a_fixed_result_inside_something_else_is_not_lost(name: str):
    text = INNER[name].replace("free(", "on_device{body=false}(")
    with pytest.raises(CompileError) as failure:
        planned(read(text), B2)
    assert failure.value.ids == ("placement.contradiction",)


def test_a_fixed_result_inside_an_equal_annotation_says_nothing_more():
    once = planned(read("fn main(x: T, y: T) { add(on(cpu, fixed(cpu, neg(x))), y) }"), B2)
    same = planned(read("fn main(x: T, y: T) { add(on(cpu, neg(x)), y) }"), B2)
    assert_alike(once, same)


@pytest.mark.llvm
def test_storage_in_the_memory_of_a_device_compiles():
    text = """
    fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
      let s = alloc_storage{memories=["cpu1.mem"]}(int(8));
      let t = tensor_at{dtype=f32}(s, int(0), shape(2));
      on(cpu1, add(on(cpu1, mul(t, f32(0))), x))
    }
    entry main("x") -> ("y");"""
    executable = inlay.compile(read(text), board="host_two", cache="none")
    assert executable.run({"x": np.ones(2, np.float32)})["y"].shape == (2,)
