"""The cases that fix inference, defaults and copies: the conformance floor of the planner."""

from __future__ import annotations

import pytest

from tests.unit.placement.cases import BOARDS, verify_case

CASES = {
    "01 plain": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { sub(add(a, b), add(c, d)) }
""",
        """
fn main(a @gpu: T, b @gpu: T, c @gpu: T, d @gpu: T) -> T @gpu {
  let x @gpu = add(a, b); let y @gpu = add(c, d); let z @gpu = sub(x, y); z }
""",
    ),
    "02 left add on cpu": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { sub(on(cpu, add(a, b)), add(c, d)) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T, d @gpu: T) -> T @gpu {
  let s @cpu = add(a, b); let y @gpu = add(c, d);
  let s2 @gpu = copy(cpu, gpu, s); let z @gpu = sub(s2, y); z }
""",
    ),
    "03 by device_copy": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { sub(copy(cpu, gpu, add(a, b)), add(c, d)) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T, d @gpu: T) -> T @gpu {
  let s @cpu = add(a, b); let y @gpu = add(c, d);
  let s2 @gpu = copy(cpu, gpu, s); let z @gpu = sub(s2, y); z }
""",
    ),
    "05 both adds on cpu": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { sub(on(cpu, add(a, b)), on(cpu, add(c, d))) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @cpu: T, d @cpu: T) -> T @gpu {
  let s @cpu = add(a, b); let t @cpu = add(c, d);
  let s2 @gpu = copy(cpu, gpu, s); let t2 @gpu = copy(cpu, gpu, t);
  let z @gpu = sub(s2, t2); z }
""",
    ),
    "06 sharing": (
        "B2",
        """
fn main(a: T, b: T) { let s = add(a, b); sub(on(cpu, s), on(cpu, s)) }
""",
        """
fn main(a @cpu: T, b @cpu: T) -> T @gpu {
  let s @cpu = add(a, b); let s2 @gpu = copy(cpu, gpu, s); let z @gpu = sub(s2, s2); z }
""",
    ),
    "07 let on cpu": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { let l = add(a, b); let r = add(c, d); sub(on(cpu, l), r) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T, d @gpu: T) -> T @gpu {
  let l @cpu = add(a, b); let r @gpu = add(c, d);
  let l2 @gpu = copy(cpu, gpu, l); let z @gpu = sub(l2, r); z }
""",
    ),
    "08 parameter on cpu": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) {
  let f = fn(x: T, y: T) { on(cpu, add(x, y)) }; sub(f(a, b), add(c, d)) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @cpu: T, d @cpu: T) -> T @cpu {
  let f = fn(x @cpu: T, y @cpu: T) -> T @cpu { let s @cpu = add(x, y); s };
  let p @cpu = f(a, b); let q @cpu = add(c, d); let z @cpu = sub(p, q); z }
""",
    ),
    "09 result on cpu": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) {
  let f = fn(x: T, y: T) { add(x, y) }; sub(on(cpu, f(a, b)), add(c, d)) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T, d @gpu: T) -> T @gpu {
  let f = fn(x @cpu: T, y @cpu: T) -> T @cpu { let s @cpu = add(x, y); s };
  let p @cpu = f(a, b); let q @gpu = add(c, d);
  let p2 @gpu = copy(cpu, gpu, p); let z @gpu = sub(p2, q); z }
""",
    ),
    "10 higher order": (
        "B2",
        """
fn main(x: T, y: T) {
  let f = fn(g: fn(T) -> T) { fn(a: T) { add(g(on(cpu, a)), x) } };
  let h = fn(b: T) { neg(b) };
  sub(x, f(h)(y)) }
""",
        """
fn main(x @gpu: T, y @cpu: T) -> T @gpu {
  let f = fn(g @_(gpu, gpu): fn(T) -> T) -> fn(T) -> T @_(cpu, gpu) {
    let k = fn(a @cpu: T) -> T @gpu {
      let a2 @gpu = copy(cpu, gpu, a); let p @gpu = g(a2); let q @gpu = add(p, x); q };
    k };
  let h = fn(b @gpu: T) -> T @gpu { let n @gpu = neg(b); n };
  let m = f(h); let r @gpu = m(y); let z @gpu = sub(x, r); z }
