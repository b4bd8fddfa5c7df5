//! type.undetermined-argument 4:15
data List<'a> { Nil, Cons('a, List['a]) }
fn main<n>(x: Tensor[n, f32]) {
  let empty = Nil();
  x
}
