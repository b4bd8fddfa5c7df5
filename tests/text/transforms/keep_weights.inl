// RUN: inlay opt %s --passes infer-types,to-anf,keep-weights,eliminate-dead,pack-weights | filecheck %s
// RUN: inlay opt %s --passes infer-types,to-anf,keep-weights | filecheck %s --check-prefix KEPT

// CHECK-LABEL: fn main
// CHECK:         matmul_blocks_packed{panel=16, n=2, block=4, bits=4, zero=8, by_word=true}(
// CHECK-NEXT:      x,
// CHECK-NEXT:      u16[1, 1, 16](
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 2, f32] {
  let w = dequantize{axis=0}(i8[2, 4](1, 2, 3, 4, -5, -6, -7, -8), f32[2](0.5, 0.25));
  matmul(x, transpose{perm=[1, 0]}(w))
}

// Both sides stay integers.
// KEPT-LABEL: fn rounded
// KEPT:         matmul_quantized_blocks{block=8}(
// KEPT-NEXT:      q,
// KEPT-NEXT:      s,
// KEPT-NEXT:      i8[8, 2](
fn rounded<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 2, f32] {
  let s = block_scales{block=8}(x);
  let q = quantize_blocks{block=8}(x, s);
  let r = dequantize_blocks{block=8, axis=-1}(q, s);
  let w = dequantize_blocks{block=8}(i8[8, 2](1, 2, 3, 4, -5, -6, -7, -8, 7, 6, 5, 4, 3, 2, 1, 0), f32[1, 2](0.5, 0.25));
  matmul(r, w)
}
