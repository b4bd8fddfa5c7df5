// RUN: inlay opt %s --board mcu_dma --passes infer-types,mark-annotations,to-anf,plan-places | filecheck %s
// RUN: inlay opt %s --board mcu_dma --passes infer-types,mark-annotations,to-anf,plan-places,fuse-ops,build-kernels,explicit-alloc,plan-memory | filecheck %s --check-prefix=MEMORY

// A kernel that reads and writes certain memories puts its operands and results there.

// CHECK-LABEL: fn main
// CHECK:         let a @cpu[sram1]: Tensor[8, 8, f32] = exp(x) @cpu[sram1];
// CHECK-NEXT:    let b @cpu[sram0]: {{.*}} = @dense(a, x) @cpu[sram0];

// MEMORY:        let a @cpu[sram1]: Tensor[8, 8, f32] = tensor_at(block_sram1
// MEMORY:        let b @cpu[sram0]: Tensor[8, 8, f32] = tensor_at(block_sram0
// MEMORY-NEXT:   = invoke(@dense, a, x, b,
fn main(x @cpu!: Tensor[8, 8, f32]) -> Tensor[8, 8, f32] @cpu! {
  let a = exp(x) @cpu!;
  let b = @dense(a, x);
  add(b, x) @cpu!
}
fn dense "matmul" (x @cpu![sram1]: Tensor[8, 8, f32], w @cpu!: Tensor[8, 8, f32]) -> Tensor[8, 8, f32] @cpu![sram0] {
  let y = matmul(x, w) @cpu![sram0];
  y
}
entry main("x") -> ("y");
