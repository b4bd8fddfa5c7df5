// RUN: inlay opt %s --passes infer-types,to-anf,forward-cells,eliminate-dead | filecheck %s

// What one block makes, takes, puts, reads and writes is known at each place; a cell that a loop mentions stays.
// CHECK-LABEL: fn main(
// CHECK-NOT:     ref
// CHECK:         [[NEXT:[a-z_0-9]+]]: {{.*}} = neg(x)
// CHECK-NEXT:    let sum: {{.*}} = add(x, [[NEXT]]);
// CHECK:         let left: {{.*}} = ref(sum);
// CHECK:         take(left)
// CHECK:         put(left
fn main(x: Tensor[4, f32], k: int) -> Tensor[4, f32] {
  let cell = ref(x);
  put(cell, neg(take(cell)));
  let sum = add(x, read(cell));
  write(cell, sum);
  let left = ref(read(cell));
  let loop = fn<i>(i: int[i]) {
    if (int_less(int(i), k)) { put(left, tanh(take(left))); loop(int(i + 1)) } else { read(left) }
  };
  loop(int(0))
}
