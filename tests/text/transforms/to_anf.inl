// RUN: inlay opt %s --passes infer-types,to-anf | filecheck %s

// Every intermediate gets a name, in order of evaluation.

// CHECK-LABEL: fn main
// CHECK:         let [[E:exp_?[0-9]*]]: Tensor[n, f32] = exp(x);
// CHECK-NEXT:    let [[N:neg_?[0-9]*]]: Tensor[n, f32] = neg(x);
// CHECK-NEXT:    let [[A:add_?[0-9]*]]: Tensor[n, f32] = add([[E]], [[N]]);
// CHECK-NEXT:    [[A]]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  add(exp(x), neg(x))
}

// A call of a function in tail position stays there; one that is not gets a name.

// CHECK-LABEL: fn twice
// CHECK:         let [[M:main_?[0-9]*]]: Tensor[n, f32] = @main(x);
// CHECK-NEXT:    @main([[M]])
fn twice<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  @main(@main(x))
}

// A let that was declared with less than its value says hides no size from what follows.

// CHECK-LABEL: fn hidden(x: some k. Tensor[k, 2, f32])
// CHECK-NEXT:    let v: Tensor[k, 2, f32] = neg(x);
// CHECK-NEXT:    let [[R:neg_?[0-9]*]]: Tensor[k, 2, f32] = neg(v);
// CHECK-NEXT:    [[R]]
fn hidden(x: some k. Tensor[k, 2, f32]) -> some k. Tensor[k, 2, f32] {
  let v: some k. Tensor[k, 2, f32] = neg(x);
  neg(v)
}
