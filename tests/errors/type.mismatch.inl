//! type.mismatch 4:60
// The first call says that x is of rank 1, the second gives it rank 2.
fn f(x) { relu(x) }
fn main(x: Tensor[4, f32], y: Tensor[5, 5, f32]) { (@f(x), @f(y)) }
