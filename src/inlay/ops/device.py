"""Where values live: copies between memories, and device annotations. Both are identities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from inlay.arith.dtype import F32
from inlay.ir.expr import Call, Expr, Function, OpRef
from inlay.ir.op import TypeContext
from inlay.ir.type_printer import type_text
from inlay.ir.types import AdtType, ExistsType, TensorType, TupleType, Type, TypeVar, UnknownType
from inlay.ir.walk import spine
from inlay.loop import te
from inlay.ops._define import Argument, FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


class Position(StrEnum):
    """Where an annotation stands, which decides what it says of the value around it."""

    AUTO = "auto"
    """Not said yet: follows from where it stands in the program."""
    DEFINITION = "definition"
    """It defines a value (of a let, a tail, a field of a tuple), which then is on the device too."""
    OPERAND = "operand"
    """It is an operand; what uses it may be anywhere."""


@dataclass(frozen=True, slots=True)
class OnDeviceAttrs:
    """A device annotation: where a value is to be.

    Attributes:
        device: name of a device; empty where only memories are asked for.
        memories: names of the memories allowed; empty for all that the device addresses.
        body: whether the operand is asked to be there.
        result: whether what uses an operand must be there too, with no copy between.
        position: written down by the pass `mark-annotations`, as naming values changes where things
            stand.
    """

    device: str = ""
    memories: tuple[str, ...] = ()
    body: bool = True
    result: bool = False
    position: Position = Position.AUTO


@dataclass(frozen=True, slots=True)
class CopyAttrs:
    """From where to where, and by whom.

    Attributes:
        src: name of the device that the operand is on.
        dst: name of the device that the result is on.
        src_memory: name of the memory it is read from; empty where that is open.
        dst_memory: name of the memory it is written to; empty where that is open.
        engine: name of the engine that copies; empty where that is open.
    """

    src: str = ""
    dst: str = ""
    src_memory: str = ""
    dst_memory: str = ""
    engine: str = ""


def _copy_rule(ctx: TypeContext, a: CopyAttrs, args: Types) -> Type:
    if not _is_data(args[0]):
        raise ctx.fail(f"found {type_text(args[0])}, which cannot be copied as a whole")
    return args[0]


def _is_data(t: Type) -> bool:
    """Whether a value can be copied: no functions, which have no place, and no cells."""
    match t:
        case TensorType() | TypeVar() | UnknownType():
            return True
        case TupleType(fields=parts) | AdtType(args=parts):
            return all(map(_is_data, parts))
        case ExistsType(body=body):
            return _is_data(body)
        case _:
            return False


def _same_rule(ctx: TypeContext, a: OnDeviceAttrs, args: Types) -> Type:
    return args[0]


def _copy_compute(a: CopyAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    return te.compute(result.shape, lambda *i: x[i], name="copy")


def _same(a: OnDeviceAttrs | CopyAttrs, x: Argument) -> Argument:
    return x


def _annotation_samples() -> list[Sample]:
    x = noise((2, 3), F32)
    return [Sample("annotation", OnDeviceAttrs("cpu"), (x,), (("m", "n"),), exact=True)]


def _copy_samples() -> list[Sample]:
    x = noise((2, 3), F32)
    return [Sample("copy", CopyAttrs("cpu", "cpu"), (x,), (("m", "n"),), exact=True)]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "device_copy",
        CopyAttrs,
        _copy_rule,
        1,
        FusionPattern.OPAQUE,
        "x, moved from one device or memory to another",
        reference=_same,
        compute=_copy_compute,
        samples=_copy_samples,
    ),
    define(
        "on_device",
        OnDeviceAttrs,
        _same_rule,
        1,
        FusionPattern.CONTROL,
        "x, annotated with a device that a person wants it on; gone once places are planned",
        reference=_same,
        samples=_annotation_samples,
        alias=0,
    ),
)

DEVICE_COPY, ON_DEVICE = (d.op for d in DEFINITIONS)


def annotation_of(e: Expr) -> OnDeviceAttrs | None:
    """Return the attributes of an `on_device`, None for anything else."""
    if isinstance(e, Call) and isinstance(e.callee, OpRef) and e.callee.op is ON_DEVICE:
        assert isinstance(e.callee.attrs, OnDeviceAttrs)
        return e.callee.attrs
    return None


def copy_in(function: Function) -> CopyAttrs | None:
    """Return from where to where a function copies that does nothing else; None for any other."""
    lets, tail = spine(function.body)
    calls = [v for v in (*(let.value for let in lets), tail) if isinstance(v, Call)]
    if len(calls) != 1 or not isinstance(calls[0].callee, OpRef):
        return None
    ref = calls[0].callee
    return ref.attrs if ref.op is DEVICE_COPY and isinstance(ref.attrs, CopyAttrs) else None
