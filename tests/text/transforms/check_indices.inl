// RUN: inlay opt %s --passes infer-types,to-anf,check-indices | filecheck %s

// What data says is checked once for each set of sizes; what clamps is not.

// CHECK-LABEL: fn main
// CHECK:         let [[ENDS:[a-z_0-9]+]]: {{.*}} = index_extremes(i)
// CHECK:         let [[IN:[a-z_0-9]+]]: {{.*}} = check_indices{why="gather"}(i, [[ENDS]], int(m))
// CHECK:         gather(x, [[IN]])
// CHECK-NOT:     check_indices
// CHECK:         gather(x, [[IN]])
// CHECK-NOT:     check_indices
// CHECK:         gather{clamp=true}(x, i)
fn main<m, n, k>(x: Tensor[m, n, f32], i: Tensor[k, i64]) -> (Tensor[k, n, f32], Tensor[k, n, f32], Tensor[k, n, f32]) {
  let a = gather(x, i);
  let b = gather(x, i);
  let c = gather{clamp=true}(x, i);
  (a, b, c)
}
