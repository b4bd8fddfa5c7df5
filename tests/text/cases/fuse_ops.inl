// PASSES: to-anf,fuse-ops,eliminate-dead

// ---- a product takes its bias activation and residual
// ROUNDED
fn main<m>(x: Tensor[m, 4, f32], r: Tensor[m, 3, f32]) -> Tensor[m, 3, f32] {
  relu(
    add(
      add(
        matmul(x, f32[4, 3](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0)),
        f32[3](0.25, -0.5, -1.0)
      ),
      r
    )
  )
}
// ====
fn main<m>(x: Tensor[m, 4, f32], r: Tensor[m, 3, f32]) -> Tensor[m, 3, f32] {
  let relu_1: Tensor[m, 3, f32] = @matmul_add_add_relu(
    x,
    f32[4, 3](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0),
    f32[3](0.25, -0.5, -1.0),
    r
  );
  relu_1
}

fn matmul_add_add_relu "matmul+add+add+relu"<m>(
  x: Tensor[m, 4, f32],
  c1: Tensor[4, 3, f32],
  c2: Tensor[3, f32],
  r: Tensor[m, 3, f32]
) -> Tensor[m, 3, f32] {
  let matmul_1: Tensor[m, 3, f32] = matmul(x, c1);
  let add_1: Tensor[m, 3, f32] = add(matmul_1, c2);
  let add_2: Tensor[m, 3, f32] = add(add_1, r);
  let relu_1: Tensor[m, 3, f32] = relu(add_2);
  relu_1
}

// ---- equal groups with other weights and dims are one kernel
// ROUNDED
fn main<m, n>(
  x: Tensor[m, 4, f32],
  y: Tensor[n, 4, f32]
) -> (Tensor[m, 4, f32], Tensor[n, 4, f32]) {
  (
    add(
      matmul(
        x,
        f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
      ),
      f32[4](0.75, -0.5, 0.25, 0.5)
    ),
    add(
      matmul(
        y,
        f32[4, 4](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25, 0.25, -1.0, 0.5, 0.25, -0.25, 0.5, -0.5, 0.25)
      ),
      f32[4](1.0, -0.5, 0.75, -0.75)
    )
  )
}
// ====
fn main<m, n>(
  x: Tensor[m, 4, f32],
  y: Tensor[n, 4, f32]
) -> (Tensor[m, 4, f32], Tensor[n, 4, f32]) {
  let add_1: Tensor[m, 4, f32] = @matmul_add(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75),
    f32[4](0.75, -0.5, 0.25, 0.5)
  );
  let add_2: Tensor[n, 4, f32] = @matmul_add(
    y,
    f32[4, 4](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25, 0.25, -1.0, 0.5, 0.25, -0.25, 0.5, -0.5, 0.25),
    f32[4](1.0, -0.5, 0.75, -0.75)
  );
  let t: (Tensor[m, 4, f32], Tensor[n, 4, f32]) = (add_1, add_2);
  t
}

fn matmul_add "matmul+add"<m>(
  x: Tensor[m, 4, f32],
  c1: Tensor[4, 4, f32],
  c2: Tensor[4, f32]
) -> Tensor[m, 4, f32] {
  let matmul_1: Tensor[m, 4, f32] = matmul(x, c1);
  let add_1: Tensor[m, 4, f32] = add(matmul_1, c2);
  add_1
}

// ---- numbers are written into a kernel and tell kernels apart
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32]) {
  (mul(x, f32(2.0)), mul(x, f32(3.0)))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> (Tensor[n, f32], Tensor[n, f32]) {
  let mul_1: Tensor[n, f32] = @mul(x);
  let mul_2: Tensor[n, f32] = @mul_1(x);
  let t: (Tensor[n, f32], Tensor[n, f32]) = (mul_1, mul_2);
  t
}

fn mul "mul"<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul_1: Tensor[n, f32] = mul(x, f32(2.0));
  mul_1
}

