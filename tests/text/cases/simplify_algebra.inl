// PASSES: to-anf,simplify-algebra,eliminate-dead

// ---- identity: add(x, f32(0.0))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  add(x, f32(0.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: add(f32(0.0), x)
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  add(f32(0.0), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: sub(x, f32(0.0))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  sub(x, f32(0.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: mul(f32(1.0), x)
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(f32(1.0), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: div(x, f32(1.0))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  div(x, f32(1.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: div(x, f32(8.0))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  div(x, f32(8.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let div: Tensor[n, f32] = mul(x, f32(0.125));
  div
}

// ---- identity: div(x, f32(3.0))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  div(x, f32(3.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let div_1: Tensor[n, f32] = div(x, f32(3.0));
  div_1
}

// ---- identity: div(f32(1.0), x)
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  div(f32(1.0), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let div: Tensor[n, f32] = reciprocal(x);
  div
}

// ---- identity: pow(x, f32(1.0))
// ROUNDED
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  pow(x, f32(1.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: pow(x, f32(2.0))
// ROUNDED
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  pow(x, f32(2.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let pow: Tensor[n, f32] = mul(x, x);
  pow
}

// ---- identity: pow(x, f32(-1.0))
// ROUNDED
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  pow(x, f32(-1.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let pow: Tensor[n, f32] = reciprocal(x);
  pow
}

// ---- identity: pow(x, f32(0.5))
// ROUNDED
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  pow(x, f32(0.5))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let sqrt_1: Tensor[n, f32] = sqrt(x);
  let abs_1: Tensor[n, f32] = abs(sqrt_1);
  let equal_1: Tensor[n, bool] = equal(x, f32(-inf));
  let pow: Tensor[n, f32] = select(equal_1, f32(inf), abs_1);
  pow
}

// ---- identity: neg(neg(x))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  neg(neg(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: relu(relu(x))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  relu(relu(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let relu_1: Tensor[n, f32] = relu(x);
  relu_1
}

// ---- identity: floor(floor(x))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  floor(floor(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let floor_1: Tensor[n, f32] = floor(x);
  floor_1
}

// ---- identity: clip{low=0.0}(x)
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  clip{low=0.0}(x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let clip: Tensor[n, f32] = relu(x);
  clip
}

// ---- identity: relu(clip{low=-1.0, high=2.0}(x))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  relu(clip{low=-1.0, high=2.0}(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let relu: Tensor[n, f32] = clip{low=0.0, high=2.0}(x);
  relu
}

// ---- identity: clip{low=1.0}(clip{low=0.0, high=5.0}(x))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  clip{low=1.0}(clip{low=0.0, high=5.0}(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let clip_1: Tensor[n, f32] = clip{low=1.0, high=5.0}(x);
  clip_1
}

// ---- identity: maximum(f32(0.0), x)
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  maximum(f32(0.0), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let maximum: Tensor[n, f32] = relu(x);
  maximum
}

// ---- identity: maximum(f32(-inf), x)
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  maximum(f32(-inf), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- identity: minimum(x, f32(inf))
// GIVEN x = [-3.5, -0.5, 0.25, 1.0, 7.0, 300.0]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  minimum(x, f32(inf))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- an identity that broadcasts is none
fn main<n>(x: Tensor[n, f32]) -> Tensor[2, n, f32] {
  add(x, f32[2, 1](0.0, 0.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[2, n, f32] {
  let add_1: Tensor[2, n, f32] = add(x, f32[2, 1](0.0, 0.0));
  add_1
}

// ---- casts over a format that holds everything: cast{dtype=f32}(x)
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  cast{dtype=f32}(x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- casts over a format that holds everything: cast{dtype=f32}(cast{dtype=i64}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, f32] {
  cast{dtype=f32}(cast{dtype=i64}(x))
}
// ====
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, f32] {
  let cast_1: Tensor[n, f32] = cast{dtype=f32}(x);
  cast_1
}

// ---- casts over a format that holds everything: cast{dtype=i8}(cast{dtype=i32}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, i8]) -> Tensor[n, i8] {
  cast{dtype=i8}(cast{dtype=i32}(x))
}
// ====
fn main<n>(x: Tensor[n, i8]) -> Tensor[n, i8] { x }

// ---- casts over a format that holds everything: cast{dtype=i32}(cast{dtype=i8}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, u8]) -> Tensor[n, i32] {
  cast{dtype=i32}(cast{dtype=i8}(x))
}
// ====
fn main<n>(x: Tensor[n, u8]) -> Tensor[n, i32] {
  let cast_1: Tensor[n, i8] = cast{dtype=i8}(x);
  let cast_2: Tensor[n, i32] = cast{dtype=i32}(cast_1);
  cast_2
}

// ---- casts over a format that holds everything: cast{dtype=f32}(cast{dtype=f64}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  cast{dtype=f32}(cast{dtype=f64}(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { x }

// ---- casts over a format that holds everything: cast{dtype=f32}(cast{dtype=f16}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  cast{dtype=f32}(cast{dtype=f16}(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let cast_1: Tensor[n, f16] = cast{dtype=f16}(x);
  let cast_2: Tensor[n, f32] = cast{dtype=f32}(cast_1);
  cast_2
}

// ---- casts over a format that holds everything: cast{dtype=i32}(cast{dtype=f32}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, i32] {
  cast{dtype=i32}(cast{dtype=f32}(x))
}
// ====
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, i32] {
  let cast_1: Tensor[n, f32] = cast{dtype=f32}(x);
  let cast_2: Tensor[n, i32] = cast{dtype=i32}(cast_1);
  cast_2
}

// ---- casts over a format that holds everything: cast{dtype=i32}(cast{dtype=f64}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, i32] {
  cast{dtype=i32}(cast{dtype=f64}(x))
}
// ====
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, i32] { x }

// ---- casts over a format that holds everything: cast{dtype=f32}(cast{dtype=i64}(x))
// GIVEN x = [0, 1, 100, 127]
fn main<n>(x: Tensor[n, bool]) -> Tensor[n, f32] {
  cast{dtype=f32}(cast{dtype=i64}(x))
}
// ====
fn main<n>(x: Tensor[n, bool]) -> Tensor[n, f32] {
  let cast_1: Tensor[n, f32] = cast{dtype=f32}(x);
  cast_1
}

// ---- transposes meet and cancel
fn main<a, b, c>(x: Tensor[a, b, c, f32]) -> (Tensor[a, b, c, f32], Tensor[b, a, c, f32]) {
  (
    exp(transpose{perm=[2, 0, 1]}(transpose{perm=[1, 2, 0]}(x))),
    exp(transpose{perm=[0, 2, 1]}(transpose{perm=[1, 2, 0]}(x)))
  )
}
// ====
fn main<a, b, c>(x: Tensor[a, b, c, f32]) -> (Tensor[a, b, c, f32], Tensor[b, a, c, f32]) {
  let exp_1: Tensor[a, b, c, f32] = exp(x);
  let transpose_1: Tensor[b, a, c, f32] = transpose{perm=[1, 0, 2]}(x);
  let exp_2: Tensor[b, a, c, f32] = exp(transpose_1);
  let t: (Tensor[a, b, c, f32], Tensor[b, a, c, f32]) = (exp_1, exp_2);
  t
}

// ---- a transpose that moves only axes of length one is a view
fn main<n, h>(x: Tensor[n, 1, h, 5, f32]) -> Tensor[n, h, 5, 1, f32] {
  transpose{perm=[0, 2, 3, 1]}(x)
}
// ====
fn main<n, h>(x: Tensor[n, 1, h, 5, f32]) -> Tensor[n, h, 5, 1, f32] {
  let transpose: Tensor[n, h, 5, 1, f32] = reshape(x, shape(n, h, 5, 1));
  transpose
}

// ---- transposes meet over a reshape that splits axes
fn main<n, h, w>(x: Tensor[n, h, w, 12, f32]) -> Tensor[n, 3, h, 2, w, 2, f32] {
  transpose{perm=[0, 1, 4, 2, 5, 3]}(
    reshape(transpose{perm=[0, 3, 1, 2]}(x), shape(n, 3, 2, 2, h, w))
  )
}
// ====
fn main<n, h, w>(x: Tensor[n, h, w, 12, f32]) -> Tensor[n, 3, h, 2, w, 2, f32] {
  let reshape_1: Tensor[n, h, w, 3, 2, 2, f32] = reshape(x, shape(n, h, w, 3, 2, 2));
  let transpose_1: Tensor[n, 3, h, 2, w, 2, f32] = transpose{perm=[0, 3, 1, 4, 2, 5]}(reshape_1);
  transpose_1
}

// ---- a reshape that merges axes is no bridge
fn main<n, h>(x: Tensor[n, h, 4, 6, f32]) -> Tensor[n, 4*h, 6, f32] {
  transpose{perm=[0, 2, 1]}(reshape(transpose{perm=[0, 3, 1, 2]}(x), shape(n, 6, 4*h)))
}
// ====
fn main<n, h>(x: Tensor[n, h, 4, 6, f32]) -> Tensor[n, 4*h, 6, f32] {
  let transpose_1: Tensor[n, 6, h, 4, f32] = transpose{perm=[0, 3, 1, 2]}(x);
  let reshape_1: Tensor[n, 6, 4*h, f32] = reshape(transpose_1, shape(n, 6, 4*h));
  let transpose_2: Tensor[n, 4*h, 6, f32] = transpose{perm=[0, 2, 1]}(reshape_1);
  transpose_2
}

// ---- reshapes meet and disappear
fn main<n>(x: Tensor[n, 6, f32]) -> Tensor[n, 6, f32] {
  exp(reshape(reshape(x, shape(n, 2, 3)), shape(n, 6)))
}
// ====
fn main<n>(x: Tensor[n, 6, f32]) -> Tensor[n, 6, f32] {
  let exp_1: Tensor[n, 6, f32] = exp(x);
  exp_1
}

// ---- axes given back to a reduction were kept
fn main<n>(x: Tensor[n, 6, f32]) -> Tensor[n, 6, f32] {
  div(x, reshape(reduce_sum{axes=[1]}(x), shape(n, 1)))
}
// ====
fn main<n>(x: Tensor[n, 6, f32]) -> Tensor[n, 6, f32] {
  let reshape: Tensor[n, 1, f32] = reduce_sum{axes=[1], keepdims=true}(x);
  let div_1: Tensor[n, 6, f32] = div(x, reshape);
  div_1
}

// ---- operators that broadcast need no broadcast operand
fn main<m, n>(x: Tensor[m, n, f32], y: Tensor[n, f32]) -> (Tensor[m, n, f32], Tensor[m, n, f32]) {
  let broadcast_to_1: Tensor[m, n, f32] = broadcast_to(y, shape(m, n));
  (add(x, broadcast_to_1), exp(broadcast_to_1))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32], y: Tensor[n, f32]) -> (Tensor[m, n, f32], Tensor[m, n, f32]) {
  let broadcast_to_1: Tensor[m, n, f32] = broadcast_to(y, shape(m, n));
  let add_1: Tensor[m, n, f32] = add(x, y);
  let exp_1: Tensor[m, n, f32] = exp(broadcast_to_1);
  let t: (Tensor[m, n, f32], Tensor[m, n, f32]) = (add_1, exp_1);
  t
}

// ---- batch normalization of anything else is a factor and an offset
// ROUNDED
fn main<n>(x: Tensor[n, 4, 5, f32]) -> Tensor[n, 4, 5, f32] {
  batch_norm(
    x,
    f32[4](1.5, 1.0, 0.5, 0.5),
    f32[4](1.25, 2.0, 0.75, 2.0),
    f32[4](1.0, 1.0, 1.75, 0.75),
    f32[4](0.75, 0.75, 1.75, 1.25)
  )
}
// ====
fn main<n>(x: Tensor[n, 4, 5, f32]) -> Tensor[n, 4, 5, f32] {
  let mul_1: Tensor[n, 4, 5, f32] = mul(x, f32[4, 1](1.7320392, 1.1546929, 0.3779634, 0.4472118));
  let batch_norm: Tensor[n, 4, 5, f32] = add(
    mul_1,
    f32[4, 1](-0.48203927, 0.8453072, 0.08856406, 1.6645912)
  );
  batch_norm
}

// ---- weights are not scaled for a result that others read
fn main<n>(x: Tensor[n, 3, f32]) -> (Tensor[n, 4, f32], Tensor[n, 4, f32]) {
  let matmul_1: Tensor[n, 4, f32] = matmul(
    x,
    f32[3, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0)
  );
  (mul(matmul_1, f32(2.0)), matmul_1)
}
// ====
fn main<n>(x: Tensor[n, 3, f32]) -> (Tensor[n, 4, f32], Tensor[n, 4, f32]) {
  let matmul_1: Tensor[n, 4, f32] = matmul(
    x,
    f32[3, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0)
  );
  let mul_1: Tensor[n, 4, f32] = mul(matmul_1, f32(2.0));
  let t: (Tensor[n, 4, f32], Tensor[n, 4, f32]) = (mul_1, matmul_1);
  t
}

// ---- readers of a value that did nothing count
// ROUNDED
fn main<n>(x: Tensor[n, 3, f32]) -> Tensor[n, 4, f32] {
  let add_1: Tensor[n, 4, f32] = add(
    matmul(x, f32[3, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0)),
    f32(0.0)
  );
  select(less(add_1, f32(0.0)), mul(add_1, f32(0.1)), add_1)
}
// ====
fn main<n>(x: Tensor[n, 3, f32]) -> Tensor[n, 4, f32] {
  let matmul_1: Tensor[n, 4, f32] = matmul(
    x,
    f32[3, 4](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5, 0.25, 0.75, 0.75, -1.0)
  );
  let less_1: Tensor[n, 4, bool] = less(matmul_1, f32(0.0));
  let mul_1: Tensor[n, 4, f32] = mul(matmul_1, f32(0.1));
  let select_1: Tensor[n, 4, f32] = select(less_1, mul_1, matmul_1);
  select_1
}

// ---- constants meet
// ROUNDED
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  mul(
    mul(sub(add(x, f32[4](0.25, -0.5, -1.0, -1.0)), f32[4](0.25, 1.0, -0.75, 1.0)), f32(0.3)),
    f32[4](-0.5, -0.5, 0.75, -0.75)
  )
}
// ====
fn main<n>(x: Tensor[n, 4, f32]) -> Tensor[n, 4, f32] {
  let sub: Tensor[n, 4, f32] = add(x, f32[4](0.0, -1.5, -0.25, -2.0));
  let mul_1: Tensor[n, 4, f32] = mul(sub, f32[4](-0.15, -0.15, 0.22500001, -0.22500001));
  mul_1
}

