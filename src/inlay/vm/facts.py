"""What is known of a function before its code is written, found in one look at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.analysis.blocks import count_uses, definitions, operands, values
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, Sym, symbols
from inlay.ir.expr import Call, Const, Expr, Function, OpRef, Var
from inlay.ir.types import ExistsType, IntType, ShapeType, TensorType, TupleType, Type
from inlay.memory.explicit_alloc import size_of
from inlay.ops.memory import TENSOR_AT, StorageAttrs

ALIGNMENT = 64
"""Bytes: every storage of the machine begins at a multiple of it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a function of the module before its code is written.

    Attributes:
        loops: local functions that are written where they are called.
        needed: symbols that integers of the code mention.
        alone: storages that one tensor has to itself, which fills them: both are made at once.
    """

    loops: frozenset[Var]
    needed: frozenset[Sym]
    alone: frozenset[Var]


def facts_of(function: Function) -> Facts:
    """Return what the code of a function, and of those in it, is written with."""
    needed = frozenset(key for key in mentioned(function) if isinstance(key, Sym))
    return Facts(find_loops(function), needed, _storages_of_one(function))


def _storages_of_one(function: Function) -> frozenset[Var]:
    """Return the storages of the host that exactly one tensor is in, and just fits."""
    made = definitions(function.body)
    uses = count_uses(function.body)
    found: set[Var] = set()
    for value in made.values():
        match value:
            case Call(callee=OpRef(op=op), args=(Var() as storage, Const() as at, _)) if (
                op is TENSOR_AT and uses[storage] == 1 and at.value == 0
            ):
                alloc = made.get(storage)
                if isinstance(alloc, Call) and isinstance(value.type, TensorType):
                    assert isinstance(alloc.callee, OpRef), "storage is made by an operator"
                    attrs, size = alloc.callee.attrs, alloc.args[0]
                    assert isinstance(attrs, StorageAttrs), "alloc_storage has its attributes"
                    fits = isinstance(size, Const) and size.value == size_of(value.type)
                    if fits and not attrs.memories and attrs.alignment <= ALIGNMENT:
                        found.add(storage)
            case _:
                pass
    return frozenset(found)


def mentioned(function: Function) -> dict[Var | Sym, None]:
    """Return the variables and symbols read in a function, in order; bound ones included."""
    found: dict[Var | Sym, None] = {}

    def read(e: Expr) -> None:
        if isinstance(e, Var):
            found[e] = None
        elif isinstance(e, Const):
            found.update(dict.fromkeys(_const_symbols(e)))

    for value in values(function.body):
        read(value)
        for operand in operands(value):
            read(operand)
        if isinstance(value, Call) and isinstance(value.callee, OpRef):
            # Views and allocations take their dims from the type of the result.
            for e in integers(value.type):
                found.update(dict.fromkeys(symbols(e)))
    return found


def _const_symbols(e: Const) -> Iterator[Sym]:
    if isinstance(e.held, Int):
        yield from symbols(e.held)
    elif isinstance(e.held, tuple):
        for part in e.held:
            yield from symbols(part)


def integers(t: Type) -> Iterator[Int]:
    """Yield the integers of a type that its values have, in order."""
    match t:
        case TensorType(shape=shape):
            yield from shape
        case IntType(value=Int() as e):
            yield e
        case ShapeType(values=dims):
            yield from (e for e in dims if e is not None)
        case TupleType(fields=fields):
            for f in fields:
                yield from integers(f)
        case ExistsType(body=body):
            yield from integers(body)
        case _:
            pass
