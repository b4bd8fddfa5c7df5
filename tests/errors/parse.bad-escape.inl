//! parse.bad-escape 2:13
entry main("\q") -> ("y");
fn main<n>(x: Tensor[n, f32]) { x }
