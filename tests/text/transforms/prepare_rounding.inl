// RUN: inlay opt %s --passes infer-types,to-anf,prepare-rounding | filecheck %s

// CHECK-LABEL: fn main
// CHECK:         requantize_by_floats(
// CHECK-NEXT:      x,
fn main<n>(x: Tensor[n, 2, i32]) -> Tensor[n, 2, i8] {
  requantize{rounding="tflite"}(x, i32[](1342177280), i32[](-5))
}
