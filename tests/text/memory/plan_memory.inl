// RUN: inlay opt %s --board mcu_dma --passes infer-types,mark-annotations,to-anf,plan-places,fuse-ops,build-kernels,explicit-alloc,plan-memory | filecheck %s

// Planning memory is a pass as others are, for the memories of the board, and a scope is obeyed.

// CHECK-LABEL: fn main
// CHECK-DAG:     let [[A:block[a-z_0-9]*]]: Storage = alloc_storage{memories=["sram0"], alignment=16}(
// CHECK-DAG:     let [[B:block[a-z_0-9]*]]: Storage = alloc_storage{memories=["sram1"], alignment=16}(int(256))
// CHECK:         let a @cpu![sram1]: Tensor[64, f32] = tensor_at([[B]], int(0),
// CHECK:         tensor_at([[A]],
fn main(x @cpu!: Tensor[64, f32]) -> Tensor[64, f32] @cpu! {
  let a @cpu![sram1] = exp(x) @cpu!;
  let b = neg(a) @cpu!;
  add(a, b) @cpu!
}
entry main("x") -> ("y");
