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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inlay.base.options import option
from inlay.ir.expr import Call, Expr, Function, OpRef
from inlay.ir.module import Module
from inlay.ops.quantized import QuantizeAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_function
from inlay.transforms._integers.numbers import Factor, StaysFloat, ends_of, type_of
from inlay.transforms._integers.products import real_product
from inlay.transforms._integers.rounded import Target, rounded
from inlay.transforms._integers.scene import Known, Scene


@dataclass(frozen=True, slots=True)
class QuantizationOptions:
    """Options of this pass."""

    exact: bool = option(False, help="keep floats between a dequantize and a quantize")  # noqa: FBT003


def run(module: Module, context: PassContext) -> Module:
    """Fold. Cost: linear in the program and its constants: rules look at a bounded number of operators."""
    operators, evaluate = context.ops, context.evaluate
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    options = context.options_for(QuantizationOptions)
    if evaluate is None:
        return module
    functions: dict[str, Function] = {}
    for name, function in module.functions.items():
        known = Known(operators, evaluate)

        def step(block: BlockWriter, value: Expr, known: Known = known) -> Expr | None:
            return _fold(Scene(known, block), value, options)

        functions[name] = function if function.primitive is not None else rewrite_function(function, step)
    if all(functions[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions(functions)


def _fold(scene: Scene, value: Expr, options: QuantizationOptions) -> Expr | None:
    if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
        return None
    rule = None if options.exact else _RULES.get(value.callee.op.name)
    if rule is None:
        return None
    try:
        return rule(scene, value)
    except StaysFloat:
        return None


def _product(scene: Scene, call: Call) -> Expr | None:
    assert isinstance(call.callee, OpRef)
    if not type_of(call).dtype.is_float:
        return None
    return real_product(scene, call.callee.op.name, call)


def _quantize(scene: Scene, call: Call) -> Expr:
    x, scale_atom, *zero_atom = call.args
    assert isinstance(call.callee, OpRef)
    attrs = call.callee.attrs
    assert isinstance(attrs, QuantizeAttrs), "quantize has a format"
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
    return rounded(scene, x, target)


_RULES: dict[str, Callable[[Scene, Call], Expr | None]] = {
    "conv": _product,
    "matmul": _product,
    "quantize": _quantize,
}

PASS = Pass(
    __name__,
    run,
    "compute in integers what stands between a dequantize and a quantize",
    requires=(Property.ANF,),
    options=QuantizationOptions,
)
