// RUN: inlay opt %s --passes infer-types | filecheck %s

// CHECK-LABEL: fn main
// CHECK:         let y: Tensor[n, m, f32] = add(x, b);
fn main<n, m>(x: Tensor[n, m, f32], b: Tensor[m, f32]) -> Tensor[n, m, f32] {
  let y = add(x, b);
  y
}
