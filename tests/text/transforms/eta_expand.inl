// RUN: inlay opt %s --passes infer-types,to-anf,eta-expand | filecheck %s

// Constructors are not values of the machine.

data Box { Wrap(Tensor[3, f32]) }

fn apply(f: fn(Tensor[3, f32]) -> Box, x: Tensor[3, f32]) -> Box { f(x) }

// CHECK-LABEL: fn main
// CHECK:         let [[W:[a-z_0-9]+]] = fn(
// CHECK:         Wrap(
// CHECK:         @apply([[W]], x)
fn main(x: Tensor[3, f32]) -> Tensor[3, f32] {
  match @apply(Wrap, x) { Wrap(h) => h }
}
