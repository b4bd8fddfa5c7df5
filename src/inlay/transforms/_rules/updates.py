"""Updates of parts of a tensor: where they are, and not of a copy in another order.

    t = transpose{perm=[2, 0, 1, 3]}(cache); s = scatter_nd(t, rows, new); transpose{perm=[1, 2, 0, 3]}(s)

is what exporters make of replacing some rows along an inner axis: two copies of all of it, for one row.
"""

from __future__ import annotations

from inlay.arith.expr import lit
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.ir.types import TensorType
from inlay.ops.layout import PermAttrs
from inlay.ops.scatter import ScatterAttrs, ScatterElementsAttrs
from inlay.transforms._rules.rule_match import Rule, RuleMatch, attrs_of


def _rows_of_an_axis(matched: RuleMatch) -> Expr | None:
    """A scatter of rows between two transposes that undo each other is one along an axis."""
    rows = matched.only_producer(matched.args[0], "scatter_nd")
    moved = None if rows is None else matched.producer(rows.args[0], "transpose")
    if rows is None or moved is None:
        return None
    perm, back = attrs_of(moved, PermAttrs).perm, matched.attrs(PermAttrs).perm
    indices, new = rows.args[1].type, rows.args[2].type
    if not isinstance(indices, TensorType) or not isinstance(new, TensorType):
        return None
    is_undone = all(perm[b] == axis for axis, b in enumerate(back))
    if not is_undone or len(indices.shape) != 2 or indices.shape[1] != 1:
        return None
    axis, span = perm[0], matched.call.span
    own = [lit(1)] * len(perm)
    own[axis] = indices.shape[0]
    wide = [new.shape[b] for b in back]
    places = matched.bind("reshape", (rows.args[1], make.shape_const(own, span)))
    places = matched.bind("broadcast_to", (places, make.shape_const(wide, span)))
    values = matched.bind("transpose", (rows.args[2],), PermAttrs(back))
    attrs = ScatterElementsAttrs(axis, attrs_of(rows, ScatterAttrs).combine)
    return matched.make("scatter_elements", (moved.args[0], places, values), attrs)


RULES: dict[str, tuple[Rule, ...]] = {"transpose": (_rows_of_an_axis,)}
