//! type.polymorphic-recursion 4:11
fn grow(x, i) {
  if (int_less(i, int(3))) {
    @grow(concat{axis=0}(x, x), i)
  } else { x }
}
fn main<n>(x: Tensor[n, f32]) { @grow(x, int(0)) }
