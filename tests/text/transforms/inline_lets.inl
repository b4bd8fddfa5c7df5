// RUN: inlay opt %s --passes infer-types,to-anf,inline-lets | filecheck %s

// What is read once is nested; what is read twice keeps its name.

// CHECK-LABEL: fn main
// CHECK:         let [[E:[a-z_0-9]+]]: Tensor[n, f32] = exp(neg(x));
// CHECK-NEXT:    relu(add([[E]], [[E]]))
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let a = neg(x);
  let b = exp(a);
  relu(add(b, b))
}
