// RUN: inlay opt %s --passes infer-types,to-anf,plan-places,outline-regions --board soc_npus | filecheck %s

// A region is one step of its block: what it reads comes before it, what reads a part of it behind it.

// CHECK-LABEL: fn main
// CHECK:         let [[E:[a-z_0-9]+]] @npu0: {{.*}} = relu(x) @npu0;
// CHECK-NEXT:    let results @_(npu0, npu0): {{.*}} = @matmul_add(x, [[E]]) @npu0;
// CHECK:         exp(
fn main(x @npu0!: Tensor[4, 4, f32]) -> Tensor[4, 4, f32] @cpu! {
  let a = matmul(x, x) @npu0!#one;
  let o = exp(a) @cpu!;
  let e = relu(x) @npu0!;
  let b = add(a, e) @npu0!#one;
  mul(o, b) @cpu!
}

// CHECK-LABEL: fn matmul_add "matmul+add"
// CHECK:         let [[A:[a-z_0-9]+]] @npu0: {{.*}} = matmul(
// CHECK:         add([[A]],
