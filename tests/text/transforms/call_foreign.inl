// RUN: inlay opt %s --extern %s.py --passes infer-types,to-anf,decompose-ops,call-foreign | filecheck %s

// Attributes become operands. Calls of one operator share a kernel. An operator that decides the size
// of its result is two kernels, and what the first of them says becomes a dim.

// CHECK:       kernel my.scale: fn<n>(Tensor[n, f32], Tensor[f64]) -> Tensor[n, f32] = "foreign" "python my.scale";
// CHECK-LABEL: fn main
// CHECK:         let a: {{.*}} = @my.scale(x, f64(2.0))
// CHECK:         let b: {{.*}} = @my.scale(a, f64(0.5))
// CHECK:         let sizes: {{.*}} = @my.kept.sizes(b)
// CHECK:         = to_control(
// CHECK:         @my.kept.take(
fn main<n>(x: Tensor[n, f32]) -> some k. Tensor[k, f32] {
  let a = my.scale(x);
  let b = my.scale{by=0.5}(a);
  my.kept(b)
}
