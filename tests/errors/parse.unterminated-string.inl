//! parse.unterminated-string 2:22
entry main("x) -> ("y");
fn main<n>(x: Tensor[n, f32]) { x }
