"""Equal constants are one, before and after they are laid out for kernels."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from inlay.api import compilation
from inlay.ir.expr import Const
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.walk import postorder
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.transforms import infer_types, share_constants, to_anf

RNG = np.random.default_rng(3)


def module_of(text: str, **arrays: np.ndarray) -> Module:
    module = parse_module(text, table(), resources=arrays)
    for step in (infer_types, to_anf):
        module = step.PASS.run(module, PassContext(table()))
    return module


def held(module: Module) -> list[np.ndarray]:
    """Return the large arrays of `main`, each object once."""
    found = [e.held for e in postorder(module.functions["main"]) if isinstance(e, Const)]
    arrays = {id(a): a for a in found if isinstance(a, np.ndarray) and a.nbytes > 64}
    return list(arrays.values())


SUM = """
fn main(x: Tensor[64, 32, f32]) {
  add(add(add(x, f32[64, 32](#"a")), f32[64, 32](#"b")), f32[64, 32](#"c"))
}
entry main("x") -> ("y");
"""


@pytest.mark.parametrize(("at", "left"), [(None, 1), (0, 2), (777, 2), (2047, 2)])
def test_equal_arrays_are_one(at: int | None, left: int) -> None:
    """One that differs in an element is another one, whether or not that is looked at first."""
    a = RNG.standard_normal((64, 32)).astype(np.float32)
    c = a.copy()
    if at is not None:
        c.reshape(-1)[at] += 1
    module = module_of(SUM, a=a, b=a.copy(), c=c)
    shared = share_constants.PASS.run(module, PassContext(table()))
    assert len(held(module)) == 3
    assert len(held(shared)) == left
    for array in held(shared):
        assert any(np.array_equal(array, x) for x in (a, c))


def test_the_bits_are_compared() -> None:
    """Zeros of both signs are equal numbers, and other bits."""
    zeros = np.zeros((64, 32), np.float32)
    module = module_of(SUM, a=zeros, b=-zeros, c=zeros.copy())
    assert len(held(share_constants.PASS.run(module, PassContext(table())))) == 2


def test_a_module_without_equal_constants_stays() -> None:
    arrays = {name: RNG.standard_normal((64, 32)).astype(np.float32) for name in "abc"}
    module = module_of(SUM, **arrays)
    assert share_constants.PASS.run(module, PassContext(table())) is module


TURNS = """
fn main(x: Tensor[1, 256, f32]) {
  let a = tanh(matmul(x, transpose{perm=[1, 0]}(f32[256, 256](#"a"))));
  let b = tanh(matmul(a, transpose{perm=[1, 0]}(f32[256, 256](#"a"))));
  tanh(matmul(b, transpose{perm=[1, 0]}(f32[256, 256](#"b"))))
}
entry main("x") -> ("y");
"""
SIZES = """
fn main(x: Tensor[1, 32, 12, 12, f32], z: Tensor[1, 32, 6, 6, f32]) {
  let a = conv{pads=[2, 2, 2, 2], groups=GROUPS}(x, WEIGHTS(#"a"));
  let b = conv{pads=[2, 2, 2, 2], groups=GROUPS}(z, WEIGHTS(#"b"));
  (a, b)
}
entry main("x", "z") -> ("y0", "y1");
"""


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (TURNS, (256, 256)),
        (SIZES.replace("GROUPS", "1").replace("WEIGHTS", "f32[32, 32, 5, 5]"), (32, 32, 5, 5)),
        (SIZES.replace("GROUPS", "32").replace("WEIGHTS", "f32[32, 1, 5, 5]"), (32, 1, 5, 5)),
    ],
    ids=["transposed", "convolutions", "by channel"],
)
def test_weights_of_several_layers_are_packed_once(text: str, shape: tuple[int, ...]) -> None:
    w = RNG.standard_normal(shape).astype(np.float32)
    module = parse_module(text, table(), resources={"a": w, "b": w.copy()})
    constants = compilation(module, cache="none", threads=1).program.constants
    assert sum(prod(c.dims) for c in constants if c.dtype == "f32") == w.size
