// RUN: inlay opt %s --passes infer-types,to-anf,split-batch --remarks | filecheck %s

// Six images in parts of two: 151 million multiply-adds. The greatest values are of all images.

// CHECK-LABEL: fn main
// CHECK:         slice{axes=[0]}(x, shape(0), shape(2), shape(1))
// CHECK:         @main_part({{.*}}, v, w)
// CHECK:         slice{axes=[0]}(x, shape(4), shape(6), shape(1))
// CHECK:         @main_part({{.*}}, v, w)
// CHECK-NEXT:    let z: Tensor[6, 64, f32] = concat(
// CHECK:         reduce_max{axes=[0]}(z)
// CHECK-LABEL: fn main_part
// CHECK-NEXT:    x: Tensor[2, 16, 64, 64, f32]
// CHECK:         conv{
// CHECK:         conv{
// CHECK:         reduce_mean
fn main(x: Tensor[6, 16, 64, 64, f32], v: Tensor[64, 16, 3, 3, f32], w: Tensor[64, 64, 3, 3, f32])
    -> (Tensor[6, 64, f32], Tensor[64, f32]) {
  let h = relu(conv{pads=[1, 1, 1, 1]}(x, v));
  let y = relu(conv{strides=[2, 2], pads=[1, 1, 1, 1]}(h, w));
  let z = reduce_mean{axes=[2, 3]}(y);
  (z, reduce_max{axes=[0]}(z))
}
