// PASSES: to-anf,unroll-loops,eliminate-dead

// ---- a loop of one turn is straight code, and rows are reshapes
fn main(x: Tensor[1, 2, f32], h0: Tensor[2, f32]) -> (Tensor[2, f32], Tensor[1, 2, f32]) {
  let loop = fn<i>(i: int[i], h: Tensor[2, f32], y: Tensor[1, 2, f32]) -> (Tensor[2, f32], Tensor[1, 2, f32]) {
    if (int_less(int(i), int(1))) {
      let next = tanh(add(h, get_row(x, int(i))));
      loop(int(i + 1), next, set_row(y, int(i), next))
    } else { (h, y) }
  };
  loop(int(0), h0, f32[1, 2](0.0, 0.0))
}
// ====
fn main(x: Tensor[1, 2, f32], h0: Tensor[2, f32]) -> (Tensor[2, f32], Tensor[1, 2, f32]) {
  let row: Tensor[1, 2, f32] = slice{axes=[0]}(x, shape(0), shape(1), shape(1));
  let get_row: Tensor[2, f32] = reshape(row, shape(2));
  let add_1: Tensor[2, f32] = add(h0, get_row);
  let next: Tensor[2, f32] = tanh(add_1);
  let line: Tensor[1, 2, f32] = reshape(next, shape(1, 2));
  let result: (Tensor[2, f32], Tensor[1, 2, f32]) = (next, line);
  result
}

// ---- in a loop that stays, and around another one
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let outer = fn<i>(i: int[i], h: Tensor[n, f32]) -> Tensor[n, f32] {
    if (int_less(int(i), int(3))) {
      let once = fn<j>(j: int[j], g: Tensor[n, f32]) -> Tensor[n, f32] {
        if (int_less(int(j), int(5))) {
          let inner = fn<k>(k: int[k], f: Tensor[n, f32]) -> Tensor[n, f32] {
            if (int_less(int(k), int(1))) { inner(int(k + 1), neg(f)) } else { f }
          };
          once(int(j + 1), exp(inner(int(0), g)))
        } else { g }
      };
      outer(int(i + 1), once(int(4), h))
    } else { h }
  };
  outer(int(0), x)
}
// ====
fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
  let outer = fn<i>(i: int[i], h: Tensor[n, f32]) -> Tensor[n, f32] {
    let int_less_1: bool = int_less(int(i), int(3));
    if (int_less_1) {
      let neg_1: Tensor[n, f32] = neg(h);
      let exp_1: Tensor[n, f32] = exp(neg_1);
      outer(int(i + 1), exp_1)
    } else { h }
  };
  outer(int(0), x)
}

// ---- loops of two turns, of one at most, and of none stay loops
fn main(c: bool, x: Tensor[2, f32]) -> Tensor[2, f32] {
  let two = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(2))) { two(int(i + 1), tanh(h)) } else { h }
  };
  let may = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (bool_and(int_less(int(i), int(1)), c)) { may(int(i + 1), exp(h)) } else { h }
  };
  let none = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    if (int_less(int(i), int(0))) { none(int(i + 1), neg(h)) } else { h }
  };
  none(int(0), may(int(0), two(int(0), x)))
}
// ====
fn main(c: bool, x: Tensor[2, f32]) -> Tensor[2, f32] {
  let two = fn<i>(i: int[i], h: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_1: bool = int_less(int(i), int(2));
    if (int_less_1) {
      let tanh_1: Tensor[2, f32] = tanh(h);
      two(int(i + 1), tanh_1)
    } else { h }
  };
  let may = fn<i_1>(i_1: int[i_1], h_1: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_2: bool = int_less(int(i_1), int(1));
    let bool_and_1: bool = bool_and(int_less_2, c);
    if (bool_and_1) {
      let exp_1: Tensor[2, f32] = exp(h_1);
      may(int(i_1 + 1), exp_1)
    } else { h_1 }
  };
  let none_1 = fn<i_2>(i_2: int[i_2], h_2: Tensor[2, f32]) -> Tensor[2, f32] {
    let int_less_3: bool = int_less(int(i_2), int(0));
    if (int_less_3) {
      let neg_1: Tensor[2, f32] = neg(h_2);
      none_1(int(i_2 + 1), neg_1)
    } else { h_2 }
  };
  let two_1: Tensor[2, f32] = two(int(0), x);
  let may_1: Tensor[2, f32] = may(int(0), two_1);
  none_1(int(0), may_1)
}
