"""LSTM of integers, as the kernels for microcontrollers compute it.

Sums of a gate are integers of 16 bits in steps of `2**-12`: one for the input and one for the state, each
requantized and then added, saturating. Gates and the cell's tanh are in steps of `2**-15`.

Source: LSTM evaluation of TFLite Micro, for 8 x 8 and 16 x 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from inlay.arith.dtype import I8, I16, I32, I64
from inlay.importers.tflite import tables
from inlay.importers.tflite.integers import multipliers, requantize_as
from inlay.importers.tflite.node import Node
from inlay.importers.tflite.ops_linear import integer_products
from inlay.importers.tflite.schema import TensorRecord
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step

_TANH = 4
_WEIGHTS, _RECURRENT, _BIASES = (1, 2, 3, 4), (5, 6, 7, 8), (12, 13, 14, 15)
_HIDDEN, _CELL = 18, 19
_SUMS, _GATES = 2.0**-12, 2.0**-15
_TIME_FIRST = (1, 0, 2)


def integer_lstm(node: Node, activation: int, clip: float, *, is_time_major: bool) -> Expr:
    """Emit a layer whose inputs, weights and states are integers."""
    _check(node, activation)
    x = node.tensor(0)
    if not is_time_major:
        x = node.op("transpose", x, perm=_TIME_FIRST)
    hidden_t, cell_t = node.input(_HIDDEN), node.input(_CELL)
    count = node.input(_RECURRENT[0]).shape[0]
    sums = _sums(node, x, node.input(0), _WEIGHTS, _BIASES)
    power = round(math.log2(float(node.scale(cell_t))))
    every = tables.all_of(I16)
    left = 12 + power
    shaped = (0, left) if left >= 0 else (3, -left)
    gate_table = tables.fitted(tables.sigmoid_of_16_bits(every, 0, 0), I16)
    new_table = tables.fitted(tables.tanh_of_16_bits(every, 0, 0), I16)
    cell_table = tables.fitted(tables.tanh_of_16_bits(every, *shaped), I16)
    cell_scale = float(node.scale(cell_t))

    def step(b: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inside = node.within(b)
        hidden, cell = carried
        total = _saturated_sum(inside, rows[0], _sums(inside, hidden, hidden_t, _RECURRENT, ()))
        i, f, g, o = (inside.part(total, -1, k * count, (k + 1) * count) for k in range(4))
        taken, kept, given = (inside.looked_up(gate_table, e) for e in (i, f, o))
        new = inside.looked_up(new_table, g)
        kept = _product(inside, kept, cell, _GATES * cell_scale / cell_scale, cell_t)
        taken = _product(inside, taken, new, _GATES * _GATES / cell_scale, cell_t)
        cell_next = _saturated_sum(inside, kept, taken)
        if clip > 0:
            most = int(min(max(clip / cell_scale, -32768.0), 32767.0))
            cell_next = inside.clamped(cell_next, -most, most)
        shown = inside.looked_up(cell_table, cell_next)
        factor = _GATES * _GATES / float(inside.scale(hidden_t))
        out = _product(inside, given, shown, factor, hidden_t)
        return Step([out, cell_next], [out])

    start = [node.tensor(_HIDDEN), node.tensor(_CELL)]
    done = node.builder.scan(start, [sums], step, names=("hidden", "cell"), name="lstm")
    node.update(_HIDDEN, done.carried[0])
    node.update(_CELL, done.carried[1])
    return done.stacked[0] if is_time_major else node.op("transpose", done.stacked[0], perm=_TIME_FIRST)


def _check(node: Node, activation: int) -> None:
    """Refuse what the kernels do not compute either."""
    if activation != _TANH:
        raise node.unsupported(f"has the activation {activation} instead of tanh")
    for name, inputs in (
        ("peepholes", range(9, 12)),
        ("a projection", range(16, 18)),
        ("norms", range(20, 24)),
    ):
        if any(node.has(i) for i in inputs):
            raise node.unsupported(f"of integers has {name}")
    if not all(node.has(i) for i in (*_WEIGHTS, *_RECURRENT, *_BIASES, _HIDDEN, _CELL)):
        raise node.unsupported("of integers has coupled gates, or no biases")
    types = {node.input(0).dtype, node.input(_HIDDEN).dtype, node.output().dtype}
    weights = {node.input(i).dtype for i in (*_WEIGHTS, *_RECURRENT)}
    if len(types) > 1 or not types <= {I8, I16} or weights != {I8} or node.input(_CELL).dtype is not I16:
        raise node.unsupported(f"has integers of {', '.join(map(str, sorted(types, key=str)))}")


def _sums(node: Node, x: Expr, t: TensorRecord, weights: Sequence[int], biases: Sequence[int]) -> Expr:
    """Return sums of the gates beside each other, as integers of 16 bits in their steps."""
    parts = [node.op("transpose", node.tensor(i), perm=(1, 0)) for i in weights]
    w = node.op("concat", *parts, axis=1)
    wide = I64 if t.dtype is I16 else I32
    total = integer_products(node, "matmul_integer", x, w, wide, node.zero(t))
    if biases:
        bias = node.op("concat", *(node.tensor(i) for i in biases), axis=0)
        total = node.op("add", total, node.cast(bias, wide))
    factors = [
        np.full(node.input(i).shape[0], float(node.scale(t) * node.scale(node.input(i))) / _SUMS)
        for i in weights
    ]
    return requantize_as(node, total, *multipliers(np.concatenate(factors)), I16)


def _saturated_sum(node: Node, a: Expr, b: Expr) -> Expr:
    total = node.op("add", node.cast(a, I32), node.cast(b, I32))
    return node.cast(node.clamped(total, -32768, 32767), I16)


def _product(node: Node, a: Expr, b: Expr, factor: float, t: TensorRecord) -> Expr:
    """Return a product as the integers of a tensor."""
    product = node.op("mul", node.cast(a, I32), node.cast(b, I32))
    return requantize_as(node, product, *multipliers(factor), t.dtype, node.zero(t))
