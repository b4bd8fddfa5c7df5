"""Bytes in the format that devices take: the same results, and nothing but inputs and results is turned."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import I8, U8, DType
from inlay.interp.tensor import evaluate_expr
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.passes.contract import PassContext
from inlay.transforms import eliminate_common, eliminate_dead, fold_quantization, infer_types, to_anf
from inlay.transforms.fold_quantization import QuantizationOptions
from tests.unit.transforms.programs import OPS, operators, same

BRANCHES = """fn main(x: Tensor[1, 2, 4, 4, u8]) {
  let a = add(conv_integer(x, i8[2, 2, 1, 1](3, -5, 7, 11), u8(9)), i32[2, 1, 1](4, -70));
  let b = requantize{dtype=u8, zero=120, low=30, high=250}(a, f32(0.37));
  let c = max_pool{kernel=[2, 2], strides=[1, 1], pads=[1, 1, 0, 0]}(b);
  let d = minimum(concat{axis=1}(b, transpose{perm=[0, 1, 3, 2]}(c)), u8(200));
  let e = pad(d, shape(0, 0, 1, 0, 0, 0, 0, 1), u8(120));
  let f = conv_integer(e, i8[1, 4, 2, 2](1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, 9, 9, 9, 9), u8(120));
  let g = requantize{dtype=u8, zero=3, rounding="tflite"}(f, i32(1500000000), i32(-6));
  g }
entry main;"""
REALS = """fn main(x: Tensor[2, 3, u8]) {
  let a = matmul(dequantize(x, f32(0.5), u8(100)), dequantize(i8[3, 2](1, 2, 3, 4, 5, -60), f32(0.25)));
  let b = dequantize(quantize{dtype=u8}(a, f32(1.5), u8(77)), f32(1.5), u8(77));
  let c = dequantize(quantize{dtype=u8}(relu(add(b, b)), f32(2.0), u8(0)), f32(2.0), u8(0));
  c }
entry main;"""
SUMS = """fn main(x: Tensor[3, u8]) {
  let a = requantize{dtype=u8, zero=5}(cast{dtype=i32}(x), f32(0.5));
  let b = requantize{dtype=u8, zero=200, rounding="half_away"}(add(cast{dtype=i32}(a), i32(-31)), f32(0.7));
  let c = dequantize(b, f32(0.1), u8(200));
  c }
entry main;"""
TEXTS = {"branches": (BRANCHES, (1, 2, 4, 4)), "reals": (REALS, (2, 3)), "sums": (SUMS, (3,))}


def folded(module: Module, taken: DType | None) -> Module:
    context = PassContext(
        OPS, evaluate=evaluate_expr, options={QuantizationOptions: QuantizationOptions(bytes=taken)}
    )
    for p in (infer_types, to_anf, fold_quantization, eliminate_common, eliminate_dead):
        module = p.PASS.run(module, context)
    return module


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("signed", [False, True])
def test_results_are_the_same(name: str, signed: bool) -> None:
    text, shape = TEXTS[name]
    given = text.replace("u8", "i8") if signed else text
    if signed:  # the same numbers, where they are none of bytes with a sign
        for n in (250, 200, 120, 100):
            given = given.replace(f"i8({n})", f"i8({n - 128})").replace(f"={n}", f"={n - 128}")
    module = parse_module(given, OPS)
    rng = np.random.default_rng(3)
    x = (
        rng.integers(-128, 128, shape).astype(np.int8)
        if signed
        else rng.integers(0, 256, shape).astype(np.uint8)
    )
    plain, moved = (folded(module, d) for d in (None, U8 if signed else I8))
    same(plain, moved, x, exact=True)


@pytest.mark.parametrize(("name", "turns"), [("branches", 2), ("reals", 1), ("sums", 0)])
def test_only_what_comes_in_and_goes_out_is_turned(name: str, turns: int) -> None:
    after = folded(parse_module(TEXTS[name][0], OPS), I8)
    text = print_module(after)
    assert operators(after)["bitwise_xor"] == turns, text
    assert "requantize{dtype=u8" not in text
