// PASSES: to-anf,eliminate-dead

// ---- unused values go and so does what only they read
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(exp(x), x);
  relu(x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let relu_1: Tensor[n, f32] = relu(x);
  relu_1
}

// ---- checks and writes stay
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let check_at_least_1: Tensor[n, f32] = check_at_least(x, int(n));
  let t: Ref[Tensor[n, f32]] = ref(x);
  let t_1: () = write(t, exp(x));
  let t_2: Tensor[n, f32] = read(t);
  relu(x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let check_at_least_1: Tensor[n, f32] = check_at_least(x, int(n));
  let t: Ref[Tensor[n, f32]] = ref(x);
  let exp_1: Tensor[n, f32] = exp(x);
  let t_1: () = write(t, exp_1);
  let relu_1: Tensor[n, f32] = relu(x);
  relu_1
}

// ---- a call stays if what it calls writes
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let t: Ref[Tensor[n, f32]] = ref(x);
  let f = fn(y: Tensor[n, f32]) -> Tensor[n, f32] {
    let t_1: () = write(t, y);
    y
  };
  let t_2: Tensor[n, f32] = f(exp(x));
  let t_3: Tensor[n, f32] = read(t);
  t_3
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let t: Ref[Tensor[n, f32]] = ref(x);
  let f = fn(y: Tensor[n, f32]) -> Tensor[n, f32] {
    let t_1: () = write(t, y);
    y
  };
  let exp_1: Tensor[n, f32] = exp(x);
  let t_2: Tensor[n, f32] = f(exp_1);
  let t_3: Tensor[n, f32] = read(t);
  t_3
}

// ---- a local function that only calls itself is dead
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let loop = fn<i>(i: int[i], c0: Tensor[n, f32]) -> some i_1. (int[i_1], Tensor[n, f32]) {
    if (int_less(int(i), int(3))) {
      loop(int(i + 1), exp(c0))
    } else {
      (i, c0)
    }
  };
  let loop_end: some i_2. (int[i_2], Tensor[n, f32]) = loop(int(0), x);
  let count: int[i_2] = loop_end.0;
  let c0_1: Tensor[n, f32] = loop_end.1;
  relu(x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let relu_1: Tensor[n, f32] = relu(x);
  relu_1
}

// ---- dead code in branches goes and live code before them stays
fn main<n>(x: Tensor[n, f32], flag: bool) -> Tensor[n, f32] {
  if (flag) {
    let exp_1: Tensor[n, f32] = exp(exp(x));
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

// ---- a value that names a dim stays while the dim is mentioned
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let nonzero_1: some k <= n. Tensor[1, k, i64] = nonzero(x);
  if (int_less(int(k), int(2))) {
    exp(x)
  } else { x }
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let nonzero_1: some k <= n. Tensor[1, k, i64] = nonzero(x);
  let int_less_1: bool = int_less(int(k), int(2));
  if (int_less_1) {
    let exp_1: Tensor[n, f32] = exp(x);
    exp_1
  } else { x }
}
