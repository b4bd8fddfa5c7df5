// RUN: inlay opt %s --passes infer-types,to-anf,eliminate-common,eliminate-dead | filecheck %s

// The operands of a sum may be exchanged, those of a difference may not.

// CHECK-LABEL: fn main
// CHECK-COUNT-1: add(
// CHECK-COUNT-2: sub(
fn main<n>(x: Tensor[n, f32], y: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32]) {
  let a = add(x, y);
  let b = add(y, x);
  (sub(a, x), sub(x, b))
}
