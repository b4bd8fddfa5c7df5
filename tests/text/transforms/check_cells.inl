// RUN: inlay opt %s --passes infer-types,to-anf,check-cells | filecheck %s

// A program whose takes have their puts stays as it is; what is refused is in tests/errors and in
// tests/unit/analysis/test_linear_cells.py.
// CHECK-LABEL: fn main(
// CHECK:         take(cell)
// CHECK:         put(cell,
fn main(x: Tensor[4, f32]) -> Tensor[4, f32] {
  let cell = ref(x);
  put(cell, neg(take(cell)));
  read(cell)
}
