// RUN: inlay opt %s --passes infer-types,to-anf,split-queries | filecheck %s

// The scores of any number of queries and the keys of a cache: one query has a branch of its own, in which
// all types say so. What is in the branches is nowhere else.

// CHECK-LABEL: fn main
// CHECK-NOT:     transpose
// CHECK:         int_equal(int(n), int(1))
// CHECK-NEXT:    if (
// CHECK-DAG:       check_shape{why="one query"}(k, shape(2, past + 1, 64))
// CHECK-DAG:       check_shape{why="one query"}(q, shape(2, 1, 64))
// CHECK:           matmul({{.*}}, {{.*}})
// CHECK:           let {{.*}}: Tensor[2, 1, past + 1, f32] = softmax
// CHECK:           let {{.*}}: Tensor[2, 1, 64, f32] = matmul
// CHECK:           let {{.*}}: Tensor[2, n, 64, f32] = check_shape{why="one query"}
// CHECK:         } else {
// CHECK:           transpose{perm=[0, 2, 1]}(k)
// CHECK:           let {{.*}}: Tensor[2, n, n + past, f32] = softmax
// CHECK-NOT:     transpose
// CHECK:       }
fn main<n, past>(q: Tensor[2, n, 64, f32], k: Tensor[2, past + n, 64, f32], v: Tensor[2, past + n, 64, f32])
    -> Tensor[2, n, 64, f32] {
  let s = matmul(q, transpose{perm=[0, 2, 1]}(k));
  matmul(softmax{axis=2}(mul(s, f32(0.125))), v)
}

// Spelled out, with a row that is read twice.

// CHECK-LABEL: fn spelled
// CHECK:         if (
// CHECK:           Tensor[1, m, f32] = sub(
// CHECK:         } else {
fn spelled<n, m>(q: Tensor[n, 64, f32], k: Tensor[m, 64, f32], v: Tensor[m, 64, f32]) -> Tensor[n, 64, f32] {
  let s = matmul(q, transpose{perm=[1, 0]}(k));
  let e = exp(sub(s, reduce_max{axes=[1], keepdims=true}(s)));
  matmul(div(e, reduce_sum{axes=[1], keepdims=true}(e)), v)
}

// Not where keys are those of the queries; not where others read the scores or the transpose; not where keys
// are not transposed.

// CHECK-LABEL: fn own
// CHECK-NOT:     if (
fn own<n>(q: Tensor[n, 64, f32], k: Tensor[n, 64, f32], v: Tensor[n, 64, f32]) -> Tensor[n, 64, f32] {
  matmul(softmax{axis=1}(matmul(q, transpose{perm=[1, 0]}(k))), v)
}

// CHECK-LABEL: fn read
// CHECK-NOT:     if (
fn read<n, m>(q: Tensor[n, 64, f32], k: Tensor[m, 64, f32], v: Tensor[m, 64, f32])
    -> (Tensor[n, 64, f32], Tensor[n, m, f32]) {
  let p = softmax{axis=1}(matmul(q, transpose{perm=[1, 0]}(k)));
  (matmul(p, v), p)
}

// CHECK-LABEL: fn shared
// CHECK-NOT:     if (
fn shared<n, m>(q: Tensor[n, 64, f32], k: Tensor[m, 64, f32], v: Tensor[m, 64, f32])
    -> (Tensor[n, 64, f32], Tensor[64, m, f32]) {
  let t = transpose{perm=[1, 0]}(k);
  (matmul(softmax{axis=1}(matmul(q, t)), v), t)
}

// CHECK-LABEL: fn lying
// CHECK-NOT:     if (
fn lying<n, m>(q: Tensor[n, 64, f32], k: Tensor[64, m, f32], v: Tensor[m, 64, f32]) -> Tensor[n, 64, f32] {
  matmul(softmax{axis=1}(matmul(q, k)), v)
}