fn mul_1 "mul"<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul_1: Tensor[n, f32] = mul(x, f32(3.0));
  mul_1
}

// ---- work before a contraction is not repeated in it
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  matmul(
    relu(x),
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  )
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let relu_1: Tensor[n, 4, f32] = @relu(x);
  let matmul_1: Tensor[n, 4, f32] = @matmul(
    relu_1,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  matmul_1
}

fn relu "relu"<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let relu_1: Tensor[n, 4, f32] = relu(x);
  relu_1
}

fn matmul "matmul"<n>(relu_1: Tensor[n, 4, f32], c1: Tensor[4, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(relu_1, c1);
  matmul_1
}

// ---- what a contraction reads is not taken into its epilogue
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let relu_1: Tensor[n, 4, f32] = relu(x);
  add(
    matmul(
      relu_1,
      f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
    ),
    relu_1
  )
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let relu_1: Tensor[n, 4, f32] = @relu(x);
  let add_1: Tensor[n, 4, f32] = @matmul_add(
    relu_1,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  add_1
}

fn relu "relu"<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let relu_1: Tensor[n, 4, f32] = relu(x);
  relu_1
}

fn matmul_add "matmul+add"<n>(
  relu_1: Tensor[n, 4, f32],
  c1: Tensor[4, 4, f32]
) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(relu_1, c1);
  let add_1: Tensor[n, 4, f32] = add(matmul_1, relu_1);
  add_1
}

// ---- of two contractions that meet the later takes the sum
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  relu(
    add(
      matmul(
        x,
        f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
      ),
      matmul(
        x,
        f32[4, 4](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25, 0.25, -1.0, 0.5, 0.25, -0.25, 0.5, -0.5, 0.25)
      )
    )
  )
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = @matmul(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  let relu_1: Tensor[n, 4, f32] = @matmul_add_relu(
    x,
    f32[4, 4](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25, 0.25, -1.0, 0.5, 0.25, -0.25, 0.5, -0.5, 0.25),
    matmul_1
  );
  relu_1
}

fn matmul "matmul"<n>(x: Tensor[n, 4, f32], c1: Tensor[4, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(x, c1);
  matmul_1
}

fn matmul_add_relu "matmul+add+relu"<n>(
  x: Tensor[n, 4, f32],
  c1: Tensor[4, 4, f32],
  matmul_1: Tensor[n, 4, f32]
) -> Tensor[n, 4, f32] {
  let matmul_2: Tensor[n, 4, f32] = matmul(x, c1);
  let add_1: Tensor[n, 4, f32] = add(matmul_1, matmul_2);
  let relu_1: Tensor[n, 4, f32] = relu(add_1);
  relu_1
}

// ---- a diamond behind a contraction is taken whole
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  mul(tanh(matmul_1), exp(matmul_1))
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let mul_1: Tensor[n, 4, f32] = @matmul_tanh_exp_mul(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  mul_1
}

fn matmul_tanh_exp_mul "matmul+tanh+exp+mul"<n>(
  x: Tensor[n, 4, f32],
  c1: Tensor[4, 4, f32]
) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(x, c1);
  let tanh_1: Tensor[n, 4, f32] = tanh(matmul_1);
  let exp_1: Tensor[n, 4, f32] = exp(matmul_1);
  let mul_1: Tensor[n, 4, f32] = mul(tanh_1, exp_1);
  mul_1
}

// ---- a result that is read outside ends its group
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> (Tensor[n, 4, f32], Tensor[n, 4, f32]) {
  let add_1: Tensor[n, 4, f32] = add(
    matmul(
      x,
      f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
    ),
    f32[4](0.25, -0.5, -1.0, -1.0)
  );
  (add_1, relu(add_1))
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> (Tensor[n, 4, f32], Tensor[n, 4, f32]) {
  let add_1: Tensor[n, 4, f32] = @matmul_add(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75),
    f32[4](0.25, -0.5, -1.0, -1.0)
  );
  let relu_1: Tensor[n, 4, f32] = @relu(add_1);
  let t: (Tensor[n, 4, f32], Tensor[n, 4, f32]) = (add_1, relu_1);
  t
}

