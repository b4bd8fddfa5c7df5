"""Every operation on every format, in scalar and in vector loops, against the evaluator."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from inlay.arith import dtype as dt
from inlay.machine.target import baseline, host
from tests.unit.codegen.support import check, parsed, run_native

RNG = np.random.default_rng(11)
INTEGERS = [dt.I8, dt.I16, dt.I32, dt.I64, dt.U8, dt.U16, dt.U32, dt.U64]
FLOATS = [dt.F16, dt.BF16, dt.F32, dt.F64]
EVERY = [*INTEGERS, *FLOATS, dt.BOOL]
COUNT = 48


def values(dtype: dt.DType, *, divisor: bool = False) -> np.ndarray:
    """Small and extreme numbers; no zeros for integer divisors."""
    if dtype.kind is dt.Kind.BOOL:
        return RNG.integers(0, 2, COUNT).astype(np.bool_)
    if dtype.is_float:
        special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.5, 2.5, 0.5, -0.5]
        some = np.concatenate([special, RNG.uniform(-100, 100, COUNT - len(special))])
        return RNG.permutation(some).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    some = RNG.integers(max(info.min, -20), min(info.max, 20), COUNT).astype(dtype.numpy)
    some[:4] = [info.min, info.max, 1, 0]
    if divisor:
        some[some == 0] = 3
        some[some == -1] = 7
    return RNG.permutation(some)


def program(expression: str, source: str, result: str, second: str = "") -> str:
    """The same expression in a scalar loop and in a vector loop of an odd number of lanes."""
    params = f"x: {source}[n]" + (f", z: {second}[n]" if second else "")
    at = {"scalar": "i", "vector": "j*6 + l"}
    left = expression.replace("$", at["scalar"])
    right = expression.replace("$", at["vector"])
    return f"""\
