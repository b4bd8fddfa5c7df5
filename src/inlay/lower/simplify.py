"""Simplify integers and conditions by the ranges of the loops around them.

Divisions and remainders that the ranges decide disappear, conditions that always or never hold are
folded, branches and loops that never run are dropped, and a loop that runs once becomes its body
(unless it is a vector loop, whose one lane is still an element).
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from inlay.arith.dtype import BOOL, I64
from inlay.arith.expr import Int, lit
from inlay.loop.ranges import Bounds
from inlay.loop.scalar import Binary, BinaryOp, Dot, Index, Lit, Load, Scalar, Select
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, LoopKind, Seq, Stmt, Store, While
from inlay.loop.walk import Rewrite, map_operands, seq

NOTHING = Seq(())
"""The statement that does nothing."""


def simplify(s: Stmt) -> Stmt:
    """Return an equal statement.

    Requires: no `Block`.
    """
    return _Simplifier(Bounds()).stmt(s)


class _Simplifier:
    """Simplifies under the loops of `bounds`; one object for each scope."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._memo: dict[int, tuple[Scalar, Scalar]] = {}

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store(buffer=buffer, indices=indices, value=value):
                return Store(buffer, self._ints(indices), self.scalar(value))
            case For():
                return self._for(s)
            case Seq(stmts=stmts):
                kept = [x for x in map(self.stmt, stmts) if x is not NOTHING]
                return seq(*kept) if kept else NOTHING
            case If():
                return self._if(s)
            case Let(sym=sym, value=value, body=body):
                body = self.stmt(body)
                return NOTHING if body is NOTHING else Let(sym, self.scalar(value), body)
            case Alloc(buffer=buffer, body=body):
                body = self.stmt(body)
                return NOTHING if body is NOTHING else Alloc(buffer, body)
            case While(condition=condition, body=body):
                return While(self.scalar(condition), self.stmt(body))
            case Assert(condition=condition, message=message):
                return Assert(self.scalar(condition), message)
            case Block():
                raise AssertionError("blocks are flattened before")
            case _:
                assert_never(s)

    def _for(self, s: For) -> Stmt:
        lo, extent = self._bounds.simplify(s.lo), self._bounds.simplify(s.extent)
        count = extent.value
        if count is not None and count <= 0:
            return NOTHING
        if count == 1 and s.kind in (LoopKind.SERIAL, LoopKind.UNROLL):
            return self.stmt(Rewrite({s.var: lo}).stmt(s.body))
        body = _Simplifier(self._bounds.inside(s.var, lo, extent)).stmt(s.body)
        return NOTHING if body is NOTHING else For(s.var, lo, extent, s.kind, body, s.note)

    def _if(self, s: If) -> Stmt:
        condition = self.scalar(s.condition)
        if isinstance(condition, Lit):
            if condition.value:
                return self.stmt(s.then)
            return NOTHING if s.otherwise is None else self.stmt(s.otherwise)
        then = self.stmt(s.then)
        other = None if s.otherwise is None else self.stmt(s.otherwise)
        if other is NOTHING:
            other = None
        if then is NOTHING and other is None:
            return NOTHING
        return If(condition, then, other)

    def _ints(self, es: tuple[Int, ...]) -> tuple[Int, ...]:
        return tuple(map(self._bounds.simplify, es))

    def scalar(self, x: Scalar) -> Scalar:
        """Return an equal scalar, with shared nodes still shared."""
        found = self._memo.get(id(x))
        if found is None:
            found = self._memo[id(x)] = (x, self._scalar(x))
        return found[1]

    def _scalar(self, x: Scalar) -> Scalar:
        match x:
            case Load(buffer=buffer, indices=indices):
                new = self._ints(indices)
                return x if new == indices else Load(buffer, new)
            case Index(value=value):
                new_value = self._bounds.simplify(value)
                return x if new_value is value else Index(new_value, x.dtype)
            case Binary(dtype=dtype) if dtype is BOOL:
                return self._condition(x)
            case Select():
                new_select = map_operands(x, self.scalar)
                assert isinstance(new_select, Select), "one level is rebuilt"
                if isinstance(new_select.condition, Lit):
                    chosen = new_select.condition.value
                    return new_select.then if chosen else new_select.otherwise
                return new_select
            case Dot(sym=sym, width=width, a=a, b=b):
                each = _Simplifier(self._bounds.inside(sym, lit(0), lit(width)))
                return replace(x, acc=self.scalar(x.acc), a=each.scalar(a), b=each.scalar(b))
            case _:
                return map_operands(x, self.scalar)

    def _condition(self, x: Binary) -> Scalar:
        lhs, rhs = self.scalar(x.lhs), self.scalar(x.rhs)
        a, b = _integer(lhs), _integer(rhs)
        if a is not None and b is not None:
            known = self._decide(x.op, a, b)
            if known is not None:
                return Lit(known, BOOL)
        for one, other in ((lhs, rhs), (rhs, lhs)):
            if isinstance(one, Lit) and x.op is BinaryOp.AND:
                return other if one.value else one
            if isinstance(one, Lit) and x.op is BinaryOp.OR:
                return one if one.value else other
        return x if lhs is x.lhs and rhs is x.rhs else Binary(x.op, lhs, rhs, x.dtype)

    def _decide(self, op: BinaryOp, a: Int, b: Int) -> bool | None:
        bounds = self._bounds
        match op:
            case BinaryOp.LT:
                return True if bounds.less(a, b) else False if bounds.at_least(a - b, 0) else None
            case BinaryOp.LE:
                return True if bounds.at_least(b - a, 0) else False if bounds.less(b, a) else None
            case BinaryOp.EQ | BinaryOp.NE:
                if a == b:
                    return op is BinaryOp.EQ
                if bounds.less(a, b) or bounds.less(b, a):
                    return op is BinaryOp.NE
                return None
            case _:
                return None


def _integer(x: Scalar) -> Int | None:
    """Return the integer expression that a scalar is, if it is one."""
    if isinstance(x, Index) and x.dtype == I64:
        return x.value
    return lit(int(x.value)) if isinstance(x, Lit) and x.dtype == I64 else None
