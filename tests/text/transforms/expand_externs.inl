// RUN: inlay opt %s --extern %s.py --passes infer-types,to-anf,expand-externs | filecheck %s

// Each operator with each attributes is one function; it has the name of the operator.

// CHECK-LABEL: fn main
// CHECK:         let a: {{.*}} = @my.scale(x)
// CHECK:         let b: {{.*}} = @my.scale_1(a)
// CHECK:         = @my.scale(b)
// CHECK:       fn my.scale<
// CHECK:         mul(x, f32(2.0))
// CHECK:       fn my.scale_1<
// CHECK:         mul(x, f32(3.0))
// CHECK-NOT:   fn
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let a = my.scale(x);
  let b = my.scale{by=3}(a);
  my.scale(b)
}
