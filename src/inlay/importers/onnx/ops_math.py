"""Element-wise arithmetic, comparisons and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from inlay.arith import dtype as dt
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, floordiv, lit, maximum, minimum
from inlay.importers.onnx import load
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.term import Term, term
from inlay.importers.onnx.values import OnnxValue, known, known_scalar
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ops.activations import GeluForm


def _unary(name: str) -> Rule:
    return lambda node: node.result(name, node.tensor(0))


def _binary(name: str) -> Rule:
    return lambda node: node.result(name, node.tensor(0), node.tensor(1))


def _variadic(name: str) -> Rule:
    def rule(node: Node) -> OnnxValue:
        first, *rest = node.tensors()
        for other in rest:
            first = node.emit(name, first, other)
        return OnnxValue(first)

    return rule


def on_ints(control: Callable[[Int, Int], Int | None], tensor: Rule) -> Rule:
    """Compute on known integers while both operands are known, else on tensors.

    Operands of rank 0 or length 1 broadcast. `control` gives None where it cannot decide.
    """

    def rule(node: Node) -> OnnxValue | tuple[OnnxValue, ...]:
        known_result = _elementwise_ints(node, control) if len(node.inputs) == 2 else None
        return tensor(node) if known_result is None else known_result

    return rule


def _elementwise_ints(node: Node, control: Callable[[Int, Int], Int | None]) -> OnnxValue | None:
    a, b = node.known(0), node.known(1)
    if a is None or b is None:
        return None
    if node.value(0).ints is None and node.value(1).ints is None:
        return None  # two constants: folded as tensors
    out: list[Int] = []
    for x, y in _together(a, b):
        value = control(x, y)
        if value is None:
            return None
        out.append(value)
    return _known_result(node, out, node.type(0).dtype)


def _together(*parts: Sequence[Int]) -> list[tuple[Int, ...]]:
    """Return what is at the same index of vectors that broadcast; nothing where they do not."""
    length = max(map(len, parts)) if all(parts) else 0
    if any(len(p) not in (1, length) for p in parts):
        return []
    return [tuple([p[i % len(p)] for p in parts]) for i in range(length)]


def _known_result(node: Node, out: Sequence[Int], dtype: DType) -> OnnxValue | None:
    """Return known integers as an element-wise result; None where there are none."""
    if not out:
        return None
    if all(node.rank(i) == 0 for i in range(len(node.inputs))):
        return known_scalar(out[0], dtype=dtype)
    return known(tuple(out), dtype=dtype)


def _truncated_quotient(a: Int, b: Int) -> Int | None:
    """ONNX divides integers toward zero; it is the floor where neither is negative.

    Dims are never negative, so a quotient of polynomials without negative coefficients is decided.
    """
    if any(c < 0 for _, c in a.terms) or b.value == 0 or any(c < 0 for _, c in b.terms):
        return None
    return floordiv(a, b)


def _mod(node: Node) -> OnnxValue:
    name = "rem" if node.flag("fmod") else "mod"
    return node.result(name, node.tensor(0), node.tensor(1))


def _cast(node: Node) -> OnnxValue:
    to = load.dtype_of(node.int("to", 0))
    if to is None:
        raise node.unsupported(f"converts to {load.elem_type_name(node.int('to', 0))}")
    v = node.value(0)
    if v.ints is not None and to in (dt.I64, dt.I32):
        return OnnxValue(v.expr, v.ints, v.is_scalar, to)
    return OnnxValue(node.cast(node.tensor(0), to))


def _bit_cast(node: Node) -> OnnxValue:
    to = load.dtype_of(node.int("to", 0))
    own = node.type(0).dtype
    if to is own:
        return node.value(0)
    if to is not None and to.bits == own.bits and not {to, own} & {dt.BOOL, dt.BF16, dt.F16}:
        return OnnxValue(node.emit("bitcast", node.tensor(0), dtype=to))
    raise node.unsupported(f"takes the bits of {own} for {to or 'an unknown type'}")


def _clip(node: Node) -> OnnxValue:
    x = node.tensor(0)
    dtype = node.type(0).dtype
    bounds: list[Expr | None] = [None, None]
    if node.opset < 11:
        for i, name in enumerate(("min", "max")):
            value = node.float(name, float("nan"))
            bounds[i] = None if np.isnan(value) else make.const(np.array(value, dtype.numpy))
    else:
        bounds = [node.tensor(i) if node.has(i) else None for i in (1, 2)]
    if bounds[0] is not None:
        x = node.emit("maximum", x, bounds[0])
    if bounds[1] is not None:
        x = node.emit("minimum", x, bounds[1])
    return OnnxValue(x)


def _pow(node: Node) -> OnnxValue:
    x, y = term(node, 0), term(node, 1)
    t = x.dtype
    if t.is_float:
        return x.op("pow", y.cast(t)).value
    if y.dtype.is_float:
        wide = y.cast(dt.F64)
        real = x.cast(dt.F64).op("pow", wide).cast(t)
        # A power that is whole must come out whole, however the real one rounds. Beyond these
        # exponents all integers but 0, 1 and -1 overflow.
        whole = wide.equals(wide.op("floor")) & (wide.op("abs") < 64.0)
        return whole.where(x.op("pow", wide.cast(t)), real).value
    # The wider of both types holds the exponent; the power is cut to the type of the base.
    common = y.dtype if y.dtype.bits > t.bits else t
    return x.cast(common).op("pow", y.cast(common)).cast(t).value


def _gemm(node: Node) -> OnnxValue:
    a, b = node.tensor(0), node.tensor(1)
    dtype = node.type(0).dtype
    if node.flag("transA"):
        a = node.emit("transpose", a, perm=(1, 0))
    if node.flag("transB"):
        b = node.emit("transpose", b, perm=(1, 0))
    y = node.emit("matmul", a, b)
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    if alpha != 1.0:
        y = node.emit("mul", y, make.const(np.array(alpha, dtype.numpy)))
    if node.has(2) and beta != 0.0:
        c = node.tensor(2)
        if beta != 1.0:
            c = node.emit("mul", c, make.const(np.array(beta, dtype.numpy)))
        y = node.emit("add", y, c)
    return OnnxValue(y)


def _select(node: Node) -> OnnxValue:
    condition = node.array(0)
    yes, no = node.known(1), node.known(2)
    some_symbolic = node.value(1).ints is not None or node.value(2).ints is not None
    if condition is not None and yes is not None and no is not None and some_symbolic:
        flags = [lit(int(c)) for c in condition.reshape(-1)] if condition.ndim < 2 else []
        out = [y if c.value else n for c, y, n in _together(flags, yes, no)]
        found = _known_result(node, out, node.type(1).dtype)
        if found is not None:
            return found
    return node.result("select", *node.tensors())


def _equal_ints(node: Node) -> OnnxValue | None:
    """Compare known integers where every pair is decided: dims are never negative."""
    a, b = node.known(0), node.known(1)
    out: list[bool] = []
    for x, y in _together(a or (), b or ()):
        difference = (x - y).value
        if difference is not None:
            out.append(difference == 0)
        elif (_never_negative(x) and (y.value or 0) < 0) or (_never_negative(y) and (x.value or 0) < 0):
            out.append(False)
        else:
            return None
    if not out:
        return None
    content = np.array(out)
    scalar = node.rank(0) == 0 and node.rank(1) == 0
    return OnnxValue(make.const(content.reshape(()) if scalar else content))


def _never_negative(e: Int) -> bool:
    return all(c >= 0 for _, c in e.terms)


def _equal(node: Node) -> OnnxValue:
    return _equal_ints(node) or node.result("equal", node.tensor(0), node.tensor(1))


def _mean(node: Node) -> OnnxValue:
    total = _variadic("add")(node)
    assert isinstance(total, OnnxValue)
    assert total.expr is not None
    count = np.array(len(node.inputs), node.type(0).dtype.numpy)
    return node.result("div", total.expr, make.const(count))


def _scaled(name: str, **defaults: float) -> Rule:
    """A unary operator whose attributes are floats with these defaults."""

    def rule(node: Node) -> OnnxValue:
        attrs = {k: node.float(k, d) for k, d in defaults.items()}
        return node.result(name, node.tensor(0), **attrs)

    return rule


def _gelu(node: Node) -> OnnxValue:
    tanh = node.choice("approximate", "none", "tanh") == "tanh"
    form = GeluForm.TANH if tanh else GeluForm.ERF
    return node.result("gelu", node.tensor(0), form=form)


def _prelu(node: Node) -> OnnxValue:
    x, slope = node.tensor(0), node.tensor(1)
    zero = make.const(np.zeros((), node.type(0).dtype.numpy))
    return node.result("select", node.emit("less", x, zero), node.emit("mul", x, slope), x)


def _is_inf(node: Node) -> OnnxValue:
    x = term(node, 0)
    up, down = (node.flag(f"detect_{sign}", default=True) for sign in ("positive", "negative"))
    infinite = x.op("is_inf")
    if up and down:
        return infinite.value
    if not up and not down:
        return (infinite & False).value
    return (infinite & (x > 0.0 if up else x < 0.0)).value


def _shrink(node: Node) -> OnnxValue:
    x = term(node, 0)
    limit, bias = node.float("lambd", 0.5), node.float("bias", 0.0)
    if not x.dtype.is_float:
        wide = x.cast(dt.F64)
        return _shrunk(wide, limit, bias).cast(x.dtype).value
    return _shrunk(x, limit, bias).value


def _shrunk(x: Term, limit: float, bias: float) -> Term:
    return (x < -limit).where(x + bias, (x > limit).where(x - bias, 0.0))


def _bitshift(node: Node) -> OnnxValue:
    left = node.choice("direction", "LEFT", "RIGHT") == "LEFT"
    name = "shift_left" if left else "shift_right"
    return node.result(name, node.tensor(0), node.tensor(1))


_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "is_nan",
    "Mish": "mish",
    "Log": "log",
    "Neg": "neg",
    "Not": "logical_not",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
    "BitwiseNot": "bitwise_not",
}
_BINARY = {
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}

RULES: Mapping[str, Rule] = {
    **{k: _unary(v) for k, v in _UNARY.items()},
    **{k: _binary(v) for k, v in _BINARY.items()},
    "Add": on_ints(lambda a, b: a + b, _binary("add")),
    "Sub": on_ints(lambda a, b: a - b, _binary("sub")),
    "Mul": on_ints(lambda a, b: a * b, _binary("mul")),
    "Div": on_ints(_truncated_quotient, _binary("div")),
    "Max": on_ints(maximum, _variadic("maximum")),
    "Min": on_ints(minimum, _variadic("minimum")),
    "Sum": _variadic("add"),
    "Mean": _mean,
    "Mod": _mod,
    "Pow": _pow,
    "Equal": _equal,
    "Where": _select,
    "Cast": _cast,
    "Clip": _clip,
    "BitCast": _bit_cast,
    "Reciprocal": _unary("reciprocal"),
    "IsInf": _is_inf,
    "Shrink": _shrink,
    "PRelu": _prelu,
    "BitShift": _bitshift,
    "Gelu": _gelu,
    "Elu": _scaled("elu", alpha=1.0),
    "Celu": _scaled("celu", alpha=1.0),
    "Selu": _scaled("selu", alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "LeakyRelu": _scaled("leaky_relu", alpha=0.01),
    "ThresholdedRelu": _scaled("thresholded_relu", alpha=1.0),
    "HardSigmoid": _scaled("hard_sigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _unary("hard_swish"),
    "MatMul": _binary("matmul"),
    "Gemm": _gemm,
}
