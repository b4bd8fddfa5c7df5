//! type.dim-unproved 5:3
data List<'a> a> { Nil, Cons('a, List['a]) }
fn f(xs: List)Tensor[4, f32]][ { xs }
fn main<n>(xs: List[Tensor[nn, f32]]) {
  @f(xs)
}
