"""Products of f16 and bf16, and what follows them, in f32: the same numbers, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.api import compilation
from inlay.arith.dtype import BF16, F16, DType
from inlay.ir import make
from inlay.ir.parser import parse_module
from inlay.machine.target import host
from inlay.ops._define import FusionPattern, OpDef, Sample
from inlay.ops.table import table
from inlay.transforms.widen_products import WidenOptions, computes_in_f32, is_exact
from tests.examples import examples
from tests.unit.transforms.programs import OPS, Program, noise, operators, run, same, value_of

FORMATS = pytest.mark.parametrize("dtype", [F16, BF16], ids=str)


def widened(module: inlay.Module, *options) -> inlay.Module:
    return run("widen-products,eliminate-common,eliminate-dead", run("infer-types,to-anf", module), *options)


# ---------------------------------------------------------------------------------------- operators


def calls(d: OpDef, dtype: DType) -> Iterator[tuple[Sample, list, list]]:
    """Yield samples with all floats in 16 bits, and with the same numbers in f32."""
    for s in d.samples():
        floats = [isinstance(a, np.ndarray) and a.dtype in (np.float32, dtype.numpy) for a in s.args]
        if any(floats):
            with np.errstate(over="ignore"):
                narrow = [a.astype(dtype.numpy) if f else a for a, f in zip(s.args, floats, strict=True)]
            yield (s, narrow, [a.astype(np.float32) if f else a for a, f in zip(narrow, floats, strict=True)])


@FORMATS
@pytest.mark.parametrize("d", [d for d in table() if computes_in_f32(d)], ids=lambda d: d.name)
def test_operators_compute_in_f32_and_round_once(d: OpDef, dtype: DType) -> None:
    for s, narrow, wide in calls(d, dtype):
        with np.errstate(all="ignore"):
            found, expected = d.evaluate(s.attrs, *narrow), d.evaluate(s.attrs, *wide)
        one = not isinstance(found, tuple)
        for a, b in zip(*(((x,) if one else x) for x in (found, expected)), strict=True):
            if a.dtype != dtype.numpy:
                np.testing.assert_array_equal(a, b, s.name)
                continue
            with np.errstate(over="ignore"):
                rounded = b.astype(dtype.numpy)
            np.testing.assert_array_equal(a.astype(np.float32), rounded.astype(np.float32), s.name)
            if is_exact(d.name, s.attrs, dtype):
                np.testing.assert_array_equal(b, rounded.astype(np.float32), s.name)


@FORMATS
@pytest.mark.parametrize("name", ["matmul", "conv", "conv_nhwc", "depthwise_conv_nhwc", "conv_transpose"])
def test_so_do_products(name: str, dtype: DType) -> None:
    d = table().definition(name)
    assert d.pattern is FusionPattern.CONTRACTION
    for s, narrow, wide in calls(d, dtype):
        found, sums = d.evaluate(s.attrs, *narrow), d.evaluate(s.attrs, *wide)
        assert isinstance(sums, np.ndarray)
        np.testing.assert_array_equal(found, sums.astype(dtype.numpy), s.name)


# ----------------------------------------------------------------------------------------- programs

ONE = "relu neg tanh gelu softmax{axis=1} reduce_max{axes=[1],keepdims=true} clip{low=-0.5,high=6.0}".split()
TWO = ["add", "mul", "maximum", "sub"]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Programs over matrices `[4, 4]`: each step reads what any of the ones before made."""
    lines = []
    values = ["x", "w"]
    for i in range(draw(st.integers(2, 9))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["matmul", "one", "two", "turned", "part", "cast", "compared"]))
        value = {
            "matmul": f"matmul({a}, {b})",
            "one": f"maximum({draw(st.sampled_from(ONE))}({a}), {a})",
            "two": f"{draw(st.sampled_from(TWO))}({a}, {b})",
            "turned": f"reshape(transpose{{perm=[1, 0]}}({a}), shape(4, 4))",
            "part": f"concat{{axis=1}}(split{{axis=1}}({a}, shape(1, 3)).1, split{{axis=1}}({b}, shape(1, 3)).0)",
            "compared": f"select(less({a}, {b}), {a}, {b})",
            "cast": f"cast{{dtype=f16}}(sqrt(abs(cast{{dtype=f32}}({a}))))",
        }[kind]
        lines.append(f"  let v{i} = {value};")
        values.append(f"v{i}")
    results = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=2, unique=True))
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    inputs = "x: Tensor[4, 4, f16], w: Tensor[4, 4, f16]"
    return "\n".join([f"fn main({inputs}) {{", *lines, f"  {result}", "}"])


