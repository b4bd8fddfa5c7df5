//! parse.bad-number 2:27
fn main<n>(x: Tensor[n / 0, f32]) { x }
