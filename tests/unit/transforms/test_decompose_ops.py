"""Operators without code of their own."""

from __future__ import annotations

import numpy as np

from inlay.analysis.blocks import values
from inlay.arith.dtype import F32
from inlay.arith.expr import fresh
from inlay.interp.tensor import evaluate
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.verify import check
from inlay.transforms import decompose_ops
from tests.unit.transforms.programs import OPS, context


def test_nonzero_counts_and_fills():
    n = fresh("n")
    b = Builder()
    x = b.param("x", make.tensor_type((n, 3), F32))
    found = b.emit(OPS.definition("nonzero").op, (x,))
    m = Module({"main": b.function(b.emit(OPS.definition("add").op, (found, found)))})
    done = decompose_ops.PASS.run(m, context())
    check(done)
    names = [
        v.callee.op.name
        for v in values(done.functions["main"].body)
        if isinstance(v, Call) and isinstance(v.callee, OpRef)
    ]
    assert "nonzero" not in names
    assert "nonzero_fill" in names
    a = np.array([[0, 1, 2], [3, 0, 0]], np.float32)
    assert np.array_equal(evaluate(done, [a]), evaluate(m, [a]))
    assert decompose_ops.PASS.run(done, context()) is done
