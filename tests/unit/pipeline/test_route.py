"""The order of passes, by what it is for."""

from __future__ import annotations

from collections import Counter

import numpy as np
from onnx import helper

from inlay.analysis.blocks import values
from inlay.interp.tensor import evaluate_expr
from inlay.ir.expr import Call, OpRef
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.passes.manager import run_pipeline
from inlay.pipeline.planning import meanings_of
from inlay.pipeline.route import route
from inlay.transforms import fuse_ops
from tests.unit.importers.onnx.models import load, model, value

node = helper.make_node


def test_weights_that_were_folded_into_others_are_not_packed():
    operators = table()
    meanings = meanings_of(operators)
    packed: Counter[str] = Counter()

    def count(step, _before, after):
        if step.name == "pack-weights":
            found = [v for f in after.functions.values() for v in values(f.body)]
            calls = [v.callee.op.name for v in found if isinstance(v, Call) and isinstance(v.callee, OpRef)]
            packed.update(calls)

    constants = {"w": np.ones((8, 8, 3, 3), np.float32)} | {
        name: np.full(8, 2, np.float32) for name in ("scale", "bias", "mean", "var")
    }
    m = model(
        [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", *list(constants)[1:]], ["y"])],
        [value("x", (1, 8, 9, 9))],
        [value("y", (1, 8, 7, 7))],
        constants,
    )
    context = PassContext(operators, lambda e: evaluate_expr(e, meanings))
    run_pipeline(route(fuse_ops.PASS), load(m), context, observe=count)
    assert packed["conv_nhwc_packed"] == 1
    assert not {"conv", "conv_nhwc", "batch_norm"} & set(packed)
