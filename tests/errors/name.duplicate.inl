//! name.duplicate 3:4
fn main<n>(x: Tensor[n, f32]) { x }
fn main<n>(x: Tensor[n, f32]) { x }
