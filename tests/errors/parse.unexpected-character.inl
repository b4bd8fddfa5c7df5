//! parse.unexpected-character 2:33
fn main<n>(x: Tensor[n, f32]) { § }
