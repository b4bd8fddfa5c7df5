// RUN: inlay opt %s --passes infer-types,to-anf,eliminate-dead | filecheck %s

// What nobody reads goes, and so does a function that nobody reaches. A check stays.

// CHECK-NOT:   exp
// CHECK-LABEL: fn main
// CHECK:         check_at_least
// CHECK:         relu
// CHECK-NOT:   fn unused
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let a = exp(x);
  let b = check_at_least{low=2}(x, int(n));
  relu(x)
}

fn unused<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { exp(x) }

entry main("x") -> ("y");
