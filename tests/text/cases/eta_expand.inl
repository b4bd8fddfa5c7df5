// PASSES: to-anf,eta-expand

// ---- a constructor that is passed is a function of its fields
data Box { Wrap(Tensor[3, f32]) }

fn main(x: Tensor[3, f32]) -> Tensor[3, f32] {
  let wrap: Box = @wrap(Wrap, x);
  match wrap {
    Wrap(wrap_0: Tensor[3, f32]) => wrap_0,
  }
}

fn wrap(f: fn(Tensor[3, f32]) -> Box, x: Tensor[3, f32]) -> Box {
  f(x)
}
// ====
data Box { Wrap(Tensor[3, f32]) }

fn main(x: Tensor[3, f32]) -> Tensor[3, f32] {
  let wrap = fn(a0: Tensor[3, f32]) -> Box {
    let made: Box = Wrap(a0);
    made
  };
  let wrap_1: Box = @wrap(wrap, x);
  match wrap_1 {
    Wrap(wrap_0: Tensor[3, f32]) => wrap_0,
  }
}

fn wrap(f: fn(Tensor[3, f32]) -> Box, x: Tensor[3, f32]) -> Box {
  f(x)
}

// ---- one function serves all uses in a block
data Box { Wrap(Tensor[3, f32]) }

fn main(x: Tensor[3, f32]) -> Tensor[3, f32] {
  let t: Box = ((Wrap, Wrap)).1(x);
  match t {
    Wrap(wrap_0: Tensor[3, f32]) => wrap_0,
  }
}
// ====
data Box { Wrap(Tensor[3, f32]) }

fn main(x: Tensor[3, f32]) -> Tensor[3, f32] {
  let wrap = fn(a0: Tensor[3, f32]) -> Box {
    let made: Box = Wrap(a0);
    made
  };
  let t: (fn(Tensor[3, f32]) -> Box, fn(Tensor[3, f32]) -> Box) = (wrap, wrap);
  let t_1: fn(Tensor[3, f32]) -> Box = t.1;
  let t_2: Box = t_1(x);
  match t_2 {
    Wrap(wrap_0: Tensor[3, f32]) => wrap_0,
  }
}
