"""Products of numbers in few bits on both sides, as the instructions of a processor want them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.ir import make
from inlay.machine.target import Target, baseline
from inlay.transforms._packings import PackOptions
from tests.unit.transforms.programs import Program, dims, noise, operators, run, same

K, N, BLOCK = 64, 20, 16
RNG = np.random.default_rng(3)
V3, V4 = baseline("x86_64", "v3"), baseline("x86_64", "v4")
BYTES = replace(V4, features=(*V4.features, "avx512vnni"))
PLAIN = replace(baseline("x86_64", "v2"), features=("sse4.1",))


def product(low: int, high: int, dtype: type, zero: str = "", block: int = BLOCK):
    """Return a product of rounded rows and of weights between two numbers."""
    p = Program()
    x = p.input("x", dims("m"), K, dtype=F32)
    scales = p.op("block_scales", x, block=block)
    q = p.op("quantize_blocks", x, scales, block=block)
    rounded = p.op("dequantize_blocks", q, scales, block=block, axis=-1)
    w = RNG.integers(low, high, (K, N), endpoint=True).astype(dtype)
    w[0, :2] = low, high
    each = noise(K // BLOCK, N, low=0.01, high=0.02)
    zeros = {"": [], "one": [np.full(each.shape, 8, dtype)], "many": [RNG.integers(0, 9, each.shape)]}[zero]
    constants = [make.const(a) for a in (w, each, *(z.astype(dtype) for z in zeros))]
    real = p.op("dequantize_blocks", *constants, block=BLOCK, axis=0)
    return p.module(p.op("matmul", rounded, real))


def packed(module, target: Target):
    """Return a module with its weights packed for a processor."""
    options = PackOptions(targets=lambda _: target)
    return run("to-anf,infer-types,keep-weights,eliminate-dead,pack-weights", module, options)


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", [BYTES, V4, V3, PLAIN], ids=["vnni", "v4", "v3", "v1"])
@pytest.mark.parametrize(
    ("low", "high", "dtype", "bits"),
    [
        (0, 15, np.uint8, 4),
        (-8, 7, np.int8, 4),
        (-3, 4, np.int8, 4),
        (0, 255, np.uint8, 8),
        (-128, 127, np.int8, 8),
    ],
)
@pytest.mark.parametrize("zero", ["", "one", "many"])
def test_weights_are_packed_for_the_processor(target, low, high, dtype, bits, zero):
    module = product(low, high, dtype, zero)
    found = packed(module, target)
    in_bytes = target is BYTES or (bits == 4 and target is not PLAIN)
    assert operators(found)["matmul_quantized_blocks_packed" if in_bytes else "matmul_blocks_packed"] == 1
    for rows in (1, 5):
        same(module, found, noise(rows, K, seed=rows))


@pytest.mark.parametrize("block", [8, 32])
def test_blocks_of_another_size_are_multiplied_as_floats(block):
    module = product(0, 15, np.uint8, block=block)
    found = packed(module, BYTES)
    assert operators(found)["matmul_blocks_packed"] == 1
    same(module, found, noise(3, K))