fn matmul_add "matmul+add"<n>(
  x: Tensor[n, 4, f32],
  c1: Tensor[4, 4, f32],
  c2: Tensor[4, f32]
) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(x, c1);
  let add_1: Tensor[n, 4, f32] = add(matmul_1, c2);
  add_1
}

fn relu "relu"<n>(add_1: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let relu_1: Tensor[n, 4, f32] = relu(add_1);
  relu_1
}

// ---- a path through an outsider is not closed
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  add(matmul_1, softmax(matmul_1))
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = @matmul(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
  );
  let add_1: Tensor[n, 4, f32] = @softmax_add(matmul_1);
  add_1
}

fn matmul "matmul"<n>(x: Tensor[n, 4, f32], c1: Tensor[4, 4, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(x, c1);
  matmul_1
}

fn softmax_add "softmax+add"<n>(matmul_1: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let softmax_1: Tensor[n, 4, f32] = softmax(matmul_1);
  let add_1: Tensor[n, 4, f32] = add(matmul_1, softmax_1);
  add_1
}

// ---- rows take what is before between and after their reductions
// ROUNDED
fn main<m, n>(x: Tensor[m, n, f32], mask: Tensor[n, f32]) -> Tensor[m, n, f32] {
  mul(softmax(add(mul(x, f32(0.5)), mask)), f32(2.0))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32], mask: Tensor[n, f32]) -> Tensor[m, n, f32] {
  let mul_1: Tensor[m, n, f32] = @softmax_mul_add_mul(x, mask);
  mul_1
}

fn softmax_mul_add_mul "mul+add+softmax+mul"<m, n>(
  x: Tensor[m, n, f32],
  mask: Tensor[n, f32]
) -> Tensor[m, n, f32] {
  let mul_1: Tensor[m, n, f32] = mul(x, f32(0.5));
  let add_1: Tensor[m, n, f32] = add(mul_1, mask);
  let softmax_1: Tensor[m, n, f32] = softmax(add_1);
  let mul_2: Tensor[m, n, f32] = mul(softmax_1, f32(2.0));
  mul_2
}

// ---- several reductions over the same rows are one kernel
// ROUNDED
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let sub_1: Tensor[m, n, f32] = sub(x, reduce_mean{axes=[1], keepdims=true}(x));
  div(sub_1, sqrt(reduce_mean{axes=[1], keepdims=true}(mul(sub_1, sub_1))))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let div_1: Tensor[m, n, f32] = @reduce_mean_sub_mul_reduce_mean_and_2(x);
  div_1
}

fn reduce_mean_sub_mul_reduce_mean_and_2 "reduce_mean+sub+mul+reduce_mean+sqrt+div"<m, n>(
  x: Tensor[m, n, f32]
) -> Tensor[m, n, f32] {
  let reduce_mean_1: Tensor[m, 1, f32] = reduce_mean{axes=[1], keepdims=true}(x);
  let sub_1: Tensor[m, n, f32] = sub(x, reduce_mean_1);
  let mul_1: Tensor[m, n, f32] = mul(sub_1, sub_1);
  let reduce_mean_2: Tensor[m, 1, f32] = reduce_mean{axes=[1], keepdims=true}(mul_1);
  let sqrt_1: Tensor[m, 1, f32] = sqrt(reduce_mean_2);
  let div_1: Tensor[m, n, f32] = div(sub_1, sqrt_1);
  div_1
}

// ---- a contraction does not join rows
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  softmax(
    add(
      matmul(
        x,
        f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75)
      ),
      f32[4](0.25, -0.5, -1.0, -1.0)
    )
  )
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let add_1: Tensor[n, 4, f32] = @matmul_add(
    x,
    f32[4, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0, 0.75, -1.0, 0.5, -0.75),
    f32[4](0.25, -0.5, -1.0, -1.0)
  );
  let softmax_1: Tensor[n, 4, f32] = @softmax(add_1);
  softmax_1
}

