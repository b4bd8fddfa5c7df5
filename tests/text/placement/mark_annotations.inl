// RUN: inlay opt %s --passes mark-annotations,to-anf | filecheck %s

// An annotation around an operand stays one when the operand gets a name.

// CHECK-LABEL: fn main
// CHECK:         on_device{device="cpu", position="operand"}(neg
// CHECK:         on_device{device="npu", position="definition"}(sub
fn main(x: Tensor[4, f32]) -> Tensor[4, f32] {
  let y = on_device{device="npu"}(sub(on_device{device="cpu"}(neg(x)), x));
  y
}