// ---- spelled out layer norm: 1
// ROUNDED
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let sub_1: Tensor[n, 8, f32] = sub(x, reduce_mean{axes=[-1], keepdims=true}(x));
  %1 = add(
    f32[8](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25),
    mul(
      div(
        sub_1,
        sqrt(add(reduce_mean{axes=[-1], keepdims=true}(pow(sub_1, f32(2.0))), f32(1e-05)))
      ),
      f32[8](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5)
    )
  );
  %1
}
// ====
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let add: Tensor[n, 8, f32] = layer_norm{epsilon=9.999999747378752e-06}(
    x,
    f32[8](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5),
    f32[8](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25)
  );
  add
}

// ---- spelled out layer norm: 2
// ROUNDED
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let sub_1: Tensor[n, 8, f32] = sub(x, reduce_mean{axes=[-1], keepdims=true}(x));
  %1 = add(
    f32[8](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25),
    mul(
      div(sub_1, sqrt(add(reduce_mean{axes=[-1], keepdims=true}(mul(sub_1, sub_1)), f32(1e-05)))),
      f32[8](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5)
    )
  );
  %1
}
// ====
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let add: Tensor[n, 8, f32] = layer_norm{epsilon=9.999999747378752e-06}(
    x,
    f32[8](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5),
    f32[8](0.25, 1.0, -0.75, 1.0, -0.5, -0.25, 0.75, -0.25)
  );
  add
}