lowered func f({params}) -> (a: {result}[n], b: {result}[n]) over (n) {{
  for i in 0..n {{ a[i] = {left} }}
  for j in 0..n / 6 {{
    for l in 0..6 vector {{ b[j*6 + l] = {right} }}
  }}
}}
"""


BINARY = ["add", "sub", "mul", "div", "rem", "floordiv", "floormod", "min", "max",
          "and", "or", "xor", "shl", "shr", "eq", "ne", "lt", "le"]  # fmt: skip
SPELLED = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|",
           "eq": "==", "ne": "!=", "lt": "<", "le": "<="}  # fmt: skip


def allowed(op: str, dtype: dt.DType) -> bool:
    if dtype.kind is dt.Kind.BOOL:
        return op in ("and", "or", "xor", "eq", "ne")
    return not dtype.is_float or op not in ("and", "or", "xor", "shl", "shr")


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(o, d) for o, d in itertools.product(BINARY, EVERY) if allowed(o, d)],
    ids=str,
)
def test_binary(op: str, dtype: dt.DType) -> None:
    divides = op in ("div", "rem", "floordiv", "floormod") and not dtype.is_float
    x, z = values(dtype), values(dtype, divisor=divides)
    if op in ("shl", "shr"):
        z = np.abs(RNG.integers(0, dtype.bits + 9, COUNT)).astype(dtype.numpy)
    infix = f"x[$] {SPELLED[op]} z[$]" if op in SPELLED else f"{op}(x[$], z[$])"
    result = "bool" if op in ("eq", "ne", "lt", "le") else dtype.name
    check(program(infix, dtype.name, result, dtype.name), [x, z], {"n": COUNT})


UNARY = ["neg", "abs", "sqrt", "floor", "ceil", "trunc", "round_even", "bitnot"]


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (o, d)
        for o, d in itertools.product(UNARY, [*INTEGERS, *FLOATS])
        if d.is_float == (o in ("sqrt", "floor", "ceil", "trunc", "round_even"))
        or o in ("neg", "abs")
    ],
    ids=str,
)
def test_unary(op: str, dtype: dt.DType) -> None:
    check(program(f"{op}(x[$])", dtype.name, dtype.name), [values(dtype)], {"n": COUNT})


def test_not() -> None:
    check(program("not(x[$])", "bool", "bool"), [values(dt.BOOL)], {"n": COUNT})


@pytest.mark.parametrize(("source", "result"), [*itertools.permutations(EVERY, 2)], ids=str)
def test_cast(source: dt.DType, result: dt.DType) -> None:
    x = values(source)
    if source.is_float and result.is_integer:
        # Out of range is undefined: keep to what every integer format holds.
        x = RNG.uniform(0 if not result.is_signed else -100, 100, COUNT).astype(source.numpy)
    check(program(f"{result.name}(x[$])", source.name, result.name), [x], {"n": COUNT})


@pytest.mark.parametrize("result", [dt.F16, dt.BF16, dt.F32], ids=str)
def test_narrowing_rounds_once(result: dt.DType) -> None:
    """Doubles just beside the middle of two neighbors, subnormal and overflowing ones."""
    step = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}[result.name]
    middle = np.array([1 + step, 1 + 3 * step, -1 - step, 2.0**-15 * (1 + step), 65519.99, 65520.0])
    near = [middle, middle * (1 + 2.0**-50), middle * (1 - 2.0**-50), 2.0 ** -np.arange(14.0, 26)]
    x = np.concatenate([*near, [1e300, -1e300, 3.4028236e38, math.nan, 5e-324, 0.0]])
    x = np.resize(x, len(x) + -len(x) % 6)
    check(program(f"{result.name}(x[$])", "f64", result.name), [x], {"n": len(x)})


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("level", ["v2", ""])
def test_every_sixteen_bit_value_converts_both_ways(kind: str, level: str) -> None:
    target = baseline("x86_64", level) if level else host()
    if level and host().arch != "x86_64":
        pytest.skip("x86_64 only")
    bits = np.arange(65538, dtype=np.uint32).astype(np.uint16)
    half = bits.view(dt.BY_NAME[kind].numpy)
    text = program("f32(x[$])", kind, "f32")
    a, b = run_native(parsed(text), [half], {"n": len(half)}, target=target)
    expected = half.astype(np.float32)
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(b, expected)
    text = program(f"{kind}(x[$])", "f32", kind)
    a, b = run_native(parsed(text), [expected], {"n": len(half)}, target=target)
    ordinary = ~np.isnan(expected)
    for found in (a, b):
        np.testing.assert_array_equal(found.view(np.uint16)[ordinary], bits[ordinary])
        assert np.isnan(found.astype(np.float32)[~ordinary]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma(dtype: dt.DType) -> None:
    x, z = values(dtype), values(dtype)
    check(
        program("fma(x[$], z[$], x[$])", dtype.name, dtype.name, dtype.name), [x, z], {"n": COUNT}
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_mul_high(dtype: dt.DType) -> None:
    info = np.iinfo(dtype.numpy)
    x, z = (RNG.integers(info.min, info.max, COUNT, dtype.numpy) for _ in range(2))
    check(program("mul_high(x[$], z[$])", dtype.name, dtype.name, dtype.name), [x, z], {"n": COUNT})


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["is_nan", "is_inf"])
def test_classification(op: str, dtype: dt.DType) -> None:
    check(program(f"{op}(x[$])", dtype.name, "bool"), [values(dtype)], {"n": COUNT})


@pytest.mark.parametrize(
    ("source", "result"),
    [("f32", "i32"), ("u32", "f32"), ("f64", "u64"), ("i16", "f16"), ("bf16", "u16"), ("i8", "u8")],
)
def test_bitcast(source: str, result: str) -> None:
    x = values(dt.BY_NAME[source])
    if result in ("f32", "f16"):
        x = np.abs(x) % 1000  # no patterns of NaN: which NaN is not promised
    check(program(f"bitcast:{result}(x[$])", source, result), [x], {"n": COUNT})


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_select_and_masks(dtype: dt.DType) -> None:
    text = f"""\
lowered func f(c: bool[n], x: {dtype}[n], z: {dtype}[n]) -> (a: {dtype}[n], b: {dtype}[n]) over (n) {{
  for i in 0..n {{ a[i] = select(c[i], x[i], z[i]) }}
  for j in 0..n / 6 {{
    for l in 0..6 vector {{
      if c[j*6 + l] {{
        b[j*6 + l] = select(x[j*6 + l] == z[j*6 + l], z[j*6 + 2*l - l], x[j*6 + l])
      }} else {{
        if [l] < [3] {{
          b[j*6 + l] = x[j*6 + 5 - l]
        }} else {{
          b[j*6 + l] = z[j]
        }}
      }}
    }}
  }}
}}
"""
    check(text, [values(dt.BOOL), values(dtype), values(dtype)], {"n": COUNT})


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_masked_division_by_zero_is_not_executed(dtype: dt.DType) -> None:
    text = f"""\
lowered func f(x: {dtype}[n], z: {dtype}[n]) -> (a: {dtype}[n], b: {dtype}[n]) over (n) {{
  for i in 0..n {{ a[i] = select(z[i] == 0:{dtype}, x[i], x[i] / z[i]) }}
  for j in 0..n / 6 {{
    for l in 0..6 vector {{
      b[j*6 + l] = select(z[j*6 + l] == 0:{dtype}, x[j*6 + l], rem(x[j*6 + l], z[j*6 + l]))
    }}
  }}
}}
"""
    z = values(dtype, divisor=True)
    z[::2] = 0
    check(text, [values(dtype), z], {"n": COUNT})
