// RUN: inlay opt %s --passes to-anf,read-first --remarks | filecheck %s

// A read of what a turn updates comes before the update, also as a view; what is copied is said.
// CHECK-LABEL: fn main
// CHECK:         [[V:[a-z_0-9]+]]: {{.*}} = reshape(cache
// CHECK:         = reduce_sum{{.*}}([[V]])
// CHECK:         next{{.*}} = set_row(cache
fn main(n: Tensor[i64], x: Tensor[4, f32]) {
  let limit: some int limit. int[limit] = to_control(n);
  let step = fn<i>(i: int[i], cache: Tensor[8, 4, f32], sum: Tensor[4, f32]) {
    if (int_less(int(i), int(limit))) {
      let next = set_row(cache, int(i), sum);
      let flat = reshape(cache, shape(32));
      let all = reduce_sum{axes=[0], keepdims=false}(flat);
      step(int(i + 1), next, add(sum, all))
    } else { (cache, sum) }
  };
  step(int(0), zeros{dtype=f32}(shape(8, 4)), x)
}
entry main("n", "x") -> ("cache", "sum");


// CHECK: // read-first: {{.*}}'table' is copied before its update 'other' in every turn of 'outside': 'table' is made outside, for all of its turns
fn captured(n: Tensor[i64], x: Tensor[4, f32]) {
  let limit: some int limit. int[limit] = to_control(n);
  let table = zeros{dtype=f32}(shape(8, 4));
  let outside = fn<i>(i: int[i], sum: Tensor[4, f32]) {
    if (int_less(int(i), int(limit))) {
      let other = set_row(table, int(0), sum);
      outside(int(i + 1), get_row(other, int(1)))
    } else { sum }
  };
  outside(int(0), x)
}

// CHECK: // read-first: {{.*}} is copied before its update 'fresh' in every turn of 'again': it is a constant
fn constant(n: Tensor[i64], x: Tensor[2, f32]) {
  let limit: some int limit. int[limit] = to_control(n);
  let again = fn<i>(i: int[i], sum: Tensor[2, f32]) {
    if (int_less(int(i), int(limit))) {
      let fresh = set_row(f32[2, 2](1, 2, 3, 4), int(0), sum);
      again(int(i + 1), get_row(fresh, int(1)))
    } else { sum }
  };
  again(int(0), x)
}

// CHECK: // read-first: {{.*}}'a' is copied before its update 'new' in every turn of 'twice': the update itself reads it twice
fn carried_twice(n: Tensor[i64], x: Tensor[4, f32]) {
  let limit: some int limit. int[limit] = to_control(n);
  let twice = fn<i>(i: int[i], a: Tensor[8, 4, f32], b: Tensor[8, 4, f32]) {
    if (int_less(int(i), int(limit))) {
      let new = set_row(a, int(i), get_row(b, int(0)));
      twice(int(i + 1), new, reshape(new, shape(8, 4)))
    } else { (a, b) }
  };
  let start = zeros{dtype=f32}(shape(8, 4));
  twice(int(0), start, start)
}

// CHECK: // read-first: {{.*}}'keep' is copied before its update 'late' in every turn of 'arms': 'arms', which cannot be moved, reads it behind
fn behind_a_branch(n: Tensor[i64], x: Tensor[4, f32]) {
  let limit: some int limit. int[limit] = to_control(n);
  let arms = fn<i>(i: int[i], keep: Tensor[8, 4, f32], sum: Tensor[4, f32]) {
    if (int_less(int(i), int(limit))) {
      let r = if (int_less(int(i), int(3))) {
        let late = set_row(keep, int(i), sum);
        get_row(late, int(2))
      } else { sum };
      arms(int(i + 1), keep, r)
    } else { (keep, sum) }
  };
  arms(int(0), zeros{dtype=f32}(shape(8, 4)), x)
}

// CHECK: // read-first: {{.*}}'seen' is copied before its update 'written' in every turn of 'views': 'views', which cannot be moved, reads it as 'flat' behind
fn as_a_view(n: Tensor[i64], x: Tensor[4, f32]) {
  let limit: some int limit. int[limit] = to_control(n);
  let views = fn<i>(i: int[i], seen: Tensor[8, 4, f32], old: Tensor[32, f32]) {
    if (int_less(int(i), int(limit))) {
      let flat = reshape(seen, shape(32));
      let written = set_row(seen, int(i), x);
      views(int(i + 1), written, flat)
    } else { (seen, old) }
  };
  views(int(0), zeros{dtype=f32}(shape(8, 4)), zeros{dtype=f32}(shape(32)))
}