// ---- spelled out layer norm: 3
// ROUNDED
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let sub_1: Tensor[n, 8, f32] = sub(x, reduce_mean{axes=[-1], keepdims=true}(x));
  div(sub_1, sqrt(add(reduce_mean{axes=[-1], keepdims=true}(pow(sub_1, f32(2.0))), f32(1e-05))))
}
// ====
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let div: Tensor[n, 8, f32] = layer_norm{epsilon=9.999999747378752e-06}(x);
  div
}

// ---- spelled out layer norm: 4
// ROUNDED
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let sub_1: Tensor[n, 8, f32] = sub(x, reduce_mean{axes=[-1], keepdims=true}(x));
  div(sub_1, sqrt(add(reduce_mean{axes=[-1], keepdims=true}(mul(sub_1, sub_1)), f32(1e-05))))
}
// ====
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let div: Tensor[n, 8, f32] = layer_norm{epsilon=9.999999747378752e-06}(x);
  div
}

// ---- a scale of another shape stays outside
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let sub_1: Tensor[n, 8, f32] = sub(x, reduce_mean{axes=[-1], keepdims=true}(x));
  mul(
    div(sub_1, sqrt(add(reduce_mean{axes=[-1], keepdims=true}(pow(sub_1, f32(2.0))), f32(1e-05)))),
    f32[1, 1](2.0)
  )
}
// ====
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let div: Tensor[n, 8, f32] = layer_norm{epsilon=9.999999747378752e-06}(x);
  let mul_1: Tensor[n, 8, f32] = mul(div, f32[1, 1](2.0));
  mul_1
}

// ---- rms norm
// ROUNDED
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  %1 = mul(
    f32[8](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5),
    mul(x, reciprocal(sqrt(add(reduce_mean{axes=[1], keepdims=true}(mul(x, x)), f32(1e-06)))))
  );
  %1
}
// ====
fn main<n>(x: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
  let mul: Tensor[n, 8, f32] = rms_norm{epsilon=9.999999974752427e-07}(
    x,
    f32[8](0.25, -0.5, -1.0, -1.0, 0.75, 0.75, 0.25, 0.5)
  );
  mul
}

// ---- gelu by erf: 0
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(erf(mul(f32(0.70710677), x)), f32(1.0));
  let mul_1: Tensor[n, f32] = mul(f32(0.5), mul(add_1, x));
  let mul_2: Tensor[n, f32] = mul(mul(x, f32(0.5)), add_1);
  let mul_3: Tensor[n, f32] = mul(x, mul(add_1, f32(0.5)));
  mul(mul(x, add_1), f32(0.5))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = gelu(x);
  mul
}

// ---- gelu by erf: 1
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(erf(div(x, f32(1.4142135))), f32(1.0));
  let mul_1: Tensor[n, f32] = mul(mul(x, add_1), f32(0.5));
  let mul_2: Tensor[n, f32] = mul(mul(x, f32(0.5)), add_1);
  let mul_3: Tensor[n, f32] = mul(x, mul(add_1, f32(0.5)));
  mul(f32(0.5), mul(add_1, x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = gelu(x);
  mul
}

// ---- gelu by erf: 2
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(erf(mul(f32(0.70710677), x)), f32(1.0));
  let mul_1: Tensor[n, f32] = mul(mul(x, add_1), f32(0.5));
  let mul_2: Tensor[n, f32] = mul(f32(0.5), mul(add_1, x));
  let mul_3: Tensor[n, f32] = mul(x, mul(add_1, f32(0.5)));
  mul(mul(x, f32(0.5)), add_1)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = gelu(x);
  mul
}

