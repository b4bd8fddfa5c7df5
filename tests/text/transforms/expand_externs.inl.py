"""The operators of `expand_externs.inl`."""

import inlay

scale = inlay.extern(
    "my.scale",
    "(x: Tensor[n, f32]) -> Tensor[n, f32]",
    attributes={"by": 2},
    generated=lambda by: f"{{ mul(x, f32({by}.0)) }}",
)
