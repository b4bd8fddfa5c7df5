// RUN: inlay opt %s --passes infer-types,to-anf,grow-state,simplify-algebra,eliminate-dead | filecheck %s

// An entry that joins its inputs keeps its body, and gets another that extends them: as they are, or with the
// axis first. What is used otherwise is no state.
// CHECK-LABEL: fn main<
// CHECK:         concat{axis=1}(past, x)
// CHECK-LABEL: fn main.grow<
// CHECK:         past: Tensor[1, n{{[_0-9]*}}, 4, f32]
// CHECK:         wide_rows: Tensor[n{{[_0-9]*}}, 1, 2, f32]
// CHECK:         [[P:[a-z_0-9]+]]: {{.*}} = extend{axis=1}(past, x)
// CHECK:         [[R:rows[_0-9]*]]: {{.*}} = reshape(y, shape(1, 1, 2))
// CHECK:         [[W:[a-z_0-9]+]]: {{.*}} = extend(wide_rows, [[R]])
// CHECK:         concat(seen, x)
// CHECK:         [[P]],
// CHECK-NEXT:    [[W]],
// CHECK:       entry main("past", "wide", "seen", "x", "y") -> ("a", "b", "c", "d") grows("past", "a", 1) grows("wide", "b", 2) in main.grow;
// CHECK:       entry main.grow("past", "wide", "seen", "x", "y") -> ("a", "b", "c", "d");
fn main<n, m>(
  past: Tensor[1, n, 4, f32], wide: Tensor[1, 2, n, f32], seen: Tensor[m, 1, 4, f32],
  x: Tensor[1, 1, 4, f32], y: Tensor[1, 2, 1, f32]
) {
  let longer = concat{axis=1}(past, x);
  let wider = concat{axis=2}(wide, y);
  let all = concat{axis=0}(seen, x);
  (longer, wider, all, neg(seen))
}

entry main("past", "wide", "seen", "x", "y") -> ("a", "b", "c", "d");