// ---- gelu by erf: 3
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(erf(div(x, f32(1.4142135))), f32(1.0));
  let mul_1: Tensor[n, f32] = mul(mul(x, add_1), f32(0.5));
  let mul_2: Tensor[n, f32] = mul(f32(0.5), mul(add_1, x));
  let mul_3: Tensor[n, f32] = mul(mul(x, f32(0.5)), add_1);
  mul(x, mul(add_1, f32(0.5)))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = gelu(x);
  mul
}

// ---- gelu by tanh: pow
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  %1 = mul(
    mul(f32(0.5), x),
    add(f32(1.0), tanh(mul(f32(0.7978846), add(x, mul(f32(0.044715), pow(x, f32(3.0)))))))
  );
  %1
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = gelu{form="tanh"}(x);
  mul
}

// ---- gelu by tanh: mul
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  %1 = add(f32(1.0), tanh(mul(f32(0.7978846), add(x, mul(f32(0.044715), mul(mul(x, x), x))))));
  mul(mul(f32(0.5), x), %1)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = gelu{form="tanh"}(x);
  mul
}

// ---- almost gelu is none
// ROUNDED
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(mul(x, add(erf(div(x, f32(1.5))), f32(1.0))), f32(0.5))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let div_1: Tensor[n, f32] = div(x, f32(1.5));
  let erf_1: Tensor[n, f32] = erf(div_1);
  let add_1: Tensor[n, f32] = add(erf_1, f32(1.0));
  let mul_1: Tensor[n, f32] = mul(x, add_1);
  let mul_2: Tensor[n, f32] = mul(mul_1, f32(0.5));
  mul_2
}

// ---- activations: mul(x, sigmoid(x))
// ROUNDED
// GIVEN x = [-8.0, -3.5, -0.5, 0.25, 3.0, 7.5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(x, sigmoid(x))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = silu(x);
  mul
}

// ---- activations: mul(x, sigmoid(abs(x)))
// ROUNDED
// GIVEN x = [-8.0, -3.5, -0.5, 0.25, 3.0, 7.5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(x, sigmoid(abs(x)))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let abs_1: Tensor[n, f32] = abs(x);
  let sigmoid_1: Tensor[n, f32] = sigmoid(abs_1);
  let mul_1: Tensor[n, f32] = mul(x, sigmoid_1);
  mul_1
}

// ---- activations: mul(hard_sigmoid{alpha=0.16666666666666666}(x), x)
// ROUNDED
// GIVEN x = [-8.0, -3.5, -0.5, 0.25, 3.0, 7.5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(hard_sigmoid{alpha=0.16666666666666666}(x), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = hard_swish(x);
  mul
}

// ---- activations: 4
// ROUNDED
// GIVEN x = [-8.0, -3.5, -0.5, 0.25, 3.0, 7.5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  div(mul(x, clip{low=0.0, high=6.0}(add(x, f32(3.0)))), f32(6.0))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let div: Tensor[n, f32] = hard_swish(x);
  div
}

// ---- activations: 5
// ROUNDED
// GIVEN x = [-8.0, -3.5, -0.5, 0.25, 3.0, 7.5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(x, div(clip{low=0.0, high=6.0}(add(x, f32(3.0))), f32(6.0)))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul: Tensor[n, f32] = hard_swish(x);
  mul
}

// ---- activations: reciprocal(add(f32(1.0), exp(neg(x))))
// ROUNDED
// GIVEN x = [-8.0, -3.5, -0.5, 0.25, 3.0, 7.5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  reciprocal(add(f32(1.0), exp(neg(x))))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let reciprocal: Tensor[n, f32] = sigmoid(x);
  reciprocal
}

// ---- softmax: 1
// ROUNDED
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let exp_1: Tensor[m, n, f32] = exp(sub(x, reduce_max{axes=[1], keepdims=true}(x)));
  div(exp_1, reduce_sum{axes=[-1], keepdims=true}(exp_1))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let div: Tensor[m, n, f32] = softmax{axis=1}(x);
  div
}

// ---- softmax: 2
// ROUNDED
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let exp_1: Tensor[m, n, f32] = exp(sub(x, reduce_max{axes=[1], keepdims=true}(x)));
  log(div(exp_1, reduce_sum{axes=[-1], keepdims=true}(exp_1)))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let log: Tensor[m, n, f32] = log_softmax{axis=1}(x);
  log
}

// ---- a sum over other axes is no softmax
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let exp_1: Tensor[m, n, f32] = exp(sub(x, reduce_max{axes=[1], keepdims=true}(x)));
  div(exp_1, reduce_sum{axes=[0], keepdims=true}(exp_1))
}
// ====
fn main<m, n>(x: Tensor[m, n, f32]) -> Tensor[m, n, f32] {
  let reduce_max_1: Tensor[m, 1, f32] = reduce_max{axes=[1], keepdims=true}(x);
  let sub_1: Tensor[m, n, f32] = sub(x, reduce_max_1);
  let exp_1: Tensor[m, n, f32] = exp(sub_1);
  let reduce_sum_1: Tensor[1, n, f32] = reduce_sum{axes=[0], keepdims=true}(exp_1);
  let div_1: Tensor[m, n, f32] = div(exp_1, reduce_sum_1);
  div_1
}

// ---- rules do not look across places
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  neg(neg(x) @npu) @cpu
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let neg_1 @npu: Tensor[n, f32] = neg(x) @npu;
  let neg_2 @cpu: Tensor[n, f32] = neg(neg_1) @cpu;
  neg_2
}

// ---- adding a large number and taking it off again rounds on purpose
// GIVEN x = [0.4, 0.6, 2.5, 1e5]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  sub(add(x, f32(1.2582912e+07)), f32(1.2582912e+07))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let add_1: Tensor[n, f32] = add(x, f32(1.2582912e+07));
  let sub: Tensor[n, f32] = add(add_1, f32(-1.2582912e+07));
  sub
}

// ---- factors whose product is no normal number do not meet: 1
// GIVEN x = [1.0, 1e30]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(mul(x, f32(1e-30)), f32(1e-30))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul_1: Tensor[n, f32] = mul(x, f32(1e-30));
  let mul_2: Tensor[n, f32] = mul(mul_1, f32(1e-30));
  mul_2
}

// ---- factors whose product is no normal number do not meet: 2
// GIVEN x = [1.0, 1e-30]
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  mul(mul(x, f32(1e+30)), f32(1e+30))
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let mul_1: Tensor[n, f32] = mul(x, f32(1e+30));
  let mul_2: Tensor[n, f32] = mul(mul_1, f32(1e+30));
  mul_2
}

