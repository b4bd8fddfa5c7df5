"""Explicit storage: what is left of results once somebody has decided where they live.

`memory.explicit_alloc` turns `let y = @kernel(x)` into

    let s = alloc_storage(int(4*n));
    let y = tensor_at{dtype=f32}(s, int(0), shape(n));
    let _ = invoke(@kernel, x, y, shape(n));

and `memory.plan_memory` then gives tensors their offsets in one storage per function. Storage is
counted: it is free again when neither it nor a tensor in it can be reached, `kill` or not.

A kernel that changes some elements of an operand (`Access.UPDATE`) gets one tensor that it reads and
writes, and that nobody else may see: `let y = own(x); let _ = invoke(@kernel, y, i, y, shape());`.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.dtype import F32, DType
from inlay.ir.op import Effect, NoAttrs, TypeContext
from inlay.ir.types import STORAGE, UNIT, FuncType, IntType, ShapeType, StorageType, TensorType, Type
from inlay.ops._define import FusionPattern, OpDef, define


@dataclass(frozen=True, slots=True)
class StorageAttrs:
    """Where storage is taken from.

    Attributes:
        memories: names of memories of the board that it may be in, the preferred one first; planning
            leaves one. Empty for the host's.
        alignment: of its first byte.
    """

    memories: tuple[str, ...] = ()
    alignment: int = 64


@dataclass(frozen=True, slots=True)
class TensorAtAttrs:
    """`dtype` is how the bytes are read."""

    dtype: DType = F32


@dataclass(frozen=True, slots=True)
class InvokeAttrs:
    """`writes` is how many of the tensors, the last ones, the kernel writes: results, then scratch memory."""

    writes: int = 1


def _alloc_storage(ctx: TypeContext, attrs: StorageAttrs, args: tuple[Type, ...]) -> Type:
    if not isinstance(args[0], IntType):
        raise ctx.fail("argument 1 is not an int, needed a number of bytes")
    return STORAGE


def _tensor_at(ctx: TypeContext, attrs: TensorAtAttrs, args: tuple[Type, ...]) -> Type:
    storage, offset, shape = args
    if not isinstance(storage, StorageType) or not isinstance(offset, IntType):
        raise ctx.fail("needed a storage and an offset in bytes")
    if not isinstance(shape, ShapeType) or any(v is None for v in shape.values):
        raise ctx.fail("argument 3 is not a shape of known values")
    return TensorType(tuple(v for v in shape.values if v is not None), attrs.dtype)


def _invoke(ctx: TypeContext, attrs: InvokeAttrs, args: tuple[Type, ...]) -> Type:
    if not isinstance(args[0], FuncType) or not isinstance(args[-1], ShapeType):
        raise ctx.fail("needed a kernel, tensors, and the integers of the kernel as a shape")
    return UNIT


def _own(ctx: TypeContext, attrs: NoAttrs, args: tuple[Type, ...]) -> Type:
    if not isinstance(args[0], TensorType):
        raise ctx.fail("argument 1 is no tensor")
    return args[0]


def _kill(ctx: TypeContext, attrs: NoAttrs, args: tuple[Type, ...]) -> Type:
    return UNIT


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "alloc_storage",
        StorageAttrs,
        _alloc_storage,
        1,
        FusionPattern.CONTROL,
        "so many bytes of a memory",
        effect=Effect.ALLOCATES,
    ),
    define(
        "tensor_at",
        TensorAtAttrs,
        _tensor_at,
        3,
        FusionPattern.CONTROL,
        "the tensor of a shape whose first element is at a byte of a storage",
    ),
    define(
        "invoke",
        InvokeAttrs,
        _invoke,
        (2, None),
        FusionPattern.CONTROL,
        "run a kernel on tensors, the last of which it writes; its integers come last",
        effect=Effect.WRITES,
    ),
    define(
        "own",
        NoAttrs,
        _own,
        1,
        FusionPattern.CONTROL,
        "a tensor equal to x that nothing else refers to: x itself where this is its last use",
        effect=Effect.ALLOCATES,
        in_place=(0,),
    ),
    define(
        "kill",
        NoAttrs,
        _kill,
        1,
        FusionPattern.CONTROL,
        "the value is not used any more",
        effect=Effect.WRITES,
    ),
)

ALLOC_STORAGE, TENSOR_AT, INVOKE, OWN, KILL = (d.op for d in DEFINITIONS)
IN_ANY_MEMORY = frozenset({ALLOC_STORAGE, TENSOR_AT, OWN})
"""What the virtual machine makes where it is asked to; the bytes are not touched."""
