"""What a description says and nothing would read: whoever wrote it meant something by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from inlay.accel.c_arguments import CCalls
from inlay.accel.declare import (
    Absent,
    Encoder,
    Instruction,
    Library,
    Memory,
    Mock,
    Process,
    RegionDecl,
    Socket,
)
from inlay.accel.engines import AtMost, Copy, Events, Interlock, Stream, Token
from inlay.arith.expr import Int
from inlay.runtime.driver_arguments import C_TYPES

_ORDER = (Token, Interlock, AtMost, Events)
_DRIVERS = (Library, Process, Socket, Mock, Absent)


def ignored(cls: Any, declared: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield what is wrong with attributes of a class, with the function that it is about.

    Args:
        cls: the class, an `Accelerator`.
        declared: its attributes and those that it inherits, by name.
    """
    yield from ((problem, None) for problem in _of_drivers(cls.drivers))
    order = cast("tuple[object, ...]", cls.order)
    if not isinstance(cls.order, tuple) or not all(isinstance(x, _ORDER) for x in order):
        ways = "of Token(...), of AtMost(...), of Events(...), or of one Interlock(...)"
        yield f"found an order that is no tuple {ways}", None
        return
    yield from ((problem, None) for problem in _misnamed(cls, declared))
    if len(found := [name for name, x in declared.items() if isinstance(x, RegionDecl)]) > 1:
        yield f"found the regions {', '.join(found)}, needed one: it writes all commands", None
    for name in ("clock", "launch_cycles"):
        if not isinstance(getattr(cls, name), int | Int):
            yield f"found {name} = {getattr(cls, name)!r}, needed an integer", None
    things: list[object] = [x for x in declared.values() if isinstance(x, Instruction | Copy | AtMost)]
    things += [c for x in declared.values() if isinstance(x, Events) for c in (x.signal, x.wait)]
    if isinstance(cls.emit, Stream):
        things.append(cls.emit.nop)
    elif isinstance(cls.emit, CCalls):
        yield from _of_calls(cls, declared)
    for encoder in (x for x in declared.values() if isinstance(x, Encoder)):
        if any(not any(x is thing for thing in things) for x in encoder.things):
            name = encoder.write.__name__
            yield f"found '{name}' to encode what is no instruction and no copy of this class", encoder.write


def _of_drivers(said: object) -> Iterator[str]:
    drivers = cast("tuple[object, ...]", said)
    if not isinstance(said, tuple) or not all(isinstance(x, _DRIVERS) for x in drivers):
        yield "found drivers that are not Library(...), Mock() or Absent(...) in a tuple: drivers = (Mock(),)"
    elif len(drivers) != 1:
        yield f"found {len(drivers)} drivers, needed one"


def _misnamed(cls: Any, declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield declarations that only count as an attribute of a certain name, under another one."""
    for name, x in declared.items():
        first: object = next(iter(cast("tuple[object, ...]", x)), None) if isinstance(x, tuple) else x
        if isinstance(first, _DRIVERS) and name != "drivers":
            yield f"found a driver as '{name}', needed it in `drivers`"
        elif isinstance(x, CCalls | Stream) and name != "emit":
            yield f"found what commands are as '{name}', needed it as `emit`"
        elif isinstance(x, _ORDER) and not any(x is t for t in cls.order):
            yield f"found the {type(x).__name__} '{name}', which is not in `order`"


def _of_calls(cls: Any, declared: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield what only a stream can do, in a class whose commands are calls."""
    if cls.emit.status and cls.emit.status not in C_TYPES:
        yield f"found calls that return {cls.emit.status}, needed {', '.join(C_TYPES)}, or None", None
    if cls.order:
        yield "found tokens, which only commands of a `Stream` have: calls are made one after the other", None
    for name, x in declared.items():
        if isinstance(x, Memory):
            why = (
                "calls have operands in memories of the board (`Shared`); say what fits by `needs` or a `Dim`"
            )
            yield f"found the memory '{name}' of the device, which only a `Stream` fills: {why}", None
