// PASSES: to-anf,fold-constants,eliminate-dead

// ---- operators over constants are computed
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  matmul(
    x,
    mul(
      transpose{perm=[1, 0]}(
        f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
      ),
      f32(2.0)
    )
  )
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(
    x,
    f32[4, 4](0.5, 1.5, 0.5, 1.5, -1.0, 1.5, 1.5, -2.0, -2.0, 0.5, 1.5, 1.0, -2.0, 1.0, -2.0, -1.5)
  );
  matmul_1
}

// ---- shapes are known from types
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> some int to_control_1. Tensor[to_control_1, f32] {
  let to_tensor_1: Tensor[i64] = to_tensor(int(6));
  let to_control_1: some int to_control. int[to_control] = to_control(
    add(to_tensor_1, to_tensor_1)
  );
  let reduce_sum_1: Tensor[f32] = check_at_least{why="dim 0 of the shape"}(
    reduce_sum{axes=[0, 1]}(x),
    int(to_control)
  );
  broadcast_to(reduce_sum_1, shape(to_control))
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> some int to_control_1. Tensor[to_control_1, f32] {
  let reduce_sum_1: Tensor[f32] = reduce_sum{axes=[0, 1]}(x);
  let broadcast_to_1: Tensor[12, f32] = broadcast_to(reduce_sum_1, shape(12));
  broadcast_to_1
}

// ---- comparisons are decided by what is known of dims: op0-1-then
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  if (int_less(int(n), int(n + 1))) {
    exp(x)
  } else { x }
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  exp_1
}

// ---- comparisons are decided by what is known of dims: op1-1-otherwise
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  if (int_equal(int(n), int(n + 1))) {
    exp(x)
  } else { x }
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- comparisons are decided by what is known of dims: op2-0-then
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  if (int_equal(int(n), int(n))) {
    exp(x)
  } else { x }
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  exp_1
}

// ---- an undecided branch stays
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  if (int_less(int(n), int(4))) {
    exp(x)
  } else { x }
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let int_less_1: bool = int_less(int(n), int(4));
  if (int_less_1) {
    let exp_1: Tensor[n, f32] = exp(x);
    exp_1
  } else { x }
}

// ---- a known half of a condition is dropped or decides
fn main<n>(x: Tensor[n, f32], flag: bool) -> Tensor[n, f32] {
  if (bool_and(flag, false)) { x } else if (bool_and(true, flag)) {
    exp(x)
  } else { x }
}
// ====
fn main<n>(x: Tensor[n, f32], flag: bool) -> Tensor[n, f32] {
  if (flag) {
    let exp_1: Tensor[n, f32] = exp(x);
    exp_1
  } else { x }
}

// ---- checks that hold become their operand
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let check_shape_1: Tensor[n, f32] = check_shape{why="nothing new"}(x, shape(n));
  let check_at_least_1: Tensor[n, f32] = check_at_least{low=1}(check_shape_1, int(n + 1));
  exp(check_at_least_1)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  exp_1
}

// ---- a field of a tuple is the field
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  relu(((x, exp(x))).1)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  let relu_1: Tensor[n, f32] = relu(exp_1);
  relu_1
}

// ---- an exact result makes types below exact
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> some int to_control_1. Tensor[to_control_1, f32] {
  let to_control_1: some int to_control. int[to_control] = to_control(i64(4));
  let reduce_sum_1: Tensor[f32] = check_at_least{why="dim 0 of the shape"}(
    reduce_sum{axes=[0]}(x),
    int(to_control)
  );
  exp(broadcast_to(reduce_sum_1, shape(to_control)))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> some int to_control_1. Tensor[to_control_1, f32] {
  let reduce_sum_1: Tensor[f32] = reduce_sum{axes=[0]}(x);
  let broadcast_to_1: Tensor[4, f32] = broadcast_to(reduce_sum_1, shape(4));
  let exp_1: Tensor[4, f32] = exp(broadcast_to_1);
  exp_1
}
