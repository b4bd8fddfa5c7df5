"""Calls large enough for tiles, tails, vectors and threads, compiled, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import F16, F32, F64, I32, I64, DType
from inlay.ops._define import Argument, Sample
from inlay.ops._samples import noise
from inlay.ops.table import op_ref, table
from tests.differential.executors import compiled, prepare, sum_length
from tests.tolerance import assert_close


def x(*shape: int, dtype: DType = F32, seed: str = "large") -> np.ndarray:
    return noise(shape, dtype, seed=seed)


def call(name: str, args: tuple[Argument, ...], symbolic: tuple = (), **attrs: object):
    sample = Sample(name, op_ref(name, **attrs).attrs, args, symbolic)
    shapes = " ".join(str(a.shape) for a in args if isinstance(a, np.ndarray))
    return pytest.param(name, sample, id=f"{name} {shapes} {attrs or ''}")


def product(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    return x(130, 70, dtype=dtype), x(70, 90, dtype=dtype, seed="b")


IMAGE = ("n", "h", "w")
ABC = (("a", "b", "c"),)
AB = (("a", "b"),)
PLACES = noise((77,), I64, low=-1000, high=999)
CALLS = [
    call("matmul", (x(203, 300), x(300, 157, seed="b")), (("m", "k"), ("k", "n"))),
    call("matmul", (x(4, 77, 64), x(4, 64, 99, seed="b")), (("b", "m", 64), ("b", 64, "n"))),
    *(call("matmul", product(d)) for d in (F16, F64, I32)),
    call("conv_nhwc", (x(1, 41, 39, 32), x(3, 3, 32, 64)), ((*IMAGE, 32), (3, 3, 32, 64)), pads=(1, 1, 1, 1)),
    call("conv", (x(2, 32, 41, 39), x(64, 32, 3, 3)), pads=(1, 1, 1, 1), strides=(2, 2)),
    call(
        "depthwise_conv_nhwc", (x(1, 60, 61, 48), x(3, 3, 48)), ((*IMAGE, 48), (3, 3, 48)), pads=(1, 1, 1, 1)
    ),
    call("softmax", (x(101, 1003),), AB),
    call("softmax", (x(101, 53, 20),), ABC, axis=1),
    call("layer_norm", (x(101, 384), x(384), x(384, seed="b")), (("a", 384), (384,), (384,))),
    call("reduce_sum", (x(301, 1003),), AB, axes=(0,)),
    call("reduce_sum", (x(301, 1003),), AB, axes=(1,)),
    call("reduce_max", (x(31, 103, 77),), ABC, axes=(0, 2)),
    call("reduce_mean", (x(31, 103, 77),), ABC, axes=(0, 2)),
    call("transpose", (x(301, 1003),), AB, perm=(1, 0)),
    call("transpose", (x(31, 103, 77),), ABC, perm=(2, 0, 1)),
    call("concat", (x(301, 100), x(301, 57), x(301, 3)), (("a", "b"), ("a", "c"), ("a", 3)), axis=1),
    call(
        "max_pool",
        (x(2, 16, 65, 67),),
        (("n", "c", "h", "w"),),
        kernel=(3, 3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
    ),
    call("argmax", (x(301, 1003),), AB, axis=1),
    call("sort", (x(11, 1003),), AB, axis=1),
    call("top_k", (x(11, 1003), 20), (("a", "b"), "k"), axis=1),
    call("cumsum", (x(301, 1003),), AB, axis=0),
    call("gather", (x(1000, 384), PLACES), (("v", 384), ("n",))),
    call("gelu", (x(301, 1003),), AB),
    call("add", (x(301, 1, 77), x(103, 1, seed="b")), (("a", 1, "c"), ("b", 1))),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "sample"), CALLS)
def test_large_calls_agree_with_the_reference(name: str, sample: Sample, threads: int) -> None:
    d = table().definition(name)
    expected = d.evaluate(sample.attrs, *sample.args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for symbolic in (False, True) if sample.symbolic else (False,):
        setup = prepare(d, sample, symbolic=symbolic)
        length = sum_length(setup)
        for actual, needed in zip(compiled(setup, threads), expected, strict=True):
            assert_close(actual, needed, length=length)
