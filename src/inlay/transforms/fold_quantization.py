"""Makes one form of everything that is quantized: integer products, a bias, `requantize`.

    let x = dequantize(q, sx, zx);         becomes    let p = pad(q, value = zx);
    let w = dequantize(k, sw);                        let s = conv_integer(p, k);
    let y = add(conv(x, w), bias);                    let b = add(s, bias / (sx * sw) - zx * sum(k));
    let r = quantize(relu(y), sy, zy);                let r = requantize{low = zy}(b, sx * sw / sy);

* A product of operands that stand for integers is the exact product of these, scaled once
  (`_integers/products`). Zero points of integer products become biases, too.
* A quantize of what integers can give is computed in integers (`_integers/rounded`). Results differ from
  those of floats by rounding, and by a sixteenth of a step where a bias is rounded.

What cannot be computed so stays as it is. The pass proves that accumulators stay in 32 bits from what their
operands can be and from the actual weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I8, I16, U8, DType
from inlay.base.options import option
from inlay.ir.expr import Call, Expr, Function, OpRef, Var
from inlay.ir.module import Module
from inlay.ops.elementwise import CastAttrs
from inlay.ops.quantized import QuantizeAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property, Remark
from inlay.transforms._blocks import BlockWriter, rewrite_function
from inlay.transforms._integers.numbers import Factor, StaysFloat, ends_of, one, type_of
from inlay.transforms._integers.products import integer_product, real_product
from inlay.transforms._integers.record import ASKED, BESIDE, InIntegers, Numerics, Reason, in_floats
from inlay.transforms._integers.rounded import Target, rounded
from inlay.transforms._integers.scene import Known, Scene
from inlay.transforms._integers.signs import (
    is_turned,
    turned,
    turned_behind,
    turned_cast,
    turned_dequantize,
    turned_requantize,
)
from inlay.transforms._integers.spelled import spelled_quantize
from inlay.transforms._integers.wholes import MOVES, biased, moves, operator, whole
from inlay.transforms._rules.rule_match import attrs_of

_Rule = Callable[[Scene, Call], Expr | None]


@dataclass(frozen=True, slots=True)
class QuantizationOptions:
    """Options of this pass."""

    exact: bool = option(False, help="keep floats between a dequantize and a quantize")  # noqa: FBT003
    watch: Callable[[Numerics], None] | None = None
    bytes: DType | None = None
    """The format of bytes that devices take, where they take one of both."""


def run(module: Module, context: PassContext) -> Module:
    """Fold. Cost: linear in the program and its constants: rules look at a bounded number of operators."""
    operators, evaluate = context.ops, context.evaluate
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(QuantizationOptions)
    if evaluate is None:
        return module
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        if function.primitive is not None:
            functions[name] = function
            continue
        folding = _Folding(Known(operators, evaluate, options.bytes), _EXACT if options.exact else _RULES)
        functions[name] = rewrite_function(function, folding.step)
        floats = in_floats(functions[name], folding.reasons, ASKED if options.exact else BESIDE)
        found = Numerics(name, tuple(folding.integers), tuple(floats))
        for f in found.floats:
            remark = Remark(
                PASS.name, "stays-float", f.reason, f"{f.operator} stays float: {f.message}", f.span
            )
            context.remarks.add(remark)
        if options.watch is not None:
            options.watch(found)
    if all(functions[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions(functions)


class _Folding:
    """The folding of a function.

    Attributes:
        known: of the function.
        rules: by operator.
        integers: operations that are computed in integers.
        reasons: why values stay float.
    """

    def __init__(self, known: Known, rules: Mapping[str, _Rule]) -> None:
        self.known = known
        self.rules = rules
        self.integers: list[InIntegers] = []
        self.reasons: dict[Var, Reason] = {}

    def step(self, block: BlockWriter, value: Expr) -> Expr | None:
        """Return what stands for a value: see `transforms/_blocks`."""
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        rule = self.rules.get(value.callee.op.name)
        if rule is None:
            return None
        self.known.begin()
        try:
            made = rule(Scene(self.known, block), value)
        except StaysFloat as why:
            self._note(block.variable, why)
            return None
        if made is not None and value.callee.op.name != "add" and self.known.made:
            name = block.variable.name if block.variable is not None else ""
            became, ends = tuple(self.known.made), self.known.ends
            self.integers.append(InIntegers(value.callee.op.name, name, value.span, became, *ends))
        return made

    def _note(self, variable: Var | None, why: StaysFloat) -> None:
        """Note why a value stays float, and that of another on which it depends."""
        if isinstance(why.at, Var):
            self.reasons.setdefault(why.at, Reason(why.reason, why.message))
        if variable is not None:
            other = why.reason == "float-operator" and why.at is not None
            message = f"it needs what stays float: {why.message}" if other else why.message
            self.reasons.setdefault(variable, Reason("beside" if other else why.reason, message))


def _product(scene: Scene, call: Call) -> Expr | None:
    name = operator(call).name
    if not type_of(call).dtype.is_float:
        return None
    return real_product(scene, name, call)


def _integer_product(scene: Scene, call: Call) -> Expr | None:
    return integer_product(scene, operator(call).name, call)


def _add(scene: Scene, call: Call) -> Expr | None:
    """A bias behind the bias that zero points became is one bias."""
    x, bias = call.args
    values = scene.array(bias)
    before = scene.call(x)
    if values is None or values.dtype != np.int32 or before is None or before[0] != "add":
        return None
    if scene.array(before[1].args[1]) is None:
        return None
    return biased(scene, x, values.astype(np.int64))


def _quantize(scene: Scene, call: Call) -> Expr:
    x, scale_atom, *zero_atom = call.args
    attrs = attrs_of(call, QuantizeAttrs)
    scale = scene.array(scale_atom)
    zero = scene.array(zero_atom[0]) if zero_atom else np.zeros((), np.int64)
    if scale is None or zero is None:
        raise StaysFloat("computed-scale", "its scale or zero point is computed")
    if not np.all(scale > 0) or not np.all(np.isfinite(scale)):
        raise StaysFloat("bad-scale", "its scale is not a positive number")
    if scene.array(x) is not None:
        return scene.bind("quantize", [scene.constant(a) or a for a in call.args], attrs)
    rank = len(type_of(x).shape)
    zeros = np.unique(zero)
    if zeros.size > 1:
        raise StaysFloat("several-zero-points", "it has several zero points")
    axis = attrs.axis % rank - rank if scale.ndim else 0
    target = Target(attrs.dtype, Factor(scale.astype(np.float64), axis), int(zeros[0]), *ends_of(attrs.dtype))
    if not is_turned(scene, target.dtype):
        return rounded(scene, x, target)
    return turned(scene, rounded(scene, x, target.turned()))


def _moved(scene: Scene, call: Call) -> Expr | None:
    return turned_behind(scene, call) if moves(call) else None


def _compared(scene: Scene, call: Call) -> Expr | None:
    return spelled_quantize(scene, call) or turned_behind(scene, call)


def _cast(scene: Scene, call: Call) -> Expr | None:
    """Floats that are integers of a format, brought to it, are those integers."""
    to = attrs_of(call, CastAttrs).dtype
    x = call.args[0]
    if (wide := turned_cast(scene, call)) is not None:
        return wide
    if to not in (I8, U8, I16) or not scene.is_tensor(x) or scene.array(x) is not None:
        return None
    found = whole(scene, x)
    same = found.zero.equals(one(0)) and found.scale.equals(one(1.0))
    least, most = ends_of(to)
    if not same or found.low < least or found.high > most:
        return None
    return found.atom if found.dtype is to else scene.bind("cast", (found.atom,), CastAttrs(to))


_EXACT: dict[str, _Rule] = {
    "conv_integer": _integer_product,
    "matmul_integer": _integer_product,
    "add": _add,
    "requantize": turned_requantize,
    **dict.fromkeys(("concat", "pad", "maximum", "minimum"), turned_behind),
    **dict.fromkeys((*sorted(MOVES), "resize"), _moved),
    "cast": turned_cast,
    "dequantize": turned_dequantize,
}
"""Rules that keep every bit of the result."""

_RULES: dict[str, _Rule] = {
    **_EXACT,
    "conv": _product,
    "matmul": _product,
    "quantize": _quantize,
    "clip": spelled_quantize,
    "minimum": _compared,
    "maximum": _compared,
    "round": spelled_quantize,
    "cast": _cast,
}

PASS = Pass(
    __name__,
    run,
    "compute in integers what stands between a dequantize and a quantize",
    requires=(Property.ANF,),
    options=QuantizationOptions,
)