// ---- weights that a factor takes out of range are left alone
fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  mul(matmul(x, f32[2, 2](1e+30, 1e+30, 1e+30, 1e+30)), f32(1e+20))
}
// ====
fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  let matmul_1: Tensor[n, 2, f32] = matmul(x, f32[2, 2](1e+30, 1e+30, 1e+30, 1e+30));
  let mul_1: Tensor[n, 2, f32] = mul(matmul_1, f32(1e+20));
  mul_1
}

// ---- narrow formats are not reassociated
fn main<n>(x: Tensor[n, f16]) -> Tensor[n, f16] {
  add(add(x, f16(0.1)), f16(0.1))
}
// ====
fn main<n>(x: Tensor[n, f16]) -> Tensor[n, f16] {
  let add_1: Tensor[n, f16] = add(x, f16(0.1));
  let add_2: Tensor[n, f16] = add(add_1, f16(0.1));
  add_2
}

// ---- integers wrap in any order
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, i32] {
  add(add(x, i32(2147483647)), i32(2147483647))
}
// ====
fn main<n>(x: Tensor[n, i32]) -> Tensor[n, i32] {
  let add_1: Tensor[n, i32] = add(x, i32(-2));
  add_1
}

// ---- statistics that divide by zero are left to the program
fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  batch_norm{epsilon=0.0}(x, f32[2](1.0, 1.0), f32[2](0.0, 0.0), f32[2](0.0, 0.0), f32[2](0.0, 0.0))
}
// ====
fn main<n>(x: Tensor[n, 2, f32]) -> Tensor[n, 2, f32] {
  let batch_norm_1: Tensor[n, 2, f32] = batch_norm{epsilon=0.0}(
    x,
    f32[2](1.0, 1.0),
    f32[2](0.0, 0.0),
    f32[2](0.0, 0.0),
    f32[2](0.0, 0.0)
  );
  batch_norm_1
}

// ---- a constant at a counter has no value yet: gather{axis=0}(f32[3, 2](1, 2, 3, 4, 5, 6), to_tensor(int(i)))
// ROUNDED
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(3))) {
      go(int(i + 1), add(h, gather(f32[3, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0), to_tensor(int(i)))))
    } else { h }
  };
  go(int(0), x)
}
// ====
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_1: bool = int_less(int(i), int(3));
    if (int_less_1) {
      let gather: Tensor[2, f32] = get_row(f32[3, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0), int(i));
      let add_1: Tensor[2, f32] = add(h, gather);
      go(int(i + 1), add_1)
    } else { h }
  };
  go(int(0), x)
}

// ---- a constant at a counter has no value yet: get_row(f32[3, 2](1, 2, 3, 4, 5, 6), int(i))
// ROUNDED
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(3))) {
      let get_row_1: Tensor[2, f32] = get_row(f32[3, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0), int(i));
      go(int(i + 1), add(h, get_row_1))
    } else { h }
  };
  go(int(0), x)
}
// ====
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_1: bool = int_less(int(i), int(3));
    if (int_less_1) {
      let get_row_1: Tensor[2, f32] = get_row(f32[3, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0), int(i));
      let add_1: Tensor[2, f32] = add(h, get_row_1);
      go(int(i + 1), add_1)
    } else { h }
  };
  go(int(0), x)
}

// ---- a constant at a counter has no value yet: reduce_sum{axes=[0], keepdims=false}(broadcast_to(f32(2), shape(i, 2)))
// ROUNDED
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(3))) {
      go(int(i + 1), add(h, reduce_sum{axes=[0]}(broadcast_to(f32(2.0), shape(i, 2)))))
    } else { h }
  };
  go(int(0), x)
}
// ====
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_1: bool = int_less(int(i), int(3));
    if (int_less_1) {
      let broadcast_to_1: Tensor[i, 2, f32] = broadcast_to(f32(2.0), shape(i, 2));
      let reduce_sum_1: Tensor[2, f32] = reduce_sum{axes=[0]}(broadcast_to_1);
      let add_1: Tensor[2, f32] = add(h, reduce_sum_1);
      go(int(i + 1), add_1)
    } else { h }
  };
  go(int(0), x)
}

// ---- a constant at a counter has no value yet: mul(cast{dtype=f32}(to_tensor(int(i))), f32[2](3, 4))
// ROUNDED
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(3))) {
      go(int(i + 1), add(h, mul(cast{dtype=f32}(to_tensor(int(i))), f32[2](3.0, 4.0))))
    } else { h }
  };
  go(int(0), x)
}
// ====
fn main(x: Tensor[2, f32]) -> Tensor[2, f32] {
  let go = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_1: bool = int_less(int(i), int(3));
    if (int_less_1) {
      let to_tensor_1: Tensor[i64] = to_tensor(int(i));
      let cast_1: Tensor[f32] = cast{dtype=f32}(to_tensor_1);
      let mul_1: Tensor[2, f32] = mul(cast_1, f32[2](3.0, 4.0));
      let add_1: Tensor[2, f32] = add(h, mul_1);
      go(int(i + 1), add_1)
    } else { h }
  };
  go(int(0), x)
}

// ---- a row by a transposed matrix: the matrix is read as it lies
// ROUNDED
fn main<n>(q: Tensor[2, 1, 4, f32], k: Tensor[n, 2, 4, f32]) -> Tensor[2, 1, n, f32] {
  matmul(q, transpose{perm=[1, 2, 0]}(k))
}
// ====
fn main<n>(q: Tensor[2, 1, 4, f32], k: Tensor[n, 2, 4, f32]) -> Tensor[2, 1, n, f32] {
  let transpose_1: Tensor[2, n, 4, f32] = transpose{perm=[1, 0, 2]}(k);
  let reshape_1: Tensor[2, 4, 1, f32] = reshape(q, shape(2, 4, 1));
  let matmul_1: Tensor[2, n, 1, f32] = matmul(transpose_1, reshape_1);
  let matmul_2: Tensor[2, 1, n, f32] = reshape(matmul_1, shape(2, 1, n));
  matmul_2
}