fn matmul_add "matmul+add"<n>(
  x: Tensor[n, 4, f32],
  c1: Tensor[4, 4, f32],
  c2: Tensor[4, f32]
) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(x, c1);
  let add_1: Tensor[n, 4, f32] = add(matmul_1, c2);
  add_1
}

fn softmax "softmax"<n>(add_1: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let softmax_1: Tensor[n, 4, f32] = softmax(add_1);
  softmax_1
}

// ---- a reduction over other axes reads its input as it is made
// ROUNDED
fn main<m, n>(x: Tensor[m, n, 3, f32], y: Tensor[m, n, 1, f32]) -> Tensor[m, 3, f32] {
  sqrt(abs(reduce_sum{axes=[1]}(mul(x, y))))
}
// ====
fn main<m, n>(x: Tensor[m, n, 3, f32], y: Tensor[m, n, 1, f32]) -> Tensor[m, 3, f32] {
  let sqrt_1: Tensor[m, 3, f32] = @reduce_sum_mul_abs_sqrt(x, y);
  sqrt_1
}

fn reduce_sum_mul_abs_sqrt "mul+reduce_sum+abs+sqrt"<m, n>(
  x: Tensor[m, n, 3, f32],
  y: Tensor[m, n, 1, f32]
) -> Tensor[m, 3, f32] {
  let mul_1: Tensor[m, n, 3, f32] = mul(x, y);
  let reduce_sum_1: Tensor[m, 3, f32] = reduce_sum{axes=[1]}(mul_1);
  let abs_1: Tensor[m, 3, f32] = abs(reduce_sum_1);
  let sqrt_1: Tensor[m, 3, f32] = sqrt(abs_1);
  sqrt_1
}

// ---- pools take nothing before them
// ROUNDED
fn main<n>(x: Tensor[n, 2, 3, 3, f32]) -> Tensor[n, 2, 1, 1, f32] {
  relu(max_pool{kernel=[3, 3]}(exp(x)))
}
// ====
fn main<n>(x: Tensor[n, 2, 3, 3, f32]) -> Tensor[n, 2, 1, 1, f32] {
  let exp_1: Tensor[n, 2, 3, 3, f32] = @exp(x);
  let relu_1: Tensor[n, 2, 1, 1, f32] = @max_pool_relu(exp_1);
  relu_1
}

fn exp "exp"<n>(x: Tensor[n, 2, 3, 3, f32]) -> Tensor[n, 2, 3, 3, f32] {
  let exp_1: Tensor[n, 2, 3, 3, f32] = exp(x);
  exp_1
}

fn max_pool_relu "max_pool+relu"<n>(exp_1: Tensor[n, 2, 3, 3, f32]) -> Tensor[n, 2, 1, 1, f32] {
  let max_pool_1: Tensor[n, 2, 1, 1, f32] = max_pool{kernel=[3, 3]}(exp_1);
  let relu_1: Tensor[n, 2, 1, 1, f32] = relu(max_pool_1);
  relu_1
}

// ---- costly work on a small operand is not repeated but cheap work is
fn main<m, n>(x: Tensor[m, n, f32], b: Tensor[n, f32]) -> (Tensor[m, n, f32], Tensor[m, n, f32]) {
  (add(x, exp(b)), add(x, neg(b)))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32], b: Tensor[n, f32]) -> (Tensor[m, n, f32], Tensor[m, n, f32]) {
  let exp_1: Tensor[n, f32] = @exp(b);
  let add_1: Tensor[m, n, f32] = @add(x, exp_1);
  let add_2: Tensor[m, n, f32] = @add_neg(b, x);
  let t: (Tensor[m, n, f32], Tensor[m, n, f32]) = (add_1, add_2);
  t
}

fn exp "exp"<n>(b: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(b);
  exp_1
}

