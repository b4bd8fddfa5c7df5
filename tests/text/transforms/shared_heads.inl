// RUN: inlay opt %s --passes infer-types,to-anf,unify-dims,simplify-algebra,eliminate-dead,fuse-ops | filecheck %s

// Two layers of a decoder as exporters write them: a cache of its own length for each, keys and values copied
// for each head, queries and keys scaled apart. Each layer is one kernel that reads keys and values as they are.
// CHECK-LABEL: fn main<n, total, past, other>
// CHECK-NOT:     broadcast_to
// CHECK:         @attention(
// CHECK-NOT:     broadcast_to
// CHECK:         @attention_1(
// CHECK-LABEL: fn attention "matmul+add+softmax+matmul+mul"
// CHECK-LABEL: fn attention_1 "matmul+add+softmax+matmul"
fn main<n, total, past, other>(
  q: Tensor[1, 8, n, 16, f32], mask: Tensor[n, total, f32], k: Tensor[1, 2, past, 16, f32],
  v: Tensor[1, 2, past, 16, f32], l: Tensor[1, 2, other, 16, f32], w: Tensor[1, 2, other, 16, f32],
  new: Tensor[1, 2, n, 16, f32]
) -> (Tensor[1, 8, n, 16, f32], Tensor[1, 2, past + n, 16, f32], Tensor[1, 2, other + n, 16, f32]) {
  let k_1 = concat{axis=2}(k, new);
  let v_1 = concat{axis=2}(v, new);
  let l_1 = concat{axis=2}(l, new);
  let w_1 = concat{axis=2}(w, new);
  let a_1 = broadcast_to(reshape(k_1, shape(1, 2, 1, past + n, 16)), shape(1, 2, 4, past + n, 16));
  let a = reshape(a_1, shape(1, 8, past + n, 16));
  let b_1 = tile(reshape(v_1, shape(1, 2, 1, past + n, 16)), shape(1, 1, 4, 1, 1));
  let b = reshape(b_1, shape(1, 8, past + n, 16));
  let s = matmul(mul(q, f32(0.5)), mul(transpose{perm=[0, 1, 3, 2]}(a), f32(0.5)));
  let s_1 = softmax{axis=-1}(add(check_shape{why="mask"}(s, shape(1, 8, n, total)), mask));
  let x = matmul(s_1, check_shape{why="values"}(b, shape(1, 8, total, 16)));
  let c_1 = broadcast_to(reshape(l_1, shape(1, 2, 1, other + n, 16)), shape(1, 2, 4, other + n, 16));
  let c = reshape(c_1, shape(1, 8, other + n, 16));
  let d_1 = broadcast_to(reshape(w_1, shape(1, 2, 1, other + n, 16)), shape(1, 2, 4, other + n, 16));
  let d = reshape(d_1, shape(1, 8, other + n, 16));
  let r = matmul(mul(x, f32(0.5)), mul(transpose{perm=[0, 1, 3, 2]}(c), f32(0.5)));
  let r_1 = softmax{axis=-1}(add(check_shape{why="mask"}(r, shape(1, 8, n, total)), mask));
  let y = matmul(r_1, check_shape{why="values"}(d, shape(1, 8, total, 16)));
  (y, k_1, l_1)
}