// ---- not with a transpose that others read, nor of two rows of few terms
fn main<n>(q: Tensor[1, 4, f32], r: Tensor[2, 4, f32], k: Tensor[n, 4, f32], l: Tensor[n, 4, f32]) {
  let t = transpose{perm=[1, 0]}(k);
  (matmul(q, t), t, matmul(r, transpose{perm=[1, 0]}(l)))
}
// ====
fn main<n>(
  q: Tensor[1, 4, f32],
  r: Tensor[2, 4, f32],
  k: Tensor[n, 4, f32],
  l: Tensor[n, 4, f32]
) -> (Tensor[1, n, f32], Tensor[4, n, f32], Tensor[2, n, f32]) {
  let t: Tensor[4, n, f32] = transpose{perm=[1, 0]}(k);
  let matmul_1: Tensor[1, n, f32] = matmul(q, t);
  let transpose_1: Tensor[4, n, f32] = transpose{perm=[1, 0]}(l);
  let matmul_2: Tensor[2, n, f32] = matmul(r, transpose_1);
  let t_1: (Tensor[1, n, f32], Tensor[4, n, f32], Tensor[2, n, f32]) = (matmul_1, t, matmul_2);
  t_1
}

// ---- a few rows by a transposed matrix: each is a column, and the matrix is the same for all of them
// ROUNDED
fn main<n>(q: Tensor[2, 3, 64, f32], k: Tensor[n, 2, 64, f32]) -> Tensor[2, 3, n, f32] {
  matmul(q, transpose{perm=[1, 2, 0]}(k))
}
// ====
fn main<n>(q: Tensor[2, 3, 64, f32], k: Tensor[n, 2, 64, f32]) -> Tensor[2, 3, n, f32] {
  let reshape_1: Tensor[n, 2, 1, 64, f32] = reshape(k, shape(n, 2, 1, 64));
  let transpose_1: Tensor[2, 1, n, 64, f32] = transpose{perm=[1, 2, 0, 3]}(reshape_1);
  let reshape_2: Tensor[2, 3, 64, 1, f32] = reshape(q, shape(2, 3, 64, 1));
  let matmul_1: Tensor[2, 3, n, 1, f32] = matmul(transpose_1, reshape_2);
  let matmul_2: Tensor[2, 3, n, f32] = reshape(matmul_1, shape(2, 3, n));
  matmul_2
}

// ---- not of few columns, nor of many rows
fn main(q: Tensor[2, 64, f32], k: Tensor[63, 64, f32], r: Tensor[9, 64, f32], l: Tensor[64, 64, f32]) {
  (matmul(q, transpose{perm=[1, 0]}(k)), matmul(r, transpose{perm=[1, 0]}(l)))
}
// ====
fn main(
  q: Tensor[2, 64, f32],
  k: Tensor[63, 64, f32],
  r: Tensor[9, 64, f32],
  l: Tensor[64, 64, f32]
) -> (Tensor[2, 63, f32], Tensor[9, 64, f32]) {
  let transpose_1: Tensor[64, 63, f32] = transpose{perm=[1, 0]}(k);
  let matmul_1: Tensor[2, 63, f32] = matmul(q, transpose_1);
  let transpose_2: Tensor[64, 64, f32] = transpose{perm=[1, 0]}(l);
  let matmul_2: Tensor[9, 64, f32] = matmul(r, transpose_2);
  let t: (Tensor[2, 63, f32], Tensor[9, 64, f32]) = (matmul_1, matmul_2);
  t
}

// ---- a factor of a matrix goes to the rows, and meets the one that is there
// ROUNDED
fn main<n, m>(q: Tensor[2, n, 4, f32], k: Tensor[2, m, 4, f32]) -> Tensor[2, n, m, f32] {
  matmul(mul(q, f32(0.5)), mul(transpose{perm=[0, 2, 1]}(k), f32(0.5)))
}
// ====
fn main<n, m>(q: Tensor[2, n, 4, f32], k: Tensor[2, m, 4, f32]) -> Tensor[2, n, m, f32] {
  let transpose_1: Tensor[2, 4, m, f32] = transpose{perm=[0, 2, 1]}(k);
  let mul_1: Tensor[2, n, 4, f32] = mul(q, f32(0.25));
  let matmul_1: Tensor[2, n, m, f32] = matmul(mul_1, transpose_1);
  matmul_1
}

// ---- also where rows have none and are few; not where there are more rows than columns, nor a large factor
// ROUNDED
fn main(a: Tensor[1, 4, f32], b: Tensor[9, 4, f32], k: Tensor[4, 6, f32]) {
  (matmul(a, mul(f32(0.5), k)), matmul(b, mul(k, f32(0.25))), matmul(a, mul(k, f32(3.0))))
}
// ====
fn main(
  a: Tensor[1, 4, f32],
  b: Tensor[9, 4, f32],
  k: Tensor[4, 6, f32]
) -> (Tensor[1, 6, f32], Tensor[9, 6, f32], Tensor[1, 6, f32]) {
  let mul_1: Tensor[1, 4, f32] = mul(a, f32(0.5));
  let matmul_1: Tensor[1, 6, f32] = matmul(mul_1, k);
  let mul_2: Tensor[4, 6, f32] = mul(k, f32(0.25));
  let matmul_2: Tensor[9, 6, f32] = matmul(b, mul_2);
  let mul_3: Tensor[4, 6, f32] = mul(k, f32(3.0));
  let matmul_3: Tensor[1, 6, f32] = matmul(a, mul_3);
  let t: (Tensor[1, 6, f32], Tensor[9, 6, f32], Tensor[1, 6, f32]) = (matmul_1, matmul_2, matmul_3);
  t
}

// ---- nor in 16 bits, nor where others read the matrix times the factor
fn main(a: Tensor[1, 4, f16], k: Tensor[4, 6, f16], b: Tensor[1, 4, f32], l: Tensor[4, 6, f32]) {
  let scaled = mul(l, f32(0.5));
  (matmul(a, mul(k, f16(0.5))), matmul(b, scaled), scaled)
}
// ====
fn main(
  a: Tensor[1, 4, f16],
  k: Tensor[4, 6, f16],
  b: Tensor[1, 4, f32],
  l: Tensor[4, 6, f32]
) -> (Tensor[1, 6, f16], Tensor[1, 6, f32], Tensor[4, 6, f32]) {
  let scaled: Tensor[4, 6, f32] = mul(l, f32(0.5));
  let mul_1: Tensor[4, 6, f16] = mul(k, f16(0.5));
  let matmul_1: Tensor[1, 6, f16] = matmul(a, mul_1);
  let matmul_2: Tensor[1, 6, f32] = matmul(b, scaled);
  let t: (Tensor[1, 6, f16], Tensor[1, 6, f32], Tensor[4, 6, f32]) = (matmul_1, matmul_2, scaled);
  t
}

// ---- axes that were merged for a transpose of matrices and split again are moved as they are
fn main<n>(k: Tensor[2, 3, n, 4, f32]) -> Tensor[2, 3, 4, n, f32] {
  reshape(transpose{perm=[0, 2, 1]}(reshape(k, shape(6, n, 4))), shape(2, 3, 4, n))
}
// ====
fn main<n>(k: Tensor[2, 3, n, 4, f32]) -> Tensor[2, 3, 4, n, f32] {
  let reshape: Tensor[2, 3, 4, n, f32] = transpose{perm=[0, 1, 3, 2]}(k);
  reshape
}

