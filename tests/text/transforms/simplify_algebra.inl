// RUN: inlay opt %s --passes infer-types,to-anf,simplify-algebra,eliminate-dead | filecheck %s

// A normalization that an exporter spelled out is the operator.

// CHECK-LABEL: fn main
// CHECK:         layer_norm{{.*}}(x)
// CHECK-NOT:     div(
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let mean = reduce_mean{axes=[-1], keepdims=true}(x);
  let centered = sub(x, mean);
  let square = pow(centered, f32(2.0));
  let variance = reduce_mean{axes=[-1], keepdims=true}(square);
  div(centered, sqrt(add(variance, f32(1.0e-5))))
}

// Transposes that undo each other go.

// CHECK-LABEL: fn back
// CHECK-NOT:     transpose{
fn back<n, m>(x: Tensor[n, m, f32]) -> Tensor[n, m, f32] {
  relu(transpose{perm=[1, 0]}(transpose{perm=[1, 0]}(x)))
}

// An axis of one element between two transposes keeps them no more apart than other axes do.

// CHECK-LABEL: fn squeezed
// CHECK:         reshape(x, shape(2, 7, 3, 4))
// CHECK-NEXT:    transpose{perm=[0, 2, 3, 1]}
// CHECK-NOT:     transpose{
fn squeezed(x: Tensor[2, 7, 12, f32]) -> Tensor[2, 3, 4, 7, f32] {
  let heads = transpose{perm=[0, 3, 1, 2, 4]}(reshape(x, shape(2, 1, 7, 3, 4)));
  transpose{perm=[0, 1, 3, 2]}(reshape(heads, shape(2, 3, 7, 4)))
}

// A reduction takes axes as they lie. What is left of them is turned, where their order is another one.

// CHECK-LABEL: fn reduced
// CHECK:         reduce_max{axes=[1]}(x)
// CHECK-NEXT:    transpose{perm=[1, 0]}
// CHECK:         reduce_sum{axes=[1], keepdims=true}(x)
// CHECK-NEXT:    transpose{perm=[2, 0, 1]}
// CHECK:         reduce_mean{axes=[1, 2]}(x)
// CHECK-NOT:     transpose{
fn reduced(x: Tensor[2, 5, 7, f32]) -> (Tensor[7, 2, f32], Tensor[7, 2, 1, f32], Tensor[2, f32]) {
  let a = reduce_max{axes=[2]}(transpose{perm=[2, 0, 1]}(x));
  let b = reduce_sum{axes=[2], keepdims=true}(transpose{perm=[2, 0, 1]}(x));
  let c = reduce_mean{axes=[0, -1]}(transpose{perm=[2, 0, 1]}(x));
  (a, b, c)
}

// A factor per channel moves into the weights.

// CHECK-LABEL: fn scaled
// CHECK:         matmul(x, f32[2, 2](2.0, 6.0, 0.0, 3.0))
// CHECK-NOT:     mul(
fn scaled<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  mul(matmul(x, f32[2, 2](1.0, 2.0, 0.0, 1.0)), f32[2](2.0, 3.0))
}

// A row whose number the machine knows is a view; one that may count from the end is not.

// CHECK-LABEL: fn rows
// CHECK:         get_row(x, int(i))
// CHECK:         gather{{.*}}(x,
fn rows<n, i, int j>(x: Tensor[n, 4, f32], i: int[i], j: int[j]) -> Tensor[4, f32] {
  add(gather(x, to_tensor(int(i))), gather(x, to_tensor(int(j))))
}

entry main("x") -> ("y");
entry rows("x", "i", "j") -> ("y");
entry back("x") -> ("y");
entry reduced("x") -> ("a", "b", "c");
entry scaled("x") -> ("y");
entry squeezed("x") -> ("y");
