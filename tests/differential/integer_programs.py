"""Small programs of integers, drawn by seeds: what the sweep of `test_integers.py` runs.

A program fixes what code depends on: operators, shapes, attributes, which operands are constants. What can
be an operand is one where the draw says so (factors, zero points, biases, weights), so that one compiled
program runs on many of them. `inputs` draws the values; those at the ends of types are likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np

Draw = Callable[[np.random.Generator], np.ndarray]
BYTES = ("i8", "u8")
RESULTS = ("i8", "u8", "i16", "u16", "i32")
ROUNDINGS = ("half_even", "half_up", "half_away", "tflite")
SCALED = ("half_even", "half_away")
"""Roundings that a float scale has."""


@dataclass
class Program:
    """A program that is being written.

    Attributes:
        kind: what it is made of.
        random: decides.
        params: types of its parameters by name, with what draws values.
        lines: lets.
        rows: values of the dim `n`, where there is one.
    """

    kind: str
    random: Random
    params: dict[str, tuple[str, Draw]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def param(self, type_: str, draw: Draw) -> str:
        """Add a parameter; return its name."""
        name = f"x{len(self.params)}"
        self.params[name] = (type_, draw)
        return name

    def let(self, expression: str) -> str:
        """Add a let; return its name."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"  let {name} = {expression};")
        return name

    def value(self, dtype: str, shape: Sequence[int], draw: Draw, constant: float = 0.5) -> str:
        """Return an operand: a constant, with some probability, or a parameter."""
        if self.random.random() >= constant:
            return self.param(tensor(dtype, shape), draw)
        return literal(draw(np.random.default_rng(self.random.getrandbits(32))), dtype)

    def text(self) -> str:
        """Return the program in the text form; the last let is its result."""
        params = ", ".join(f"{n}: {t}" for n, (t, _) in self.params.items())
        body = "\n".join(self.lines)
        return f"fn main({params}) {{\n{body}\n  v{len(self.lines) - 1}\n}}\n"

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw values of the parameters."""
        return [draw(rng) for _, draw in self.params.values()]


def tensor(dtype: str, shape: Sequence[int]) -> str:
    """Return a type in text."""
    return f"Tensor[{', '.join(map(str, [*shape, dtype]))}]"


def literal(x: np.ndarray, dtype: str) -> str:
    """Return a constant in text, however long."""
    numbers = ", ".join(repr(v) if dtype == "f32" else str(v) for v in x.ravel().tolist())
    dims = f"[{', '.join(map(str, x.shape))}]" if x.ndim else ""
    return f"{dtype}{dims}({numbers})"


# --------------------------------------------------------------------------- values


def integers(dtype: str, shape: Sequence[int], low: int | None = None, high: int | None = None) -> Draw:
    """Return what draws integers: all over the type, near zero, or at the ends."""
    numpy = np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    info = np.iinfo(numpy)
    least, most = info.min if low is None else low, info.max if high is None else high

    def draw(rng: np.random.Generator) -> np.ndarray:
        match rng.integers(8):
            case 0:
                x = rng.choice(np.array([least, most], numpy), tuple(shape))
            case 1:
                near = max(least, min(most, 0))
                x = rng.integers(max(least, near - 3), min(most, near + 3), tuple(shape), endpoint=True)
            case 2 if info.bits > 16:
                x = rng.integers(max(least, -(1 << 16)), min(most, 1 << 16), tuple(shape))
            case _:
                x = rng.integers(least, most, tuple(shape), numpy, endpoint=True)
        return np.asarray(x).astype(numpy)

    return draw


def floats(shape: Sequence[int], low: float, high: float) -> Draw:
    """Return what draws floats, positive ones, whose logarithms are anywhere between two."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        return np.exp2(rng.uniform(low, high, tuple(shape))).astype(np.float32)

    return draw


