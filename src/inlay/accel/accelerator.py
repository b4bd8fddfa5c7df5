"""What an accelerator file holds: one class whose attributes describe a device.

The class body is the description. An instance is one *architecture*: the class with values of its
parameters, which are numbers on `self`. Nothing registers itself; a description is checked as a whole when
it is first asked for (`describe`), and all that is wrong with it is said at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from inlay.accel.c_arguments import CCalls
from inlay.accel.declare import (
    Absent,
    Access,
    Choice,
    Dim,
    Driver,
    Encoder,
    HookDecl,
    Instruction,
    Memory,
    Param,
    PatternDecl,
    Queue,
    RegionDecl,
    Shared,
    Size,
)
from inlay.accel.engines import AtMost, Copy, Events, Order, Stream, Token
from inlay.accel.hooks import hook_problems
from inlay.accel.ignored import ignored
from inlay.accel.nest import meaning_of
from inlay.arith.expr import Int, Sym, lit, substitute, symbols, to_int
from inlay.base.diagnostics import Collector, InlayError, error
from inlay.base.registry import suggestion
from inlay.base.span import NO_SPAN, Source, Span
from inlay.loop.verify import verify
from inlay.loop.walk import stores_of

T = TypeVar("T")


class Accelerator:
    """Base of descriptions. The sections of a file, in this order: prose, attributes, memories and queues,
    patterns, instructions, encoding, drivers, cost.

    Attributes:
        emit: what commands are.
        order: how queues wait for each other.
        drivers: what brings them to a device, one.
        clock: cycles in a second.
        launch_cycles: what a command takes before its instruction begins.
        lower_after: names of accelerators whose commands are made before, so that what their scratch memory
            takes is known when that of this one is chosen.
    """

    emit: ClassVar[CCalls | Stream] = CCalls()
    order: ClassVar[tuple[Order, ...]] = ()
    drivers: ClassVar[tuple[Driver, ...]] = (Absent("its description names no driver"),)
    clock: ClassVar[Size] = 10**9
    launch_cycles: ClassVar[Size] = 0
    lower_after: ClassVar[tuple[str, ...]] = ()

    def __init__(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """A checked class.

    Attributes:
        cls: the class.
        params, dims, memories, instructions, patterns: its declarations, by name.
        hooks: code that changes programs, by name.
        encoders: how commands are written, by the name of the instruction or copy; of what only orders
            queues, under the name of the `AtMost`, of `Events` with `.signal` or `.wait` behind it, or
            under the empty name.
        queues, copies: more of its declarations.
        order: how queues wait for each other.
        counts, events: those of it that are commands, by name.
        choices: what the compiler picks for a command, by name.
        region: how several matches are one call, where they are.
    """

    cls: type[Accelerator]
    params: Mapping[str, Param]
    dims: Mapping[str, Dim]
    memories: Mapping[str, Shared | Memory]
    instructions: Mapping[str, Instruction]
    patterns: Mapping[str, PatternDecl]
    encoders: Mapping[str, Encoder]
    hooks: Mapping[str, HookDecl]
    queues: Mapping[str, Queue]
    copies: Mapping[str, Copy]
    order: tuple[Order, ...]
    counts: Mapping[str, AtMost]
    events: Mapping[str, Events]
    choices: Mapping[str, Choice]
    region: RegionDecl | None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens by which queues wait for each other; none where they wait in another way."""
        return tuple(x for x in self.order if isinstance(x, Token))

    def architecture(self, said: Mapping[str, str]) -> Architecture:
        """Return the architecture for parameters as a board says them.

        Raises:
            CompileError: all `accel.bad-parameter` at once.
        """
        findings, values = Collector(), {name: p.default for name, p in self.params.items()}
        for name, text in said.items():
            param = self.params.get(name)
            if param is None:
                findings.error(
                    "accel.bad-parameter",
                    f"found a parameter '{name}', which {self.cls.__name__} does not have",
                    hint=suggestion(name, self.params, f"it has {', '.join(self.params) or 'none'}"),
                )
            elif not text.isdecimal() or not _fits(param, int(text)):
                needed = " or ".join(map(str, param.choices)) or "a number above 0"
                findings.error("accel.bad-parameter", f"found {name} = {text}, needed {needed}")
            else:
                values[name] = int(text)
        findings.raise_if_fatal()
        return Architecture(self, self.cls(values), {self.params[n].sym: lit(v) for n, v in values.items()})


