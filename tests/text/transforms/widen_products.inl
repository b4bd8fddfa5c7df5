// RUN: inlay opt %s --passes infer-types,to-anf,widen-products,eliminate-common,eliminate-dead | filecheck %s

// What products read is widened where it is made, once; what only hands numbers on is not rounded again.
// Nothing but the result is in 16 bits.

// CHECK-LABEL: fn main
// CHECK:         let [[P:[a-z_0-9]+]]: Tensor[n, 8, f32] = cast{dtype=f32}(x);
// CHECK-NEXT:    let [[W:[a-z_0-9]+]]: Tensor[8, 8, f32] = cast{dtype=f32}(w);
// CHECK-NEXT:    let [[A:[a-z_0-9]+]]: Tensor[n, 8, f32] = matmul([[P]], [[W]]);
// CHECK-NEXT:    let [[B:[a-z_0-9]+]]: Tensor[n, 8, f16] = cast{dtype=f16}([[A]]);
// CHECK-NEXT:    let [[C:[a-z_0-9]+]]: Tensor[n, 8, f32] = cast{dtype=f32}([[B]]);
// CHECK-NEXT:    let [[R:[a-z_0-9]+]]: Tensor[n, 8, f32] = relu([[C]]);
// CHECK-NEXT:    let [[D:[a-z_0-9]+]]: Tensor[n, 8, f32] = matmul([[R]], [[W]]);
// CHECK-NEXT:    let [[E:[a-z_0-9]+]]: Tensor[n, 8, f16] = cast{dtype=f16}([[D]]);
// CHECK-NEXT:    let [[F:[a-z_0-9]+]]: Tensor[n, 8, f32] = cast{dtype=f32}([[E]]);
// CHECK-NEXT:    let [[G:[a-z_0-9]+]]: Tensor[n, 8, f32] = add([[F]], [[R]]);
// CHECK-NEXT:    let [[H:[a-z_0-9]+]]: Tensor[n, 8, f16] = cast{dtype=f16}([[G]]);
// CHECK-NEXT:    [[H]]
fn main<n>(x: Tensor[n, 8, f16], w: Tensor[8, 8, f16]) -> Tensor[n, 8, f16] {
  let r = relu(matmul(x, w));
  add(matmul(r, w), r)
}

// A part of a split is as wide as the whole; so is a cast that somebody wrote.

// CHECK-LABEL: fn parts
// CHECK:         let [[S:[a-z_0-9]+]]: (Tensor[4, 8, f32], Tensor[4, 8, f32]) = split{axis=1}(
// CHECK-NEXT:    let [[A:[a-z_0-9]+]]: Tensor[4, 8, f32] = [[S]].0;
// CHECK-NEXT:    let [[B:[a-z_0-9]+]]: Tensor[4, 8, f32] = [[S]].1;
// CHECK-NEXT:    let [[T:[a-z_0-9]+]]: Tensor[8, 4, f32] = transpose{perm=[1, 0]}([[B]]);
// CHECK-NEXT:    let {{.*}} = matmul([[A]], [[T]]);
fn parts(x: Tensor[4, 8, bf16], w: Tensor[8, 16, f32]) -> Tensor[4, 4, f32] {
  let y = cast{dtype=bf16}(matmul(cast{dtype=f32}(x), w));
  let t = split{axis=1}(y, shape(8, 8));
  matmul(cast{dtype=f32}(t.0), transpose{perm=[1, 0]}(cast{dtype=f32}(t.1)))
}

// One query with the keys of all tokens: they are read once, and stay in 16 bits. So does what no product is near.

// CHECK-LABEL: fn query
// CHECK-NOT:     f32
// CHECK:       fn ends
fn query<n>(q: Tensor[1, 8, f16], keys: Tensor[8, n, f16], z: Tensor[n, f16]) -> (Tensor[1, n, f16], Tensor[n, f16]) {
  (matmul(q, keys), tanh(add(z, z)))
}

// Where a number that is not one of 16 bits is an end, results are rounded.

// CHECK:         let [[A:[a-z_0-9]+]]: Tensor[8, 8, f32] = clip{low=0.0, high=6.0}(
// CHECK-NEXT:    let [[C:[a-z_0-9]+]]: Tensor[8, 8, f32] = clip{low=0.0, high=0.1}([[A]]);
// CHECK-NEXT:    let [[N:[a-z_0-9]+]]: Tensor[8, 8, f16] = cast{dtype=f16}([[C]]);
// CHECK-NEXT:    let [[W:[a-z_0-9]+]]: Tensor[8, 8, f32] = cast{dtype=f32}([[N]]);
// CHECK-NEXT:    let {{.*}} = matmul([[W]], [[A]]);
fn ends(x: Tensor[8, 8, f16]) -> Tensor[8, 8, f16] {
  let y = clip{low=0.0, high=6.0}(matmul(x, x));
  let z = clip{low=0.0, high=0.1}(y);
  matmul(z, y)
}

entry main("x", "w") -> ("y");
entry parts("x", "w") -> ("y");
entry query("q", "keys", "z") -> ("y", "t");
entry ends("x") -> ("y");
