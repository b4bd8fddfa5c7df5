// RUN: inlay opt %s --passes infer-types,to-anf,lower-match | filecheck %s

// A pattern inside a pattern becomes a match inside a match.

data List<'a> { Nil, Cons('a, List['a]) }

// CHECK-LABEL: fn main
// CHECK:         match l {
// CHECK-NEXT:      Cons(h{{.*}}, [[F:field[_0-9]*]]: {{.*}}) => match [[F]] {
// CHECK-NEXT:        Nil() => h
fn main(l: List[Tensor[f32]]) -> Tensor[f32] {
  match l {
    Cons(h, Nil()) => h,
    _ => f32(0.0)
  }
}
