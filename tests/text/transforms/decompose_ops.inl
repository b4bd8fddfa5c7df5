// RUN: inlay opt %s --passes infer-types,to-anf,decompose-ops | filecheck %s

// The number of elements that are not zero becomes a dim.

// CHECK-LABEL: fn main
// CHECK:         let [[K:[a-z_0-9]+]]: some {{.*}} = to_control(
// CHECK:         nonzero_fill(x, [[K]])
fn main<n>(x: Tensor[n, f32]) -> some k. Tensor[1, k, i64] {
  nonzero(x)
}
