// PASSES: to-anf,inline-functions,eliminate-dead

// ---- small functions are put in place of their calls each with its own variables
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  (@f(x), @f(x), @f(x))
}

fn f<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  exp(exp(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) {
  let exp_1: Tensor[n, f32] = exp(x);
  let exp_2: Tensor[n, f32] = exp(exp_1);
  let exp_3: Tensor[n, f32] = exp(x);
  let exp_4: Tensor[n, f32] = exp(exp_3);
  let exp_5: Tensor[n, f32] = exp(x);
  let exp_6: Tensor[n, f32] = exp(exp_5);
  let t: (Tensor[n, f32], Tensor[n, f32], Tensor[n, f32]) = (exp_2, exp_4, exp_6);
  t
}

// ---- dims become those of the arguments
fn main(x: Tensor[5, f32]) -> Tensor[5, f32] {
  @f(x)
}

fn f<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  exp(x)
}
// ====
fn main(x: Tensor[5, f32]) -> Tensor[5, f32] {
  let exp_1: Tensor[5, f32] = exp(x);
  exp_1
}

// ---- a local function called once is inlined with what it captures
fn main<n>(x: Tensor[n, f32], z: Tensor[n, f32]) -> Tensor[n, f32] {
  let f = fn(y: Tensor[n, f32]) -> Tensor[n, f32] {
    add(y, z)
  };
  f(exp(x))
}
// ====
fn main<n>(x: Tensor[n, f32], z: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  let add_1: Tensor[n, f32] = add(exp_1, z);
  add_1
}
