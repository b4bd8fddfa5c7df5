// RUN: inlay opt %s --passes infer-types,to-anf,keep-weights,eliminate-dead,pack-weights | filecheck %s

// CHECK-LABEL: fn main
// CHECK:         matmul_blocks_packed{panel=16, n=2, block=4, bits=4, zero=8}(
// CHECK-NEXT:      x,
// CHECK-NEXT:      u8[1, 2, 16](#
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 2, f32] {
  let w = dequantize{axis=0}(i8[2, 4](1, 2, 3, 4, -5, -6, -7, -8), f32[2](0.5, 0.25));
  matmul(x, transpose{perm=[1, 0]}(w))
}
