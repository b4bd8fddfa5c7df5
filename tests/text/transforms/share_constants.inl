// RUN: inlay opt %s --passes infer-types,to-anf,share-constants,eliminate-common,eliminate-dead | filecheck %s

// What is done with equal constants is done once; one that differs at one place is another one.

// CHECK-LABEL: fn main
// CHECK-COUNT-2: mul(
// CHECK-NOT:     mul(
fn main(x: Tensor[18, f32]) -> (Tensor[18, f32], Tensor[18, f32], Tensor[18, f32]) {
  let a = mul(x, f32[18](1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
  let b = mul(x, f32[18](1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
  let c = mul(x, f32[18](1, 2, 3, 4, 5, 6, 7, 8, -9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
  (a, b, c)
}
entry main("x") -> ("a", "b", "c");
