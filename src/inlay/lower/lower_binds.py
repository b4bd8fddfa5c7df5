"""Binds inside scalars to let statements around the statement that holds them.

Rules that write loops by hand build scalars like tensor expressions do, with loaded indices bound
where they are used. A lowered function has lets instead (see `loop.lets`).
"""

from __future__ import annotations

from inlay.base.diagnostics import InternalError
from inlay.loop.lets import bind_lets, linearize
from inlay.loop.scalar import Bind, Scalar
from inlay.loop.stmt import Assert, If, Let, Stmt, Store, While
from inlay.loop.walk import map_children, own_scalars, scalars_below


def lower_binds(s: Stmt) -> Stmt:
    """Return an equal statement without `Bind`.

    Requires: no `Block`, and no `Bind` in the condition of a `While`, which has no place for a let.
    """
    s = map_children(s, lower_binds)
    if not any(isinstance(y, Bind) for x in own_scalars(s) for y in scalars_below(x)):
        return s
    match s:
        case Store(buffer=buffer, indices=indices, value=value):
            lets, value = linearize(value)
            return bind_lets(lets, Store(buffer, indices, value))
        case If(condition=condition):
            lets, condition = linearize(condition)
            return bind_lets(lets, If(condition, s.then, s.otherwise))
        case Let(value=value):
            lets, value = linearize(value)
            return bind_lets(lets, Let(s.sym, value, s.body))
        case Assert(condition=condition):
            lets, condition = linearize(condition)
            return bind_lets(lets, Assert(condition, s.message))
        case While(condition=condition):
            raise _no_place(condition)
        case _:
            raise AssertionError("no other statement has scalars")


def _no_place(condition: Scalar) -> InternalError:
    return InternalError(
        f"found a bind in the condition of a while loop, of {condition.dtype}", where="lower.lower_binds"
    )
