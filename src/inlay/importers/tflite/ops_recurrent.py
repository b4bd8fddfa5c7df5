"""Recurrent layers of floats, as scans. Their states are variables (`variables.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.arith.dtype import F32
from inlay.importers.tflite.integers import activated
from inlay.importers.tflite.node import Node, Rule
from inlay.importers.tflite.ops_lstm import integer_lstm
from inlay.importers.tflite.ops_svdf import svdf
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step

_TANH = 4
_TIME_FIRST = (1, 0, 2)


def squashed(node: Node, e: Expr, activation: int) -> Expr:
    """Apply an activation, which may be tanh."""
    return node.op("tanh", e) if activation == _TANH else activated(node, e, activation)


# --------------------------------------------------------------------------- LSTM


@dataclass(frozen=True, slots=True)
class _Layer:
    """Where the operands of an LSTM are among the inputs of an operator, and what it does besides.

    Attributes:
        weights, recurrent, biases: of the gates: input, forget, cell, output.
        peepholes: of the gates input, forget, output.
        projection: its weights and bias.
        states: the output and the cell.
        norms: factors of normalized gates.
        activation, clip, projection_clip: of the cell, and of what is projected.
    """

    weights: Sequence[int] = (1, 2, 3, 4)
    recurrent: Sequence[int] = (5, 6, 7, 8)
    peepholes: Sequence[int] = (9, 10, 11)
    biases: Sequence[int] = (12, 13, 14, 15)
    projection: Sequence[int] = (16, 17)
    states: Sequence[int] = (18, 19)
    norms: Sequence[int] = (20, 21, 22, 23)
    activation: int = _TANH
    clip: float = 0.0
    projection_clip: float = 0.0

    def moved(self, by: int, states: Sequence[int]) -> _Layer:
        """Return the layer whose operands stand further behind; without norms."""
        names = ("weights", "recurrent", "peepholes", "biases", "projection")
        return replace(
            self, **{n: [i + by for i in getattr(self, n)] for n in names}, states=states, norms=()
        )


def _joined(node: Node, inputs: Sequence[int]) -> Expr:
    """Return matrices of gates beside each other, transposed: one product for all."""
    return node.op("concat", *(node.op("transpose", node.reals(i), perm=(1, 0)) for i in inputs), axis=1)


def _normalized(node: Node, e: Expr, factor: Expr) -> Expr:
    """Return values less their mean, divided by their deviation, times a factor."""
    centered = node.op("sub", e, node.op("reduce_mean", e, axes=(-1,), keepdims=True))
    variance = node.op("reduce_mean", node.op("mul", centered, centered), axes=(-1,), keepdims=True)
    scale = node.op("rsqrt", node.op("add", variance, np.asarray(1e-8, np.float32)))
    return node.op("mul", node.op("mul", centered, scale), factor)


def _lstm_over(node: Node, x: Expr, layer: _Layer, *, is_reverse: bool = False) -> Expr:
    """Emit a layer over a sequence `[time, batch, features]`; return its outputs, in the order of time."""
    used = [g for g in range(4) if node.has(layer.weights[g])]
    if used not in ([0, 1, 2, 3], [1, 2, 3]) or not node.has(layer.states[0]):
        raise node.unsupported("lacks weights or states")
    count = node.extents(layer.weights[used[-1]])[0]
    w, r = (_joined(node, [part[g] for g in used]) for part in (layer.weights, layer.recurrent))
    has_norms = any(node.has(i) for i in layer.norms)
    sums = node.op("matmul", x, w)
    biases = {g: node.reals(layer.biases[g]) for g in used if node.has(layer.biases[g])}
    if len(biases) == len(used) and not has_norms:  # what does not depend on states is added once for all
        sums = node.op("add", sums, node.op("concat", *biases.values(), axis=0))
        biases = {}

    def step(b: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inside = node.within(b)
        hidden, cell = carried
        total = inside.op("add", rows[0], inside.op("matmul", hidden, r))
        parts = {g: inside.part(total, -1, k * count, (k + 1) * count) for k, g in enumerate(used)}

        def gate(g: int, peephole: int | None, at: Expr) -> Expr:
            e = parts[g]
            if peephole is not None and node.has(layer.peepholes[peephole]):
                e = inside.op("add", e, inside.op("mul", at, node.reals(layer.peepholes[peephole])))
            if has_norms:
                e = _normalized(inside, e, node.reals(layer.norms[g]))
            return inside.op("add", e, biases[g]) if g in biases else e

        forget = inside.op("sigmoid", gate(1, 1, cell))
        taken = (
            inside.op("sigmoid", gate(0, 0, cell))
            if 0 in parts
            else inside.op("sub", np.asarray(1, np.float32), forget)
        )
        new = squashed(inside, gate(2, None, cell), layer.activation)
        cell_next = inside.op("add", inside.op("mul", forget, cell), inside.op("mul", taken, new))
        if layer.clip > 0:
            cell_next = inside.clamped(cell_next, -layer.clip, layer.clip)
        out = inside.op("sigmoid", gate(3, 2, cell_next))
        out = inside.op("mul", out, squashed(inside, cell_next, layer.activation))
        out = _projected(inside, out, layer)
        return Step([out, cell_next], [out])

    start = [node.reals(i) for i in layer.states]
    done = node.builder.scan(
        start,
        [sums],
        step,
        reverse_sequences=[is_reverse],
        reverse_rows=[is_reverse],
        names=("hidden", "cell"),
        name="lstm",
    )
    for i, value in zip(layer.states, done.carried, strict=True):
        node.update(i, value)
    return done.stacked[0]


def _projected(node: Node, out: Expr, layer: _Layer) -> Expr:
    weights, bias = layer.projection
    if not node.has(weights):
        return out
    out = node.op("matmul", out, node.op("transpose", node.reals(weights), perm=(1, 0)))
    if node.has(bias):
        out = node.op("add", out, node.reals(bias))
    if layer.projection_clip > 0:
        out = node.clamped(out, -layer.projection_clip, layer.projection_clip)
    return out


def _lstm(node: Node) -> Expr:
    activation, clip, projection_clip, major = node.options(
        "UnidirectionalSequenceLSTMOptions", "FusedActivationFunction", "CellClip", "ProjClip", "TimeMajor"
    )
    if node.input(0).dtype is not F32:
        return integer_lstm(node, activation, float(clip), is_time_major=bool(major))
    layer = _Layer(activation=activation, clip=clip, projection_clip=projection_clip)
    x = node.tensor(0)
    if major:
        return _lstm_over(node, x, layer)
    done = _lstm_over(node, node.op("transpose", x, perm=_TIME_FIRST), layer)
    return node.op("transpose", done, perm=_TIME_FIRST)


def _lstm_of_one_step(node: Node) -> Expr | tuple[Expr, ...]:
    activation, clip, projection_clip, kind = node.options(
        "LSTMOptions", "FusedActivationFunction", "CellClip", "ProjClip", "KernelType"
    )
    node.only_floats()
    if kind != 0:
        return _basic_cell(node, activation)
    layer = _Layer(activation=activation, clip=clip, projection_clip=projection_clip)
    x = node.tensor(0)
    done = _lstm_over(node, node.reshape(x, 1, *node.shape(x)), layer)
    return node.reshape(done, *node.shape(done)[1:])


def _basic_cell(node: Node, activation: int) -> tuple[Expr, ...]:
    """Emit a step of the cell without options, whose gates have one matrix: input, new, forget, output.

    Inputs: features, output of the step before, weights, biases, cell. Results: output, cell, and what the
    kernel writes down on the way: the row that is multiplied, and the sums.
    """
    if activation != _TANH:
        raise node.unsupported(f"has the activation {activation} instead of tanh")
    row = node.op("concat", node.tensor(0), node.reals(1), axis=1)
    total = node.op("matmul", row, node.op("transpose", node.reals(2), perm=(1, 0)))
    total = node.op("add", total, node.reals(3))
    count = node.extents(2)[0] // 4
    parts = [node.part(total, 1, k * count, (k + 1) * count) for k in range(4)]
    taken, kept, given = (node.op("sigmoid", parts[k]) for k in (0, 2, 3))
    new = node.op("mul", taken, node.op("tanh", parts[1]))
    cell = node.op("add", new, node.op("mul", kept, node.reals(4)))
    out = node.op("mul", given, node.op("tanh", cell))
    for i, value in ((1, out), (4, cell)):
        if node.input(i).is_variable:
            node.update(i, value)
    return out, cell, row, total


def _both_ways(node: Node) -> tuple[Expr, ...]:
    activation, clip, projection_clip, is_merged, major = node.options(
        "BidirectionalSequenceLSTMOptions",
        "FusedActivationFunction",
        "CellClip",
        "ProjClip",
        "MergeOutputs",
        "TimeMajor",
    )
    node.only_floats()
    if any(node.has(i) for i in range(39, 48)):
        raise node.unsupported("has a second input")
    x = node.tensor(0) if major else node.op("transpose", node.tensor(0), perm=_TIME_FIRST)
    layer = _Layer(norms=(), activation=activation, clip=clip, projection_clip=projection_clip)
    forth = _lstm_over(node, x, replace(layer, states=(35, 36)))
    back = _lstm_over(node, x, layer.moved(17, (37, 38)), is_reverse=True)
    return _merged(node, [forth, back], is_merged=bool(is_merged), is_major=bool(major))


def _merged(node: Node, parts: list[Expr], *, is_merged: bool, is_major: bool) -> tuple[Expr, ...]:
    if is_merged:
        parts = [node.op("concat", *parts, axis=-1)]
    return tuple(p if is_major else node.op("transpose", p, perm=_TIME_FIRST) for p in parts)


# --------------------------------------------------------------------------- plain recurrent layers


def _rnn_over(
    node: Node, x: Expr, inputs: Sequence[int], activation: int, *, is_reverse: bool = False
) -> Expr:
    """Emit `activation(W x + R h + b)` over a sequence; `inputs`: weights, recurrent ones, bias, state."""
    w, r = (node.op("transpose", node.reals(i), perm=(1, 0)) for i in inputs[:2])
    sums = node.op("add", node.op("matmul", x, w), node.reals(inputs[2]))

    def step(b: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inside = node.within(b)
        total = inside.op("add", rows[0], inside.op("matmul", carried[0], r))
        out = squashed(inside, total, activation)
        return Step([out], [out])

    done = node.builder.scan(
        [node.tensor(inputs[3])],
        [sums],
        step,
        reverse_sequences=[is_reverse],
        reverse_rows=[is_reverse],
        names=("hidden",),
        name="rnn",
    )
    node.update(inputs[3], done.carried[0])
    return done.stacked[0]


def _rnn(node: Node) -> Expr:
    (activation,) = node.options("RNNOptions", "FusedActivationFunction")
    node.only_floats()
    x = node.tensor(0)
    done = _rnn_over(node, node.reshape(x, 1, *node.shape(x)), (1, 2, 3, 4), activation)
    return node.reshape(done, *node.shape(done)[1:])


def _sequence_rnn(node: Node) -> Expr:
    activation, major = node.options("SequenceRNNOptions", "FusedActivationFunction", "TimeMajor")
    node.only_floats()
    x = node.tensor(0) if major else node.op("transpose", node.tensor(0), perm=_TIME_FIRST)
    done = _rnn_over(node, x, (1, 2, 3, 4), activation)
    return done if major else node.op("transpose", done, perm=_TIME_FIRST)


def _rnn_both_ways(node: Node) -> tuple[Expr, ...]:
    activation, is_merged, major = node.options(
        "BidirectionalSequenceRNNOptions", "FusedActivationFunction", "MergeOutputs", "TimeMajor"
    )
    node.only_floats()
    if any(node.has(i) for i in (9, 10, 11)):
        raise node.unsupported("has a second input")
    x = node.tensor(0) if major else node.op("transpose", node.tensor(0), perm=_TIME_FIRST)
    forth = _rnn_over(node, x, (1, 2, 3, 4), activation)
    back = _rnn_over(node, x, (5, 6, 7, 8), activation, is_reverse=True)
    return _merged(node, [forth, back], is_merged=bool(is_merged), is_major=bool(major))


RULES: Mapping[str, Rule] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "LSTM": _lstm_of_one_step,
    "BIDIRECTIONAL_SEQUENCE_LSTM": _both_ways,
    "RNN": _rnn,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence_rnn,
    "BIDIRECTIONAL_SEQUENCE_RNN": _rnn_both_ways,
    "SVDF": svdf,
}
