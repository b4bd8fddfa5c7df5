// RUN: inlay opt %s --passes infer-types,to-anf,fold-quantization,eliminate-dead | filecheck %s

// CHECK-LABEL: fn main
// CHECK:         pad(x, shape(0, 0, 0, 1, 0, 0, 0, 1), u8(7))
// CHECK:         conv_integer(pad_1, i8[1, 1, 1, 2](1, 3))
// CHECK:         add(conv_integer_1, i32[1, 1, 1](-20))
// CHECK:         requantize{dtype=u8, zero=5, low=5, axis=-1}(
// CHECK-NEXT:      add_1,
// CHECK-NEXT:      f32(0.5)
fn main(x: Tensor[1, 1, 2, 2, u8]) -> Tensor[1, 1, 2, 3, u8] {
  let real = dequantize(x, f32(0.5), u8(7));
  let weights = dequantize(i8[1, 1, 1, 2](1, 3), f32(0.25));
  let y = conv{pads=[0, 1, 0, 1]}(real, weights);
  quantize{dtype=u8}(relu(add(y, f32[1, 1, 1](1.0))), f32(0.25), u8(5))
}
