"""The operators of `call_foreign.inl`."""

import numpy as np

import inlay

scale = inlay.extern(
    "my.scale",
    "(x: Tensor[n, f32]) -> Tensor[n, f32]",
    attributes={"by": 2.0},
    python=lambda x, by: x * np.float32(by),
)
kept = inlay.extern("my.kept", "(x: Tensor[n, f32]) -> some k. Tensor[k, f32]", python=lambda x: x[x > 0])