def reals(shape: Sequence[int]) -> Draw:
    """Return what draws floats of either sign: many halves, some beyond all integers."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        x = rng.normal(size=tuple(shape)) * np.exp2(rng.uniform(-4, 12))
        if rng.integers(3) == 0:
            x = np.rint(x * 2) / 2
        if rng.integers(16) == 0:
            x = np.where(rng.random(tuple(shape)) < 0.2, rng.choice([np.inf, -np.inf, np.nan, 1e30]), x)
        return np.asarray(x, np.float32)

    return draw


# --------------------------------------------------------------------------- parts of programs


def factor(p: Program, channels: int, bits: int, *, scaled: bool, width: int = 32) -> str:
    """Return operands of `requantize`: a scale, or multipliers and shifts, one or one per channel."""
    shape = (channels,) if p.random.random() < 0.6 else ()
    if scaled:
        return p.value("f32", shape, floats(shape, -24, 4))
    narrow = 31 if width == 32 else min(bits, 15)
    multiplier = p.value("i32", shape, integers("i32", shape, 0, (1 << narrow) - 1))
    shift = p.value("i32", shape, integers("i32", shape, bits - 62, bits))
    return f"{multiplier}, {shift}"


def requantized(p: Program, x: str, channels: int, axis: int, dtype: str = "", width: int = 32) -> str:
    """Add a `requantize` of any kind; return its name."""
    r = p.random
    dtype = dtype or r.choice(RESULTS)
    scaled = width == 32 and r.random() < 0.35
    info = np.iinfo({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    zero = r.choice((0, r.randint(-128, 255), r.randint(max(info.min, -(1 << 30)), min(info.max, 1 << 30))))
    bits = 31 if scaled else r.choice((31, 31, 15)) if width == 32 else 15
    attrs = f"dtype={dtype}, zero={zero}, axis={axis}, bits={bits}"
    attrs += f", rounding={r.choice(SCALED if scaled else ROUNDINGS)}"
    if r.random() < 0.5:
        low, high = sorted((r.randint(info.min, info.max), r.randint(info.min, info.max)))
        attrs += f", low={low}, high={high}"
    given = factor(p, channels, bits, scaled=scaled, width=width)
    return p.let(f"requantize{{{attrs}}}({x}, {given})")


def _zeros(p: Program, x: str, w: str, rows: int, columns: int) -> str:
    """Return operands of an integer product for its zero points: none, one or both."""
    many = p.random.randrange(3)
    shapes = [((),) if rows == 0 else ((), (rows,)), ((), (columns,))]
    found = [
        p.value(dtype, s, integers(dtype, s))
        for dtype, shapes_of in zip((x, w), shapes[:many], strict=False)
        for s in [p.random.choice(shapes_of)]
    ]
    return "".join(f", {z}" for z in found)


def conv(p: Program, x: str, dtype: str, shape: Sequence[int], *, plain: bool) -> tuple[str, list[int]]:
    """Add a convolution of integers; return its name and shape."""
    r = p.random
    n, c, *spatial = shape
    groups = r.choice([g for g in (1, 1, 2, 3, 4, 8, 16, 24) if c % g == 0] + [c])
    outputs = groups * r.choice((1, 1, 2, 3, 5)) if groups > 1 else r.choice((1, 3, 8, 16, 17, 24))
    kernel = [r.choice([k for k in (1, 1, 2, 3) if k <= d]) for d in spatial]
    strides = [r.choice((1, 1, 2)) for _ in spatial]
    dilations = [r.choice((1, 1, 2)) if 2 * k - 1 <= d else 1 for k, d in zip(kernel, spatial, strict=True)]
    pads = [0 if plain else r.choice((0, 0, 1)) for _ in (*spatial, *spatial)]
    of_w = r.choice(BYTES)
    w = p.value(of_w, (outputs, c // groups, *kernel), integers(of_w, (outputs, c // groups, *kernel)), 0.8)
    zeros = "" if plain else _zeros(p, dtype, of_w, 0, outputs)
    attrs = f"strides={strides}, pads={pads}, dilations={dilations}, groups={groups}"
    made = p.let(f"conv_integer{{{attrs}}}({x}, {w}{zeros})")
    sizes = zip(spatial, kernel, strides, dilations, pads, pads[len(spatial) :], strict=False)
    out = [(d + a + b - dilation * (k - 1) - 1) // s + 1 for d, k, s, dilation, a, b in sizes]
    return made, [n, outputs, *out]


def image(r: Random) -> list[int]:
    """Return the shape of an input of a convolution."""
    c = r.choice((1, 2, 3, 4, 8, 16, 24))
    return [r.choice((1, 1, 2)), c, *(r.randint(1, 7) for _ in range(r.choice((1, 2, 2))))]


# --------------------------------------------------------------------------- programs


def requantize(p: Program) -> None:
    """Requantize accumulators."""
    r = p.random
    shape = [r.randint(1, 9) for _ in range(r.choice((1, 2, 2, 3)))]
    axis, width = r.randrange(len(shape)), r.choice((32, 32, 64))
    dtype = f"i{width}"
    bound = None if width == 32 else 1 << r.choice((31, 40, 46))
    draw = integers(dtype, shape, *(() if bound is None else (-bound, bound)))
    requantized(p, p.param(tensor(dtype, shape), draw), shape[axis], axis, width=width)


def convolution(p: Program) -> None:
    """Convolve integers, with zero points or without."""
    shape, dtype = image(p.random), p.random.choice(BYTES)
    conv(p, p.param(tensor(dtype, shape), integers(dtype, shape)), dtype, shape, plain=False)


def product(p: Program) -> None:
    """Multiply matrices of integers; perhaps add a bias, and requantize."""
    r = p.random
    rows, terms, columns = (r.choice((1, 2, 3, 5, 8, 13, 16, 17, 33)) for _ in range(3))
    batch = [r.randint(1, 3)] if r.random() < 0.2 else []
    of_x, of_w = r.choice(BYTES), r.choice(BYTES)
    x = p.param(tensor(of_x, (*batch, rows, terms)), integers(of_x, (*batch, rows, terms)))
    w = p.value(of_w, (terms, columns), integers(of_w, (terms, columns)), 0.7)
    zeros = _zeros(p, of_x, of_w, rows, columns) if r.random() < 0.5 else ""
    y = p.let(f"matmul_integer({x}, {w}{zeros})")
    if r.random() < 0.7:
        b = p.value("i32", (columns,), integers("i32", (columns,)))
        requantized(p, p.let(f"add({y}, {b})"), columns, -1)


def quantize(p: Program) -> None:
    """Quantize floats, and perhaps dequantize again."""
    r = p.random
    shape = [r.randint(1, 9) for _ in range(r.choice((1, 2, 3)))]
    axis = r.randrange(len(shape))
    dtype, per = r.choice(("i8", "u8", "i16", "u16")), (shape[axis],) if r.random() < 0.5 else ()
    scale = p.value("f32", per, floats(per, -12, 4))
    zero = f", {p.value(dtype, per, integers(dtype, per))}" if r.random() < 0.7 else ""
    x = p.param(tensor("f32", shape), reals(shape))
    q = p.let(f"quantize{{dtype={dtype}, axis={axis}}}({x}, {scale}{zero})")
    if r.random() < 0.3:
        p.let(f"dequantize{{axis={axis}}}({q}, {scale}{zero})")


def dequantize(p: Program) -> None:
    """Dequantize integers."""
    r = p.random
    shape = [r.randint(1, 9) for _ in range(r.choice((1, 2, 3)))]
    axis, dtype = r.randrange(len(shape)), r.choice(("i8", "u8", "i16", "u16", "i32"))
    per = (shape[axis],) if r.random() < 0.5 else ()
    scale = p.value("f32", per, floats(per, -20, 4))
    zero = f", {p.value(dtype, per, integers(dtype, per))}" if r.random() < 0.7 else ""
    x = p.param(tensor(dtype, shape), integers(dtype, shape))
    p.let(f"dequantize{{axis={axis}}}({x}, {scale}{zero})")


def residual(p: Program, x: str, dtype: str) -> str:
    """Return a tensor in i32, less a zero point, times a constant of some 20 bits."""
    z = p.value("i32", (), integers("i32", (), -128, 255))
    m = p.value("i32", (), integers("i32", (), -(1 << 20), 1 << 20))
    wide = p.let(f"cast{{dtype=i32}}({x})")
    return p.let(f"mul({p.let(f'sub({wide}, {z})')}, {m})")


def addition(p: Program) -> None:
    """Add two tensors of different scales."""
    r = p.random
    shape = [r.randint(1, 9) for _ in range(r.choice((1, 2, 3)))]
    terms = [
        residual(p, p.param(tensor(dtype, shape), integers(dtype, shape)), dtype)
        for dtype in (r.choice((*BYTES, "i16")), r.choice(BYTES))
    ]
    requantized(p, p.let(f"add({', '.join(terms)})"), shape[-1], -1)


def pool(p: Program) -> None:
    """Pool integers: their maximum, or a sum that is requantized."""
    r = p.random
    shape, dtype = (
        [r.randint(1, 2), r.choice((1, 3, 8, 17)), r.randint(3, 8), r.randint(3, 8)],
        r.choice(BYTES),
    )
    x = p.param(tensor(dtype, shape), integers(dtype, shape))
    if r.random() < 0.5:
        kernel, strides = ([r.choice((1, 2, 3)) for _ in range(2)] for _ in range(2))
        p.let(
            f"max_pool{{kernel={kernel}, strides={strides}, pads={[r.choice((0, k // 2)) for k in kernel] * 2}}}({x})"
        )
        return
    wide = p.let(f"cast{{dtype=i32}}({x})")
    axes = r.choice(((2, 3), (1,), (3,)))
    total = p.let(f"reduce_sum{{axes={list(axes)}, keepdims=true}}({wide})")
    requantized(p, total, 1 if 1 in axes else shape[1], 1)


def table(p: Program) -> None:
    """Take the elements of a table of 256 that a tensor says."""
    r = p.random
    shape, dtype = [r.randint(1, 9) for _ in range(2)], r.choice(BYTES)
    entries = p.value(dtype, (256,), integers(dtype, (256,)), 0.7)
    x = p.param(tensor(dtype, shape), integers(dtype, shape))
    at = p.let(f"cast{{dtype=i32}}({x})")
    offset = 128 if dtype == "i8" else 0
    p.let(f"gather{{axis=0, clamp=true}}({entries}, {p.let(f'add({at}, i32({offset}))')})")


def group(p: Program) -> None:
    """A layer in the canonical form, or two, perhaps with what goes around them added."""
    r = p.random
    shape, dtype = image(r), r.choice(BYTES)
    x = p.param(tensor(dtype, shape), integers(dtype, shape))
    for _ in range(r.choice((1, 1, 2))):
        spatial = len(shape) - 2
        pads = [0, 0, *(r.choice((0, 1, 1)) for _ in range(spatial))]
        ends = [0, 0, *(r.choice((0, 1, 1)) for _ in range(spatial))]
        inner, padded = x, shape
        if any(pads + ends):
            zero = p.value(dtype, (), integers(dtype, ()), 0.9)
            inner = p.let(f"pad({x}, shape({', '.join(map(str, pads + ends))}), {zero})")
            padded = [d + a + b for d, a, b in zip(shape, pads, ends, strict=True)]
        total, made = conv(p, inner, dtype, padded, plain=True)
        per = (made[1], *[1] * spatial)
        total = p.let(f"add({total}, {p.value('i32', per, integers('i32', per), 0.8)})")
        if made == shape and r.random() < 0.7:
            total = p.let(f"add({total}, {residual(p, x, dtype)})")
        dtype = r.choice(BYTES)
        x, shape = requantized(p, total, made[1], 1, dtype), made
    if len(shape) == 4 and r.random() < 0.3:
        p.let(f"max_pool{{kernel=[1, {min(2, shape[3])}]}}({x})")


def wide(p: Program) -> None:
    """A convolution of 3 x 3 over channels so many that forms with fewer products pay."""
    r = p.random
    shape, dtype = [1, 48, r.randint(3, 7), r.randint(3, 7)], r.choice(BYTES)
    x = p.param(tensor(dtype, shape), integers(dtype, shape))
    outputs, of_w, most = r.choice((48, 52)), r.choice(("i8", "i8", "u8")), r.choice((31, 127))
    size = (outputs, shape[1], 3, 3)
    w = p.value(of_w, size, integers(of_w, size, 0 if of_w == "u8" else -most, most), 1.0)
    attrs = f"pads={[r.choice((0, 1, 1)) for _ in range(4)]}"
    total = p.let(f"conv_integer{{{attrs}}}({x}, {w})")
    per = (outputs, 1, 1)
    total = p.let(f"add({total}, {p.value('i32', per, integers('i32', per))})")
    requantized(p, total, outputs, 1, r.choice(BYTES))


KINDS: dict[str, Callable[[Program], None]] = {
    f.__name__: f
    for f in (requantize, convolution, product, quantize, dequantize, addition, pool, table, group, wide)
}
_WEIGHTS = {"requantize": 4, "group": 5, "convolution": 2, "product": 3}


def program(seed: int) -> Program:
    """Return the program that a seed names."""
    random = Random(seed)
    kind = random.choices(list(KINDS), [_WEIGHTS.get(k, 1) for k in KINDS])[0]
    made = Program(kind, random)
    KINDS[kind](made)
    return made
