"""Explicit storage: what programs consist of once every tensor has its bytes.

    let s = alloc_storage{memory="heap", alignment=64}(int(4*n*m));
    let t = tensor_at{dtype=f32}(s, int(0), shape(n, m));
    invoke(@kernel, (a, b), (t,));
    kill(s);

These have type rules only: `memory.explicit_alloc` writes them, the compilers to bytecode and C read
them, and they run there. `invoke` writes its outputs; the order of effects keeps it before what reads
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.dtype import DType
from inlay.ir.dims import type_text
from inlay.ir.op import Effect, NoAttrs, TypeContext
from inlay.ir.types import (
    STORAGE,
    UNIT,
    FuncType,
    StorageType,
    TensorType,
    TupleType,
    Type,
)
from inlay.ops import _rules as rules
from inlay.ops._define import OpDef, Pattern, define
from inlay.ops._rules import Types


@dataclass(frozen=True, slots=True)
class StorageAttrs:
    """`memory`: name of the memory, empty for the default; `alignment`: in bytes."""

    memory: str = ""
    alignment: int = 64


@dataclass(frozen=True, slots=True)
class TensorAtAttrs:
    """`dtype`: element type of the tensor."""

    dtype: DType


def _storage_rule(ctx: TypeContext, a: StorageAttrs, args: Types) -> Type:
    if a.alignment < 1 or a.alignment & (a.alignment - 1):
        raise ctx.fail(f"found alignment {a.alignment}, needed a power of 2")
    ctx.at_least(rules.int_value(ctx, args, 0), 0, "the size in bytes")
    return STORAGE


def _tensor_rule(ctx: TypeContext, a: TensorAtAttrs, args: Types) -> TensorType:
    if not isinstance(args[0], StorageType):
        raise ctx.fail(f"argument 1 is {type_text(args[0])}, needed Storage")
    ctx.at_least(rules.int_value(ctx, args, 1), 0, "the offset in bytes")
    return TensorType(rules.shape_values(ctx, args, 2), a.dtype)


def _invoke_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> Type:
    kernel, inputs, outputs = args
    if not isinstance(kernel, FuncType):
        raise ctx.fail(f"argument 1 is {type_text(kernel)}, needed a kernel")
    if not isinstance(inputs, TupleType) or not isinstance(outputs, TupleType):
        raise ctx.fail("found no tuples of inputs and outputs, needed one of each")
    results = kernel.result.fields if isinstance(kernel.result, TupleType) else (kernel.result,)
    if len(inputs.fields) != len(kernel.params) or len(outputs.fields) != len(results):
        raise ctx.fail(
            f"found {len(inputs.fields)} inputs and {len(outputs.fields)} outputs, needed "
            f"{len(kernel.params)} and {len(results)}",
            id="type.arity",
        )
    return UNIT


def _kill_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> Type:
    return UNIT


DEFINITIONS: tuple[OpDef, ...] = (
    define("alloc_storage", StorageAttrs, _storage_rule, 1, Pattern.CONTROL,
           "so many bytes (an int) in a memory", effect=Effect.ALLOCATES),
    define("tensor_at", TensorAtAttrs, _tensor_rule, 3, Pattern.CONTROL,
           "the tensor of a shape that begins at an offset (an int, in bytes) in a storage",
           alias=0),
    define("invoke", NoAttrs, _invoke_rule, 3, Pattern.CONTROL,
           "run a kernel on a tuple of inputs; it writes the tuple of outputs",
           effect=Effect.WRITES),
    define("kill", NoAttrs, _kill_rule, 1, Pattern.CONTROL,
           "the last use of a tensor or storage: its bytes may be used again",
           effect=Effect.WRITES),
)  # fmt: skip
