// RUN: inlay opt %s --passes infer-types,to-anf,fuse-ops,build-kernels,order-for-peak --remarks | filecheck %s

// What becomes narrow is made narrow before the next wide result is made.
// CHECK-LABEL: fn main
// CHECK:         let [[A:[a-z_0-9]+]]{{.*}} = @matmul{{.*}}(x, w)
// CHECK:         = @reduce_sum{{.*}}([[A]])
// CHECK:         let [[B:[a-z_0-9]+]]{{.*}} = @matmul{{.*}}(y, w)
// CHECK:         = @reduce_sum{{.*}}([[B]])
fn main(x: Tensor[4, 64, f32], y: Tensor[4, 64, f32], w: Tensor[64, 256, f32]) {
  let a = matmul(x, w);
  let b = matmul(y, w);
  let p = reduce_sum{axes=[1], keepdims=false}(a);
  let q = reduce_sum{axes=[1], keepdims=false}(b);
  matmul(p, q)
}
entry main("x", "y", "w") -> ("z");

// Where nothing is gained, the order stays.
// CHECK-LABEL: fn stays
// CHECK:         = @matmul{{.*}}(x, w)
// CHECK:         = @matmul{{.*}}(y, w
fn stays(x: Tensor[4, 64, f32], y: Tensor[4, 64, f32], w: Tensor[64, 64, f32]) {
  let a = matmul(x, w);
  let b = matmul(y, w);
  add(a, b)
}

// What moves before a number that is read is not in the scope of its dim any more.
// CHECK-LABEL: fn opens
// CHECK:         = @matmul{{.*}}(x, w)
// CHECK:         = @reduce_sum
// CHECK:         = @matmul{{.*}}(y, w)
// CHECK:         = to_control(
fn opens(x: Tensor[4, 64, f32], y: Tensor[4, 64, f32], w: Tensor[64, 256, f32]) {
  let a = matmul(x, w);
  let b = matmul(y, w);
  let most = cast{dtype=i64}(reduce_max{axes=[0, 1], keepdims=false}(b));
  let count = to_control(most);
  let p = reduce_sum{axes=[0, 1], keepdims=false}(a);
  (most, p, range(int(0), count, int(1)))
}

// CHECK: // order-for-peak: {{.*}}main: 5 steps in another order, 4128 bytes at once instead of 8208
// CHECK-NOT: stays:
