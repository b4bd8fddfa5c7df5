// RUN: inlay opt %s --passes infer-types,to-anf,unify-dims | filecheck %s

// A size with two names has one from the beginning on, checked where it is given. The body is without checks
// that hold then; a check inside a branch is for those that come there.
// CHECK-LABEL: fn main<n, past, total, m>
// CHECK:         mask: Tensor[n, total, f32]
// CHECK:         mask_1: Tensor[n, n + past, f32] = check_shape{why="columns"}(mask, shape(n, n + past))
// CHECK-NOT:     why="columns"
// CHECK:         add(scores, mask_1)
// CHECK:         if (
// CHECK:           check_shape{why="rows"}(other, shape(n, 4))
fn main<n, past, total, m>(
  q: Tensor[n, 4, f32], old: Tensor[past, 4, f32], mask: Tensor[n, total, f32], other: Tensor[m, 4, f32],
  c: Tensor[bool]
) -> (Tensor[n, 4, f32], Tensor[n, 4, f32]) {
  let keys = concat{axis=0}(old, q);
  let scores = matmul(q, transpose{perm=[1, 0]}(keys));
  let same = check_shape{why="columns"}(scores, shape(n, total));
  let p = softmax{axis=1}(add(same, mask));
  let values = check_shape{why="columns"}(keys, shape(total, 4));
  let r = if (to_control(c)) { check_shape{why="rows"}(other, shape(n, 4)) } else { q };
  (matmul(p, values), r)
}

entry main("q", "old", "mask", "other", "c") -> ("a", "b");

// The result says its size by one of the names, which stays.
// CHECK-LABEL: fn kept<x0, y0>
// CHECK:         x_1: Tensor[y0, f32] = check_shape{why="rows"}(x, shape(y0))
// CHECK:         add(x_1, y)
fn kept<x0, y0>(x: Tensor[x0, f32], y: Tensor[y0, f32]) -> Tensor[y0, f32] {
  let z = check_shape{why="rows"}(x, shape(y0));
  add(z, y)
}

// Where results say their sizes by both names, they have their own again in the end; sums are compared too.
// CHECK-LABEL: fn both<n, a, b>
// CHECK:         v_1: Tensor[a, f32] = check_shape{why="keys"}(v, shape(a))
// CHECK:         add(keys, values)
// CHECK:         result: Tensor[n + b, f32] = check_shape{why="its own dims"}(values, shape(n + b))
// CHECK:         (sum, keys, result)
fn both<n, a, b>(x: Tensor[n, f32], k: Tensor[a, f32], v: Tensor[b, f32])
    -> (Tensor[n + a, f32], Tensor[n + a, f32], Tensor[n + b, f32]) {
  let keys = concat{axis=0}(k, x);
  let values = concat{axis=0}(v, x);
  let sum = add(keys, check_shape{why="keys"}(values, shape(n + a)));
  (sum, keys, values)
}
