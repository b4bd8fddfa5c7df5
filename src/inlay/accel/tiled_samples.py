"""Programs for patterns whose instructions are found by their meaning, drawn from the result on.

Sizes are drawn here, for no dim of an instruction says what they are. Some are beyond a block or a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np

from inlay.accel.pattern import Applied, Input, Node, Tiled, below
from inlay.arith.dtype import F32, I8, I32, DType
from inlay.ops.requantization import Rounding, quantized_multiplier

_SIZES = (1, 2, 3, 5, 7, 9, 14)
_CHANNELS = (1, 3, 8, 15, 16, 17, 33, 40)
_MOST_PRODUCTS = 150_000


class AgainError(Exception):
    """What was drawn does not fit: it is drawn again."""


def numbers(random: Random, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Return drawn values, some of them at the ends of what there is."""
    rng = np.random.default_rng(random.getrandbits(32))
    if not dtype.is_integer:
        return rng.standard_normal(shape).astype(dtype.numpy)
    ends = np.iinfo(dtype.numpy)
    low, high = (ends.min, ends.max) if dtype.bits <= 16 else (-(2**20), 2**20)
    drawn = rng.integers(low, high + 1, shape)
    return np.where(rng.random(shape) < 0.2, rng.choice([low, high], shape), drawn).astype(dtype.numpy)


def constant(values: np.ndarray) -> str:
    """Return a constant as text."""
    listed = ", ".join(map(str, values.ravel().tolist()))
    dtype = {"int8": "i8", "int32": "i32", "float32": "f32", "uint8": "u8", "int16": "i16", "int64": "i64"}[
        values.dtype.name
    ]
    return f"{dtype}[{', '.join(map(str, values.shape))}]({listed})" if values.shape else f"{dtype}({listed})"


def factors(
    random: Random, shape: tuple[int, ...], count: int, *, has_ties: bool
) -> tuple[tuple[np.ndarray, ...], str]:
    """Return drawn factors of a requantize, a scale or a multiplier and a shift, and a rounding."""
    rng = np.random.default_rng(random.getrandbits(32))
    scale = np.exp2(np.round(rng.uniform(-7, -2, shape)) if has_ties else rng.uniform(-14, -5, shape))
    if count == 1:
        return (np.asarray(scale, F32.numpy),), str(Rounding.HALF_EVEN)
    mul, shift = quantized_multiplier(scale)
    made = (np.asarray(mul, I32.numpy), np.asarray(shift, I32.numpy))
    return made, str(random.choice([*Rounding]) if has_ties else Rounding.TFLITE)