""",
    ),
    "11 function in a tuple": (
        "B2",
        """
fn main(x: T, y: T) {
  let f = fn(a: T, b: T) { add(a, on(cpu, b)) }; let t = (f, x); (t.0)(t.1, y) }
""",
        """
fn main(x @gpu: T, y @cpu: T) -> T @gpu {
  let f = fn(a @gpu: T, b @cpu: T) -> T @gpu {
    let b2 @gpu = copy(cpu, gpu, b); let s @gpu = add(a, b2); s };
  let t = (f, x); f(x, y) }
""",
    ),
    "12 device copy": (
        "B2",
        """
fn main(x: T) { add(copy(cpu, gpu, x), f32(0.5)) }
""",
        """
fn main(x @cpu: T) -> T @gpu {
  let x2 @gpu = copy(cpu, gpu, x); let z @gpu = add(x2, f32(0.5)); z }
""",
    ),
    "13 a shape is read from a description": (
        "B2",
        """
fn main<n>(x: Tensor[n, 4, f32]) { let y = on(gpu, x); (y, reshape(zeros(shape(n, 4)), shape(n, 4))) }
""",
        """
fn main<n>(x @gpu: Tensor[n, 4, f32]) -> (Tensor[n, 4, f32], Tensor[n, 4, f32]) @_(gpu, gpu) {
  let z @gpu = zeros(shape(n, 4)); let r @gpu = reshape(z, shape(n, 4)); let t = (x, r); t }
""",
    ),
    "14 alloc_storage": (
        "B2",
        """
fn main(size: some int s. int[s]) { alloc_storage{memories=["gpu.mem"]}(size) }
""",
        """
fn main(size: some int s. int[s]) -> Storage @gpu {
  let s @gpu = alloc_storage{memories=["gpu.mem"]}(size); s }
""",
    ),
    "15 tensor in a storage": (
        "B2",
        """
fn main(sto: Storage) { tensor_at(sto, int(0), shape(3, 2)) }
""",
        """
fn main(sto @gpu: Storage) -> Tensor[3, 2, f32] @gpu {
  let t @gpu = tensor_at(sto, int(0), shape(3, 2)); t }
""",
    ),
    "16 reshape": (
        "B2",
        """
fn main(x: T) { reshape(x, shape(2, 8)) }
""",
        """
fn main(x @gpu: T) -> Tensor[2, 8, f32] @gpu { let y @gpu = reshape(x, shape(2, 8)); y }
""",
    ),
    "17 dynamic input": (
        "B2",
        """
fn main<n>(x: Tensor[n, 4, f32], y: Tensor[n, 4, f32]) { add(x, y) }
""",
        """
fn main<n>(x @gpu: Tensor[n, 4, f32], y @gpu: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] @gpu {
  let z @gpu = add(x, y); z }
""",
    ),
    "18 redundant annotation": (
        "B2",
        """
fn main(x: T, y: T, z: T) { let s = add(x, y); add(sub(on(cpu, s), z), on(cpu, s)) }
""",
        """
fn main(x @cpu: T, y @cpu: T, z @gpu: T) -> T @gpu {
  let s @cpu = add(x, y); let s2 @gpu = copy(cpu, gpu, s);
  let d @gpu = sub(s2, z); let e @gpu = add(d, s2); e }
""",
    ),
    "19 annotate one expression": (
        "B2",
        """
fn main(x: T, y: T, z: T) { on(cpu, sub(on(gpu, add(x, y)), z)) }
""",
        """
fn main(x @gpu: T, y @gpu: T, z @cpu: T) -> T @cpu {
  let s @gpu = add(x, y); let s2 @cpu = copy(gpu, cpu, s); let d @cpu = sub(s2, z); d }
""",
    ),
    "20 annotate all": (
        "B2",
        """
fn main(x: T, y: T, z: T) { on(cpu, sub(on(cpu, add(x, y)), z)) }
""",
        """
fn main(x @cpu: T, y @cpu: T, z @cpu: T) -> T @cpu {
  let s @cpu = add(x, y); let d @cpu = sub(s, z); d }
