//! type.bad-axis 3:29
// The rank is known only from the call, the axis is wrong all the same.
fn total(x) { let copy = x; reduce_sum{axes=[2]}(copy) }
fn main<n>(x: Tensor[n, 4, f32]) { @total(x) }
