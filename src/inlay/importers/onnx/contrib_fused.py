"""Fused operators of onnxruntime: what its optimizer and its quantizer make of core operators.

Each is the composition that it was fused from. Quantized ones compute on the real numbers that their
operands stand for, and round once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from inlay.arith import dtype as dt
from inlay.importers.onnx import ops_math, ops_nn, ops_pool
from inlay.importers.onnx.node import Node, Rule
from inlay.importers.onnx.ops_quantized import RULES as QUANTIZED
from inlay.importers.onnx.ops_quantized import dynamically_quantized, parameter, requantized
from inlay.importers.onnx.term import Term, concat, constant, filled, term
from inlay.importers.onnx.values import OnnxValue

# --------------------------------------------------------------------------- activations


def _activated(node: Node, y: Term) -> Term:
    """Apply the activation that a node names."""
    name = node.string("activation", "")
    given = node.float_list("activation_params") or ()
    alpha = node.float("activation_alpha", given[0] if given else 0.01)
    beta = node.float("activation_beta", given[1] if len(given) > 1 else 0.5)
    match name:
        case "":
            return y
        case "Relu" | "Sigmoid" | "Tanh":
            return y.op(name.lower())
        case "LeakyRelu":
            return y.op("leaky_relu", alpha=alpha)
        case "Clip" if len(given) == 2:
            return y.clamp(given[0], given[1])
        case "HardSigmoid":
            return (y * (alpha if given else 0.2) + beta).clamp(0.0, 1.0)
        case _:
            raise node.unsupported(f"has activation '{name}'")


def _fused_conv(node: Node) -> OnnxValue:
    done = ops_nn.RULES["Conv"](_without(node, 3))
    assert isinstance(done, OnnxValue), "a convolution has one result"
    y = Term(node, node.as_tensor(done))
    if node.has(3):
        y = y + term(node, 3)
    return _activated(node, y).value


def _fused_gemm(node: Node) -> OnnxValue:
    done = ops_math.RULES["Gemm"](node)
    assert isinstance(done, OnnxValue), "a product has one result"
    return _activated(node, Term(node, node.as_tensor(done))).value


def _without(node: Node, count: int) -> Node:
    """Return the node with its first inputs only."""
    return replace(node, inputs=node.inputs[:count])


# --------------------------------------------------------------------------- normalization


def _skip_norm(*, simplified: bool) -> Rule:
    """Normalize the sum of two tensors and a bias; the sum is output 3."""

    def rule(node: Node) -> tuple[OnnxValue, ...]:
        bias = 3 if simplified else 4
        total = term(node, 0) + term(node, 1)
        if node.has(bias):
            total = total + term(node, bias)
        more = () if simplified or not node.has(3) else (term(node, 3),)
        y = _normal(node, total, (term(node, 2), *more), simplified=simplified)
        return _first_and_last(node, y, total)

    return rule


def _normal(node: Node, x: Term, scale: tuple[Term, ...], *, simplified: bool) -> Term:
    epsilon = node.float("epsilon", 1e-12 if not simplified else 1e-5)
    name = "rms_norm" if simplified else "layer_norm"
    return x.op(name, *scale, axis=x.rank - 1, epsilon=epsilon)


def _first_and_last(node: Node, y: Term, total: Term) -> tuple[OnnxValue, ...]:
    """Return the result, and the sum as output 3; what is between is for training."""
    if any(node.proto.output[1:3]):
        raise node.unsupported("has outputs for training")
    return (y.value, y.value, y.value, total.value)[: len(node.proto.output)]


def _embed_layer_norm(node: Node) -> tuple[OnnxValue, ...]:
    """Look up words, positions and segments, add them up, and normalize."""
    tables = {i: term(node, i) for i in (2, 3, 4) if node.has(i)}
    places = term(node, 8) if node.has(8) else None
    total = _embedded(node, tables, places)
    y = _normal(node, total, (term(node, 5), term(node, 6)), simplified=False)
    return (y.value, _counted(node).value, total.value)[: len(node.proto.output)]


def _embedded(node: Node, tables: Mapping[int, Term], places: Term | None) -> Term:
    """Return the sum of what words, positions and segments stand for; tables by their input."""
    ids = term(node, 0)
    here = tables[3].part(0, 0, ids.shape[1]) if places is None else tables[3].gather(places)
    total = tables[2].gather(ids) + here
    return total + tables[4].gather(term(node, 1)) if node.has(1) else total


def _counted(node: Node) -> Term:
    """Return how many words of each sequence the mask has; 0 without one."""
    if not node.has(7):
        return filled(node, 0, (term(node, 0).shape[0],), dt.I32)
    return term(node, 7).equals(1).cast(dt.I32).over("sum", 1)


def _q_embed_layer_norm(node: Node) -> tuple[OnnxValue, ...]:
    """Inputs 2 to 6 are quantized: their scales are 5 inputs from 8 on, their zero points from 13."""
    real = {
        i: term(node, i).op("dequantize", parameter(node, 6 + i), parameter(node, 11 + i), axis=0)
        for i in range(2, 7)
        if node.has(i)
    }
    y = _normal(node, _embedded(node, real, None), (real[5], real[6]), simplified=False)
    return (y.value, _counted(node).value)[: len(node.proto.output)]


# --------------------------------------------------------------------------- quantized


def _real(node: Node, x: int, scale: int, zero: int, axis: int = 0) -> Term:
    """Return what a quantized input stands for."""
    more = (parameter(node, zero),) if node.has(zero) else ()
    return term(node, x).op("dequantize", parameter(node, scale), *more, axis=axis)


def _rounded(node: Node, y: Term, scale: int, zero: int, to: dt.DType) -> OnnxValue:
    """Quantize with the scale and zero point of two inputs."""
    more = (parameter(node, zero),) if node.has(zero) else ()
    return y.op("quantize", parameter(node, scale), *more, dtype=to, axis=0).value


def _q_linear(make: Callable[[Node, Term], Term]) -> Rule:
    """Inputs: x, scale, zero; scale and zero of the result."""

    def rule(node: Node) -> OnnxValue:
        return _rounded(node, make(node, _real(node, 0, 1, 2)), 3, 4, node.type(0).dtype)

    return rule


def _global_average(node: Node, x: Term) -> Term:
    first = 1 if node.flag("channels_last") else 2
    last = x.rank - 1 if first == 1 else x.rank
    return x.over("mean", *range(first, last), keep=True)


def _average(node: Node, x: Term) -> Term:
    last = node.flag("channels_last")
    x = x.move(x.rank - 1, 1) if last else x
    # The window is read off the shape of input 0.
    inside = replace(node, inputs=(x.value, *node.inputs[1:]))
    y = Term(node, node.as_tensor(ops_pool.average_pool(inside, x)))
    return y.move(1, y.rank - 1) if last else y


def _channels_last(rule: Rule, *, always: bool = False) -> Rule:
    """Return the rule of an operator whose input and result have their channels last."""

    def turned(node: Node) -> OnnxValue:
        if not (always or node.flag("channels_last")):
            done = rule(node)
        else:
            x = term(node, 0)
            done = rule(replace(node, inputs=(x.move(x.rank - 1, 1).value, *node.inputs[1:])))
        (result,) = done[:1] if isinstance(done, tuple) else (done,)
        y = Term(node, node.as_tensor(result))
        return y.move(1, y.rank - 1).value if always or node.flag("channels_last") else y.value

    return turned


def _softmax(node: Node, x: Term) -> Term:
    if node.int("opset", 13) < 13:
        axis = node.axis(node.int("axis", 1), x.rank)
        if axis != x.rank - 1:
            raise node.unsupported("is a softmax over several axes")
    return x.op("softmax", axis=node.axis(node.int("axis", -1), x.rank))


def _q_linear_concat(node: Node) -> OnnxValue:
    """Inputs: scale and zero of the result; then tensor, scale and zero of each part."""
    parts = [_real(node, i, i + 1, i + 2) for i in range(2, len(node.inputs), 3)]
    joined = concat(parts, node.axis(node.int("axis", 0), parts[0].rank))
    return _rounded(node, joined, 0, 1, node.type(2).dtype)


def _q_where(node: Node) -> OnnxValue:
    """Inputs: the condition; x, scale, zero; y, scale, zero; scale and zero of the result."""
    chosen = term(node, 0).where(_real(node, 1, 2, 3), _real(node, 4, 5, 6))
    return _rounded(node, chosen, 7, 8, node.type(1).dtype)


def _mean(node: Node, x: Term) -> Term:
    axes = [node.axis(a, x.rank) for a in node.int_list("axes") or ()]
    return x.over("mean", *axes, keep=node.flag("keepdims", default=True))


def _q_gemm(node: Node) -> OnnxValue:
    """Inputs: a, scale, zero; b, scale, zero; c in units of both scales; scale and zero of y."""
    operands = [term(node, i) for i in (0, 3)]
    zeros = [parameter(node, i) if node.has(i) else constant(node, 0, node.type(i - 2).dtype) for i in (2, 5)]
    flipped = [
        x.transpose(1, 0) if node.flag(f) else x for x, f in zip(operands, ("transA", "transB"), strict=True)
    ]
    total = flipped[0].op("matmul_integer", flipped[1], *zeros)
    if node.has(6):
        total = total + term(node, 6)
    scale = parameter(node, 1) * parameter(node, 4) * node.float("alpha", 1.0)
    return (requantized(total, scale, -1, node, 7) if node.has(7) else total.cast(dt.F32) * scale).value


def _matmul_integer_to_float(node: Node) -> OnnxValue:
    """Inputs: a, b; their scales; their zero points; a bias."""
    return _scaled_product(node, term(node, 0), parameter(node, 2), 4, 3, 5, 6)


def _dynamic_quantize_matmul(node: Node) -> OnnxValue:
    """Inputs: a in floats; b, its scale and zero point; a bias."""
    q, scale, zero = dynamically_quantized(term(node, 0))
    return _scaled_product(node, q, scale, zero, 2, 3, 4)


def _scaled_product(
    node: Node, a: Term, a_scale: Term, a_zero: Term | int, b_scale: int, b_zero: int, bias: int
) -> OnnxValue:
    zero = parameter(node, a_zero) if isinstance(a_zero, int) and node.has(a_zero) else a_zero
    left = zero if isinstance(zero, Term) else constant(node, 0, a.dtype)
    right = parameter(node, b_zero) if node.has(b_zero) else constant(node, 0, node.type(1).dtype)
    total = a.op("matmul_integer", term(node, 1), left, right)
    y = total.cast(dt.F32) * (a_scale * parameter(node, b_scale))
    return (y + term(node, bias)).value if node.has(bias) else y.value


RULES: Mapping[str, Rule] = {
    "FusedConv": _fused_conv,
    "NhwcMaxPool": _channels_last(ops_pool.RULES["MaxPool"], always=True),
    "QLinearConv": _channels_last(QUANTIZED["QLinearConv"]),
    "QLinearWhere": _q_where,
    "QLinearReduceMean": _q_linear(_mean),
    "QEmbedLayerNormalization": _q_embed_layer_norm,
    "FusedGemm": _fused_gemm,
    "SkipLayerNormalization": _skip_norm(simplified=False),
    "SkipSimplifiedLayerNormalization": _skip_norm(simplified=True),
    "EmbedLayerNormalization": _embed_layer_norm,
    "QLinearGlobalAveragePool": _q_linear(_global_average),
    "QLinearAveragePool": _q_linear(_average),
    "QLinearSoftmax": _q_linear(_softmax),
    "QLinearConcat": _q_linear_concat,
    "QGemm": _q_gemm,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
}
