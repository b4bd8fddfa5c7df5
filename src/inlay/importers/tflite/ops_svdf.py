"""SVDF layers: a filter over features, whose results of the last steps are kept, and one over time."""

from __future__ import annotations

from inlay.arith.dtype import F32, I8, I16, I32
from inlay.importers.tflite.integers import RELU, activated, multipliers, requantize_as
from inlay.importers.tflite.node import Node
from inlay.importers.tflite.ops_linear import integer_products
from inlay.ir.expr import Expr

_FEATURES, _TIME, _BIAS, _STATE = 1, 2, 3, 4


def svdf(node: Node) -> Expr:
    """Emit a layer; its state is `[batch, filters * steps]`, the oldest step of a filter first."""
    rank, activation = node.options("SVDFOptions", "Rank", "FusedActivationFunction")
    filters, steps = node.input(_TIME).shape if len(node.input(_TIME).shape) == 2 else (0, 0)
    if rank < 1 or not filters or filters % rank:
        raise node.unsupported(f"has {filters} filters of rank {rank}")
    if node.input(0).dtype is F32:
        return _of_floats(node, rank, activation, filters, steps)
    return _of_integers(node, rank, activation, filters, steps)


def _moved(node: Node, new: Expr, filters: int, steps: int) -> Expr:
    """Return the state `[batch, filters, steps]` with a new step instead of the oldest; keep it."""
    state = node.tensor(_STATE)
    batch = node.shape(state)[0]
    cube = node.reshape(state, batch, filters, steps)
    kept = node.part(cube, 2, 1, steps)
    cube = node.op("concat", kept, node.reshape(new, batch, filters, 1), axis=2)
    node.update(_STATE, node.reshape(cube, batch, filters * steps))
    return cube


def _summed(node: Node, products: Expr, filters: int, rank: int) -> Expr:
    """Sum products over time, and over the filters of a unit."""
    batch = node.shape(products)[0]
    of_filters = node.op("reduce_sum", products, axes=(2,))
    return node.op("reduce_sum", node.reshape(of_filters, batch, filters // rank, rank), axes=(2,))


def _of_floats(node: Node, rank: int, activation: int, filters: int, steps: int) -> Expr:
    w = node.op("transpose", node.reals(_FEATURES), perm=(1, 0))
    cube = _moved(node, node.op("matmul", node.tensor(0), w), filters, steps)
    total = _summed(node, node.op("mul", cube, node.reals(_TIME)), filters, rank)
    if node.has(_BIAS):
        total = node.op("add", total, node.reals(_BIAS))
    return activated(node, total, activation)


def _of_integers(node: Node, rank: int, activation: int, filters: int, steps: int) -> Expr:
    state, out = node.input(_STATE), node.output()
    if activation != RELU or node.input(0).dtype is not I8 or state.dtype not in (I8, I16):
        raise node.unsupported(f"has the activation {activation}, and a state of {state.dtype}")
    scales = [float(node.scale(node.input(i))) for i in (0, _FEATURES, _TIME, _STATE)]
    w = node.op("transpose", node.tensor(_FEATURES), perm=(1, 0))
    total = integer_products(node, "matmul_integer", node.tensor(0), w, I32, node.zero(node.input(0)))
    zero = node.zero(state)
    pair = multipliers(scales[0] * scales[1] / scales[3])
    new = requantize_as(node, total, *pair, state.dtype)
    if zero:  # it is added behind the clamp, and wraps
        new = node.op("add", new, node.number(zero, new))
    cube = _moved(node, new, filters, steps)
    values = node.less(node.cast(cube, I32), zero)
    products = node.op("mul", values, node.cast(node.tensor(_TIME), I32))
    total = _summed(node, products, filters, rank)
    if node.has(_BIAS):
        total = node.op("add", total, node.tensor(_BIAS))
    pair = multipliers(scales[3] * scales[2] / float(node.scale(out)))
    return requantize_as(node, total, *pair, out.dtype, node.zero(out))
