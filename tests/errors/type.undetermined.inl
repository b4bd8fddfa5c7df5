//! type.undetermined 3:6
// Nobody calls f, so nothing says what x is.
fn f(x) { relu(x) }
fn main<n>(x: Tensor[n, f32]) { x }
