// RUN: inlay opt %s --passes infer-types,to-anf,grow-in-place | filecheck %s

// What a loop carries and joins to itself grows where it is.
// CHECK-LABEL: fn main
// CHECK:         extend{axis=1}(past{{.*}}, x)
// CHECK:         concat{axis=2}(wide{{.*}}, x)
// CHECK:         concat{axis=1}(x, front
// CHECK:       entry
fn main<n>(x: Tensor[1, n, 4, f32], turns: Tensor[i64]) {
  let limit: some int limit. int[limit] = to_control(turns);
  let loop = fn<i, p, w, f>(
    i: int[i], past: Tensor[1, p, 4, f32], wide: Tensor[1, n, w, f32], front: Tensor[1, f, 4, f32]
  ) {
    if (int_less(int(i), int(limit))) {
      let longer = concat{axis=1}(past, x);
      let wider = concat{axis=2}(wide, x);
      let again = concat{axis=1}(x, front);
      loop(int(i + 1), longer, wider, again)
    } else {
      (past, wide, front)
    }
  };
  loop(int(0), x, x, x)
}

entry main("x", "turns") -> ("a", "b", "c");
