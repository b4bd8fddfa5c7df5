"""A few operators for tests of the IR, with their meanings; `ops` has the real ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I64
from inlay.arith.expr import lit, to_int
from inlay.ir.core_ops import CORE_OPS
from inlay.ir.op import NoAttrs, Op, TypeContext
from inlay.ir.types import DimParam, ExistsType, ShapeType, TensorType, Type
from inlay.ops.control import DEFINITIONS


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    axis: int = 0


def _same_shape(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    first, *rest = args
    if not isinstance(first, TensorType):
        raise ctx.fail("needed a tensor")
    dims = first.shape
    for t in rest:
        if not isinstance(t, TensorType) or (len(t.shape), t.dtype) != (len(dims), first.dtype):
            raise ctx.fail("needed operands of one rank and dtype", id="type.rank-mismatch")
        dims = tuple(ctx.equal(x, y, "operands") for x, y in zip(dims, t.shape, strict=True))
    return TensorType(dims, first.dtype)


def _concat(ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
    assert isinstance(attrs, AxisAttrs)
    a, b = args
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        raise ctx.fail("needed tensors")
    dims = list(a.shape)
    for i, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)):
        dims[i] = x + y if i == attrs.axis else ctx.equal(x, y, f"dim {i}")
    return TensorType(tuple(dims), a.dtype)


def _sum(_ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
    assert isinstance(attrs, AxisAttrs)
    (x,) = args
    assert isinstance(x, TensorType)
    return TensorType(x.shape[: attrs.axis] + x.shape[attrs.axis + 1 :], x.dtype)


def _nonzero(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    (x,) = args
    assert isinstance(x, TensorType)
    k = ctx.fresh_dim("k")
    return ExistsType((DimParam(k, high=x.shape[0]),), TensorType((to_int(k),), I64))


def _reshape(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    x, shape = args
    assert isinstance(x, TensorType)
    assert isinstance(shape, ShapeType)
    total, wanted = lit(1), lit(1)
    for d in x.shape:
        total = total * d
    for d in shape.values:
        assert d is not None
        ctx.at_least(d, 0, "a dim")
        wanted = wanted * d
    ctx.equal(total, wanted, "elements")
    return TensorType(shape.values, x.dtype)  # type: ignore[arg-type]


ADD = Op("add", NoAttrs, _same_shape, (2, 2), in_place=(0, 1))
MUL = Op("mul", NoAttrs, _same_shape, (2, 2), in_place=(0, 1))
NEG = Op("neg", NoAttrs, _same_shape, (1, 1), in_place=(0,))
CONCAT = Op("concat", AxisAttrs, _concat, (2, 2))
SUM = Op("sum", AxisAttrs, _sum, (1, 1))
NONZERO = Op("nonzero", NoAttrs, _nonzero, (1, 1), data_dependent=True)
RESHAPE = Op("reshape", NoAttrs, _reshape, (2, 2), alias=0)

OPS = (ADD, MUL, NEG, CONCAT, SUM, NONZERO, RESHAPE)


class Table:
    """All of them by name, with the core operators."""

    def __init__(self) -> None:
        self._ops = {op.name: op for op in (*OPS, *CORE_OPS)}

    def find(self, name: str) -> Op | None:
        return self._ops.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._ops))


TABLE = Table()


_CORE = {d.op: d for d in DEFINITIONS}


def meaning(op: Op, attrs: object, args: tuple[object, ...]) -> object:
    """What an operator of `OPS` computes."""
    match op.name:
        case "add":
            return args[0] + args[1]
        case "mul":
            return args[0] * args[1]
        case "neg":
            return -args[0]
        case "concat":
            return np.concatenate(args, axis=attrs.axis)
        case "sum":
            return np.asarray(args[0].sum(axis=attrs.axis, dtype=args[0].dtype))
        case "nonzero":
            return np.flatnonzero(args[0])
        case "reshape":
            return args[0].reshape(args[1])
    return _CORE[op].evaluate(attrs, *args)
