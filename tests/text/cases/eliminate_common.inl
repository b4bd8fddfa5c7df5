// PASSES: to-anf,eliminate-common,eliminate-dead

// ---- equal operations are done once in any order of commuting operands
fn main<n>(x: Tensor[n, f32], y: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(exp(add(x, y)), exp(add(y, x)))
}
// ====
fn main<n>(x: Tensor[n, f32], y: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(x, y);
  let exp_1: Tensor[n, f32] = exp(add_1);
  let mul_1: Tensor[n, f32] = mul(exp_1, exp_1);
  mul_1
}

// ---- operands that do not commute and attributes matter
fn main<n>(
  x: Tensor[n, 3, f32],
  y: Tensor[n, 3, f32]
) -> (Tensor[n, 3, f32], Tensor[n, 3, f32], Tensor[n, 3, f32], Tensor[n, 3, f32]) {
  (sub(x, y), sub(y, x), softmax{axis=0}(x), softmax{axis=1}(x))
}
// ====
fn main<n>(
  x: Tensor[n, 3, f32],
  y: Tensor[n, 3, f32]
) -> (Tensor[n, 3, f32], Tensor[n, 3, f32], Tensor[n, 3, f32], Tensor[n, 3, f32]) {
  let sub_1: Tensor[n, 3, f32] = sub(x, y);
  let sub_2: Tensor[n, 3, f32] = sub(y, x);
  let softmax_1: Tensor[n, 3, f32] = softmax{axis=0}(x);
  let softmax_2: Tensor[n, 3, f32] = softmax{axis=1}(x);
  let t: (Tensor[n, 3, f32], Tensor[n, 3, f32], Tensor[n, 3, f32], Tensor[n, 3, f32]) = (
    sub_1,
    sub_2,
    softmax_1,
    softmax_2
  );
  t
}

// ---- doubling is not the same as adding another
fn main<n>(
  x: Tensor[n, f32],
  y: Tensor[n, f32]
) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  (add(x, x), add(x, y), add(x, x))
}
// ====
fn main<n>(
  x: Tensor[n, f32],
  y: Tensor[n, f32]
) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let add_1: Tensor[n, f32] = add(x, x);
  let add_2: Tensor[n, f32] = add(x, y);
  let t: (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) = (add_1, add_2, add_1);
  t
}

// ---- an outer value serves in a branch but not the other way round
fn main<n>(x: Tensor[n, f32], flag: bool) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let exp_1: Tensor[n, f32] = exp(x);
  (
    if (flag) {
      exp(x)
    } else { exp_1 },
    if (flag) {
      exp(exp_1)
    } else {
      exp(exp(x))
    },
    exp(exp_1)
  )
}
// ====
fn main<n>(x: Tensor[n, f32], flag: bool) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let exp_1: Tensor[n, f32] = exp(x);
  let t: Tensor[n, f32] = if (flag) { exp_1 } else { exp_1 };
  let t_1: Tensor[n, f32] = if (flag) {
    let exp_2: Tensor[n, f32] = exp(exp_1);
    exp_2
  } else {
    let exp_3: Tensor[n, f32] = exp(exp_1);
    exp_3
  };
  let exp_4: Tensor[n, f32] = exp(exp_1);
  let t_2: (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) = (t, t_1, exp_4);
  t_2
}

// ---- cells are not shared and reads stay where they are
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let t: Ref[Tensor[n, f32]] = ref(x);
  let t_1: Ref[Tensor[n, f32]] = ref(x);
  let t_2: Tensor[n, f32] = read(t);
  let t_3: () = write(t, exp(x));
  let t_4: Tensor[n, f32] = read(t);
  let t_5: Tensor[n, f32] = read(t_1);
  (t_2, t_4, t_5)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let t: Ref[Tensor[n, f32]] = ref(x);
  let t_1: Ref[Tensor[n, f32]] = ref(x);
  let t_2: Tensor[n, f32] = read(t);
  let exp_1: Tensor[n, f32] = exp(x);
  let t_3: () = write(t, exp_1);
  let t_4: Tensor[n, f32] = read(t);
  let t_5: Tensor[n, f32] = read(t_1);
  let t_6: (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) = (t_2, t_4, t_5);
  t_6
}

// ---- a check is made once
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let check_at_least_1: Tensor[n, f32] = check_at_least{low=2}(x, int(n));
  let check_at_least_2: Tensor[n, f32] = check_at_least{low=2}(x, int(n));
  add(check_at_least_1, check_at_least_2)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let check_at_least_1: Tensor[n, f32] = check_at_least{low=2}(x, int(n));
  let add_1: Tensor[n, f32] = add(check_at_least_1, check_at_least_1);
  add_1
}

// ---- devices compute their own
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  (exp(x) @cpu, exp(x) @npu, exp(x) @cpu)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let exp_1 @cpu: Tensor[n, f32] = exp(x) @cpu;
  let exp_2 @npu: Tensor[n, f32] = exp(x) @npu;
  let t: (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) = (exp_1, exp_2, exp_1);
  t
}

// ---- sizes that the data decide are equal where the data are
fn main<n>(
  x: Tensor[n, f32]
) -> some k_2 <= n, k_3 <= n. (Tensor[1, k_2, i64], Tensor[1, k_3, i64]) {
  let nonzero_1: some k <= n. Tensor[1, k, i64] = nonzero(x);
  let nonzero_2: some k_1 <= n. Tensor[1, k_1, i64] = nonzero(x);
  (add(nonzero_1, add(nonzero_1, nonzero_1)), nonzero_2)
}
// ====
fn main<n>(
  x: Tensor[n, f32]
) -> some k_2 <= n, k_3 <= n. (Tensor[1, k_2, i64], Tensor[1, k_3, i64]) {
  let nonzero_1: some k <= n. Tensor[1, k, i64] = nonzero(x);
  let add_1: Tensor[1, k, i64] = add(nonzero_1, nonzero_1);
  let add_2: Tensor[1, k, i64] = add(nonzero_1, add_1);
  let t: (Tensor[1, k, i64], Tensor[1, k, i64]) = (add_2, nonzero_1);
  t
}