// ---- copies side by side are a broadcast
fn main(x: Tensor[2, 1, 3, f32]) -> (Tensor[2, 4, 3, f32], Tensor[4, 1, 3, f32]) {
  (tile(x, shape(1, 4, 1)), tile(x, shape(2, 1, 1)))
}
// ====
fn main(x: Tensor[2, 1, 3, f32]) -> (Tensor[2, 4, 3, f32], Tensor[4, 1, 3, f32]) {
  let broadcast_to_1: Tensor[2, 4, 3, f32] = broadcast_to(x, shape(2, 4, 3));
  let reshape_1: Tensor[1, 2, 1, 3, f32] = reshape(x, shape(1, 2, 1, 3));
  let broadcast_to_2: Tensor[2, 2, 1, 3, f32] = broadcast_to(reshape_1, shape(2, 2, 1, 3));
  let tile: Tensor[4, 1, 3, f32] = reshape(broadcast_to_2, shape(4, 1, 3));
  let t: (Tensor[2, 4, 3, f32], Tensor[4, 1, 3, f32]) = (broadcast_to_1, tile);
  t
}

// ---- heads that share keys and values: products in groups, and what is between them too
fn main<n, m>(
  q: Tensor[1, 6, n, 4, f32], k: Tensor[1, 2, m, 4, f32], v: Tensor[1, 2, m, 4, f32], mask: Tensor[n, m, f32],
  bias: Tensor[1, 6, 1, m, f32]
) -> Tensor[1, 6, n, 4, f32] {
  let keys = reshape(broadcast_to(reshape(k, shape(1, 2, 1, m, 4)), shape(1, 2, 3, m, 4)), shape(1, 6, m, 4));
  let values = reshape(broadcast_to(reshape(v, shape(1, 2, 1, m, 4)), shape(1, 2, 3, m, 4)), shape(1, 6, m, 4));
  let scores = matmul(q, transpose{perm=[0, 1, 3, 2]}(keys));
  matmul(softmax{axis=-1}(add(add(mul(scores, f32(0.5)), mask), bias)), values)
}
// ====
fn main<n, m>(
  q: Tensor[1, 6, n, 4, f32],
  k: Tensor[1, 2, m, 4, f32],
  v: Tensor[1, 2, m, 4, f32],
  mask: Tensor[n, m, f32],
  bias: Tensor[1, 6, 1, m, f32]
) -> Tensor[1, 6, n, 4, f32] {
  let reshape_1: Tensor[1, 2, 1, m, 4, f32] = reshape(k, shape(1, 2, 1, m, 4));
  let reshape_2: Tensor[1, 2, 1, m, 4, f32] = reshape(v, shape(1, 2, 1, m, 4));
  let transpose_1: Tensor[1, 2, 1, 4, m, f32] = transpose{perm=[0, 1, 2, 4, 3]}(reshape_1);
  let reshape_3: Tensor[1, 2, 3, n, 4, f32] = reshape(q, shape(1, 2, 3, n, 4));
  let matmul_1: Tensor[1, 2, 3, n, m, f32] = matmul(reshape_3, transpose_1);
  let mul_1: Tensor[1, 2, 3, n, m, f32] = mul(matmul_1, f32(0.5));
  let add_1: Tensor[1, 2, 3, n, m, f32] = add(mul_1, mask);
  let reshape_4: Tensor[1, 2, 3, 1, m, f32] = reshape(bias, shape(1, 2, 3, 1, m));
  let add_2: Tensor[1, 2, 3, n, m, f32] = add(add_1, reshape_4);
  let softmax_1: Tensor[1, 2, 3, n, m, f32] = softmax{axis=4}(add_2);
  let matmul_2: Tensor[1, 2, 3, n, 4, f32] = matmul(softmax_1, reshape_2);
  let matmul_3: Tensor[1, 6, n, 4, f32] = reshape(matmul_2, shape(1, 6, n, 4));
  matmul_3
}

// ---- heads that are repeated one set behind the other; not where softmax goes over heads, nor what others read
fn main(q: Tensor[6, 5, 4, f32], k: Tensor[2, 4, 7, f32], v: Tensor[2, 7, 4, f32]) {
  let keys = reshape(broadcast_to(reshape(k, shape(1, 2, 4, 7)), shape(3, 2, 4, 7)), shape(6, 4, 7));
  let values = reshape(broadcast_to(reshape(v, shape(1, 2, 7, 4)), shape(3, 2, 7, 4)), shape(6, 7, 4));
  let p = softmax{axis=0}(matmul(q, keys));
  let s = softmax{axis=2}(p);
  (matmul(s, values), s)
}
// ====
fn main(
  q: Tensor[6, 5, 4, f32],
  k: Tensor[2, 4, 7, f32],
  v: Tensor[2, 7, 4, f32]
) -> (Tensor[6, 5, 4, f32], Tensor[6, 5, 7, f32]) {
  let reshape_1: Tensor[1, 2, 4, 7, f32] = reshape(k, shape(1, 2, 4, 7));
  let reshape_2: Tensor[1, 2, 7, 4, f32] = reshape(v, shape(1, 2, 7, 4));
  let reshape_3: Tensor[3, 2, 5, 4, f32] = reshape(q, shape(3, 2, 5, 4));
  let matmul_1: Tensor[3, 2, 5, 7, f32] = matmul(reshape_3, reshape_1);
  let matmul_2: Tensor[6, 5, 7, f32] = reshape(matmul_1, shape(6, 5, 7));
  let p: Tensor[6, 5, 7, f32] = softmax{axis=0}(matmul_2);
  let s: Tensor[6, 5, 7, f32] = softmax{axis=2}(p);
  let reshape_4: Tensor[3, 2, 5, 7, f32] = reshape(s, shape(3, 2, 5, 7));
  let matmul_3: Tensor[3, 2, 5, 4, f32] = matmul(reshape_4, reshape_2);
  let matmul_4: Tensor[6, 5, 4, f32] = reshape(matmul_3, shape(6, 5, 4));
  let t: (Tensor[6, 5, 4, f32], Tensor[6, 5, 7, f32]) = (matmul_4, s);
  t
}

