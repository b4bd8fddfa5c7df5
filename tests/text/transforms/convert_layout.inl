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

// Rows and columns that are joined of parts, as phases of a transposed convolution are, keep channels last.

// CHECK-LABEL: fn phases
// CHECK:         = conv_nhwc(
// CHECK-NEXT:    = reshape(
// CHECK-NEXT:    = transpose{perm=[0, 1, 3, 2, 4, 5]}(
// CHECK-NEXT:    = reshape(
// CHECK-NEXT:    = relu(
// CHECK-NEXT:    = transpose{perm=[0, 3, 1, 2]}
fn phases(x: Tensor[1, 1, 4, 3, f32]) -> Tensor[1, 2, 8, 6, f32] {
  let a = conv(x, zeros(shape(8, 1, 1, 1)));
  let b = transpose{perm=[0, 3, 4, 1, 5, 2]}(reshape(a, shape(1, 2, 2, 2, 4, 3)));
  relu(reshape(b, shape(1, 2, 8, 6)))
}

// An instance is normalized by two means for each channel.

// CHECK-LABEL: fn instance
// CHECK:         [[X:%?[a-z_0-9]+]]: {{.*}} = conv_nhwc(
// CHECK:         = reduce_mean{axes=[1, 2], keepdims=true}([[X]])
// CHECK:         = sub([[X]],
// CHECK:         = reduce_mean{axes=[1, 2], keepdims=true}(
// CHECK:         = rsqrt(
// CHECK-NOT:     transpose{perm=[0, 2, 3, 1]}
// CHECK:         = transpose{perm=[0, 3, 1, 2]}
fn instance(x: Tensor[1, 1, 4, 3, f32]) -> Tensor[1, 2, 4, 3, f32] {
  instance_norm(conv(x, f32[2, 1, 1, 1](1.0, 2.0)))
}

entry main("x") -> ("y");
entry phases("x") -> ("y");
entry instance("x") -> ("y");
