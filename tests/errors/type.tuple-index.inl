//! type.tuple-index 2:15
fn third(p) { p.2 }
fn main<n>(x: Tensor[n, f32]) { @third((x, x)) }
