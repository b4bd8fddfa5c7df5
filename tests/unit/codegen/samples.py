"""Every operation on every format, as small programs with inputs: what each code generator runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from inlay.arith import dtype as dt

RNG = np.random.default_rng(11)
INTEGERS = [dt.I8, dt.I16, dt.I32, dt.I64, dt.U8, dt.U16, dt.U32, dt.U64]
FLOATS = [dt.F16, dt.BF16, dt.F32, dt.F64]
EVERY = [*INTEGERS, *FLOATS, dt.BOOL]
COUNT = 48


@dataclass(frozen=True)
class Sample:
    """A program over `n`, which every generator must run exactly as the evaluator does."""

    name: str
    text: str
    inputs: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return len(self.inputs[0])


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


BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "floordiv",
    "floormod",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "eq",
    "ne",
    "lt",
    "le",
]
SPELLED = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
}
UNARY = ["neg", "abs", "sqrt", "floor", "ceil", "trunc", "round_even", "bitnot"]
BITCASTS = [("f32", "i32"), ("u32", "f32"), ("f64", "u64"), ("i16", "f16"), ("bf16", "u16"), ("i8", "u8")]


def allowed(op: str, dtype: dt.DType) -> bool:
    if dtype.kind is dt.Kind.BOOL:
        return op in ("and", "or", "xor", "eq", "ne")
    return not dtype.is_float or op not in ("and", "or", "xor", "shl", "shr")


def binary() -> Iterator[Sample]:
    for op, dtype in itertools.product(BINARY, EVERY):
        if not allowed(op, dtype):
            continue
        divides = op in ("div", "rem", "floordiv", "floormod") and not dtype.is_float
        x, z = values(dtype), values(dtype, divisor=divides)
        if op in ("shl", "shr"):
            z = np.abs(RNG.integers(0, dtype.bits + 9, COUNT)).astype(dtype.numpy)
        infix = f"x[$] {SPELLED[op]} z[$]" if op in SPELLED else f"{op}(x[$], z[$])"
        result = "bool" if op in ("eq", "ne", "lt", "le") else dtype.name
        yield Sample(f"{op}-{dtype}", program(infix, dtype.name, result, dtype.name), (x, z))


def unary() -> Iterator[Sample]:
    for op, d in itertools.product(UNARY, [*INTEGERS, *FLOATS]):
        if d.is_float == (op in ("sqrt", "floor", "ceil", "trunc", "round_even")) or op in ("neg", "abs"):
            yield Sample(f"{op}-{d}", program(f"{op}(x[$])", d.name, d.name), (values(d),))
    yield Sample("not", program("not(x[$])", "bool", "bool"), (values(dt.BOOL),))
    for op, d in itertools.product(["is_nan", "is_inf"], FLOATS):
        yield Sample(f"{op}-{d}", program(f"{op}(x[$])", d.name, "bool"), (values(d),))


def casts() -> Iterator[Sample]:
    for source, result in itertools.permutations(EVERY, 2):
        x = values(source)
        if source.is_float and result.is_integer:
            # Out of range is undefined: keep to what every integer format holds.
            low = 0 if not result.is_signed else -100
            x = RNG.uniform(low, 100, COUNT).astype(source.numpy)
        text = program(f"{result.name}(x[$])", source.name, result.name)
        yield Sample(f"{source}-to-{result}", text, (x,))


def narrowing() -> Iterator[Sample]:
    """Doubles just beside the middle of two neighbors, subnormal and overflowing ones."""
    for result in (dt.F16, dt.BF16, dt.F32):
        step = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}[result.name]
        middle = [1 + step, 1 + 3 * step, -1 - step, 2.0**-15 * (1 + step), 65519.99, 65520.0]
        middle = np.array(middle)
        near = [middle, middle * (1 + 2.0**-50), middle * (1 - 2.0**-50)]
        near.append(2.0 ** -np.arange(14.0, 26))
        x = np.concatenate([*near, [1e300, -1e300, 3.4028236e38, math.nan, 5e-324, 0.0]])
        x = np.resize(x, len(x) + -len(x) % 6)
        text = program(f"{result.name}(x[$])", "f64", result.name)
        yield Sample(f"narrowing-{result}", text, (x,))


def fused() -> Iterator[Sample]:
    for d in FLOATS:
        text = program("fma(x[$], z[$], x[$])", d.name, d.name, d.name)
        yield Sample(f"fma-{d}", text, (values(d), values(d)))
    for d in INTEGERS:
        info = np.iinfo(d.numpy)
        x, z = (RNG.integers(info.min, info.max, COUNT, d.numpy) for _ in range(2))
        yield Sample(f"mul_high-{d}", program("mul_high(x[$], z[$])", d.name, d.name, d.name), (x, z))


def bitcasts() -> Iterator[Sample]:
    for source, result in BITCASTS:
        x = values(dt.BY_NAME[source])
        if result in ("f32", "f16"):
            x = np.abs(x) % 1000  # no patterns of NaN: which NaN is not promised
        text = program(f"bitcast:{result}(x[$])", source, result)
        yield Sample(f"bitcast-{source}-{result}", text, (x,))


def choices() -> Iterator[Sample]:
    for d in EVERY:
        text = f"""\
lowered func f(c: bool[n], x: {d}[n], z: {d}[n]) -> (a: {d}[n], b: {d}[n]) over (n) {{
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
        yield Sample(f"select-{d}", text, (values(dt.BOOL), values(d), values(d)))


def guarded_divisions() -> Iterator[Sample]:
    """A division by zero on the side that is not chosen is not executed."""
    for d in INTEGERS:
        text = f"""\
lowered func f(x: {d}[n], z: {d}[n]) -> (a: {d}[n], b: {d}[n]) over (n) {{
  for i in 0..n {{ a[i] = select(z[i] == 0:{d}, x[i], x[i] / z[i]) }}
  for j in 0..n / 6 {{
    for l in 0..6 vector {{
      b[j*6 + l] = select(z[j*6 + l] == 0:{d}, x[j*6 + l], rem(x[j*6 + l], z[j*6 + l]))
    }}
  }}
}}
"""
        z = values(d, divisor=True)
        z[::2] = 0
        yield Sample(f"guarded-{d}", text, (values(d), z))


SAMPLES: tuple[Sample, ...] = tuple(
    itertools.chain(
        binary(), unary(), casts(), narrowing(), fused(), bitcasts(), choices(), guarded_divisions()
    )
)
