// RUN: inlay opt %s --passes infer-types,to-anf,unroll-loops,eliminate-dead --board lstm_engine | filecheck %s

// Two turns of an LSTM are straight code, which the unit of the board takes as one; rows are slices of the
// sequence, and those that nobody reads are gone. A loop that is no LSTM stays one.

// CHECK-LABEL: fn main
// CHECK-NOT:     int_less
// CHECK:         slice{axes=[0]}(x, shape(0), shape(1), shape(1))
// CHECK:         slice{axes=[0]}(x, shape(1), shape(2), shape(1))
// CHECK-NOT:     set_row
// CHECK:         fn<i>
// CHECK:         int_less(int(i), int(2))
fn main(x: Tensor[2, 1, 1, f32], h0: Tensor[1, 1, f32], c0: Tensor[1, 1, f32]) -> Tensor[1, 1, f32] {
  let loop = fn<i>(i: int[i], h: Tensor[1, 1, f32], c: Tensor[1, 1, f32], y: Tensor[2, 1, 1, f32])
      -> (Tensor[1, 1, f32], Tensor[2, 1, 1, f32]) {
    if (int_less(int(i), int(2))) {
      let w = matmul(get_row(x, int(i)), f32[1, 4](1.0, 2.0, 3.0, 4.0));
      let g = add(w, matmul(h, f32[1, 4](4.0, 3.0, 2.0, 1.0)));
      let into = sigmoid(slice{axes=[1]}(g, shape(0), shape(1), shape(1)));
      let forget = sigmoid(slice{axes=[1]}(g, shape(1), shape(2), shape(1)));
      let new = tanh(slice{axes=[1]}(g, shape(2), shape(3), shape(1)));
      let out = sigmoid(slice{axes=[1]}(g, shape(3), shape(4), shape(1)));
      let cell = add(mul(forget, c), mul(into, new));
      let next = mul(out, tanh(cell));
      loop(int(i + 1), next, cell, set_row(y, int(i), next))
    } else { (h, y) }
  };
  let ends = loop(int(0), h0, c0, f32[2, 1, 1](0.0, 0.0));
  let other = fn<i>(i: int[i], h: Tensor[1, 1, f32]) -> Tensor[1, 1, f32] {
    if (int_less(int(i), int(2))) { other(int(i + 1), tanh(h)) } else { h }
  };
  other(int(0), ends.0)
}
