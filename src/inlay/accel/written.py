"""Commands as what a C function of the driver is given: what encoders say, over the integers of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.c_arguments import Address, CArgument, CCall, CStruct, Opaque, UnknownConstantError
from inlay.accel.declare import Typed
from inlay.accel.match import Command
from inlay.arith.expr import Int, Sym
from inlay.base.diagnostics import InternalError, error
from inlay.bytecode.of_integers import formula
from inlay.ir import make
from inlay.ir.expr import Expr
from inlay.runtime.driver_arguments import C_TYPES, Argument, DeviceProgram, Number, Struct, Tensor, digest_of


class Shown:
    """A command as encoders see it: operands are addresses, dims and immediates integers, by name."""

    def __init__(self, arch: Architecture, command: Command) -> None:
        self.name = command.instruction.name
        self._sizes: dict[str, Int] = {
            n: command.sizes[d.sym] for n, d in arch.description.dims.items() if d.sym in command.sizes
        }
        named = {**command.instruction.immediates, **arch.description.choices}
        self._sizes |= {n: command.sizes[x.sym] for n, x in named.items() if x.sym in command.sizes}
        given = {n: command.constant(n, arch) for n in command.operands}
        addresses = {n: Address(n, given.get(n)) for n in command.instruction.operands}
        self._operands: Mapping[str, Any] = addresses

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._operands:
            return self._operands[name]
        if name in self._sizes:
            return self._sizes[name]
        has = ", ".join((*self._operands, *self._sizes))
        raise AttributeError(f"a command of '{self.name}' has no '{name}', but {has}")


def encoded_call(arch: Architecture, command: Command) -> CCall:
    """Return how a command is written.

    Raises:
        CompileError: `accel.declaration`: the encoding is no call, or a number is too large for its type.
    """
    encoder = arch.description.encoders[command.instruction.name]
    return check_call(encoder.write(arch.device, Shown(arch, command)), command.instruction.name)


def check_call(found: object, of: str) -> CCall:
    """Return what an encoding gives, if it is a call.

    Raises:
        CompileError: `accel.declaration`: it is none, or a number is too large for its type.
    """
    if not isinstance(found, CCall):
        kind = type(found).__name__
        raise error("accel.declaration", f"found the encoding of {of} to return {kind}: no call")
    for a in found.args:
        _check(a, of)
    return found


def _check(a: CArgument, of: str) -> None:
    """Refuse a number that its type of C does not hold, and a type that no number is given as."""
    match a:
        case Typed(value=value, dtype=dtype):
            if dtype not in C_TYPES:
                raise error("accel.declaration", f"found a number of '{of}' as {dtype}: {', '.join(C_TYPES)}")
            if value.value is not None and C_TYPES[dtype](value.value).value != value.value:
                raise error("accel.declaration", f"found {value} in a command of '{of}' as {dtype}")
        case CStruct(fields=fields):
            for x in fields.values():
                _check(x, of)
        case Address() | Int() | Opaque():
            pass
        case _:
            raise error("accel.declaration", f"found {type(a).__name__} given to a function in '{of}'")


def number_of(e: Int, places: Mapping[Sym, int], dtype: str = "i64") -> Number:
    """Return an integer over those of a kernel."""
    found = formula(e, places)
    if found is None:
        raise InternalError(f"{e} is no formula over the dims of a kernel", where="accel")
    return Number(found, dtype)


def given_to(
    arch: Architecture,
    command: Command,
    operands: Mapping[str, Tensor | bytes],
    places: Mapping[Sym, int],
    known: Sequence[Mapping[int, np.ndarray]],
) -> tuple[str, tuple[Argument, ...]]:
    """Return the function that a command calls, and what that is given.

    An encoding that asks for values of constants is run for each set of constants that calls have; what it
    makes of them may differ in programs of the device alone.

    Args:
        arch: the architecture.
        command: what is to be done.
        operands: which tensor of the kernel each is, or bytes.
        places: of the dims of the program among the integers of the kernel.
        known: for each call of the kernel its operands that are constants, by position.

    Raises:
        CompileError: `accel.declaration`.
    """
    try:
        positions, variants = (), {digest_of([]): encoded_call(arch, command)}
    except UnknownConstantError as asked:
        positions, variants = _variants(arch, command, operands, known, asked)
    return next(iter(variants.values())).function, arguments(variants, positions, operands, places)


def arguments(
    variants: Mapping[str, CCall],
    positions: tuple[int, ...],
    operands: Mapping[str, Tensor | bytes],
    places: Mapping[Sym, int],
) -> tuple[Argument, ...]:
    """Return what a function is given.

    Args:
        variants: how the call is written, for each set of constants by their digest.
        positions: the tensors of the kernel that these constants are.
        operands: what each address is.
        places: of the dims of the program among the integers of the kernel.
    """

    def given(parts: Sequence[CArgument]) -> Argument:
        match parts[0]:
            case Address(operand=name):
                return operands[name]
            case Int() as e:
                return number_of(e, places)
            case Typed(value=value, dtype=dtype):
                return number_of(value, places, dtype)
            case CStruct():
                others = [list(x.fields.values()) for x in parts if isinstance(x, CStruct)]
                return Struct(tuple(given(column) for column in zip(*others, strict=True)))
            case Opaque() as one:
                images = {d: x.data for d, x in zip(variants, parts, strict=True) if isinstance(x, Opaque)}
                if len(set(images.values())) == 1:
                    return DeviceProgram(one.open, one.close, {digest_of([]): one.data})
                return DeviceProgram(one.open, one.close, images, positions)
            case _:
                assert_never(parts[0])

    columns = zip(*(x.args for x in variants.values()), strict=True)
    return tuple(given(column) for column in columns)


def _variants(
    arch: Architecture,
    command: Command,
    operands: Mapping[str, Tensor | bytes],
    known: Sequence[Mapping[int, np.ndarray]],
    asked: UnknownConstantError,
) -> tuple[tuple[int, ...], dict[str, CCall]]:
    """Return the positions of tensors that are constants in all calls, and the command for each set of them.

    Raises:
        CompileError: `accel.declaration` where it differs in more than programs.
    """
    positions = tuple(sorted(set[int].intersection(*(set(x) for x in known)) if known else ()))
    at = {n: x.position for n, x in operands.items() if isinstance(x, Tensor) and x.position in positions}
    made: dict[str, CCall] = {}
    for constants in known:
        digest = digest_of([constants[i] for i in positions])
        if digest not in made:
            said: dict[str, Expr] = {n: make.const(constants[i]) for n, i in at.items()}
            of = replace(command, operands={**command.operands, **said})
            try:
                made[digest] = encoded_call(arch, of)
            except UnknownConstantError as failure:
                raise error("accel.declaration", str(failure)) from asked
    if not made:
        raise error("accel.declaration", str(asked))
    check_same(made, command.instruction.name)
    return positions, made


def check_same(made: Mapping[str, CCall], of: str) -> None:
    """Refuse calls that differ in more than the bytes of programs.

    Raises:
        CompileError: `accel.declaration`.
    """
    one, *others = ([x.function, *map(_shape, x.args)] for x in made.values())
    if any(x != one for x in others):
        raise error(
            "accel.declaration", f"found the encoding of {of} to say other arguments for other constants"
        )


def _shape(a: CArgument) -> str:
    """Return a text that is equal for arguments that differ in the bytes of programs alone."""
    match a:
        case Address(operand=name):
            return f"address {name}"
        case Int():
            return str(a)
        case Typed(value=value, dtype=dtype):
            return f"{dtype} {value}"
        case CStruct(type=type, fields=fields):
            return f"{type} {[(n, _shape(x)) for n, x in fields.items()]}"
        case Opaque(open=opens, close=closes):
            return f"program {opens} {closes}"
        case _:
            assert_never(a)