fn add "add"<m, n>(x: Tensor[m, n, f32], exp_1: Tensor[n, f32]) -> Tensor[m, n, f32] {
  let add_1: Tensor[m, n, f32] = add(x, exp_1);
  add_1
}

fn add_neg "neg+add"<n, m>(b: Tensor[n, f32], x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let neg_1: Tensor[n, f32] = neg(b);
  let add_1: Tensor[m, n, f32] = add(x, neg_1);
  add_1
}

// ---- rows of a table are gathered where they are used
// ROUNDED
fn main<m, n>(
  table: Tensor[9, 4, f32],
  ids: Tensor[m, n, i64],
  x: Tensor[m, n, 4, f32]
) -> Tensor[m, n, 4, f32] {
  add(gather(table, ids), x)
}
// ====
fn main<m, n>(
  table: Tensor[9, 4, f32],
  ids: Tensor[m, n, i64],
  x: Tensor[m, n, 4, f32]
) -> Tensor[m, n, 4, f32] {
  let add_1: Tensor[m, n, 4, f32] = @add_gather(table, ids, x);
  add_1
}

fn add_gather "gather+add"<m, n>(
  table: Tensor[9, 4, f32],
  ids: Tensor[m, n, i64],
  x: Tensor[m, n, 4, f32]
) -> Tensor[m, n, 4, f32] {
  let gather_1: Tensor[m, n, 4, f32] = gather(table, ids);
  let add_1: Tensor[m, n, 4, f32] = add(gather_1, x);
  add_1
}

// ---- concatenation stands alone
// ROUNDED
fn main<m, n>(x: Tensor[m, 4, f32], y: Tensor[n, 4, f32]) -> Tensor[m + n, 4, f32] {
  relu(concat(exp(x), y))
}
// ====
fn main<m, n>(x: Tensor[m, 4, f32], y: Tensor[n, 4, f32]) -> Tensor[m + n, 4, f32] {
  let exp_1: Tensor[m, 4, f32] = @exp(x);
  let concat_1: Tensor[m + n, 4, f32] = @concat(exp_1, y);
  let relu_1: Tensor[m + n, 4, f32] = @relu(concat_1, int(m), int(n));
  relu_1
}

fn exp "exp"<m>(x: Tensor[m, 4, f32]) -> Tensor[m, 4, f32] {
  let exp_1: Tensor[m, 4, f32] = exp(x);
  exp_1
}

fn concat "concat"<m, n>(exp_1: Tensor[m, 4, f32], y: Tensor[n, 4, f32]) -> Tensor[m + n, 4, f32] {
  let concat_1: Tensor[m + n, 4, f32] = concat(exp_1, y);
  concat_1
}

fn relu "relu"<m, n>(
  concat_1: Tensor[m + n, 4, f32],
  m: int[m],
  n: int[n]
) -> Tensor[m + n, 4, f32] {
  let relu_1: Tensor[m + n, 4, f32] = relu(concat_1);
  relu_1
}

// ---- views checks and control stay outside
// ROUNDED
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m*n, f32] {
  exp(reshape(relu(x), shape(m*n)))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m*n, f32] {
  let relu_1: Tensor[m, n, f32] = @relu(x);
  let reshape_1: Tensor[m*n, f32] = reshape(relu_1, shape(m*n));
  let exp_1: Tensor[m*n, f32] = @exp(reshape_1, int(m), int(n));
  exp_1
}

fn relu "relu"<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let relu_1: Tensor[m, n, f32] = relu(x);
  relu_1
}

fn exp "exp"<m, n>(reshape_1: Tensor[m*n, f32], m: int[m], n: int[n]) -> Tensor[m*n, f32] {
  let exp_1: Tensor[m*n, f32] = exp(reshape_1);
  exp_1
}

