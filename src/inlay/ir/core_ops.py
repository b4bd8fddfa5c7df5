"""The operators that the IR itself needs: checks, control values, rows.

Everything else is in `ops`, which also gives these a meaning and an implementation.

* **Checks** return their first operand unchanged. They stand in the data flow of what relies on
  them, so nothing can move a use above its check, and the effect FAILS keeps them from being
  dropped. `ir.make` inserts them where a type rule asks for a relation that cannot be proved.
* **Control values**: comparisons and logic on unboxed ints and bools, and the two crossings,
  `to_control` (waits for the tensor) and `to_tensor`. There is no control arithmetic: an int in
  scope is a symbol, and a sum is the constant `int(i + 1)`.
* **Rows**: what canonical loops need to scan. `push_row` on a uniquely owned tensor takes amortized
  constant time, because an executor may keep spare capacity behind the last row.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.dtype import BOOL, F32, I64, DType
from inlay.arith.expr import Int, lit
from inlay.ir.op import Effect, NoAttrs, Op, TypeContext, TypeRule
from inlay.ir.type_printer import type_text
from inlay.ir.types import BOOL_CONTROL, INT_CONTROL, BoolType, IntType, ShapeType, TensorType, Type


@dataclass(frozen=True, slots=True)
class CheckAttrs:
    """`why` is what the check is for, and part of its message."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class LeastAttrs:
    """`low` is the least value that is accepted."""

    low: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class DTypeAttrs:
    """`dtype` is the element type of the result."""

    dtype: DType = F32


