//! type.dim-undetermined 4:33
// Nothing in the argument says what n and m are, only their product.
fn f<n, m>(x: Tensor[n * m, f32]) -> Tensor[n * m, f32] { x }
fn main<k>(x: Tensor[k, f32]) { @f(x) }