// ---- dims that no shape tells are passed as integers
// ROUNDED
fn main<n>(x: Tensor[n, 2, f32]) -> (Tensor[2*n, 2, f32], Tensor[n, 2, f32]) {
  (exp(broadcast_to(f32[1, 2](0.25, -0.5), shape(2*n, 2))), x)
}
// ====
fn main<n>(x: Tensor[n, 2, f32]) -> (Tensor[2*n, 2, f32], Tensor[n, 2, f32]) {
  let exp_1: Tensor[2*n, 2, f32] = @exp_broadcast_to(f32[1, 2](0.25, -0.5), int(n));
  let t: (Tensor[2*n, 2, f32], Tensor[n, 2, f32]) = (exp_1, x);
  t
}

fn exp_broadcast_to "broadcast_to+exp"<int n>(
  c0: Tensor[1, 2, f32],
  n: int[n]
) -> Tensor[2*n, 2, f32] {
  let broadcast_to_1: Tensor[2*n, 2, f32] = broadcast_to(c0, shape(2*n, 2));
  let exp_1: Tensor[2*n, 2, f32] = exp(broadcast_to_1);
  exp_1
}

// ---- branches and loops are fused inside and never across
// ROUNDED
fn main<n>(x: Tensor[n, f32], flag: bool) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  relu(
    if (flag) {
      exp(exp(exp_1))
    } else { exp_1 }
  )
}
// ====
fn main<n>(x: Tensor[n, f32], flag: bool) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = @exp(x);
  let t: Tensor[n, f32] = if (flag) {
    let exp_2: Tensor[n, f32] = @exp_exp(exp_1);
    exp_2
  } else { exp_1 };
  let relu_1: Tensor[n, f32] = @relu(t);
  relu_1
}

fn exp "exp"<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1: Tensor[n, f32] = exp(x);
  exp_1
}

fn relu "relu"<n>(t: Tensor[n, f32]) -> Tensor[n, f32] {
  let relu_1: Tensor[n, f32] = relu(t);
  relu_1
}

fn exp_exp "exp+exp"<n>(exp_1: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_2: Tensor[n, f32] = exp(exp_1);
  let exp_3: Tensor[n, f32] = exp(exp_2);
  exp_3
}

// ---- places are not mixed and are kept
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  exp(exp(exp(x) @cpu) @cpu) @npu
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let exp_1 @cpu: Tensor[n, f32] = @exp_exp(x) @cpu;
  let exp_2 @npu: Tensor[n, f32] = @exp(exp_1) @npu;
  exp_2
}

fn exp_exp "exp+exp"<n>(x: Tensor[n, f32]) -> Tensor[n, f32] @cpu {
  let exp_1 @cpu: Tensor[n, f32] = exp(x) @cpu;
  let exp_2 @cpu: Tensor[n, f32] = exp(exp_1) @cpu;
  exp_2
}

fn exp "exp"<n>(exp_1 @cpu: Tensor[n, f32]) -> Tensor[n, f32] @npu {
  let exp_2 @npu: Tensor[n, f32] = exp(exp_1) @npu;
  exp_2
}

// ---- attention is one kernel
// ROUNDED
fn main<t, s>(
  q: Tensor[2, t, 4, f32], k: Tensor[2, 4, s, f32], mask: Tensor[t, s, f32], v: Tensor[2, s, 3, f32]
) -> Tensor[2, t, 3, f32] {
  matmul(softmax{axis=-1}(add(mul(matmul(q, k), f32[](0.5)), mask)), v)
}
// ====
fn main<t, s>(
  q: Tensor[2, t, 4, f32],
  k: Tensor[2, 4, s, f32],
  mask: Tensor[t, s, f32],
  v: Tensor[2, s, 3, f32]
) -> Tensor[2, t, 3, f32] {
  let matmul_1: Tensor[2, t, 3, f32] = @attention(q, k, mask, v);
  matmul_1
}