def _check_shape(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    x, shape = tensor(ctx, args, 0), shape_values(ctx, args, 1)
    if len(x.shape) != len(shape):
        raise ctx.fail(f"found rank {len(x.shape)}, needed rank {len(shape)}", id="type.rank-mismatch")
    dims = tuple(d if s is None else s for d, s in zip(x.shape, shape, strict=True))
    return TensorType(dims, x.dtype)


def _check_equal(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    control(ctx, args, 1, IntType)
    control(ctx, args, 2, IntType)
    return args[0]


def _check_at_least(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    control(ctx, args, 1, IntType)
    return args[0]


def _compare(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    for i in range(2):
        control(ctx, args, i, IntType)
    return BOOL_CONTROL


def _logic(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    for i in range(len(args)):
        control(ctx, args, i, BoolType)
    return BOOL_CONTROL


def _to_control(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    x = tensor(ctx, args, 0)
    if len(x.shape) > 1 or not (x.dtype.is_integer or x.dtype == BOOL):
        raise ctx.fail(
            f"found {type_text(x)}, needed an integer or bool tensor of rank 0, or integers of "
            "rank 1 for a shape",
            hint="cast it, or take one element with reshape",
        )
    if not x.shape:
        return BOOL_CONTROL if x.dtype == BOOL else INT_CONTROL
    length = x.shape[0].value
    if length is None or x.dtype == BOOL:
        raise ctx.fail(
            f"found {type_text(x)}, needed integers of a known number for a shape",
            id="type.dynamic-rank",
            hint="the rank of a tensor cannot depend on data",
        )
    return ShapeType((None,) * length)


def _to_tensor(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    match args[0]:
        case BoolType():
            return TensorType((), BOOL)
        case IntType():
            return TensorType((), I64)
        case ShapeType(values=values):
            return TensorType((lit(len(values)),), I64)
        case other:
            raise ctx.fail(f"found {type_text(other)}, needed int, bool or shape")


def _get_row(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    x = _with_rows(ctx, args, 0)
    control(ctx, args, 1, IntType)
    return TensorType(x.shape[1:], x.dtype)


def _set_row(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    x = _with_rows(ctx, args, 0)
    control(ctx, args, 1, IntType)
    return TensorType((x.shape[0], *_row_dims(ctx, x, tensor(ctx, args, 2))), x.dtype)


def _push_row(ctx: TypeContext, _attrs: object, args: tuple[Type, ...]) -> Type:
    x = _with_rows(ctx, args, 0)
    return TensorType((x.shape[0] + 1, *_row_dims(ctx, x, tensor(ctx, args, 1))), x.dtype)


def _zeros(ctx: TypeContext, attrs: object, args: tuple[Type, ...]) -> Type:
    assert isinstance(attrs, DTypeAttrs)
    shape = shape_values(ctx, args, 0)
    dims: list[Int] = []
    for s in shape:
        if s is None:
            raise ctx.fail("found a shape of unknown values, needed one that is bound by a let")
        ctx.at_least(s, 0, "a dim")
        dims.append(s)
    return TensorType(tuple(dims), attrs.dtype)


def _row_dims(ctx: TypeContext, x: TensorType, row: TensorType) -> tuple[Int, ...]:
    if len(row.shape) + 1 != len(x.shape) or row.dtype != x.dtype:
        raise ctx.fail(f"found a row {type_text(row)} for {type_text(x)}")
    return tuple(
        ctx.equal(a, b, f"dim {i} of the row")
        for i, (a, b) in enumerate(zip(x.shape[1:], row.shape, strict=True))
    )


def tensor(ctx: TypeContext, args: tuple[Type, ...], i: int) -> TensorType:
    """Return the type of an argument that must be a tensor."""
    t = args[i]
    if not isinstance(t, TensorType):
        raise ctx.fail(f"argument {i + 1} is {type_text(t)}, needed a tensor")
    return t


def control(
    ctx: TypeContext, args: tuple[Type, ...], i: int, kind: type[IntType] | type[BoolType] | type[ShapeType]
) -> Type:
    """Return the type of an argument that must be a control value of a kind."""
    t = args[i]
    if not isinstance(t, kind):
        word = {IntType: "int", BoolType: "bool", ShapeType: "shape"}[kind]
        raise ctx.fail(
            f"argument {i + 1} is {type_text(t)}, needed {word}",
            hint="use to_control" if isinstance(t, TensorType) else "",
        )
    return t


def shape_values(ctx: TypeContext, args: tuple[Type, ...], i: int) -> tuple[Int | None, ...]:
    """Return the values of an argument that must be a shape."""
    t = control(ctx, args, i, ShapeType)
    assert isinstance(t, ShapeType)
    return t.values


def _with_rows(ctx: TypeContext, args: tuple[Type, ...], i: int) -> TensorType:
    x = tensor(ctx, args, i)
    if not x.shape:
        raise ctx.fail(f"argument {i + 1} is {type_text(x)}, needed rank 1 or more")
    return x


def _op(
    name: str,
    rule: TypeRule,
    arity: int,
    doc: str,
    *,
    attrs: type = NoAttrs,
    effect: Effect = Effect.PURE,
    alias: int | None = None,
    in_place: tuple[int, ...] = (),
) -> Op:
    return Op(name, attrs, rule, (arity, arity), effect, alias, in_place, doc=doc)


CHECK_SHAPE = _op(
    "check_shape",
    _check_shape,
    2,
    "x, which has exactly this shape, or the program stops",
    attrs=CheckAttrs,
    effect=Effect.FAILS,
    alias=0,
)
CHECK_EQUAL = _op(
    "check_equal",
    _check_equal,
    3,
    "x, if the two ints are equal, or the program stops",
    attrs=CheckAttrs,
    effect=Effect.FAILS,
    alias=0,
)
CHECK_AT_LEAST = _op(
    "check_at_least",
    _check_at_least,
    2,
    "x, if the int is at least `low`, or the program stops",
    attrs=LeastAttrs,
    effect=Effect.FAILS,
    alias=0,
)
INT_LESS = _op("int_less", _compare, 2, "a < b")
INT_LESS_EQUAL = _op("int_less_equal", _compare, 2, "a <= b")
INT_EQUAL = _op("int_equal", _compare, 2, "a == b")
BOOL_AND = _op("bool_and", _logic, 2, "both; the second is evaluated too")
BOOL_OR = _op("bool_or", _logic, 2, "either; the second is evaluated too")
BOOL_NOT = _op("bool_not", _logic, 1, "the other one")
TO_CONTROL = _op(
    "to_control",
    _to_control,
    1,
    "a rank-0 tensor as int or bool, or a rank-1 integer tensor as shape; waits for the tensor",
)
TO_TENSOR = _op("to_tensor", _to_tensor, 1, "an int or shape as i64, or a bool, as a tensor")
GET_ROW = _op(
    "get_row", _get_row, 2, "x[i]; stops the program where i is out of range", effect=Effect.FAILS, alias=0
)
SET_ROW = _op(
    "set_row",
    _set_row,
    3,
    "x with row i replaced; stops where i is out of range",
    effect=Effect.FAILS,
    in_place=(0,),
)
PUSH_ROW = _op(
    "push_row", _push_row, 2, "x with one more row; amortized constant time in place", in_place=(0,)
)
ZEROS = _op("zeros", _zeros, 1, "a tensor of zeros of a shape", attrs=DTypeAttrs)

CORE_OPS: tuple[Op, ...] = (
    CHECK_SHAPE,
    CHECK_EQUAL,
    CHECK_AT_LEAST,
    INT_LESS,
    INT_LESS_EQUAL,
    INT_EQUAL,
    BOOL_AND,
    BOOL_OR,
    BOOL_NOT,
    TO_CONTROL,
    TO_TENSOR,
    GET_ROW,
    SET_ROW,
    PUSH_ROW,
    ZEROS,
)


class CoreTable:
    """The table of these operators alone, for programs that use no others (the prelude)."""

    def find(self, name: str) -> Op | None:
        """Return the operator of that name, or None."""
        return next((op for op in CORE_OPS if op.name == name), None)

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(sorted(op.name for op in CORE_OPS))
