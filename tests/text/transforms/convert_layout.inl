// RUN: inlay opt %s --passes infer-types,to-anf,convert-layout,eliminate-dead | filecheck %s

// One transpose on the way in, one on the way out, none between the convolutions.

// CHECK-LABEL: fn main
// CHECK:         transpose{perm=[0, 2, 3, 1]}(x)
// CHECK-NEXT:    = conv_nhwc(
// CHECK-NEXT:    = relu(
// CHECK-NEXT:    = conv_nhwc(
// CHECK-NEXT:    = transpose{perm=[0, 3, 1, 2]}
fn main<n>(x: Tensor[n, 1, 8, 8, f32]) -> Tensor[n, 2, 8, 8, f32] {
  let a = conv(x, f32[2, 1, 1, 1](1.0, 2.0));
  conv(relu(a), f32[2, 2, 1, 1](1.0, 2.0, 3.0, 4.0))
}