fn attention "matmul+mul+add+softmax+matmul"<t, s>(
  q: Tensor[2, t, 4, f32],
  k: Tensor[2, 4, s, f32],
  mask: Tensor[t, s, f32],
  v: Tensor[2, s, 3, f32]
) -> Tensor[2, t, 3, f32] {
  let matmul_1: Tensor[2, t, s, f32] = matmul(q, k);
  let mul_1: Tensor[2, t, s, f32] = mul(matmul_1, f32(0.5));
  let add_1: Tensor[2, t, s, f32] = add(mul_1, mask);
  let softmax_1: Tensor[2, t, s, f32] = softmax(add_1);
  let matmul_2: Tensor[2, t, 3, f32] = matmul(softmax_1, v);
  matmul_2
}

// ---- scores that something else reads are written, so kernels stay apart
// ROUNDED
fn main<t, s>(
  q: Tensor[t, 4, f32], k: Tensor[4, s, f32], v: Tensor[s, 3, f32]
) -> (Tensor[t, 3, f32], Tensor[t, s, f32]) {
  let p = softmax{axis=-1}(matmul(q, k));
  (matmul(p, v), p)
}
// ====
fn main<t, s>(
  q: Tensor[t, 4, f32],
  k: Tensor[4, s, f32],
  v: Tensor[s, 3, f32]
) -> (Tensor[t, 3, f32], Tensor[t, s, f32]) {
  let matmul_1: Tensor[t, s, f32] = @matmul(q, k);
  let p: Tensor[t, s, f32] = @softmax(matmul_1);
  let matmul_2: Tensor[t, 3, f32] = @matmul_1(p, v);
  let t: (Tensor[t, 3, f32], Tensor[t, s, f32]) = (matmul_2, p);
  t
}

fn matmul "matmul"<t, s>(q: Tensor[t, 4, f32], k: Tensor[4, s, f32]) -> Tensor[t, s, f32] {
  let matmul_1: Tensor[t, s, f32] = matmul(q, k);
  matmul_1
}

fn softmax "softmax"<t, s>(matmul_1: Tensor[t, s, f32]) -> Tensor[t, s, f32] {
  let p: Tensor[t, s, f32] = softmax(matmul_1);
  p
}

fn matmul_1 "matmul"<t, s>(p: Tensor[t, s, f32], v: Tensor[s, 3, f32]) -> Tensor[t, 3, f32] {
  let matmul_1: Tensor[t, 3, f32] = matmul(p, v);
  matmul_1
}

// ---- one query is no attention in blocks of rows
// ROUNDED
fn main<s>(q: Tensor[2, 1, 4, f32], k: Tensor[2, 4, s, f32], v: Tensor[2, s, 3, f32]) -> Tensor[2, 1, 3, f32] {
  matmul(softmax{axis=-1}(matmul(q, k)), v)
}
// ====
fn main<s>(
  q: Tensor[2, 1, 4, f32],
  k: Tensor[2, 4, s, f32],
  v: Tensor[2, s, 3, f32]
) -> Tensor[2, 1, 3, f32] {
  let matmul_1: Tensor[2, 1, s, f32] = @matmul(q, k);
  let softmax_1: Tensor[2, 1, s, f32] = @softmax(matmul_1);
  let matmul_2: Tensor[2, 1, 3, f32] = @matmul_1(softmax_1, v);
  matmul_2
}

fn matmul "matmul"<s>(q: Tensor[2, 1, 4, f32], k: Tensor[2, 4, s, f32]) -> Tensor[2, 1, s, f32] {
  let matmul_1: Tensor[2, 1, s, f32] = matmul(q, k);
  matmul_1
}

fn softmax "softmax"<s>(matmul_1: Tensor[2, 1, s, f32]) -> Tensor[2, 1, s, f32] {
  let softmax_1: Tensor[2, 1, s, f32] = softmax(matmul_1);
  softmax_1
}

fn matmul_1 "matmul"<s>(
  softmax_1: Tensor[2, 1, s, f32],
  v: Tensor[2, s, 3, f32]
) -> Tensor[2, 1, 3, f32] {
  let matmul_1: Tensor[2, 1, 3, f32] = matmul(softmax_1, v);
  matmul_1
}
