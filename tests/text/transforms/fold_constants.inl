// RUN: inlay opt %s --passes infer-types,to-anf,fold-constants,eliminate-dead | filecheck %s

// Operators over constants are computed; a dim is not less than itself, so the branch is known.

// CHECK-LABEL: fn main
// CHECK-NOT:     if
// CHECK:         add(x, f32[2](3.0, 5.0))
fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  let w = add(f32[2](1.0, 2.0), f32[2](2.0, 3.0));
  if (int_less(int(n), int(n))) { exp(x) } else { add(x, w) }
}
