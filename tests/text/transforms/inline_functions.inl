// RUN: inlay opt %s --passes infer-types,to-anf,inline-functions,eliminate-dead | filecheck %s

// CHECK-LABEL: fn main
// CHECK-NOT:     @
// CHECK:         exp(x)
// CHECK-NOT:   fn small
fn main(x: Tensor[4, f32]) -> Tensor[4, f32] { relu(@small(x)) }

fn small<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { exp(x) }

entry main("x") -> ("y");