def _fits(param: Param, value: int) -> bool:
    return value in param.choices if param.choices else value > 0


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """A description with values of its parameters.

    Attributes:
        description: the class.
        device: its instance, on which parameters are numbers.
        values: of the symbols of parameters.
        rooms: units of memories that streams may use, where that is not all of them.
    """

    description: Description
    device: Accelerator
    values: Mapping[Sym, Int]
    rooms: Mapping[str, int] = field(default_factory=dict[str, int])

    def units(self, memory: str) -> int:
        """Return the units of a memory of the device that streams may use."""
        declared = self.description.memories[memory]
        assert isinstance(declared, Memory), "the memory is in the device"
        whole = (self.number(declared.size).value or 0) // (self.number(declared.unit).value or 1)
        return min(whole, self.rooms.get(memory, whole))

    @property
    def borrowed(self) -> Mapping[str, int]:
        """The bytes of memories of the device that are a part of one of the board, by name."""
        found = {
            n: m for n, m in self.description.memories.items() if isinstance(m, Memory) and m.of is not None
        }
        return {n: self.units(n) * (self.number(m.unit).value or 1) for n, m in found.items()}

    def number(self, size: Size, sizes: Mapping[Sym, Int] | None = None) -> Int:
        """Return a size with the values of parameters, and with those of dims, in it."""
        return substitute(to_int(size), {**self.values, **(sizes or {})})


def describe(cls: type[Accelerator]) -> Description:
    """Return the description that a class is.

    Raises:
        CompileError: all `accel.declaration` at once, with lines.
    """
    declared: dict[str, Any] = {}
    for name, x in _declared(cls):
        declared.pop(name, None)  # what a class says again stands where it says it
        declared[name] = x
    instructions = _of(declared, Instruction)
    copies = _of(declared, Copy)
    counts, events = _of(declared, AtMost), _of(declared, Events)
    names = {id(x): name for name, x in (*instructions.items(), *copies.items(), *counts.items())}
    names |= {id(x.signal): f"{name}.signal" for name, x in events.items()}
    names |= {id(x.wait): f"{name}.wait" for name, x in events.items()}
    encoders = {names.get(id(i), ""): e for e in _of(declared, Encoder).values() for i in e.things}
    made = Description(
        cls,
        _of(declared, Param),
        _of(declared, Dim),
        {**_of(declared, Shared), **_of(declared, Memory)},
        instructions,
        _of(declared, PatternDecl),
        encoders,
        _of(declared, HookDecl),
        _of(declared, Queue),
        copies,
        cls.order,
        counts,
        events,
        _of(declared, Choice),
        next(iter(_of(declared, RegionDecl).values()), None),
    )
    findings = Collector()
    for problem, about in (*ignored(cls, declared), *_problems(made)):
        findings.error("accel.declaration", f"{cls.__name__}: {problem}", span=where(cls, about))
    findings.raise_if_fatal()
    return made


def _declared(cls: type[Accelerator]) -> Iterator[tuple[str, Any]]:
    for base in reversed(cls.__mro__):
        if issubclass(base, Accelerator):
            yield from vars(base).items()


def _of(declared: Mapping[str, Any], kind: type[T]) -> dict[str, T]:
    return {name: x for name, x in declared.items() if isinstance(x, kind)}


def _problems(d: Description) -> Iterator[tuple[str, object]]:
    """Yield what is wrong, with the function that it is about."""
    for name, param in d.params.items():
        if not _fits(param, param.default):
            yield f"found {param.default} as the default of '{name}', which is not among its values", None
    for name, dim in d.dims.items():
        if dim.low < 0 or (dim.high is not None and dim.high < dim.low):
            yield f"found the limits {dim.low} and {dim.high} of '{name}', needed 0 <= low <= high", None
    for hook in d.hooks.values():
        yield from ((problem, hook.run) for problem in hook_problems(hook))
    if isinstance(d.cls.emit, Stream):
        yield from (
            (f"found {what}, which commands of streams do not have", about) for what, about in _of_calls(d)
        )
    for name, choice in d.choices.items():
        if not choice.values or min(choice.values) < 1:
            listed = ", ".join(map(str, choice.values)) or "none"
            yield f"found the values {listed} of '{name}', needed some above 0", None
    if d.region is not None:
        yield from ((problem, d.region.write) for problem in _of_region(d))
    for i in d.instructions.values():
        if i.name not in d.encoders and d.region is None:
            yield f"found no encoding of the instruction '{i.name}', needed one by @encodes", i.meaning
        yield from ((problem, i.meaning) for problem in _of_instruction(d, i))