""",
    ),
    "21 a network of products": (
        "B2",
        """
fn main(d1: T, d2: T, w: T) {
  on(cpu, matmul(on(gpu, add(on(cpu, matmul(d1, w)), on(cpu, matmul(d2, w)))), w)) }
""",
        """
fn main(d1 @cpu: T, d2 @cpu: T, w @cpu: T) -> T @cpu {
  let p @cpu = matmul(d1, w); let q @cpu = matmul(d2, w);
  let p2 @gpu = copy(cpu, gpu, p); let q2 @gpu = copy(cpu, gpu, q);
  let s @gpu = add(p2, q2); let s2 @cpu = copy(gpu, cpu, s); let z @cpu = matmul(s2, w); z }
""",
    ),
    "22 projection": (
        "B2",
        """
fn main(x: T) {
  let t = split{axis=0}(x, shape(1, 1, 2)); on(gpu, sub(on(cpu, t).0, on(cpu, t).1)) }
""",
        """
fn main(x @cpu: T) -> Tensor[1, 4, f32] @gpu {
  let t @_(cpu, cpu, cpu) = split{axis=0}(x, shape(1, 1, 2));
  let u @cpu = t.0; let v @cpu = t.1;
  let u2 @gpu = copy(cpu, gpu, u); let v2 @gpu = copy(cpu, gpu, v);
  let z @gpu = sub(u2, v2); z }
""",
    ),
    "23 propagation": (
        "B2",
        """
fn main(x: T) { let n = neg(x);
  on(cpu, neg(on(gpu, add(on(gpu, neg(on(cpu, n))), on(gpu, neg(on(cpu, n))))))) }
""",
        """
fn main(x @cpu: T) -> T @cpu {
  let n @cpu = neg(x); let n2 @gpu = copy(cpu, gpu, n);
  let a @gpu = neg(n2); let b @gpu = neg(n2); let s @gpu = add(a, b);
  let s2 @cpu = copy(gpu, cpu, s); let z @cpu = neg(s2); z }
""",
    ),
    "24 fusible network": (
        "B2",
        """
fn main(x: T, y: T) { let s = add(x, y);
  on(cpu, neg(on(gpu, add(on(cpu, neg(on(gpu, s))), neg(s))))) }
""",
        """
fn main(x @gpu: T, y @gpu: T) -> T @cpu {
  let s @gpu = add(x, y); let s2 @cpu = copy(gpu, cpu, s); let n @cpu = neg(s2);
  let m @gpu = neg(s); let n2 @gpu = copy(cpu, gpu, n); let t @gpu = add(n2, m);
  let t2 @cpu = copy(gpu, cpu, t); let z @cpu = neg(t2); z }
