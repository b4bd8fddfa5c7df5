"""What a pattern found, as a few loop nests: what instructions are then held against (`unify`).

    sums[n, k, p, q] += i32(x[n, c, p * 2 + r - 1, q * 2 + s - 1]) * i32(w[k, c, r, s])
    y[n, k, p, q] = requantize(sums[n, k, p, q] + b[k], mul[k], shift[k], -128, -128, 127)

A *stage* is one nest that computes one tensor. A product is a stage of its own; what is element by element
behind it is one more. Loops over the result are shared by all stages of a match. Indices are
affine; those of a convolution may leave its input, where padding is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlay.accel.numbers import requantize, requantize_float, rescale
from inlay.accel.pattern import Applied, Input, Node
from inlay.arith.dtype import F32, I8, I32, DType
from inlay.arith.expr import Int, Sym, coefficient, fresh, symbols, to_int
from inlay.ir.expr import Const, Expr
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import Lit, Load, Scalar
from inlay.loop.te import ScalarValue
from inlay.loop.walk import operands
from inlay.ops.requantization import RequantizeAttrs, Rounding


class Untiled(Exception):
    """A reason why a match cannot be brought into the memories of a device."""


FLOAT, SCALE = "float", "scale"
"""A form of requantization: a float scale; and what it needs."""


def forms_of(attrs: Mapping[Node, Mapping[str, Any]]) -> list[str]:
    """Return the forms in which a device may compute a match, the program's own first."""
    found = [x for x in attrs.values() if "factors" in x]
    own = list(dict.fromkeys(str(x["rounding"]) for x in found))
    others = [str(r) for r in Rounding if str(r) not in own]
    is_float = bool(found) and all(
        len(x["factors"]) == 1 and str(x["rounding"]) == "half_even" for x in found
    )
    return [*([FLOAT] if is_float else []), *own, *others]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a match.

    Attributes:
        name: what it runs over.
        sym: its index.
        extent: how far; a number but for launches of their own.
    """

    name: str
    sym: Sym
    extent: Int


@dataclass(frozen=True, slots=True)
class Factor:
    """How a program requantizes: what multipliers of a device are found from.

    Attributes:
        attrs: of the operator.
        operands: a scale, or a multiplier and a shift.
        form: of the device.
        of_product: whether what is requantized is a product, or a product and a constant.
    """

    attrs: RequantizeAttrs
    operands: tuple[Expr, ...]
    form: str
    of_product: bool


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor that stages read or write.

    Attributes:
        buffer: under which loads name it.
        source: the value of the program; None for inner sums, and for what is found from a factor.
        factor: where it is a multiplier or a shift, that is its `part`.
        part: `mul`, `shift`, `scale`, or empty.
        outside: what is around it, where indices leave it; None where they do not.
        is_constant: whether it is the same in all calls.
    """

    buffer: Buffer
    source: Expr | None
    factor: Factor | None = None
    part: str = ""
    outside: int | None = None
    is_constant: bool = False

    def number(self) -> int | None:
        """Return what it is, where it is one number that is known."""
        constant = self.source.value if isinstance(self.source, Const) else None
        known = isinstance(constant, np.ndarray) and constant.size == 1 and constant.dtype.kind in "iu"
        return int(np.asarray(constant).ravel()[0]) if known else None


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A nest that computes a tensor.

    Attributes:
        loops: of it; those over the result first.
        result: what it computes.
        at: indices of the result.
        value: of an element; a sum reads the result first.
        is_sum: whether it adds to what is there, which is 0 first.
    """

    loops: tuple[Loop, ...]
    result: Value
    at: tuple[Int, ...]
    value: Scalar
    is_sum: bool


@dataclass(frozen=True, slots=True)
class Product:
    """What a sum is made of; `channel` is the axis of the weights that the result has, too."""

    pixels: Value
    weights: Value
    channel: int


@dataclass(slots=True)
class Stages:
    """The stages of a match.

    Attributes:
        result: the node of the pattern that is computed.
        attrs, found: attributes and values of the nodes of the pattern.
        product, bias: of the sum, if there is one; what is added to it.
        form: how a device requantizes: a rounding of multipliers and shifts, or `FLOAT`.
        values: all tensors, by their buffers.
        stages: in order.
    """

    result: Node
    attrs: Mapping[Node, Mapping[str, Any]]
    found: Mapping[Node, Expr]
    form: str
    values: dict[Buffer, Value] = field(default_factory=dict[Buffer, Value])
    stages: list[Stage] = field(default_factory=list[Stage])
    loops: tuple[Loop, ...] = ()
    product: Product | None = None
    bias: Value | None = None

    @staticmethod
    def of(
        result: Node, found: Mapping[Node, Expr], attrs: Mapping[Node, Mapping[str, Any]], form: str
    ) -> Stages:
        """Return the stages of a match.

        Raises:
            Untiled: there is no nest for one of its operators.
        """
        made = Stages(result, attrs, found, form)
        out = _type(found[result])
        made.loops = tuple(_loop(f"d{axis}", extent) for axis, extent in enumerate(out.shape))
        at = tuple(to_int(x.sym) for x in made.loops)
        value = made._element(result, at)
        if not (made.stages and isinstance(result, Applied) and result.operators[0] in _PRODUCTS):
            written = made._value("y", out.shape, out.dtype, found[result])
            made.stages.append(Stage(made.loops, written, at, value.cast(out.dtype).scalar, is_sum=False))
        return made

    @property
    def key(self) -> str:
        """A text that is equal for stages that differ in constants alone."""
        names = {x.sym: f"l{i}" for i, x in enumerate(dict.fromkeys(x for s in self.stages for x in s.loops))}
        values = {b: f"v{i}" for i, b in enumerate(self.values)}
        said = [
            f"{values[b]} {b.dtype}{list(map(str, b.shape))} {v.outside} {v.number()}"
            for b, v in self.values.items()
        ]
        for s in self.stages:
            said += [f"{x.name} {x.extent}" for x in s.loops]
            said.append(
                f"{values[s.result.buffer]}{_indices(s.at, names)}={_scalar_key(s.value, names, values)}"
            )
        return "; ".join(said)

    def told(self, stage: Stage) -> str:
        """Return formats and roundings of a stage, for messages."""
        factors = {str(v.factor.attrs.rounding) for v in self.values.values() if v.factor is not None}
        return f"{stage.result.buffer.dtype} {' and '.join(sorted(factors))}".strip()

    def _value(
        self, name: str, shape: Sequence[Int | int], dtype: DType, source: Expr | None, **more: Any
    ) -> Value:
        made = Value(Buffer(name, tuple(map(to_int, shape)), dtype), source, **more)
        self.values[made.buffer] = made
        return made

    def _element(self, node: Node, at: tuple[Int, ...]) -> ScalarValue:
        if isinstance(node, Input):
            return self._read(node, at)
        assert isinstance(node, Applied), "nodes are inputs or results of operators"
        name = node.operators[0]
        match name:
            case "add":
                return self._add(node, at)
            case "mul":
                a, b = (self._element(x, at) for x in node.operands)
                return a * b
            case "cast":
                return self._element(node.operands[0], at).cast(_type(self.found[node]).dtype)
            case "requantize":
                return self._requantize(node, at)
            case "conv_integer":
                return self._convolution(node, at)
            case "matmul_integer":
                return self._product(node, at)
            case _:
                raise Untiled(f"no loop nest is known for {name}")

    def _read(self, node: Input, at: tuple[Int, ...]) -> ScalarValue:
        e = self.found[node]
        type = _type(e)
        behind = at[len(at) - len(type.shape) :]
        if not node.constant and type.shape != tuple(x.extent for x in self.loops):
            raise Untiled(f"{node.name or 'an operand'} is broadcast")
        kept = [
            (x, extent)
            for x, extent in zip(behind, type.shape, strict=True)
            if extent != 1 or not node.constant
        ]
        value = self._value(node.name or "c", [n for _, n in kept], type.dtype, e, is_constant=node.constant)
        return te.Tensor(value.buffer)[tuple(x for x, _ in kept)]

    def _factor(
        self, node: Applied, at: tuple[Int, ...], parts: Sequence[tuple[str, DType]]
    ) -> list[ScalarValue]:
        attrs = _requantize_attrs(self.attrs[node])
        operands: tuple[Expr, ...] = self.attrs[node]["factors"]
        factor = Factor(attrs, operands, self.form, _is_product(node.operands[0]))
        shape = _type(operands[0]).shape
        extents: tuple[Int, ...] = () if all(n == 1 for n in shape) else shape
        index = (at[attrs.axis % len(at)],) if extents else ()
        made = (
            self._value(part, extents, dtype, None, factor=factor, part=part, is_constant=True)
            for part, dtype in parts
        )
        return [te.Tensor(v.buffer)[index] for v in made]

    def _requantize(self, node: Applied, at: tuple[Int, ...]) -> ScalarValue:
        attrs = _requantize_attrs(self.attrs[node])
        x = self._element(node.operands[0], at)
        low, high = attrs.ends()
        if x.dtype is not I32:
            raise Untiled(f"a requantize of {x.dtype}: of i32")
        if self.form == FLOAT:
            (scale,) = self._factor(node, at, ((SCALE, F32),))
            return requantize_float(x, scale, attrs.zero, low, high).cast(attrs.dtype)
        mul, shift = self._factor(node, at, (("mul", I32), ("shift", I8)))
        is_open = attrs.dtype is I32 and attrs.low is None and attrs.high is None and attrs.zero == 0
        if is_open and self.form == Rounding.TFLITE:  # which gives an i32
            return rescale(x, mul, shift, rounding=self.form)
        return requantize(x, mul, shift, attrs.zero, low, high, rounding=self.form).cast(attrs.dtype)

    def _add(self, node: Applied, at: tuple[Int, ...]) -> ScalarValue:
        a, b = (self._element(x, at) for x in node.operands)
        if _is_product(node):
            self.bias = self._of(b)
        return a + b

    def _convolution(self, node: Applied, at: tuple[Int, ...]) -> ScalarValue:
        a, (x, w) = self.attrs[node], node.operands
        (n, k, *pixels), (_, d, *window) = at, _type(self.found[w]).shape
        axes = len(pixels)  # one for lines, whose attributes are those of images of one row
        channels, groups = _type(self.found[x]).shape[1], a["groups"]
        if groups != 1 and (d != 1 or channels != groups or _type(self.found[w]).shape[0] != channels):
            raise Untiled(f"groups {groups} of {channels} channels: one for all, or one for each")
        c = _loop("ic", d)
        taps = [_loop(name, extent) for name, extent in zip(("kh", "kw")[-axes:], window, strict=True)]
        moves = zip(
            pixels, taps, a["strides"][-axes:], a["dilations"][-axes:], a["pads"][:2][-axes:], strict=True
        )
        places = [p * stride + to_int(tap.sym) * step - pad for p, tap, stride, step, pad in moves]
        reductions = tuple(taps) if groups != 1 else (c, *taps)
        channel = to_int(c.sym) if groups == 1 else k
        pixel = self._operand(x, (n, channel, *places), outside=a["outside"])
        lanes = (k, to_int(c.sym)) if groups == 1 else (k,)
        taken = (*lanes, *(to_int(tap.sym) for tap in taps))
        weight = self._operand(w, taken, drop=() if groups == 1 else (1,))
        self.product = Product(self._of(pixel), self._of(weight), 0)
        return self._sum(node, at, reductions, pixel.cast(I32) * weight.cast(I32))

    def _product(self, node: Applied, at: tuple[Int, ...]) -> ScalarValue:
        x, w = node.operands
        shape = _type(self.found[w]).shape
        if len(shape) != 2 or len(at) < 2:
            raise Untiled(f"a product with weights of {len(shape)} axes: two")
        c = _loop("ic", shape[0])
        pixel = self._operand(x, (*at[:-1], to_int(c.sym)))  # all axes but the last are rows
        weight = self._operand(w, (to_int(c.sym), at[-1]))
        self.product = Product(self._of(pixel), self._of(weight), 1)
        return self._sum(node, at, (c,), pixel.cast(I32) * weight.cast(I32))

    def _operand(
        self, node: Node, at: tuple[Int, ...], outside: int | None = None, drop: tuple[int, ...] = ()
    ) -> ScalarValue:
        if not isinstance(node, Input):
            raise Untiled("an operand of a product is computed inside of the pattern")
        e = self.found[node]
        shape = [n for axis, n in enumerate(_type(e).shape) if axis not in drop]
        dtype = _type(e).dtype
        value = self._value(node.name, shape, dtype, e, outside=outside, is_constant=node.constant)
        return te.Tensor(value.buffer)[at]

    def _of(self, element: ScalarValue) -> Value:
        assert isinstance(element.scalar, Load), "elements of operands are loads"
        return self.values[element.scalar.buffer]

    def _sum(
        self, node: Applied, at: tuple[Int, ...], reductions: tuple[Loop, ...], term: ScalarValue
    ) -> ScalarValue:
        if _type(self.found[node]).dtype is not I32:
            raise Untiled(f"sums of {_type(self.found[node]).dtype}: i32")
        source = self.found[node] if node is self.result else None
        sums = self._value("sums", _type(self.found[node]).shape, I32, source)
        before = te.Tensor(sums.buffer)[at]
        self.stages.append(Stage((*self.loops, *reductions), sums, at, (before + term).scalar, is_sum=True))
        return before


def _indices(at: Sequence[Int], names: Mapping[Sym, str]) -> str:
    linear = [(e.constant, [(names[s], str(coefficient(e, s))) for s in symbols(e)]) for e in at]
    return str(linear)


def _scalar_key(x: Scalar, names: Mapping[Sym, str], values: Mapping[Buffer, str]) -> str:
    match x:
        case Load(buffer=b, indices=at):
            return f"{values[b]}{_indices(at, names)}"
        case Lit(value=value, dtype=dtype):
            return f"{dtype}({value})"
        case _:
            inner = ", ".join(_scalar_key(y, names, values) for y in operands(x))
            return f"{type(x).__name__} {getattr(x, 'op', '')} {x.dtype}({inner})"


def _is_product(node: Node) -> bool:
    if not isinstance(node, Applied):
        return False
    if node.operators == ("add",):
        a, b = node.operands
        return _is_product(a) and isinstance(b, Input) and b.constant
    return set(node.operators) <= set(_PRODUCTS)


def _requantize_attrs(attrs: Mapping[str, Any]) -> RequantizeAttrs:
    return RequantizeAttrs(**{name: x for name, x in attrs.items() if name != "factors"})


def _loop(name: str, extent: Int | int) -> Loop:
    return Loop(name, fresh(name), to_int(extent))


def _type(e: Expr) -> TensorType:
    assert isinstance(e.type, TensorType), "values of patterns are tensors"
    return e.type


def clearing(stage: Stage) -> Stage:
    """Return the nest that sets what a sum begins with."""
    loops = tuple(x for x in stage.loops if any(x.sym in symbols(e) for e in stage.at))
    return Stage(loops, stage.result, stage.at, te.const(0, stage.result.buffer.dtype).scalar, is_sum=False)


_PRODUCTS = ("conv_integer", "matmul_integer")