def _of_region(d: Description) -> Iterator[str]:
    """Yield what a class cannot have beside a function that makes calls of whole regions."""
    if isinstance(d.cls.emit, Stream):
        yield "found a region of a device that reads a stream, which has its own larger streams"
    if d.encoders:
        listed = ", ".join(map(repr, d.encoders))
        yield f"found the encoding of {listed} beside a region, which writes all commands"
    scratch = (x for i in d.instructions.values() for x in i.operands.values() if x.access is Access.SCRATCH)
    if d.choices or any(scratch):
        yield "found a Choice or a Temp beside a region, whose scratch memory is r.scratch(bytes)"


def _of_calls(d: Description) -> Iterator[tuple[str, object]]:
    """Yield what only commands have that are calls, with the function that it is about."""
    yield from ((f"the choice '{name}'", None) for name in d.choices)
    for i in d.instructions.values():
        if i.needs:
            yield f"needs of '{i.name}'", i.meaning
        for name, x in i.operands.items():
            if x.access is Access.SCRATCH:
                yield f"'{name}' of '{i.name}' declared Temp", i.meaning


def _of_instruction(d: Description, i: Instruction) -> Iterator[str]:
    named = (*d.params.values(), *d.dims.values(), *d.choices.values(), *i.immediates.values())
    known = {x.sym for x in named}
    sizes = {f"the shape of '{n}'": x.shape for n, x in i.operands.items()} | {"the cycles": (i.cycles,)}
    sizes |= {"the needs": tuple(x for n in i.needs for x in (n.value, n.limit))}
    if sum(x.access is Access.SCRATCH for x in i.operands.values()) > 1:
        yield f"found several operands of '{i.name}' declared Temp, needed one at most"
    for what, found in sizes.items():
        if any(s not in known for size in found for s in symbols(to_int(size))):
            yield f"found a size in {what} of '{i.name}' that is no parameter and no dim of this class"
    yield from (
        f"found '{n}' of '{i.name}' in a memory that is no attribute of this class"
        for n, x in i.operands.items()
        if x.memory not in d.memories.values()
    )
    asked = list(inspect.signature(i.meaning).parameters)[1:]
    given = [*i.operands, *i.immediates]
    if sorted(asked) != sorted(given):
        yield f"found the arguments {', '.join(asked)} of '{i.name}', needed {', '.join(given)}"
        return
    try:
        device = d.cls({n: p.default for n, p in d.params.items()})
        f = meaning_of(i, device, {})
    except InlayError as failure:
        yield from (x.message for x in failure.diagnostics)
        return
    except Exception as failure:  # noqa: BLE001 (code of others)
        yield f"the meaning of '{i.name}' failed: {type(failure).__name__}: {failure}"
        return
    for fault in verify(f)[:1]:
        yield (
            f"the meaning of '{i.name}' is no loop nest: {fault.message}; a number that is made inside of a "
            "`nest` is gone behind it: a sum needs a `Local`, or an operand to store it to"
        )
    stored = {s.buffer.name for s in stores_of(f.body)}
    yield from (
        f"found '{n}' of '{i.name}' declared Out, and its meaning stores nothing to it"
        for n, x in i.operands.items()
        if x.access is not Access.READ and n not in stored
    )


def where(cls: type[Accelerator], about: object) -> Span:
    """Return where a function is, or the class."""
    at: Any = about if inspect.isfunction(about) else cls
    try:
        source, line = _source(inspect.getfile(at)), inspect.getsourcelines(at)[1]
    except (OSError, TypeError):
        return NO_SPAN
    return source.at(max(line, 1), 1)


@functools.cache
def _source(path: str) -> Source:
    return Source(path, Path(path).read_text(encoding="utf-8"))


def class_of(module: object) -> type[Accelerator]:
    """Return the class that a module describes a device by.

    Raises:
        CompileError: `accel.declaration` where there is none, or several.
    """
    name = getattr(module, "__name__", "")
    found = [
        x
        for x in vars(module).values()
        if inspect.isclass(x) and issubclass(x, Accelerator) and x.__module__ == name
    ]
    if len(found) != 1:
        listed = ", ".join(x.__name__ for x in found) or "none"
        raise error("accel.declaration", f"found {listed} in {name}, needed one class of an Accelerator")
    return found[0]