""",
    ),
    "25 where facts meet": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { on(cpu, sub(on(cpu, add(a, b)), on(gpu, mul(c, d)))) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T, d @gpu: T) -> T @cpu {
  let s @cpu = add(a, b); let m @gpu = mul(c, d);
  let m2 @cpu = copy(gpu, cpu, m); let z @cpu = sub(s, m2); z }
""",
    ),
    "25 where facts meet, exchanged": (
        "B2",
        """
fn main(a: T, b: T, c: T, d: T) { on(cpu, sub(on(gpu, mul(c, d)), on(cpu, add(a, b)))) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T, d @gpu: T) -> T @cpu {
  let m @gpu = mul(c, d); let s @cpu = add(a, b);
  let m2 @cpu = copy(gpu, cpu, m); let z @cpu = sub(m2, s); z }
""",
    ),
    "26 conditional over functions": (
        "B2",
        """
fn main(x: bool, y: T, z: T) {
  let f = fn(a: T) { add(a, fixed(cpu, y)) }; let g = fn(b: T) { sub(b, y) };
  let h = if (x) { f } else { g }; h(z) }
""",
        """
fn main(x: bool, y @cpu: T, z @cpu: T) -> T @cpu {
  let f = fn(a @cpu: T) -> T @cpu { let p @cpu = add(a, y); p };
  let g = fn(b @cpu: T) -> T @cpu { let q @cpu = sub(b, y); q };
  let h = if (x) { f } else { g }; h(z) }
""",
    ),
    "27 global": (
        "B2",
        """
fn f(a: T, b: T) { add(a, on(cpu, b)) }
fn main(x: T, y: T) { @f(y, x) }
""",
        """
fn f(a @gpu: T, b @cpu: T) -> T @gpu { let b2 @gpu = copy(cpu, gpu, b); let s @gpu = add(a, b2); s }
fn main(x @cpu: T, y @gpu: T) -> T @gpu { @f(y, x) }
""",
    ),
    "28 reference": (
        "B2",
        """
fn main(x: T, y: T) { let r = ref(x); write(r, on(cpu, y)); add(x, read(r)) }
""",
        """
fn main(x @gpu: T, y @cpu: T) -> T @gpu {
  let r @_(gpu) = ref(x); let y2 @gpu = copy(cpu, gpu, y); write(r, y2);
  let c @gpu = read(r); let z @gpu = add(x, c); z }
""",
    ),
    "29 list": (
        "B2",
        """
fn main(x: T, y: T) { let l = Cons(x, Cons(fixed(cpu, y), Nil[T]())); match l { Cons(z, _) => z, Nil() => x, } }
""",
        """
fn main(x @cpu: T, y @cpu: T) -> T @cpu {
  let n @_(cpu) = Nil[T](); let k @_(cpu) = Cons(y, n); let l @_(cpu) = Cons(x, k);
  match l { Cons(z @cpu, _) => z, Nil() => x, } }
""",
    ),
    "29 list, not fixed": (
        "B2",
        """
fn main(x: T, y: T) { let l = Cons(x, Cons(on(cpu, y), Nil[T]())); match l { Cons(z, _) => z, Nil() => x, } }
""",
        """
fn main(x @gpu: T, y @cpu: T) -> T @gpu {
  let n @_(gpu) = Nil[T](); let y2 @gpu = copy(cpu, gpu, y);
  let k @_(gpu) = Cons(y2, n); let l @_(gpu) = Cons(x, k);
  match l { Cons(z @gpu, _) => z, Nil() => x, } }
""",
    ),
    "30 scopes through calls": (
        "S",
        """
fn onb(x @cpu![B]: T) -> T @cpu![B] { x }
fn main(a @cpu!: T, b @cpu![A]: T, c @cpu![B]: T) -> T @cpu![A] {
  add(add(@onb(a), @onb(b)), @onb(c)) }
""",
        """
fn onb(x @cpu[B]: T) -> T @cpu[B] { x }
fn main(a @cpu[B]: T, b @cpu[A]: T, c @cpu[B]: T) -> T @cpu[A] {
  let p @cpu[B] = @onb(a); let b2 @cpu[B] = copy(cpu, cpu, b); let q @cpu[B] = @onb(b2);
  let i @cpu = add(p, q); let r @cpu[B] = @onb(c); let o @cpu[A] = add(i, r); o }
""",
    ),
    "31 lowered kernel": (
        "S",
        """
fn gem "k" (p @_[A]: T, q: T, r @_[B]: T) -> T @_[A] { add(add(p, q), r) }
fn main(x @cpu!: T, y @cpu![B]: T, z @cpu![A]: T) -> T @cpu![B] { @gem(x, y, z) }
""",
        """
fn gem "k" (p @_[A]: T, q: T, r @_[B]: T) -> T @_[A] { add(add(p, q), r) }
fn main(x @cpu[A]: T, y @cpu[B]: T, z @cpu[A]: T) -> T @cpu[B] {
  let z2 @cpu[B] = copy(cpu, cpu, z); let o @cpu[A] = @gem(x, y, z2);
  let p @cpu[B] = copy(cpu, cpu, o); p }
""",
    ),
    "33 kernels with scopes only": (
        "B2x",
        """
fn lay "lay" (a: T) -> T { neg(a) }
fn sum2 "sum" (a @_[gpu.buf]: T, b @_[gpu.buf]: T) -> T @_[gpu.tex] { add(a, b) }
fn unlay "un" (a: T) -> T @_[gpu.buf] { exp(a) }
fn main(d1: T, d2: T) { @unlay(@sum2(@lay(d1), @lay(d2))) }
""",
        """
fn lay "lay" (a: T) -> T { neg(a) }
fn sum2 "sum" (a @_[gpu.buf]: T, b @_[gpu.buf]: T) -> T @_[gpu.tex] { add(a, b) }
fn unlay "un" (a: T) -> T @_[gpu.buf] { exp(a) }
fn main(d1 @gpu: T, d2 @gpu: T) -> T @gpu[gpu.buf] {
  let p @gpu[gpu.buf] = @lay(d1); let q @gpu[gpu.buf] = @lay(d2);
  let s @gpu[gpu.tex] = @sum2(p, q); @unlay(s) }
""",
    ),
    "34 conflicting inputs": (
        "B2",
        """
fn main(a: T, b: T, c: T) { sub(on(cpu, add(a, b)), on(gpu, add(b, c))) }
""",
        """
fn main(a @cpu: T, b @cpu: T, c @gpu: T) -> T @gpu {
  let s @cpu = add(a, b); let b2 @gpu = copy(cpu, gpu, b); let t @gpu = add(b2, c);
  let s2 @gpu = copy(cpu, gpu, s); let z @gpu = sub(s2, t); z }
""",
    ),
    "35 tuple fields on two devices": (
        "B2",
        """
fn main(x: T, y: T) { let t = (on(cpu, neg(x)), on(gpu, exp(y))); sub(t.0, t.1) }
""",
        """
fn main(x @cpu: T, y @gpu: T) -> T @gpu {
  let n @cpu = neg(x); let e @gpu = exp(y); let t @_(cpu, gpu) = (n, e);
  let n2 @gpu = copy(cpu, gpu, n); let z @gpu = sub(n2, e); z }
""",
    ),
    "36 nested tuple out of a call": (
        "B2",
        """
fn pair(a: T, b: T) { ((on(cpu, neg(a)), b), exp(b)) }
fn main(x: T, y: T) { let p = @pair(x, y); add(p.0.0, on(gpu, mul(p.0.1, p.1))) }
""",
        """
fn pair(a @cpu: T, b @gpu: T) -> ((T, T), T) @_(_(cpu, gpu), gpu) {
  let n @cpu = neg(a); let i = (n, b); let e @gpu = exp(b); let t = (i, e); t }
fn main(x @cpu: T, y @gpu: T) -> T @cpu {
  let p @_(_(cpu, gpu), gpu) = @pair(x, y);
  let p0 @_(cpu, gpu) = p.0; let u @cpu = p0.0; let p1 = p.0; let v @gpu = p1.1; let w @gpu = p.1;
  let m @gpu = mul(v, w); let m2 @cpu = copy(gpu, cpu, m); let z @cpu = add(u, m2); z }
""",
    ),
    "37 list of functions": (
        "B2",
        """
fn main(z: T) {
  let fs = Cons(fn(a: T) { on(cpu, neg(a)) }, Cons(fn(b: T) { on(gpu, exp(b)) }, Nil[fn(T) -> T]()));
  match fs { Cons(h, _) => h(z), Nil() => z, } }
""",
        """
fn main(z @cpu: T) -> T @cpu {
  let f = fn(a @cpu: T) -> T @cpu { let n @cpu = neg(a); n };
  let g = fn(b @cpu: T) -> T @cpu {
    let b2 @gpu = copy(cpu, gpu, b); let e @gpu = exp(b2); let e2 @cpu = copy(gpu, cpu, e); e2 };
  let n @_(_(cpu, cpu)) = Nil[fn(T) -> T](); let k = Cons(g, n); let fs @_(_(cpu, cpu)) = Cons(f, k);
  match fs { Cons(h, _) => h(z), Nil() => z, } }
""",
    ),
    "38 one copy for both branches": (
        "B2",
        """
fn main(c: bool, x: T) {
  let s = on(cpu, neg(x));
  if (c) { on(gpu, exp(s)) } else { let u = on(gpu, exp(s)); on(gpu, mul(u, s)) } }
""",
        """
fn main(c: bool, x @cpu: T) -> T @gpu {
  let s @cpu = neg(x); let s2 @gpu = copy(cpu, gpu, s);
  if (c) { let e @gpu = exp(s2); e } else { let u @gpu = exp(s2); let m @gpu = mul(u, s2); m } }
""",
    ),
    "38 a copy in the branch that needs it": (
        "B2",
        """
fn main(c: bool, x: T) { let s = on(cpu, neg(x)); if (c) { on(gpu, exp(s)) } else { s } }
""",
        """
fn main(c: bool, x @cpu: T) -> T @cpu {
  let s @cpu = neg(x);
  if (c) { let s2 @gpu = copy(cpu, gpu, s); let e @gpu = exp(s2); let e2 @cpu = copy(gpu, cpu, e); e2 }
  else { s } }
""",
    ),
    "39 invariant operand of a loop": (
        "B2",
        """
fn loop<i>(i: int[i], x: T, w: T) -> T {
  if (int_less(int(i), int(10))) { @loop(int(i + 1), on(gpu, matmul(x, w)), w) } else { x } }
fn main(x: T, w @cpu!: T) { @loop(int(0), x, w) }
""",
        """
fn loop<i>(i: int[i], x @gpu: T, w @gpu: T) -> T @gpu {
  let c = int_less(int(i), int(10));
  if (c) { let m @gpu = matmul(x, w); @loop(int(i + 1), m, w) } else { x } }
fn main(x @gpu: T, w @cpu: T) -> T @gpu {
  let w2 @gpu = copy(cpu, gpu, w); @loop(int(0), x, w2) }
""",
    ),
    "40 invariant needed on both devices": (
        "B2",
        """
fn loop<i>(i: int[i], x: T, w: T) -> T {
  if (int_less(int(i), int(10))) {
    let u = on(cpu, mul(w, w)); let v = on(gpu, matmul(x, w));
    @loop(int(i + 1), on(gpu, add(v, u)), w) } else { x } }
fn main(x: T, w: T) { @loop(int(0), x, w) }
""",
        """
fn loop<i>(i: int[i], x @gpu: T, w @cpu: T, w2 @gpu: T) -> T @gpu {
  let c = int_less(int(i), int(10));
  if (c) {
    let u @cpu = mul(w, w); let v @gpu = matmul(x, w2); let u2 @gpu = copy(cpu, gpu, u);
    let s @gpu = add(v, u2); @loop(int(i + 1), s, w, w2) } else { x } }
fn main(x @gpu: T, w @cpu: T) -> T @gpu {
  let w2 @gpu = copy(cpu, gpu, w); @loop(int(0), x, w, w2) }
""",
    ),
    "40 captured invariant": (
        "B2",
        """
fn main(x: T, w @cpu!: T) {
  let step = fn<i>(i: int[i], a: T) -> T {
    if (int_less(int(i), int(10))) { step(int(i + 1), on(gpu, matmul(a, w))) } else { a } };
  step(int(0), x) }
""",
        """
fn main(x @gpu: T, w @cpu: T) -> T @gpu {
  let w2 @gpu = copy(cpu, gpu, w);
  let step = fn<i>(i: int[i], a @gpu: T) -> T @gpu {
    let c = int_less(int(i), int(10));
    if (c) { let m @gpu = matmul(a, w2); step(int(i + 1), m) } else { a } };
  step(int(0), x) }
""",
    ),
    "41 two devices of one architecture": (
        "M2",
        """
fn main(x: T) { on(npu1, exp(on(npu0, neg(x)))) }
""",
        """
fn main(x @npu0: T) -> T @npu1 {
  let n @npu0 = neg(x); let n1 @cpu = copy(npu0, cpu, n); let n2 @npu1 = copy(cpu, npu1, n1);
  let e @npu1 = exp(n2); e }
""",
    ),
    "41 the hop serves others": (
        "M2",
        """
fn main(x: T) { let n = on(npu0, neg(x)); (on(npu1, exp(n)), on(cpu, abs(n))) }
""",
        """
fn main(x @npu0: T) -> (T, T) @_(npu1, cpu) {
  let n @npu0 = neg(x); let n1 @cpu = copy(npu0, cpu, n); let n2 @npu1 = copy(cpu, npu1, n1);
  let e @npu1 = exp(n2); let a @cpu = abs(n1); let t = (e, a); t }
""",
    ),
    "42 specialisation": (
        "B2",
        """
fn f(x: T) { relu(neg(x)) }
fn main(a @cpu!: T, b @gpu!: T, c @gpu!: T) { (@f(a), @f(b), @f(c)) }
""",
        """
fn f1(x @cpu: T) -> T @cpu { let n @cpu = neg(x); let r @cpu = relu(n); r }
fn f2(x @gpu: T) -> T @gpu { let n @gpu = neg(x); let r @gpu = relu(n); r }
fn main(a @cpu: T, b @gpu: T, c @gpu: T) -> (T, T, T) @_(cpu, gpu, gpu) {
  let p @cpu = @f1(a); let q @gpu = @f2(b); let r @gpu = @f2(c); let t = (p, q, r); t }
""",
    ),
    "42 specialisation of a local function": (
        "B2",
        """
fn main(a @cpu!: T, b @gpu!: T) { let f = fn(x: T) { relu(neg(x)) }; (f(a), f(b)) }
""",
        """
fn main(a @cpu: T, b @gpu: T) -> (T, T) @_(cpu, gpu) {
  let f1 = fn(x @cpu: T) -> T @cpu { let n @cpu = neg(x); let r @cpu = relu(n); r };
  let f2 = fn(x @gpu: T) -> T @gpu { let n @gpu = neg(x); let r @gpu = relu(n); r };
  let p @cpu = f1(a); let q @gpu = f2(b); let t = (p, q); t }
""",
    ),
    "42 a polymorphic function": (
        "B2",
        """
fn id<'a>(x: 'a) -> 'a { x }
fn main(a @cpu!: T, b @gpu!: (T, T)) { (@id(a), @id(b)) }
""",
        """
fn id<'a>(x @cpu: 'a) -> 'a @cpu { x }
fn id2<'a>(x @_(gpu, gpu): 'a) -> 'a @_(gpu, gpu) { x }
fn main(a @cpu: T, b @_(gpu, gpu): (T, T)) -> (T, (T, T)) @_(cpu, _(gpu, gpu)) {
  let p @cpu = @id(a); let q = @id2(b); let t = (p, q); t }
""",
    ),
    "43 mutual recursion": (
        "B2",
        """
fn even<i>(i: int[i], x: T) -> T {
  if (int_equal(int(i), int(0))) { x } else { @odd(int(i - 1), on(cpu, neg(x))) } }
fn odd<i>(i: int[i], y: T) -> T {
  if (int_equal(int(i), int(0))) { y } else { @even(int(i - 1), on(gpu, exp(y))) } }
fn main(x: T) { @even(int(4), x) }
""",
        """
fn even<i>(i: int[i], x @cpu: T) -> T @cpu {
  let c = int_equal(int(i), int(0));
  if (c) { x } else { let n @cpu = neg(x); @odd(int(i - 1), n) } }
fn odd<i>(i: int[i], y @cpu: T) -> T @cpu {
  let c = int_equal(int(i), int(0));
  if (c) { y } else {
    let y2 @gpu = copy(cpu, gpu, y); let e @gpu = exp(y2); let e2 @cpu = copy(gpu, cpu, e);
    @even(int(i - 1), e2) } }
fn main(x @cpu: T) -> T @cpu { @even(int(4), x) }
""",
    ),
    "44 fold with the function elsewhere": (
        "B2",
        """
fn fold(f: fn(T, T) -> T, acc: T, xs: List[T]) -> T {
  match xs { Nil() => acc, Cons(h, t) => @fold(f, f(acc, h), t), } }
fn main(z: T, xs @_(gpu!): List[T]) { @fold(fn(s: T, e: T) { on(cpu, add(s, e)) }, z, xs) }
""",
        """
fn fold(f @_(cpu, cpu, cpu): fn(T, T) -> T, acc @cpu: T, xs @_(gpu): List[T]) -> T @cpu {
  match xs { Nil() => acc,
    Cons(h @gpu, t @_(gpu)) => {
      let h2 @cpu = copy(gpu, cpu, h); let r @cpu = f(acc, h2); @fold(f, r, t) }, } }
fn main(z @cpu: T, xs @_(gpu): List[T]) -> T @cpu {
  let g = fn(s @cpu: T, e @cpu: T) -> T @cpu { let a @cpu = add(s, e); a };
  @fold(g, z, xs) }
""",
    ),
    "45 a condition computed on a device": (
        "B2",
        """
fn main(x: T, y: T) {
  if (to_control(less(reduce_sum{axes=[0, 1], keepdims=false}(x), f32(0.5)))) { neg(y) } else { exp(y) } }
""",
        """
fn main(x @gpu: T, y @gpu: T) -> T @gpu {
  let s @gpu = reduce_sum{axes=[0, 1], keepdims=false}(x); let l @gpu = less(s, f32(0.5));
  let l2 @cpu = copy(gpu, cpu, l); let c = to_control(l2);
  if (c) { let n @gpu = neg(y); n } else { let e @gpu = exp(y); e } }
""",
    ),
    "45 the sum on the host": (
        "B2",
        """
fn main(x: T, y: T) {
  if (to_control(less(on(cpu, reduce_sum{axes=[0, 1], keepdims=false}(x)), f32(0.5)))) { neg(y) }
  else { exp(y) } }
""",
        """
fn main(x @cpu: T, y @gpu: T) -> T @gpu {
  let s @cpu = reduce_sum{axes=[0, 1], keepdims=false}(x); let s2 @gpu = copy(cpu, gpu, s);
  let l @gpu = less(s2, f32(0.5)); let l2 @cpu = copy(gpu, cpu, l); let c = to_control(l2);
  if (c) { let n @gpu = neg(y); n } else { let e @gpu = exp(y); e } }
""",
    ),
    "46 scopes meet through a call": (
        "S",
        """
fn g(p @cpu![A, B]: T) { neg(p) }
fn main(x @cpu![A, ram]: T, y @cpu![ram]: T) { (@g(x), @g(y)) }
""",
        """
fn g(p @cpu[A]: T) -> T @cpu { let n @cpu = neg(p); n }
fn main(x @cpu[A]: T, y @cpu[ram]: T) -> (T, T) @_(cpu, cpu) {
  let p @cpu = @g(x); let y2 @cpu[A] = copy(cpu, cpu, y); let q @cpu = @g(y2); let t = (p, q); t }
""",
    ),
    "48 one value wanted twice": (
        "B2",
        """
fn main(a: T, b: T) { let s = add(a, b); (on(cpu, s), on(gpu, s)) }
""",
        """
fn main(a @gpu: T, b @gpu: T) -> (T, T) @_(cpu, gpu) {
  let s @gpu = add(a, b); let s2 @cpu = copy(gpu, cpu, s); let t @_(cpu, gpu) = (s2, s); t }
""",
    ),
    "52 devices that share a memory": (
        "N",
        """
fn conv "conv" (x @_[npu0.spad, ram]: T) -> T { neg(x) }
fn main(x: T) { on(npu0, @conv(on(cpu, neg(x)))) }
""",
        """
fn conv "conv" (x @_[npu0.spad, ram]: T) -> T { neg(x) }
fn main(x @cpu: T) -> T @npu0 { let n @cpu[ram] = neg(x); let c @npu0 = @conv(n); c }
""",
    ),
    "52 no common memory": (
        "N",
        """
fn conv "conv" (x @_[npu0.spad]: T) -> T { neg(x) }
fn main(x: T) { on(npu0, @conv(on(cpu, neg(x)))) }
""",
        """
fn conv "conv" (x @_[npu0.spad]: T) -> T { neg(x) }
fn main(x @cpu: T) -> T @npu0 {
  let n @cpu[ram] = neg(x); let n2 @npu0[npu0.spad] = copy(cpu, npu0, n); let c @npu0 = @conv(n2); c }
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    machine, source, expected = CASES[name]
    verify_case(source, expected, BOARDS[machine])
