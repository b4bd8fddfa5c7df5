"""Whether calls are those that the header of a vendor declares: a C compiler is asked, and runs nothing.

Arguments of the types that an encoding says are given to the function; a conversion that changes what arrives
is refused. Structures must have the size of those of the header, and each field its place and its size.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

from inlay.accel.accelerator import Architecture
from inlay.accel.c_arguments import Address, CArgument, CCall, CCalls, CStruct, Opaque
from inlay.accel.declare import Typed
from inlay.accel.match import Command
from inlay.accel.region import SCRATCH, whole_call
from inlay.accel.written import encoded_call
from inlay.arith.dtype import U8, DType
from inlay.arith.expr import Int
from inlay.runtime.driver_arguments import C_TYPES

_FLAGS = (
    "-std=c11",
    "-fsyntax-only",
    "-Wconversion",
    "-Wincompatible-pointer-types",
    "-Werror",
    "-x",
    "c",
    "-",
)


def compiler() -> str | None:
    """Return the C compiler of this machine, if there is one."""
    return shutil.which("cc")


def header_fault(arch: Architecture, command: Command, folder: Path) -> str:
    """Return how the calls of a command differ from the header that their description names, or nothing.

    Args:
        arch: the architecture.
        command: with those before it.
        folder: where the header is.
    """
    emit, cc = type(arch.device).emit, compiler()
    if not isinstance(emit, CCalls) or not emit.header or cc is None:
        return ""
    text = "".join(f"{line}\n" for call in _calls(arch, command) for line in _lines(*call, emit))
    done = subprocess.run(
        [cc, *_FLAGS, f"-I{folder}"], input=text, capture_output=True, text=True, check=False
    )
    errors = [x for x in done.stderr.splitlines() if "error:" in x]
    return f"{emit.header} declares something else: {errors[0].partition('error: ')[2]}" if errors else ""


def _calls(arch: Architecture, command: Command) -> Iterator[tuple[str, CCall, dict[str, DType]]]:
    """Yield the calls that a command is, with a name for each and the formats of what addresses are of."""
    declared = arch.description.region
    if declared is None:
        for c in command.steps:
            formats = {n: x.dtype for n, x in c.instruction.operands.items()}
            yield c.instruction.name, encoded_call(arch, c), formats
        return
    whole = whole_call(arch, command)
    for written in whole.variants.values():
        yield declared.name, written, {**whole.formats, SCRATCH: U8}


def _lines(name: str, written: CCall, formats: dict[str, DType], emit: CCalls) -> Iterator[str]:
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    yield f'#include "{emit.header}"'
    for a in written.args:
        yield from _structures(a)
    types = [_type(a, formats) for a in written.args]
    taken = ", ".join(f"{t} a{i}" for i, t in enumerate(types))
    given = ", ".join(f"a{i}" for i in range(len(types)))
    yield f"void check_{name}({taken or 'void'}) {{"
    if emit.status:
        size = ctypes.sizeof(C_TYPES[emit.status])
        why = f'"{written.function} returns another type than {emit.status}"'
        yield f"  _Static_assert(sizeof {written.function}({given}) == {size}, {why});"
    yield f"  {written.function}({given});\n}}"


def _type(a: CArgument, formats: dict[str, DType]) -> str:
    match a:
        case Address(operand=name):
            return f"{_number(formats[name].name)} *"
        case Int():
            return "int64_t"
        case Typed(dtype=dtype):
            return _number(dtype)
        case CStruct(type=type):
            return f"{type} *"
        case Opaque():
            return "void *"
        case _:
            assert_never(a)


def _number(dtype: str) -> str:
    if dtype == "f32":
        return "float"
    return f"{'uint' if dtype[0] == 'u' else 'int'}{dtype[1:]}_t"


def _structures(a: CArgument) -> Iterator[str]:
    """Yield that a structure is laid out as it is given."""
    if not isinstance(a, CStruct):
        return
    kinds: list[tuple[str, Any]] = []
    for name, x in a.fields.items():
        yield from _structures(x)
        kinds.append((name, _field(x)))
    made: Any = type("Layout", (ctypes.Structure,), {"_fields_": kinds})
    yield f'_Static_assert(sizeof({a.type}) == {ctypes.sizeof(made)}, "{a.type} has another size");'
    for name, kind in kinds:
        at, size = getattr(made, name).offset, ctypes.sizeof(kind)
        why = f'"{name} of {a.type} is elsewhere, or of another size"'
        found = f"offsetof({a.type}, {name}) == {at} && sizeof((({a.type} *)0)->{name}) == {size}"
        yield f"_Static_assert({found}, {why});"


def _field(x: CArgument) -> Any:
    match x:
        case Typed(dtype=dtype):
            return C_TYPES[dtype]
        case Int():
            return ctypes.c_int64
        case Address() | CStruct() | Opaque():
            return ctypes.c_void_p
        case _:
            assert_never(x)
