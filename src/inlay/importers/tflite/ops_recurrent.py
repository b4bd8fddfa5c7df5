"""Recurrent layers: an LSTM over a sequence, as a scan.

The state of a layer is kept in variables of the model from run to run: these are further inputs and outputs
of the program (`graph.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from inlay.arith.dtype import F32
from inlay.importers.tflite.node import Node, Rule
from inlay.ir.builder import Builder
from inlay.ir.expr import Expr, Var
from inlay.ir.loop_trace import Step

_TANH = 4
_PEEPHOLES, _PROJECTION, _NORMS = (9, 10, 11), (16, 17), (20, 21, 22, 23)
_OUTPUT_STATE, _CELL_STATE = 18, 19


def _lstm(node: Node) -> Expr:
    activation, clip, major = node.options(
        "UnidirectionalSequenceLSTMOptions", "FusedActivationFunction", "CellClip", "TimeMajor"
    )
    if activation != _TANH:
        raise node.unsupported(f"has the activation {activation} instead of tanh")
    if node.input(0).dtype is not F32:
        raise node.unsupported(f"takes {node.input(0).dtype}")
    for name, inputs in (("peepholes", _PEEPHOLES), ("a projection", _PROJECTION), ("norms", _NORMS)):
        if any(node.has(i) for i in inputs):
            raise node.unsupported(f"has {name}")
    if not all(node.has(i) for i in (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15)):
        raise node.unsupported("has coupled gates, or no biases")
    x = node.tensor(0)
    if not major:
        x = node.op("transpose", x, perm=(1, 0, 2))
    # One product for the four gates: input, forget, cell, output.
    of_input = [node.op("transpose", node.reals(i), perm=(1, 0)) for i in (1, 2, 3, 4)]
    of_state = [node.op("transpose", node.reals(i), perm=(1, 0)) for i in (5, 6, 7, 8)]
    w, r = node.op("concat", *of_input, axis=1), node.op("concat", *of_state, axis=1)
    bias = node.op("concat", *(node.reals(i) for i in (12, 13, 14, 15)), axis=0)
    gates = node.op("add", node.op("matmul", x, w), bias)
    size = node.shape(r)[0].value
    if size is None:
        raise node.unsupported("has a state whose size is not known")

    def step(b: Builder, carried: tuple[Var, ...], rows: tuple[Expr, ...]) -> Step:
        inside = node.within(b)
        hidden, cell = carried
        total = inside.op("add", rows[0], inside.op("matmul", hidden, r))
        i, f, g, o = (inside.part(total, -1, k * size, (k + 1) * size) for k in range(4))
        kept = inside.op("mul", inside.op("sigmoid", f), cell)
        new = inside.op("add", kept, inside.op("mul", inside.op("sigmoid", i), inside.op("tanh", g)))
        if clip > 0:
            new = inside.clamped(new, -clip, clip)
        out = inside.op("mul", inside.op("sigmoid", o), inside.op("tanh", new))
        return Step([out, new], [out])

    start = [node.tensor(_OUTPUT_STATE), node.tensor(_CELL_STATE)]
    done = node.builder.scan(start, [gates], step, names=("hidden", "cell"), name="lstm")
    node.update(_OUTPUT_STATE, done.carried[0])
    node.update(_CELL_STATE, done.carried[1])
    return done.stacked[0] if major else node.op("transpose", done.stacked[0], perm=(1, 0, 2))


RULES: Mapping[str, Rule] = {"UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm}
