"""Primitive functions of one call, from the samples of operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlay.arith.expr import Sym, evaluate, fresh
from inlay.base.diagnostics import CompileError, error
from inlay.ir.expr import Call, Const, Expr, Function, OpRef, Var
from inlay.ir.types import UNKNOWN, FuncType, IntType, ShapeType, TensorType, TupleType, Type
from inlay.ops._define import OpDef, Sample
from tests.symbolic import symbolic_types


class Dims:
    """A type context that believes relations that hold for given values of the symbols."""

    def __init__(self, values: dict[Sym, int]) -> None:
        self.values = values

    def equal(self, a, b, why):
        if evaluate(a, self.values) != evaluate(b, self.values):
            raise error("type.dim-mismatch", f"{a} and {b} for {why}")
        return a if a.value is not None else b

    def known_equal(self, a, b) -> bool:
        return a == b

    def at_least(self, a, low: int, why: str) -> None:
        if evaluate(a, self.values) < low:
            raise error("type.dim-too-small", f"{a} < {low} for {why}")

    def fresh_dim(self, name: str) -> Sym:
        return fresh(name)

    def fail(self, message: str, *, id: str = "type.op-argument", hint: str = "") -> CompileError:
        return error(id, message, hint=hint)


def function_of(
    d: OpDef, s: Sample, *, symbolic: bool
) -> tuple[Function, list[np.ndarray], dict[Sym, int]] | None:
    """Return the function, its tensor inputs and the values of its symbols.

    None when the sample has an operand that a kernel cannot take, or a result of unknown size.
    """
    types: Sequence[Type]
    types, values = symbolic_types(s) if symbolic else (s.types(), {})
    result = d.op.type_rule(Dims(values), s.attrs, tuple(types))
    parts = result.fields if isinstance(result, TupleType) else (result,)
    if not all(isinstance(t, TensorType) for t in parts):
        return None
    args: list[Expr] = []
    params: list[Var] = []
    inputs: list[np.ndarray] = []
    for i, (t, value) in enumerate(zip(types, s.args, strict=True)):
        match t:
            case TensorType():
                v = Var(f"x{i}", t)
                params.append(v)
                args.append(v)
                assert isinstance(value, np.ndarray)
                inputs.append(value)
            case IntType(value=known) if known is not None:
                args.append(Const(known, t))
            case ShapeType(values=known_dims) if all(k is not None for k in known_dims):
                args.append(Const(tuple(k for k in known_dims if k is not None), t))
            case _:
                return None
    call = Call(OpRef(d.op, s.attrs, UNKNOWN), tuple(args), result)
    type_ = FuncType(tuple(p.type for p in params), result)
    return Function(tuple(params), call, type_, primitive=f"{d.name}"), inputs, values
