// RUN: inlay opt %s --passes infer-types,to-anf,grow-in-place,eliminate-dead | filecheck %s

// What a loop carries and joins to itself grows where it is; with the axis first where it is inside.
// CHECK-LABEL: fn main
// CHECK:         wide_rows: Tensor[w{{[_0-9]*}}, 1, n, f32]
// CHECK-NOT:     transpose{perm=[1
// CHECK:         extend{axis=1}(past{{.*}}, x)
// CHECK:         [[R:rows[_0-9]*]]: {{.*}} = transpose{perm=[2, 0, 1]}(y)
// CHECK:         [[G:wider[_0-9]*]]: {{.*}} = extend(wide_rows, [[R]])
// CHECK-NEXT:    concat{axis=1}(x, front
// CHECK-NEXT:    loop{{[_0-9]*}}(int({{.*}}), longer{{[_0-9]*}}, [[G]],
// CHECK:         transpose{perm=[1, 2, 0]}(wide_rows)
fn main<n>(x: Tensor[1, n, 4, f32], y: Tensor[1, n, 4, f32], turns: Tensor[i64]) {
  let limit: some int limit. int[limit] = to_control(turns);
  let loop = fn<i, p, w, f>(
    i: int[i], past: Tensor[1, p, 4, f32], wide: Tensor[1, n, w, f32], front: Tensor[1, f, 4, f32]
  ) {
    if (int_less(int(i), int(limit))) {
      let longer = concat{axis=1}(past, x);
      let wider = concat{axis=2}(wide, y);
      let again = concat{axis=1}(x, front);
      loop(int(i + 1), longer, wider, again)
    } else {
      (past, wide, front)
    }
  };
  loop(int(0), x, y, x)
}

entry main("x", "y", "turns") -> ("a", "b", "c");