// ---- a factor that is repeated along its rows, or for a single matrix, is as it was
fn main(q: Tensor[2, 5, 4, f32], r: Tensor[1, 5, 4, f32], k: Tensor[2, 1, 2, 7, f32], l: Tensor[1, 1, 4, 7, f32]) {
  let rows = reshape(broadcast_to(k, shape(2, 2, 2, 7)), shape(2, 4, 7));
  let sets = reshape(broadcast_to(l, shape(1, 3, 4, 7)), shape(3, 4, 7));
  (matmul(q, rows), matmul(r, sets))
}
// ====
fn main(
  q: Tensor[2, 5, 4, f32],
  r: Tensor[1, 5, 4, f32],
  k: Tensor[2, 1, 2, 7, f32],
  l: Tensor[1, 1, 4, 7, f32]
) -> (Tensor[2, 5, 7, f32], Tensor[3, 5, 7, f32]) {
  let broadcast_to_1: Tensor[2, 2, 2, 7, f32] = broadcast_to(k, shape(2, 2, 2, 7));
  let rows: Tensor[2, 4, 7, f32] = reshape(broadcast_to_1, shape(2, 4, 7));
  let broadcast_to_2: Tensor[1, 3, 4, 7, f32] = broadcast_to(l, shape(1, 3, 4, 7));
  let sets: Tensor[3, 4, 7, f32] = reshape(broadcast_to_2, shape(3, 4, 7));
  let matmul_1: Tensor[2, 5, 7, f32] = matmul(q, rows);
  let matmul_2: Tensor[3, 5, 7, f32] = matmul(r, sets);
  let t: (Tensor[2, 5, 7, f32], Tensor[3, 5, 7, f32]) = (matmul_1, matmul_2);
  t
}

// ---- rows are moved behind a product and its bias, not in front; not those that are columns
// ROUNDED
fn main<b, n>(x: Tensor[b, n, 4, f32], w: Tensor[4, 6, f32], c: Tensor[6, f32], y: Tensor[4, n, f32]) {
  (add(matmul(transpose{perm=[1, 0, 2]}(x), w), c), matmul(transpose{perm=[1, 0]}(y), w))
}
// ====
fn main<b, n>(
  x: Tensor[b, n, 4, f32],
  w: Tensor[4, 6, f32],
  c: Tensor[6, f32],
  y: Tensor[4, n, f32]
) -> (Tensor[n, b, 6, f32], Tensor[n, 6, f32]) {
  let matmul_1: Tensor[b, n, 6, f32] = matmul(x, w);
  let add_1: Tensor[b, n, 6, f32] = add(matmul_1, c);
  let add_2: Tensor[n, b, 6, f32] = transpose{perm=[1, 0, 2]}(add_1);
  let transpose_1: Tensor[n, 4, f32] = transpose{perm=[1, 0]}(y);
  let matmul_2: Tensor[n, 6, f32] = matmul(transpose_1, w);
  let t: (Tensor[n, b, 6, f32], Tensor[n, 6, f32]) = (add_2, matmul_2);
  t
}

// ---- axes behind that of a running total are one
fn main(x: Tensor[2, 3, 4, 5, f32]) -> (Tensor[2, 3, 4, 5, f32], Tensor[2, 3, 4, 5, f32]) {
  (cumsum{axis=1}(x), cumsum{axis=2}(x))
}
// ====
fn main(x: Tensor[2, 3, 4, 5, f32]) -> (Tensor[2, 3, 4, 5, f32], Tensor[2, 3, 4, 5, f32]) {
  let reshape_1: Tensor[2, 3, 20, f32] = reshape(x, shape(2, 3, 20));
  let cumsum_1: Tensor[2, 3, 20, f32] = cumsum{axis=1}(reshape_1);
  let cumsum_2: Tensor[2, 3, 4, 5, f32] = reshape(cumsum_1, shape(2, 3, 4, 5));
  let cumsum_3: Tensor[2, 3, 4, 5, f32] = cumsum{axis=2}(x);
  let t: (Tensor[2, 3, 4, 5, f32], Tensor[2, 3, 4, 5, f32]) = (cumsum_2, cumsum_3);
  t
}

// ---- rows that are replaced between two transposes are replaced where they are
fn main<n>(x: Tensor[2, 9, 4, f32], at: Tensor[n, 1, i64], new: Tensor[n, 2, 4, f32]) -> Tensor[2, 9, 4, f32] {
  transpose{perm=[1, 0, 2]}(scatter_nd(transpose{perm=[1, 0, 2]}(x), at, new))
}
// ====
fn main<n>(
  x: Tensor[2, 9, 4, f32],
  at: Tensor[n, 1, i64],
  new: Tensor[n, 2, 4, f32]
) -> Tensor[2, 9, 4, f32] {
  let reshape_1: Tensor[1, n, 1, i64] = reshape(at, shape(1, n, 1));
  let broadcast_to_1: Tensor[2, n, 4, i64] = broadcast_to(reshape_1, shape(2, n, 4));
  let transpose_1: Tensor[2, n, 4, f32] = transpose{perm=[1, 0, 2]}(new);
  let transpose_2: Tensor[2, 9, 4, f32] = scatter_elements{axis=1}(x, broadcast_to_1, transpose_1);
  transpose_2
}

// ---- not where the order stays another one, nor single elements
fn main(x: Tensor[9, 9, 4, f32], a: Tensor[3, 1, i64], r: Tensor[3, 9, 4, f32], b: Tensor[3, 2, i64], e: Tensor[3, 4, f32]) {
  let y = transpose{perm=[1, 0, 2]}(x);
  (transpose{perm=[2, 0, 1]}(scatter_nd(y, a, r)), transpose{perm=[1, 0, 2]}(scatter_nd(y, b, e)))
}
// ====
fn main(
  x: Tensor[9, 9, 4, f32],
  a: Tensor[3, 1, i64],
  r: Tensor[3, 9, 4, f32],
  b: Tensor[3, 2, i64],
  e: Tensor[3, 4, f32]
) -> (Tensor[4, 9, 9, f32], Tensor[9, 9, 4, f32]) {
  let y: Tensor[9, 9, 4, f32] = transpose{perm=[1, 0, 2]}(x);
  let scatter_nd_1: Tensor[9, 9, 4, f32] = scatter_nd(y, a, r);
  let transpose_1: Tensor[4, 9, 9, f32] = transpose{perm=[2, 0, 1]}(scatter_nd_1);
  let scatter_nd_2: Tensor[9, 9, 4, f32] = scatter_nd(y, b, e);
  let transpose_2: Tensor[9, 9, 4, f32] = transpose{perm=[1, 0, 2]}(scatter_nd_2);
  let t: (Tensor[4, 9, 9, f32], Tensor[9, 9, 4, f32]) = (transpose_1, transpose_2);
  t
}
