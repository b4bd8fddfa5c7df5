"""Every operation gets a place; what the user wrote stays."""

from __future__ import annotations

import numpy as np

from inlay.analysis.blocks import values
from inlay.arith.dtype import BOOL, F32
from inlay.interp.tensor import evaluate
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.core_ops import TO_CONTROL
from inlay.ir.expr import Call, OpRef
from inlay.ir.module import Module
from inlay.ir.place import Origin, Place
from inlay.ir.verify import check
from inlay.ops.table import table
from inlay.passes.contract import PassContext
from inlay.placement.place_on_host import PASS

ADD = table().definition("add").op
NPU = Place("npu", origin=Origin.USER)


def program() -> Module:
    b = Builder()
    x, c = b.param("x", make.tensor_type((4,), F32)), b.param("c", make.tensor_type((), BOOL))
    y = b.emit(ADD, (x, x), place=NPU)
    z = b.if_(b.emit(TO_CONTROL, (c,)), lambda s: s.emit(ADD, (y, x)), lambda s: y)
    return Module({"main": b.function(b.emit(ADD, (z, x)))})


def test_everything_is_placed_once():
    context = PassContext(table())
    m = PASS.run(program(), context)
    check(m)
    calls = [v for v in values(m.functions["main"].body) if isinstance(v, Call)]
    assert {c.place.device for c in calls if isinstance(c.callee, OpRef)} == {"npu", "cpu"}
    assert sum(c.place == NPU for c in calls) == 1
    assert PASS.run(m, context).functions["main"] is m.functions["main"]
    args = [np.arange(4, dtype=np.float32), np.array(True)]
    assert np.array_equal(evaluate(m, args), evaluate(program(), args))
