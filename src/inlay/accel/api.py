"""All that an accelerator file imports. docs/reference/accelerators.md says what each name means."""

from inlay.accel.accelerator import Accelerator
from inlay.accel.declare import (
    Absent,
    CCalls,
    Dim,
    Format,
    Imm,
    In,
    KiB,
    Library,
    MHz,
    MiB,
    Mock,
    Out,
    Param,
    Queue,
    Shared,
    call,
    encodes,
    hook,
    instruction,
    pattern,
)
from inlay.accel.nest import nest
from inlay.arith.dtype import F32, I8, I16, I32, I64, U8

f32, i8, i16, i32, i64, u8 = map(Format, (F32, I8, I16, I32, I64, U8))

__all__ = [
    "Absent",
    "Accelerator",
    "CCalls",
    "Dim",
    "Format",
    "Imm",
    "In",
    "KiB",
    "Library",
    "MHz",
    "MiB",
    "Mock",
    "Out",
    "Param",
    "Queue",
    "Shared",
    "call",
    "encodes",
    "f32",
    "hook",
    "i8",
    "i16",
    "i32",
    "i64",
    "instruction",
    "nest",
    "pattern",
    "u8",
]