@dataclass(slots=True)
class TiledDrawn:
    """One program being drawn.

    Attributes:
        mapped: what computes its result.
        rng: what draws.
        before: what computes operands of that, and operands of those; the next one last.
        made: the values that those compute, by their shapes.
        inputs: values of the parameters, in order.
        rounding: of multipliers and shifts.
        has_ties: whether many sums are in the middle of two results, which roundings differ in.
        has_product: whether what is drawn is a sum of products.
        is_inner: whether it is a requantize in front of a sum.
    """

    mapped: Tiled
    rng: Random
    before: list[Tiled] = field(default_factory=list[Tiled])
    made: dict[tuple[int, ...], list[str]] = field(default_factory=dict[tuple[int, ...], list[str]])
    lines: list[str] = field(default_factory=list[str])
    params: list[str] = field(default_factory=list[str])
    inputs: list[np.ndarray] = field(default_factory=list[np.ndarray])
    rounding: str = ""
    has_ties: bool = False
    has_product: bool = False
    is_inner: bool = False

    def text(self) -> str:
        """Return the program.

        Raises:
            AgainError: it is too large, or has an operator that is not drawn; or operands have other shapes
                than what is to compute them.
        """
        kinds = _operators(self.mapped)
        is_float = self.rng.random() < 0.4
        self.has_ties = self.rng.random() < 0.5
        self.rounding = str(self.rng.choice([*Rounding] if self.has_ties else [Rounding.TFLITE]))
        shape = self._shape(kinds)
        result = self._result(self.mapped, shape, is_float=is_float)
        if self.before:
            raise AgainError
        body = "".join(f"  {line}\n" for line in self.lines)
        return f"fn main({', '.join(self.params)}) {{\n{body}  {result}\n}}\nentry main;\n"

    def _shape(self, kinds: set[str]) -> tuple[int, ...]:
        r = self.rng
        channels = r.choice(_CHANNELS)
        if "conv_integer" in kinds:
            return (r.choice((1, 1, 2)), channels, r.choice(_SIZES), r.choice(_SIZES))
        if "matmul_integer" in kinds:
            return (r.choice((1, 1, 3)), channels)
        return (1, r.choice(_SIZES), r.choice(_SIZES), channels)

    def _result(self, mapped: Tiled, shape: tuple[int, ...], *, is_float: bool) -> str:
        """Draw what a pattern takes, with a result of some shape."""
        outer, self.has_product = self.has_product, bool(_operators(mapped) & _PRODUCTS)
        name = self._value(mapped.result, shape, is_float=is_float, is_last=True)
        self.has_product = outer
        return name

    def _operand(self, shape: tuple[int, ...], dtype: DType, *, is_float: bool) -> str:
        """Draw a tensor that is read: a value that was computed, one that is, or a parameter."""
        known = self.made.get(shape, [])
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        if not self.before or dtype is not I8 or not _makes(self.before[-1], len(shape)):
            return self._tensor(shape, dtype)
        name = self._result(self.before.pop(), shape, is_float=is_float)
        self.made.setdefault(shape, []).append(name)
        return name

    def _let(self, text: str) -> str:
        name = f"y{len(self.lines)}"
        self.lines.append(f"let {name} = {text};")
        return name

    def _value(self, node: Node, shape: tuple[int, ...], *, is_float: bool, is_last: bool = False) -> str:
        if isinstance(node, Input):
            return self._input(node, shape, is_float=is_float)
        assert isinstance(node, Applied), "nodes are inputs or results of operators"
        if node.otherwise is not None and self.rng.random() < 0.3:
            return self._value(node.operands[0], shape, is_float=is_float)
        match node.operators[0]:
            case "requantize":
                self.is_inner = not is_last
                x = self._value(node.operands[0], shape, is_float=is_float)
                return self._requantize(x, shape, is_float=is_float, is_last=is_last)
            case "mul" if isinstance(node.operands[1], Input) and node.operands[1].constant:
                x = self._value(node.operands[0], shape, is_float=is_float)
                factor = 1 << 20 if self.is_inner else self.rng.randrange(1, 1 << 15)
                return self._let(f"mul({x}, i32({factor}))")
            case "add" | "mul" as name:
                a, b = (self._value(x, shape, is_float=is_float) for x in node.operands)
                return self._let(f"{name}({a}, {b})")
            case "cast":
                return self._let(
                    f"cast{{dtype=i32}}({self._value(node.operands[0], shape, is_float=is_float)})"
                )
            case "conv_integer":
                return self._convolution(shape, is_float=is_float)
            case "matmul_integer":
                return self._product(shape, is_float=is_float)
            case _:
                raise AgainError

    def _input(self, node: Input, shape: tuple[int, ...], *, is_float: bool) -> str:
        dtype = node.dtypes[0] if node.dtypes else I8
        if not node.constant:
            return self._operand(shape, dtype, is_float=is_float)
        if self.lines and ("conv_integer" in self.lines[-1] or "matmul" in self.lines[-1]):
            wanted = (shape[1], 1, 1) if len(shape) == 4 else (shape[1],)
            drawn = numbers(self.rng, dtype, wanted if self.rng.random() < 0.8 else ())
            return constant(drawn // 2**12 if self.has_ties else drawn)
        return constant(np.asarray(self.rng.randrange(-128, 129), dtype.numpy))

    def _tensor(self, shape: tuple[int, ...], dtype: DType) -> str:
        name = f"x{len(self.params)}"
        self.params.append(f"{name}: Tensor[{', '.join(map(str, (*shape, dtype)))}]")
        self.inputs.append(numbers(self.rng, dtype, shape))
        return name

    def _requantize(self, x: str, shape: tuple[int, ...], *, is_float: bool, is_last: bool) -> str:
        r = self.rng
        axis = 1 if len(shape) == 4 else -1
        per_channel = is_last and self.has_product and r.random() < 0.7
        rng = np.random.default_rng(r.getrandbits(32))
        scale = np.exp2(rng.uniform(-14, -5, (shape[1],) if per_channel else ()))
        zero, low, high = r.randrange(-128, 128), r.randrange(-128, -100), r.randrange(100, 128)
        said = f"zero={zero}, low={low}, high={high}, axis={axis}" if is_last else f"dtype=i32, axis={axis}"
        if self.has_ties:
            scale = np.exp2(np.round(rng.uniform(-7, -2, scale.shape)))
        if is_float:
            return self._let(f"requantize{{{said}}}({x}, {constant(scale.astype(F32.numpy))})")
        if not is_last or not per_channel:  # a sum of two tensors, whose parts are 20 bits to the left
            scale = scale * (64 if not is_last else 1)
        mul, shift = quantized_multiplier(scale)
        mul, shift = np.asarray(mul, I32.numpy), np.asarray(shift, I32.numpy)
        said += f', rounding="{self.rounding}"'
        return self._let(f"requantize{{{said}}}({x}, {constant(mul)}, {constant(shift)})")

    def _convolution(self, shape: tuple[int, ...], *, is_float: bool) -> str:
        r = self.rng
        is_same = bool(self.before) and r.random() < 0.6  # what follows may read both
        n, k, p, q = shape
        each = r.random() < 0.4
        c = k if each or is_same else r.choice(_CHANNELS)
        window, strides = (
            [r.choice((1, 2, 3, 5)) for _ in range(2)],
            [r.choice((1, 1, 2, 3)) for _ in range(2)],
        )
        if is_same:
            window, strides = [r.choice((1, 3))] * 2, [1, 1]
        depth = 1 if each else c
        if n * k * p * q * depth * window[0] * window[1] > _MOST_PRODUCTS:
            raise AgainError
        whole = [(o - 1) * s + w for o, s, w in zip((p, q), strides, window, strict=True)]
        pads = [r.randrange(min(w, 3)) for w in window] + [r.choice((0, 1, 2)) for _ in range(2)]
        if is_same:
            pads = [w // 2 for w in (*window, *window)]
        height, width = (whole[a] - pads[a] - pads[a + 2] for a in range(2))
        if height < 1 or width < 1:
            raise AgainError
        x = self._operand((n, c, height, width), I8, is_float=is_float)
        if any(pads):
            fill = r.choice((0, -128, 5))
            x = self._let(
                f"pad({x}, shape(0, 0, {pads[0]}, {pads[1]}, 0, 0, {pads[2]}, {pads[3]}), i8({fill}))"
            )
        w = constant(numbers(r, I8, (k, depth, *window)))
        dilations = "dilations=[1, 1]" if r.random() < 0.9 else "dilations=[2, 1]"
        return self._let(
            f"conv_integer{{strides={strides}, {dilations}, groups={c if each else 1}}}({x}, {w})"
        )

    def _product(self, shape: tuple[int, ...], *, is_float: bool) -> str:
        depth = self.rng.choice((1, 7, 16, 40, 100))
        x = self._operand((shape[0], depth), I8, is_float=is_float)
        return self._let(f"matmul_integer({x}, {constant(numbers(self.rng, I8, (depth, shape[1])))})")


_PRODUCTS = {"conv_integer", "matmul_integer"}


def _operators(mapped: Tiled) -> set[str]:
    return {x for node in below(mapped.result) for x in node.operators}


def _makes(mapped: Tiled, axes: int) -> bool:
    """Whether what a pattern takes may have a result of so many axes."""
    kinds = _operators(mapped)
    return axes == 4 if "conv_integer" in kinds else axes == 2 if "matmul_integer" in kinds else True
