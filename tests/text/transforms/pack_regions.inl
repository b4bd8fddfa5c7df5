// RUN: inlay opt %s --passes infer-types,to-anf,plan-places,outline-regions,pack-regions --board soc_npus | filecheck %s

// No device of this board wants constants in a layout of its own: regions stay as they are.

// CHECK-LABEL: fn main
// CHECK:         @matmul_add(x, f32[2, 2](1.0, 2.0, 3.0, 4.0)
fn main(x @npu0!: Tensor[2, 2, f32]) -> Tensor[2, 2, f32] @npu0! {
  let a = matmul(x, f32[2, 2](1.0, 2.0, 3.0, 4.0)) @npu0!#one;
  let b = add(a, x) @npu0!#one;
  b
}
