//! type.dim-mismatch 5:35
// The parameter is 4 on the one line and 5 on the next.
fn main(four: Tensor[4, f32], five: Tensor[5, f32]) {
  let f = fn(x) {
    let a = add(x, four); let b = add(x, five);
    a
  };
  f(four)
}
