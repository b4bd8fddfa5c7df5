"""Constants that operators over constants compute: which are worth computing now, and their making."""

from __future__ import annotations

from math import inf
from typing import cast

import numpy as np

from inlay.arith.deferred import LEAST, DeferredArray, as_f32, deferred, transposed
from inlay.arith.dtype import BF16, F16
from inlay.arith.expr import Int, product
from inlay.base.diagnostics import RunError
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, OpRef
from inlay.ir.op import Effect
from inlay.ir.types import BoolType, ExistsType, IntType, ShapeType, TensorType, TupleType, Type
from inlay.ops._define import ForeignOp
from inlay.ops.device import DEVICE_COPY, ON_DEVICE
from inlay.ops.elementwise import CastAttrs
from inlay.ops.layout import PermAttrs
from inlay.passes.contract import Evaluator

LIMIT = 1 << 16
"""Bytes up to which a constant may be larger than what it is computed from."""

_GROWTH = 2
"""How many times larger than its operands a result may be, whatever the limit."""


def computed(
    value: Expr, evaluate: Evaluator, limit: int = LIMIT, left: list[int] | None = None
) -> Expr | None:
    """Return the constant that an operator over constants computes; None where it is none.

    Constants that mention dims have no value yet. What fails is left for the program to fail on.

    A result of no more elements than an operand has is always computed, however wide they are: another
    layout, a conversion, weights that are dequantized. A program that did it would need as much memory for
    the result, and time in every call.

    Args:
        value: what to compute.
        evaluate: computes it.
        limit: bytes up to which a result of more elements may be larger than the operands.
        left: what constants may still grow by: a chain of operators each of which doubles its
            operand would otherwise fill any memory.
    """
    if not (isinstance(value, Call) and isinstance(value.callee, OpRef)):
        return None
    op = value.callee.op
    # Code of the user runs when the program does, and not while it is compiled.
    if op.effect not in (Effect.PURE, Effect.FAILS) or isinstance(op, ForeignOp):
        return None
    if op in (DEVICE_COPY, ON_DEVICE):  # to be somewhere is what these are for
        return None
    inputs: dict[int, int] = {}
    elements = 0
    for arg in value.args:
        if not (isinstance(arg, Const) and is_closed(arg)):
            return None
        array = arg.held
        if isinstance(array, np.ndarray | DeferredArray):
            inputs[id(array)], elements = array.nbytes, max(elements, array.size)
    size, given = _bytes(value.type), sum(inputs.values())
    if size is None:
        return None
    if len(value.args) == 1 and isinstance(value.callee.attrs, PermAttrs | CastAttrs):
        late = _deferred(value, value.callee.attrs, evaluate)
        if late is not None:
            return late
    grows = _elements(value.type) > elements
    if grows and (size > max(limit, _GROWTH * given) or (left is not None and size - given > left[0])):
        return None
    try:
        result = evaluate(value)
    except RunError:
        return None
    if left is not None and grows:
        left[0] -= max(size - given, 0)
    return _constant(result, value)


def _deferred(value: Call, attrs: PermAttrs | CastAttrs, evaluate: Evaluator) -> Expr | None:
    """Return what transposes or converts a large constant, computed when it is asked for; else None."""
    (e,) = value.args
    assert isinstance(e, Const), "its operand is a constant"
    assert isinstance(value.type, TensorType), "its result is a tensor"
    held, dtype = e.held, value.type.dtype.numpy
    if (
        not isinstance(held, np.ndarray | DeferredArray)
        or held.nbytes <= LEAST
        or object in (held.dtype, dtype)
    ):
        return None

    callee, type = value.callee, value.type

    def convert(source: np.ndarray, out: np.ndarray) -> None:
        out[...] = evaluate(Call(callee, (make.const(source),), type))

    if isinstance(attrs, PermAttrs):
        found = transposed(held, attrs.perm)
    elif dtype == np.float32 and held.dtype in (F16.numpy, BF16.numpy):
        found = as_f32(held)
    else:
        found = deferred(held.shape, dtype, held, convert)
    return make.const(found, span=value.span, place=value.place)


def array_of(e: Expr) -> np.ndarray | None:
    """Return the elements of a constant tensor; None for anything else."""
    return e.value if isinstance(e, Const) and isinstance(e.value, np.ndarray) else None


def is_closed(arg: Expr) -> bool:
    """Whether an atom is a constant that mentions no dims: it has a value now."""
    match arg:
        case Const(held=Int() as value):
            return value.value is not None
        case Const(held=tuple() as values):
            return all(v.value is not None for v in values)
        case _:
            return isinstance(arg, Const)


def _bytes(t: Type) -> int | None:
    """Return how large a value of that type is, None when that is not known."""
    match t:
        case TensorType(shape=shape, dtype=dtype):
            size = dtype.itemsize
            for d in shape:
                if d.value is None:
                    return None
                size *= d.value
            return size
        case TupleType(fields=fields):
            sizes = [_bytes(f) for f in fields]
            return None if None in sizes else sum(s for s in sizes if s is not None)
        case ExistsType(body=TensorType()) | IntType() | BoolType() | ShapeType():
            return 0  # decided by the data: at most as large as the operands, for what we have
        case _:
            return None


def _elements(t: Type) -> float:
    """Return how many elements a tensor has, without bound where that is not known."""
    count = product(t.shape).value if isinstance(t, TensorType) else None
    return inf if count is None else count


def _constant(result: object, value: Call) -> Expr | None:
    """Return an expression for an evaluated value, with the span and place of the call."""
    span, place = value.span, value.place
    match result:
        case np.ndarray() if result.dtype != object:
            return make.const(result, span=span, place=place)
        case bool():
            return make.bool_const(result, span)
        case int():
            return make.int_const(result, span)
        case tuple() if isinstance(value.type, ShapeType):
            return make.shape_const(cast(tuple[int, ...], result), span)
        case tuple() if isinstance(value.type, TupleType):
            fields = [_constant(f, value) for f in cast(tuple[object, ...], result)]
            if any(f is None for f in fields):
                return None
            return make.tuple_([f for f in fields if f is not None], span=span, place=place)
        case _:
            return None
