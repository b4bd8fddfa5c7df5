"""Removes cells that only the block that makes them uses, one operation behind the other.

    let c = ref(table);                            let t = scatter_nd(table, at, rows);
    let old = take(c);                    becomes
    put(c, scatter_nd(old, at, rows));
    let t = read(c);

What such a cell holds is known at each place, so reading gives that, and writing only says what it is from
there on. So state that a program takes out of a cell and puts back is to all passes behind what it is to who
reads it: an input, and an output that is it with parts replaced. A cell that a branch, a loop or a function
mentions, or that is handed on, stays.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlay.analysis.blocks import count_uses, nested
from inlay.ir import make
from inlay.ir.expr import Expr, Function, RefCreate, RefPut, RefRead, RefTake, RefWrite, Var
from inlay.ir.module import Module
from inlay.ir.types import RefType, TensorType, Type
from inlay.ir.walk import spine
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, rewrite_function


def run(module: Module, context: PassContext) -> Module:
    """Rewrite every function that makes cells. Cost: linear."""
    del context
    return module.with_functions({name: _forwarded(f) for name, f in module.functions.items()})


def _forwarded(function: Function) -> Function:
    cells = frozenset(_private(function))
    if not cells:
        return function
    held: dict[Expr, Expr] = {}

    def step(block: BlockWriter, value: Expr) -> Expr | None:
        match value:
            case RefCreate(value=content):
                if block.variable in cells:
                    held[block.variable] = content
                return None
            case RefRead(ref=ref) | RefTake(ref=ref):
                return held.get(ref)
            case RefWrite(ref=ref, value=content) | RefPut(ref=ref, value=content):
                if ref not in held:
                    return None
                held[ref] = content
                return make.tuple_((), span=value.span)
            case _:
                return None

    return rewrite_function(function, step)


def _private(function: Function) -> Iterator[Var]:
    """Yield the cells of tensors of which every mention is an operation in the block that makes them."""
    mentions = count_uses(function.body)
    pending: list[Expr] = [function.body]
    while pending:
        lets, tail = spine(pending.pop())
        made: dict[Expr, int] = {
            let.var: 0
            for let in lets
            if isinstance(let.value, RefCreate) and isinstance(_content(let.var), TensorType)
        }
        for value in (*(let.value for let in lets), tail):
            pending.extend(nested(value))
            match value:
                case RefRead(ref=ref) | RefTake(ref=ref) if ref in made:
                    made[ref] += 1
                case RefWrite(ref=ref, value=content) | RefPut(ref=ref, value=content) if ref in made:
                    made[ref] += content.type == _content(ref)  # a less exact one could not stand for it
                case _:
                    pass
        yield from (
            var for var, count in made.items() if isinstance(var, Var) and mentions.get(var, 0) == count
        )


def _content(cell: Expr) -> Type:
    assert isinstance(cell.type, RefType), "a cell has the type of one"
    return cell.type.content


PASS = Pass(__name__, run, "give what a cell holds where only one block has it", requires=(Property.ANF,))
