"""Puts checks in front of gathers and scatters whose indices may be outside their axes.

    let y = gather(x, i);    becomes      let ends = index_extremes(i);
                                          let inside = check_indices(i, ends, int(n));
                                          let y = gather(x, inside);

`ops.index_checks` says what the two operators do. Nothing is checked where an operator clamps, or
where the indices are constants that are provably inside. Indices that were checked against the same
sizes above, in this block or around it, are not checked again.
"""

from __future__ import annotations

import numpy as np

from inlay.arith.expr import Int, lit
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import TensorType
from inlay.ops.index_checks import ColumnsAttrs, IndicesAttrs, extremes
from inlay.ops.indexing import AxisAttrs, BatchAttrs, GatherAttrs
from inlay.ops.scatter import ScatterAttrs, ScatterElementsAttrs
from inlay.ops.table import OperatorTable
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_module


def run(module: Module, context: PassContext) -> Module:
    """Check. Cost: linear in the program and in the constant indices."""
    operators = context.ops
    assert isinstance(operators, OperatorTable), "tensor passes run with the table of operators"
    find_extremes = operators.definition("index_extremes").op
    check = operators.definition("check_indices").op

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        if not isinstance(value, Call) or not isinstance(value.callee, OpRef):
            return None
        asked = _axes(value)
        if asked is None:
            return None
        sizes, columns = asked
        data, index, *updates = value.args
        ends: Expr | None = None
        if isinstance(index, Const) and isinstance(index.value, np.ndarray):
            found = extremes(index.value, columns)
            if _surely_inside(block, found, sizes):
                return None
            ends = make.const(found)
        why = value.callee.op.name
        key = ("checked", index, sizes, columns, why) if isinstance(index, Var) else None
        checked = None if key is None else block.note(key)
        if checked is None:
            if ends is None:
                ends = block.call(find_extremes, (index,), ColumnsAttrs(columns), name="ends")
            limits = [make.int_const(n) for n in sizes]
            checked = block.call(check, (index, ends, *limits), IndicesAttrs(why), name="inside")
            if key is not None:
                block.notes[key] = checked
        assert isinstance(checked, Var), "a checked index has a name"
        return block.make(value.callee, (data, checked, *updates))

    return rewrite_module(module, step)


def _axes(call: Call) -> tuple[tuple[Int, ...], int] | None:
    """Return the sizes of the axes that indices run over, and how many columns the indices have."""
    assert isinstance(call.callee, OpRef)
    name = call.callee.op.name
    if name not in ("gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"):
        return None
    data, index = call.args[0].type, call.args[1].type
    assert isinstance(data, TensorType), "gathers and scatters have tensors"
    assert isinstance(index, TensorType), "gathers and scatters have tensors"
    match call.callee.attrs:
        case GatherAttrs(clamp=True) | BatchAttrs(clamp=True):
            return None
        case GatherAttrs(axis=axis) | AxisAttrs(axis=axis) | ScatterElementsAttrs(axis=axis):
            return (data.shape[axis % len(data.shape)],), 0
        case BatchAttrs(batch=batch):
            first = batch
        case ScatterAttrs():
            first = 0
        case other:
            raise AssertionError(f"{name} has other attributes: {other}")
    depth = index.shape[-1].value
    assert depth is not None, "index tuples have a known length"
    return (data.shape[first : first + depth], depth) if depth else None


def _surely_inside(block: BlockWriter, ends: np.ndarray, sizes: tuple[Int, ...]) -> bool:
    facts = block.known.facts
    for k, size in enumerate(sizes):
        least, greatest = int(ends[2 * k]), ~int(ends[2 * k + 1])
        if least > greatest:
            continue  # there is no index
        if not all(facts.at_least(size, lit(n)) for n in (greatest + 1, -least)):
            return False
    return True


PASS = Pass(
    __name__,
    run,
    "check that indices of gathers and scatters are inside their axes",
    requires=(Property.ANF,),
)
