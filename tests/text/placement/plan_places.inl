// RUN: inlay opt %s --passes mark-annotations,to-anf,plan-places --board host_two | filecheck %s

// A value that is needed on another device is copied once, outside the loop that reads it, and what a
// person asked for says where everything around it goes.

// CHECK-LABEL: fn main
// CHECK-SAME:    x @cpu1!: Tensor[4, 4, f32]
// CHECK:         w @cpu0!: Tensor[4, 4, f32]
// CHECK:         let w_1 @cpu1: Tensor[4, 4, f32] = device_copy{src="cpu0", dst="cpu1", src_memory="host", dst_memory="cpu1.mem", engine="copier"}(
// CHECK-NEXT:      w
// CHECK:         let loop = fn<i>
// CHECK:           h @cpu1
// CHECK:           matmul(h, w_1) @cpu1
// CHECK-NOT:       device_copy
// CHECK:         loop(int(0), x) @cpu1
fn main(x @cpu1!: Tensor[4, 4, f32], w @cpu0!: Tensor[4, 4, f32]) -> Tensor[4, 4, f32] {
  let loop = fn<i>(i: int[i], h: Tensor[4, 4, f32]) -> Tensor[4, 4, f32] {
    if (int_less(int(i), int(3))) {
      loop(int(i + 1), on_device{device="cpu1"}(matmul(h, w)))
    } else { h }
  };
  loop(int(0), x)
}
