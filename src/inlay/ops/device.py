"""Where values live: copies between memories, and wishes of the user. Both are identities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlay.arith.dtype import F32
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType, Type
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._define import Argument, OpDef, Pattern, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


@dataclass(frozen=True, slots=True)
class DeviceAttrs:
    """`device` and `memory` of the result, by name; an empty memory leaves the choice open."""

    device: str
    memory: str = ""


def _copy_rule(ctx: TypeContext, a: DeviceAttrs, args: Types) -> TensorType:
    return rules.tensor(ctx, args, 0)


def _same_rule(ctx: TypeContext, a: DeviceAttrs, args: Types) -> Type:
    return args[0]


def _copy_compute(a: DeviceAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    return te.compute(result.shape, lambda *i: x[i], name="copy")


def _same(a: DeviceAttrs, x: Argument) -> Argument:
    return x


def _samples() -> list[Sample]:
    x = noise((2, 3), F32)
    return [Sample("copy", DeviceAttrs("cpu"), (x,), (("m", "n"),), exact=True)]


DEFINITIONS: tuple[OpDef, ...] = (
    define("device_copy", DeviceAttrs, _copy_rule, 1, Pattern.OPAQUE,
           "x in a memory of a device", reference=_same, compute=_copy_compute,
           samples=_samples),
    define("on_device", DeviceAttrs, _same_rule, 1, Pattern.CONTROL,
           "x, computed on a device: a wish of the user, gone once places are planned",
           reference=_same, samples=_samples, alias=0),
)  # fmt: skip
