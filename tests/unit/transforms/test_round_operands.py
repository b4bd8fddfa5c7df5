"""Products in bf16 (`--precision bf16`): what they mean, on processors with and without an instruction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.api import compilation
from inlay.arith.dtype import BF16
from inlay.codegen.backends import native
from inlay.ir.expr import Call, OpRef
from inlay.ir.parser import parse_module
from inlay.ir.walk import postorder
from inlay.machine.target import Target, baseline, host
from inlay.ops.convolution import ConvAttrs
from inlay.ops.table import table
from inlay.transforms.round_operands import REASONS, Reason
from tests.examples import examples

BF16_NUMPY = BF16.numpy


def rounded(x: np.ndarray) -> np.ndarray:
    """Numbers as bf16 has them, in f64."""
    return x.astype(BF16_NUMPY).astype(np.float64)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def values(x: np.ndarray) -> str:
    return f"f32[{', '.join(map(str, x.shape))}]({', '.join(repr(float(e)) for e in x.ravel())})"


def check(found: np.ndarray, exact: np.ndarray, terms: int) -> None:
    """Sums in f32 of exact products, in any order."""
    assert found.dtype == np.float32
    assert np.abs(found - exact).max(initial=0) <= 2**-23 * max(terms, 4) * max(
        np.abs(exact).max(initial=0), 1
    )


LEVELS = ("v2", "v3", "here")


@pytest.fixture(params=LEVELS)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    """This processor, and as if it had less."""
    target = host() if request.param == "here" else baseline("x86_64", request.param)
    if not set(target.features) <= set(host().features):
        pytest.skip(f"needs a processor with what x86-64-{request.param} has")
    monkeypatch.setattr(native, "host", lambda: target)
    return target


def product(rows: object, terms: int, columns: int, w: np.ndarray | None) -> inlay.Module:
    dims, second = ("<n>", "n") if rows is None else ("", str(rows))
    right = "w" if w is None else values(w)
    more = f", w: Tensor[{terms}, {columns}, f32]" if w is None else ""
    return parse_module(
        f"fn main{dims}(x: Tensor[{second}, {terms}, f32]{more}) {{ relu(matmul(x, {right})) }} entry main;",
        table(),
    )


@pytest.mark.sample(4)
@pytest.mark.llvm
@pytest.mark.parametrize(("rows", "terms", "columns"), [(5, 24, 20), (None, 33, 17), (1, 300, 8)])
def test_the_product_is_that_of_rounded_operands(
    processor: Target, rows: int | None, terms: int, columns: int
) -> None:
    del processor
    x, w = noise(rows or 6, terms, seed=1), noise(terms, columns, seed=2)
    found = inlay.compile(product(rows, terms, columns, w), cache="none", precision="bf16")(x)
    check(found, np.maximum(rounded(x) @ rounded(w), 0), terms)


@pytest.mark.llvm
def test_two_computed_matrices(processor: Target) -> None:
    del processor
    x, w = noise(70, 50, seed=1), noise(50, 35, seed=2)
    found = inlay.compile(product(70, 50, 35, None), cache="none", precision="bf16")(x, w)
    check(found, np.maximum(rounded(x) @ rounded(w), 0), 50)


@pytest.mark.llvm
@given(
    rows=st.integers(1, 40),
    terms=st.integers(8, 70),
    columns=st.integers(2, 70),
    batch=st.sampled_from(((), (1,), (3,), (2, 2))),
    is_constant=st.booleans(),
)
@settings(max_examples=examples(3))
def test_drawn_products(
    rows: int, terms: int, columns: int, batch: tuple[int, ...], is_constant: bool
) -> None:
    rows = rows if is_constant else rows + 64
    x, w = noise(*batch, rows, terms, seed=1), noise(terms, columns, seed=2)
    more, right = ("", values(w)) if is_constant else (f", w: Tensor[{terms}, {columns}, f32]", "w")
    shape = ", ".join(map(str, x.shape))
    text = f"fn main(x: Tensor[{shape}, f32]{more}) {{ matmul(x, {right}) }} entry main;"
    executable = inlay.compile(parse_module(text, table()), cache="none", precision="bf16")
    check(executable(x) if is_constant else executable(x, w), rounded(x) @ rounded(w), terms)


@pytest.mark.llvm
@given(
    channels=st.integers(1, 20),
    outputs=st.integers(1, 40),
    kernel=st.sampled_from(((1, 1), (3, 3), (2, 3))),
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
    stride=st.integers(1, 2),
    pad=st.integers(0, 1),
    groups=st.sampled_from((1, 1, 2)),
)
@settings(max_examples=examples(3))
def test_drawn_convolutions(
    channels: int,
    outputs: int,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: int,
    pad: int,
    groups: int,
) -> None:
    x = noise(2, channels * groups, *size, seed=1)
    w = noise(outputs * groups, channels, *kernel, seed=2)
    attrs = f"strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], groups={groups}"
    text = (
        f"fn main(x: Tensor[{', '.join(map(str, x.shape))}, f32]) "
        f"{{ conv{{{attrs}}}(x, {values(w)}) }} entry main;"
    )
    module = parse_module(text, table())
    found = inlay.compile(module, cache="none", precision="bf16")(x)
    [taken] = inlay.explain(module, view="numerics", precision="bf16").products
    a, b = (rounded(x), rounded(w)) if taken.reason is None else (x.astype(float), w.astype(float))
    exact = table().definition("conv").evaluate(module_attrs(module), a, b)
    check(found, exact, channels * kernel[0] * kernel[1])
    assert (taken.reason is None) == (groups == 1 and channels * kernel[0] * kernel[1] >= 8)


def module_attrs(module: inlay.Module) -> object:
    """The attributes of the only call of a module."""
    [call] = [e for e in postorder(module.functions["main"]) if isinstance(e, Call)]
    assert isinstance(call.callee, OpRef)
    return call.callee.attrs


SEVERAL = """
fn main<n>(x: Tensor[n, 16, f32], b: Tensor[2, 16, 16, f32], t: Tensor[1, 4, 9, 9, f32]) {
  (matmul(x, %s), matmul(b, b), matmul(x, transpose{perm=[1, 0]}(x)), matmul(x, %s),
   conv{groups=4}(t, %s))
}
entry main;
"""


def several() -> inlay.Module:
    constants = (noise(16, 8), noise(16, 1), noise(4, 1, 3, 3))
    return parse_module(SEVERAL % tuple(map(values, constants)), table())


def test_the_explanation_says_what_is_rounded_and_why_others_are_not() -> None:
    assert inlay.explain(several(), view="numerics").products == ()
    found = inlay.explain(several(), view="numerics", precision="bf16")
    assert found.precision == "bf16"
    reasons = [None, Reason.BATCHES, Reason.FEW_ROWS, Reason.VECTOR, Reason.GROUPS]
    assert [p.reason for p in found.products] == reasons
    shown = found.to_json()["products"]
    assert [p["dtype"] for p in shown] == ["bf16", *["f32"] * 4]
    assert shown[1]["message"] == REASONS[Reason.BATCHES]


def test_what_explains_is_what_runs(processor: Target) -> None:
    """The choice is of the program, so that all processors round the same operands."""
    del processor
    reasons = [p.reason for p in inlay.explain(several(), view="numerics", precision="bf16").products]
    assert [r is None for r in reasons] == [True, False, False, False, False]


@pytest.mark.llvm
def test_a_device_keeps_its_own_arithmetic() -> None:
    module = product(4, 32, 24, noise(32, 24))
    choices = {"board": "host_two", "pins": ("matmul=cpu1",), "precision": "bf16"}
    [found] = inlay.explain(module, view="numerics", **choices).products
    assert found.reason is Reason.DEVICE
    x = noise(4, 32, seed=3)
    exact = inlay.compile(module, cache="none")(x)
    np.testing.assert_allclose(inlay.compile(module, cache="none", **choices)(x), exact, atol=1e-5)


def test_an_instruction_that_takes_tiny_numbers_for_zero_is_for_who_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products that a model itself rounds are bf16 for all; which instruction computes them is not."""
    plain = baseline("x86_64", "v4")
    there = replace(plain, features=tuple(sorted((*plain.features, "avx512bf16"))))
    monkeypatch.setattr(native, "host", lambda: there)
    text = """
fn main(x: Tensor[70, 50, bf16], w: Tensor[50, 35, bf16]) {
  matmul(cast{dtype=f32}(x), cast{dtype=f32}(w))
}
entry main;
"""
    for precision, expected in (("f32", False), ("bf16", True)):
        found = inlay.explain(parse_module(text, table()), view="fusion", precision=precision)
        assert ("matmul_bf16_packed" in str(found.to_json())) is expected


