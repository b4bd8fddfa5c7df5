"""Puts values where they are used, when that repeats no work: the inverse of `to_anf`.

* A let that only renames an atom disappears.
* A value that is read once is put into the place of its reading, if it may run at any time
  (`Effects.is_movable`) and the place is not inside a function literal, which may run many times. Into
  a branch it may go: then it is only computed where it is needed.

Bodies of functions stay where they are: a function literal is never nested into a call. A let that
gives names to unknown dims stays as well.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.analysis.blocks import ATOMS, nested, operands
from inlay.analysis.effects import EffectTable, effect_table
from inlay.ir import make, walk
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Expr, Function, If, Let, Match, Var
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property


def run(module: Module, context: PassContext) -> Module:
    """Nest values that are read once. Cost: linear."""
    del context
    table = effect_table(module)
    functions = {
        name: _Nesting(function, table).function(function) for name, function in module.functions.items()
    }
    return module.with_functions(functions)


class _Nesting:
    """Nests the values of one function.

    Attributes:
        inlined: what stands for the reading of a variable.
    """

    def __init__(self, function: Function, table: EffectTable) -> None:
        self.inlined: dict[Var, Expr] = {}
        self._table = table
        self._reads: dict[Var, int] = {}
        self._level: dict[Var, int] = {}
        self._count(function.body, 0)

    def _count(self, block: Expr, level: int) -> None:
        """Count readings; a variable read below its own function level is not to move there."""
        while True:
            value = block.value if isinstance(block, Let) else block
            if isinstance(block, Let):
                self._level[block.var] = level
            for operand in (value, *operands(value)):
                if isinstance(operand, Var):
                    self._reads[operand] = self._reads.get(operand, 0) + 1
                    if self._level.get(operand, level) != level:
                        self._reads[operand] += 1
            for inner in nested(value):
                self._count(inner, level + isinstance(value, Function))
            if not isinstance(block, Let):
                return
            block = block.body

    def function(self, function: Function) -> Function:
        """Return the function with its body nested."""
        body = self._block(function.body)
        return function if body is function.body else replace(function, body=body)

    def _block(self, block: Expr) -> Expr:
        lets, tail = walk.spine(block)
        kept: list[tuple[Let, Expr]] = []
        for let in lets:
            value = self._value(let.value)
            if self._goes_away(let, value):
                self.inlined[let.var] = value
            else:
                kept.append((let, value))
        result = self._value(tail)
        for let, value in reversed(kept):
            if value is let.value and result is let.body:
                result = let
            else:
                result = make.let(let.var, value, result, span=let.span, place=let.place)
        return result

    def _goes_away(self, let: Let, value: Expr) -> bool:
        if opened_dims(let.value.type, let.var.type):
            return False
        if isinstance(value, ATOMS):
            return True
        return (
            self._reads.get(let.var, 0) == 1
            and not isinstance(value, Function)
            and self._table.of(let.value).is_movable
        )

    def _value(self, value: Expr) -> Expr:
        """Return the value with what was inlined in the place of its variables."""
        if isinstance(value, ATOMS):
            return self.inlined.get(value, value) if isinstance(value, Var) else value
        match value:
            case Function():
                return self.function(value)
            case If(condition=condition, then=then, otherwise=otherwise):
                new = (self._value(condition), self._block(then), self._block(otherwise))
                return walk.rebuild(value, new)
            case Match(scrutinee=scrutinee, arms=arms):
                bodies = [self._block(arm.body) for arm in arms]
                return walk.rebuild(value, (self._value(scrutinee), *bodies))
            case _:
                return walk.rebuild(value, tuple([self._value(x) for x in walk.children(value)]))


PASS = Pass(
    __name__,
    run,
    "nest values that are read once into their use",
    requires=(Property.ANF,),
    loses=(Property.ANF,),
)
