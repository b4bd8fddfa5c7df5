"""The roofline estimate: orders of magnitude, and dims stay dims."""

from __future__ import annotations

import numpy as np

from inlay.analysis.cost import predicted_ns
from inlay.arith.dtype import F32
from inlay.arith.expr import evaluate, fresh
from inlay.ir import make
from inlay.ops.matmul import PackedAttrs
from inlay.ops.table import table


def test_packed_product_is_counted_over_its_rows():
    n = fresh("n")
    x = make.var("x", make.tensor_type((n, 384), F32))
    w = make.var("w", make.tensor_type((12, 384, 32), F32))
    op = table().definition("matmul_packed").op
    f = make.function((x, w), make.call(op, (x, w), PackedAttrs(32, 384)))
    cost = predicted_ns(f, table())
    weights = 384 * 384 * 4 / 12
    for rows in (1, 128):
        want = rows * 384 * 384 / 40 + weights + rows * 2 * 384 * 4 / 12
        np.testing.assert_allclose(evaluate(cost, {n: rows}), want, rtol=0.01)


def test_costly_functions_cost_more():
    x = make.var("x", make.tensor_type((1000, 1000), F32))
    cheap, transcendental = (
        evaluate(predicted_ns(make.function((x,), make.call(table().definition(o).op, (x,))), table()), {})
        for o in ("relu", "tanh")
    )
    assert transcendental > cheap > 100_000