def convolution(size: int, channels: int, stride: int = 1) -> tuple[onnx.ModelProto, np.ndarray]:
    """A convolution of 3 x 3, and its weights."""
    w = noise(channels, channels, 3, 3, seed=2)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4, strides=[stride] * 2)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), w


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("size", "channels", "stride", "accuracy", "reason"),
    [
        (32, 64, 1, None, Reason.WINOGRAD),
        (32, 64, 1, 2e-4, Reason.WINOGRAD),
        (32, 64, 1, 1e-4, None),
        (32, 64, 1, 5e-5, None),
        (32, 64, 2, None, None),
        (32, 8, 1, None, None),
        (6, 128, 1, None, None),
    ],
    ids=["many", "as asked", "as elsewhere", "accurate", "strided", "few channels", "few pixels"],
)
def test_convolutions_that_winograds_form_multiplies_less_stay_in_f32(
    processor: Target, size: int, channels: int, stride: int, accuracy: float | None, reason: Reason | None
) -> None:
    del processor
    model, w = convolution(size, channels, stride)
    options = {"precision": "bf16", "accuracy": accuracy}
    found = inlay.explain(model, view="numerics", **options)
    assert [p.reason for p in found.products] == [reason]
    if reason is not None:
        assert dict(found.forms) == {"Winograd's form F(4, 3) of a convolution": 1}
    x = noise(1, channels, size, size, seed=1)
    result = inlay.compile(model, cache="none", **options)(x)
    a, b = (x.astype(float), w.astype(float)) if reason else (rounded(x), rounded(w))
    attrs = ConvAttrs(strides=(stride, stride), pads=(1, 1, 1, 1))
    exact = table().definition("conv").evaluate(attrs, a, b)
    # Where no instruction adds products of bf16, rounded operands may be multiplied in that form as well.
    assert np.abs(result - exact).max() <= 2e-4 * np.abs(exact).max()


def test_a_precision_that_is_none_is_refused() -> None:
    with pytest.raises(inlay.CompileError, match="precision='f8', needed one of f32, bf16"):
        inlay.compile(product(4, 32, 24, None), precision="f8")


@pytest.mark.llvm
def test_weights_take_half_of_their_bytes() -> None:
    module = product(4, 128, 96, noise(128, 96))
    programs = [compilation(module, cache="none", precision=p).program for p in ("f32", "bf16")]
    assert [max(len(c.bytes()) for c in p.constants) for p in programs] == [128 * 96 * 4, 128 * 96 * 2]