@FORMATS
@settings(max_examples=examples(15))
@given(text=programs())
def test_programs_mean_the_same_to_the_bit(dtype: DType, text: str) -> None:
    before = run("infer-types,to-anf", parse_module(text.replace("f16", str(dtype)), OPS))
    inputs = [noise(4, 4, seed=i).astype(dtype.numpy) for i in range(2)]
    after = run("widen-products,eliminate-common,eliminate-dead", before)
    with np.errstate(all="ignore"):
        same(before, after, *inputs, exact=True)
    if "matmul" not in text and "cast" not in text:
        assert operators(after)["cast"] == 0


@FORMATS
def test_a_chain_is_rounded_and_widened_in_registers(dtype: DType) -> None:
    """No value between two products is read in 16 bits, whoever else reads it."""
    text = f"""
    fn main<n>(x: Tensor[n, 8, {dtype}], w: Tensor[8, 8, {dtype}]) -> Tensor[n, 8, {dtype}] {{
      let a = gelu(matmul(x, w));
      let b = add(a, matmul(a, w));
      add(softmax{{axis=1}}(b), matmul(b, w))
    }}"""
    after = widened(parse_module(text, OPS))
    # Two inputs are widened, five values between are rounded and widened, and the sixth is the result.
    assert operators(after)["cast"] == 2 + 2 * 6 + 1


def test_without_an_instruction_f16_stays() -> None:
    text = "fn main(x: Tensor[8, 8, f16]) -> Tensor[8, 8, f16] { matmul(x, x) }"
    lacking = replace(host(), arch="x86_64", features=())
    less = WidenOptions(lambda _: lacking)
    for targets, f16, bf16 in ((less, 0, 2), (WidenOptions(lambda _: None), 0, 0), (WidenOptions(), 2, 2)):
        for dtype, casts in (("f16", f16), ("bf16", bf16)):
            module = parse_module(text.replace("f16", dtype), OPS)
            assert operators(widened(module, targets))["cast"] == casts


@pytest.mark.llvm
@FORMATS
def test_weights_stay_in_16_bits(dtype: DType) -> None:
    if dtype is F16 and not host().has_half:
        pytest.skip("needs a processor that widens f16")
    x, w = noise(16, 64, seed=2).astype(dtype.numpy), noise(64, 1024, seed=3).astype(dtype.numpy)
    p = Program()
    turned = p.op("transpose", make.const(w.T.copy()), perm=(1, 0))
    module = p.module(p.op("matmul", p.input("x", 16, 64, dtype=dtype), turned))
    program = compilation(module, cache="none").program
    assert max(len(c.bytes()) for c in program.constants) == w.nbytes
    sums = x.astype(np.float64) @ w.astype(np.float64)
    step = 2.0 ** -(11 if dtype is F16 else 8)
    found = inlay.compile(module, cache="none")(x)
    np.testing.assert_allclose(found.astype(np.float64), sums, rtol=2 * step, atol=1e-5)


@pytest.mark.sample(1)
@pytest.mark.llvm
@FORMATS
@pytest.mark.parametrize(
    "text",
    [
        """fn main<n>(x: Tensor[n, 24, f16], w: Tensor[24, 24, f16]) -> (Tensor[n, 24, f16], Tensor[n, 24, f16]) {
          let a = relu(matmul(x, w)); let b = add(tanh(matmul(a, w)), a); (b, softmax{axis=1}(b)) }""",
        """fn main<n>(x: Tensor[n, 24, f16], w: Tensor[24, 24, f16]) -> Tensor[n, 24, f16] {
          let q = matmul(x, w);
          matmul(softmax{axis=1}(mul(matmul(q, transpose{perm=[1, 0]}(x)), f16(0.25))), q) }""",
        """fn main<n>(x: Tensor[n, 24, f16], w: Tensor[24, 24, f16]) -> Tensor[1, n, f16] {
          matmul(reshape(reduce_max{axes=[0]}(w), shape(1, 24)), transpose{perm=[1, 0]}(x)) }""",
    ],
)
def test_compiled_programs_give_what_the_evaluator_gives(text: str, dtype: DType) -> None:
    module = parse_module(text.replace("f16", str(dtype)), OPS)
    inputs = [noise(5, 24, seed=1).astype(dtype.numpy), noise(24, 24, seed=2).astype(dtype.numpy)]
    expected = value_of(run("infer-types", module), *inputs)
    found = inlay.compile(module, cache="none")(*inputs)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        # Sums are in another order, so a few numbers are rounded to the one beside.
        step = 2.0 ** -(10 if dtype is F16 else 7)
        np.testing.assert_allclose(
            a.astype(np.float32), b.astype(np.float32), rtol=2 * step, atol=2 * step * 2**-4
        )
