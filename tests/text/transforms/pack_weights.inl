// RUN: inlay opt %s --passes infer-types,to-anf,pack-weights | filecheck %s

// CHECK-LABEL: fn main
// CHECK:         matmul_packed{panel={{[0-9]+}}, n=2}(
// CHECK-NEXT:      x,
// CHECK-NEXT:      f32[1, 2, {{[0-9]+}}](
fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  matmul(x, f32[2, 2](1.0, 2.0, 3.0, 4.0))
}

// CHECK-LABEL: fn several
// CHECK:         matmul_packed{panel={{[0-9]+}}, n=2}(
// CHECK-NEXT:      x,
// CHECK-NEXT:      f32[2, 1, 2, {{[0-9]+}}](
fn several<n>(x: Tensor[2, n, 2, f32]) -> Tensor[2, n, 2, f32] {
  matmul(x, f32[2, 2, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0))
}

// CHECK-LABEL: fn scores
// CHECK-NOT:     matmul_packed
fn scores(x: Tensor[2, 3, 2, f32]) -> Tensor[2, 3, 2, f32] {
  let s = matmul(x, f32[2, 2, 3](1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0));
  let p = softmax(mul(s, f32(0.5)));
  matmul(p, f32[2, 3, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0))
}
