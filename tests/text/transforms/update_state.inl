// RUN: inlay opt %s --passes infer-types,to-anf,update-state,simplify-algebra,eliminate-dead | filecheck %s

// An entry that gives an input with parts replaced keeps its body, and gets another that brings a spare table up
// to date and updates that. It says what it wrote. What is written whole is made anew.
// CHECK-LABEL: fn main<
// CHECK:         scatter_nd(table, at, rows)
// CHECK-LABEL: fn main.grow<
// CHECK:         table_spare: Tensor[m{{[_0-9]*}}, 4, f32]
// CHECK-NEXT:    table_at0: Tensor[before{{[_0-9]*}}, 1, i64]
// CHECK-NEXT:    log_spare: Tensor[8, f32]
// CHECK-NEXT:    log_at0: Tensor[before{{[_0-9]*}}, f32]
// CHECK:         [[ROWS:[a-z_0-9]+]]: {{.*}} = gather_nd(table, table_at0)
// CHECK:         [[CAUGHT:[a-z_0-9]+]]: {{.*}} = scatter_nd([[SPARE:table_spare[_0-9]*]], table_at0, [[ROWS]])
// CHECK:         update_slice{axes=[0]}({{.*}}, log_at0, shape(2))
// CHECK:         [[NEXT:[a-z_0-9]+]]: {{.*}} = scatter_nd([[CAUGHT]], at, rows)
// CHECK:         reduce_sum{axes=[0]}(table)
// CHECK:         [[NEXT]],
// CHECK:       entry main("table", "log", "mask", "at", "rows", "x") -> ("sum", "next", "longer", "other") updates("table", "next") updates("log", "longer") in main.grow;
// CHECK:       entry main.grow("table", "log", "mask", "at", "rows", "x", "table.spare", "table.at0", "log.spare", "log.at0") -> ("sum", "next", "longer", "other", "table.at0", "log.at0");
fn main<n, m>(
  table: Tensor[m, 4, f32], log: Tensor[8, f32], mask: Tensor[m, 4, bool],
  at: Tensor[n, 1, i64], rows: Tensor[n, 4, f32], x: Tensor[3, f32]
) {
  let next = scatter_nd(table, at, rows);
  let sum = reduce_sum{axes=[0]}(table);
  (sum, next, update_slice{axes=[0]}(log, x, shape(2)), select(mask, table, next))
}

entry main("table", "log", "mask", "at", "rows", "x") -> ("sum", "next", "longer", "other");
