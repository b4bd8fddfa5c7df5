"""Types as text, as `type_parser` reads them; also for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from inlay.arith.expr import Int, from_atom
from inlay.ir.dims import LEAST_INT
from inlay.ir.types import (
    AdtType,
    BoolType,
    DimParam,
    ExistsType,
    FuncType,
    IntType,
    RefType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)


def type_text(t: Type, spell: Callable[[Int], str] = str) -> str:
    """Return a type in the spelling of the text form.

    Args:
        t: the type.
        spell: how to write an integer; by default symbols have their own names.
    """

    def many(types: Iterable[Type]) -> str:
        return ", ".join([type_text(x, spell) for x in types])

    match t:
        case TensorType(shape=shape, dtype=dtype):
            return f"Tensor[{', '.join([*map(spell, shape), str(dtype)])}]"
        case IntType(value=value):
            return "int" if value is None else f"int[{spell(value)}]"
        case ShapeType(values=values):
            return f"shape[{', '.join('_' if v is None else spell(v) for v in values)}]"
        case BoolType():
            return "bool"
        case StorageType():
            return "Storage"
        case UnknownType():
            return "?"
        case TypeVar(name=name):
            return f"'{name}"
        case TupleType(fields=fields):
            return f"({many(fields)},)" if len(fields) == 1 else f"({many(fields)})"
        case AdtType(name=name, args=args):
            return f"{name}[{many(args)}]" if args else name
        case RefType(content=content):
            return f"Ref[{type_text(content, spell)}]"
        case FuncType(params=params, result=result, dims=dims, type_vars=type_vars):
            bound = [f"'{v.name}" for v in type_vars] + [dim_text(d, spell) for d in dims]
            binder = f"<{', '.join(bound)}>" if bound else ""
            return f"fn{binder}({many(params)}) -> {type_text(result, spell)}"
        case ExistsType(dims=dims, body=body):
            bound = [dim_text(d, spell) for d in dims]
            return f"some {', '.join(bound)}. {type_text(body, spell)}"
        case _:
            assert_never(t)


def dim_text(d: DimParam, spell: Callable[[Int], str] = str) -> str:
    """Return a bound dim as in text form: `n`, `n <= 512`, `n in 1..512 step 8`, `int k`."""
    text = spell(from_atom(d.sym))
    if d.low == LEAST_INT:
        text = f"int {text}"
    if d.high is not None:
        bounded = d.low in (0, LEAST_INT)
        text += f" <= {spell(d.high)}" if bounded else f" in {d.low}..{spell(d.high)}"
    elif d.low not in (0, LEAST_INT):
        text += f" >= {d.low}"
    if d.multiple_of != 1:
        text += f" step {d.multiple_of}"
    if d.typical is not None:
        text += f" typical {d.typical}"
    return text
