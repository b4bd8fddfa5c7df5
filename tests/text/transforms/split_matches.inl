// RUN: inlay opt %s --passes infer-types,to-anf,split-matches | filecheck %s

// A match whose decisions are few stays as it is.

// CHECK-LABEL: fn main
// CHECK-NOT:     rest
// CHECK:         match xs {
fn main(xs: List[Tensor[f32]], z: Tensor[f32]) -> Tensor[f32] {
  match xs {
    Cons(_, Cons(y, _)) => y,
    Cons(x, _) => x,
    _ => z,
  }
}
