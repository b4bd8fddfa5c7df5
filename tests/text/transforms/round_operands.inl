// RUN: inlay opt %s --passes infer-types,to-anf,widen-products,round-operands --precision bf16 | filecheck %s

// Constants are rounded here, what is computed once for all that read it; sums and results stay f32.

// CHECK-LABEL: fn main
// CHECK:         let [[X:[a-z_0-9]+]]: Tensor[n, 8, bf16] = cast{dtype=bf16}(x);
// CHECK-NEXT:    let [[P:[a-z_0-9]+]]: Tensor[n, 8, f32] = cast{dtype=f32}([[X]]);
// CHECK-NEXT:    let [[Q:[a-z_0-9]+]]: Tensor[8, 2, f32] = cast{dtype=f32}(
// CHECK-NEXT:      bf16[8, 2](1.0,
// CHECK:         let [[A:[a-z_0-9]+]]: Tensor[n, 2, f32] = matmul([[P]], [[Q]]);
// CHECK-NOT:     cast{dtype=bf16}
// CHECK:         add([[A]],
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 2, f32] {
  let w = f32[8, 2](1.001, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0);
  let v = f32[8, 2](3.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0);
  add(matmul(x, w), matmul(x, v))
}

// Tensors of bf16 are not rounded; their product is, once, as before.

// CHECK-LABEL: fn stored
// CHECK:         let [[P:[a-z_0-9]+]]: Tensor[64, 8, f32] = cast{dtype=f32}(x);
// CHECK-NEXT:    let [[Q:[a-z_0-9]+]]: Tensor[8, 16, f32] = cast{dtype=f32}(w);
// CHECK-NEXT:    let [[Y:[a-z_0-9]+]]: Tensor[64, 16, f32] = matmul([[P]], [[Q]]);
// CHECK-NEXT:    cast{dtype=bf16}([[Y]])
fn stored(x: Tensor[64, 8, bf16], w: Tensor[8, 16, bf16]) -> Tensor[64, 16, bf16] {
  matmul(x, w)
}

// What such an instruction is no faster for stays: batches, single columns, short sums, few rows of two
// computed matrices, and channels that do not mix.

// CHECK-LABEL: fn left
// CHECK-NOT:     cast
// CHECK:       }
fn left<n>(
  b: Tensor[2, 16, 16, f32], c: Tensor[16, 1, f32], w: Tensor[16, 16, f32], s: Tensor[4, 16, f32],
  i: Tensor[1, 8, 8, 16, f32], t: Tensor[3, 3, 16, f32]
) -> (Tensor[2, 16, 16, f32], Tensor[2, 16, 1, f32], Tensor[4, 16, f32], Tensor[16, 16, f32], Tensor[1, 6, 6, 16, f32]) {
  (
    matmul(b, b),
    matmul(b, c),
    matmul(s, w),
    matmul(transpose{perm=[1, 0]}(s), s),
    depthwise_conv_nhwc(i, t)
  )
}
