// RUN: inlay opt %s --passes infer-types,to-anf,fuse-ops --remarks | filecheck %s

// A product takes what follows element by element; what it reads is made before.

// CHECK-LABEL: fn main
// CHECK:         let [[E:[a-z_0-9]+]]: Tensor[n, 4, f32] = @exp(x);
// CHECK-NEXT:    let [[R:[a-z_0-9]+]]: Tensor[n, 4, f32] = @matmul_add_relu([[E]], w, b);
// CHECK-NEXT:    [[R]]
fn main<n>(x: Tensor[n, 4, f32], w: Tensor[4, 4, f32], b: Tensor[4, f32]) -> Tensor[n, 4, f32] {
  relu(add(matmul(exp(x), w), b))
}

// CHECK:       fn exp
// CHECK:       fn matmul_add_relu
// CHECK:       // fuse-ops: {{.*}}exp is not in the kernel of matmul: its work would be repeated
