"""Declarations of an accelerator: what the attributes of its class are.

Sizes, limits and costs are integers over parameters and dims, so that they can be solved and explained:
a parameter or a dim is a symbol while the class is read, and arithmetic on it gives an `Int`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never, overload

from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym, fresh, from_atom, to_int
from inlay.loop.te import ScalarValue
from inlay.runtime.driver_places import Awaited, Child, Place, Server

KiB = 1 << 10
MiB = 1 << 20
MHz = 10**6


class Symbol(Int):
    """An integer that is known later; `sym` stands for it."""

    __slots__ = ("sym",)

    def __init__(self, name: str, *, signed: bool = False) -> None:
        self.sym: Sym = fresh(name, signed=signed)
        super().__init__(from_atom(self.sym).terms)


Size = Int | int
"""An integer in a declaration."""


class Param(Symbol):
    """What two boards may build differently; a board gives it in `parameters` of the architecture.

    Args:
        default: where the board says nothing.
        doc: what it is, with its unit.
        choices: the values that there are; any positive one where empty.
    """

    __slots__ = ("choices", "default", "doc")

    def __init__(self, default: int, doc: str = "", choices: Sequence[int] = ()) -> None:
        super().__init__("param")
        self.default, self.doc, self.choices = default, doc, tuple(choices)


class Dim(Symbol):
    """A size that a command chooses, with its limits.

    Args:
        low: the least.
        high: the largest that a command can say; None for any.
    """

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int | None = None) -> None:
        super().__init__("dim")
        self.low, self.high = low, high


class Imm(Symbol):
    """A number in a command.

    Args:
        low, high: between which it is.
    """

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        super().__init__("imm", signed=low < 0)
        self.low, self.high = low, high


class Choice(Symbol):
    """A number that the compiler picks for each command, among some: `choices` says how.

    Args:
        values: that there are, the one to prefer first.
    """

    __slots__ = ("values",)

    def __init__(self, *values: int) -> None:
        super().__init__("choice")
        self.values = values


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """What a command keeps to.

    Attributes:
        value: over parameters, dims, immediates and choices.
        limit: the most that it can be.
        text: what it is, for reasons.
    """

    value: Int
    limit: Int
    text: str


def at_most(value: Size, limit: Size, what: str = "") -> Limit:
    """Return a limit over several sizes, for `needs` of an instruction.

    Args:
        value: over parameters, dims, immediates and choices.
        limit: the most that it can be.
        what: it is, for reasons.
    """
    return Limit(to_int(value), to_int(limit), what or "a size")


@dataclass(frozen=True, slots=True)
class Typed:
    """An integer of a type of C: `i32(c.N)`."""

    value: Int
    dtype: str


@dataclass(frozen=True, slots=True)
class Format:
    """A format of numbers: of operands, and as a function what brings an element of a body to it.

    Of a number of a command (`i32(c.N)`) it makes an argument of that type of C, for `call` and `struct`.
    """

    dtype: DType

    @overload
    def __call__(self, value: ScalarValue) -> ScalarValue: ...
    @overload
    def __call__(self, value: Size) -> Typed: ...
    def __call__(self, value: ScalarValue | Size) -> ScalarValue | Typed:
        """Return a number in this format: an element of a body, where integers wrap, or an argument."""
        if isinstance(value, ScalarValue):
            return value.cast(self.dtype)
        return Typed(to_int(value), self.dtype.name)


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """A memory of the board that the device reaches: the first that it lists there, the next one the second.

    Attributes:
        doc: what it is for.
        align: of every operand in it, in bytes.
    """

    doc: str = ""
    align: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """A memory of the device, which commands address.

    Attributes:
        size: bytes.
        unit: bytes between two addresses.
        of: the memory of the board that it is a part of, where the host and others use that, too: then a
            stream has as much of it as is free where its kernel is called, `size` at most, and tiles follow.
    """

    size: Size
    unit: Size
    of: Shared | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """Commands that start in the order in which they were given, each when the one before has ended."""


class Access(StrEnum):
    """What an instruction does with an operand; what it updates it reads before it writes it."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    SCRATCH = "scratch"


class Record:
    """A group of constants of each lane: its fields in order, each of them over all lanes.

    Args:
        fields: formats, by name.
    """

    def __init__(self, **fields: Format) -> None:
        self.fields = {name: f.dtype for name, f in fields.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """An operand of an instruction.

    Attributes:
        memory: where it is.
        dtype: of its elements; of a record, of its first field.
        shape: row-major; dense in a memory of the board. In one of the device the last axes are a unit,
            and each axis before them has a stride, which the command says.
        access: what is done with it.
        record: formats of the fields, by name, where it is a record.
    """

    memory: Shared | Memory
    dtype: DType
    shape: tuple[Size, ...]
    access: Access
    record: dict[str, DType] = field(default_factory=dict[str, DType])


def In(memory: Shared | Memory, format: Format | Record, shape: Sequence[Size]) -> Operand:
    """Return an operand that an instruction reads."""
    if isinstance(format, Record):
        first = next(iter(format.fields.values()))
        return Operand(memory, first, tuple(shape), Access.READ, format.fields)
    return Operand(memory, format.dtype, tuple(shape), Access.READ)


def InOut(memory: Memory, format: Format, shape: Sequence[Size]) -> Operand:
    """Return an operand that an instruction reads and writes: sums, as a rule."""
    return Operand(memory, format.dtype, tuple(shape), Access.UPDATE)


def Out(memory: Shared | Memory, format: Format, shape: Sequence[Size]) -> Operand:
    """Return an operand that an instruction writes, all of it."""
    return Operand(memory, format.dtype, tuple(shape), Access.WRITE)


def Temp(memory: Shared, format: Format, shape: Sequence[Size]) -> Operand:
    """Return an operand that only this command has: scratch memory, which the compiler plans.

    An instruction has one at most. It may be read where it was written before.
    """
    return Operand(memory, format.dtype, tuple(shape), Access.SCRATCH)


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """What a device does on one command.

    Attributes:
        name: of the function that is its meaning.
        queue: where it waits.
        operands: tensors, by name, in the order of the declaration.
        immediates: numbers, by name.
        cycles: how long it takes, over parameters, dims and immediates.
        meaning: a function of the device, operands and immediates that is run once with symbols (`nest`).
        needs: limits over several sizes.
    """

    name: str
    queue: Queue
    operands: dict[str, Operand]
    immediates: dict[str, Imm]
    cycles: Int
    meaning: Callable[..., None]
    needs: tuple[Limit, ...] = ()

    @property
    def written(self) -> str:
        """The name of the first operand that it writes."""
        return next(name for name, x in self.operands.items() if x.access is not Access.READ)

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the operands that it writes, scratch memory apart."""
        return tuple(n for n, x in self.operands.items() if x.access in (Access.WRITE, Access.UPDATE))


def instruction(
    queue: Queue, *, cycles: Size, needs: Sequence[Limit] = (), **operands: Operand | Imm
) -> Callable[..., Instruction]:
    """Declare an instruction; the function under it is its meaning, as a loop nest.

    Args:
        queue: where its commands wait.
        cycles: how long it takes.
        needs: limits over several sizes (`at_most`).
        operands: `In`, `Out`, `Temp` and `Imm`, by name: the arguments of the function.
    """
    tensors = {n: x for n, x in operands.items() if isinstance(x, Operand)}
    numbers: dict[str, Imm] = {}
    for n, x in operands.items():
        if isinstance(x, Imm):  # one that is said for two names is two numbers with the same limits
            numbers[n] = Imm(x.low, x.high) if any(x is y for y in numbers.values()) else x

    def made(meaning: Callable[..., None]) -> Instruction:
        return Instruction(meaning.__name__, queue, tensors, numbers, to_int(cycles), meaning, tuple(needs))

    return made


@dataclass(frozen=True, slots=True, eq=False)
class PatternDecl:
    """A sub-program that a device takes, as a function that builds it (`pattern.Builder`)."""

    name: str
    build: Callable[..., Any]


def pattern(build: Callable[..., Any]) -> PatternDecl:
    """Declare what a device takes: the function builds the sub-program and says which command runs it."""
    return PatternDecl(build.__name__, build)


@dataclass(frozen=True, slots=True, eq=False)
class HookDecl:
    """Code that changes programs on their way (`codegen/program_hooks.py`).

    Attributes:
        name: of the function.
        level, when: what it is given, and where.
        after, before: names of passes and hooks.
        run: a function of the device, of what there is, and of a `HookContext`.
    """

    name: str
    level: str
    when: str
    after: tuple[str, ...]
    before: tuple[str, ...]
    run: Callable[..., Any]


def hook(
    level: str, *, when: str = "", after: Sequence[str] = (), before: Sequence[str] = ()
) -> Callable[..., HookDecl]:
    """Declare code that changes programs on their way; None leaves what there is.

    Args:
        level: `tensor`: the function gets the module in tensor IR; `schedulable`: the loops of a kernel that
            are then scheduled, unless it gives lowered ones; `lowered`: the loops of all kernels, by name.
        when: of `tensor` alone: `before_partition` or `after_partition`.
        after: names of passes, and of hooks of this level as `accelerator.hook`.
        before: the same.
    """

    def made(run: Callable[..., Any]) -> HookDecl:
        return HookDecl(run.__name__, level, when, tuple(after), tuple(before), run)

    return made


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """How commands of some kinds are written.

    Attributes:
        things: instructions, copies, and the command that only orders queues.
        write: a function of the device and a command.
    """

    things: tuple[object, ...]
    write: Callable[..., Any]


def encodes(*things: object) -> Callable[..., Encoder]:
    """Declare how commands are written: the function under it returns a `call`, or a word of a stream."""

    def made(write: Callable[..., Any]) -> Encoder:
        return Encoder(things, write)

    return made


@dataclass(frozen=True, slots=True, eq=False)
class RegionDecl:
    """How matches that lie side by side are one call: a function of the device and of a `Region`."""

    name: str
    write: Callable[..., Any]


def region(write: Callable[..., Any]) -> RegionDecl:
    """Declare that matches which lie side by side become one call, for compilers that take graphs.

    The function under it is given them as `r`, and returns a `call`, as a rule of a `program`. Where it
    fails, fewer matches are tried, and what is left runs elsewhere with that reason. A class that has one has
    no `@encodes`.
    """
    return RegionDecl(write.__name__, write)


@dataclass(frozen=True, slots=True)
class Poll:
    """A function that says whether the device is done: 1 where it is, 0 not yet, less than 0 a fault.

    Attributes:
        function: without arguments, of the library; it returns an `int32_t`.
        seconds: after which the device is given up, and named.
    """

    function: str
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Event:
    """A function that waits until the device is done, or for some time; it returns what that of `Poll` does.

    Attributes:
        function: of the library, of an `int64_t`: the most milliseconds.
        seconds: as of `Poll`.
    """

    function: str
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """A device whose time passes in a function alone, as of a simulator; it returns what that of `Poll` does.

    Attributes:
        function: of the library, of an `int64_t`: the cycles to pass.
        cycles: of one call.
        seconds: as of `Poll`.
    """

    function: str
    cycles: int = 1000
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Library:
    """A driver: a shared library in this process.

    Attributes:
        path: the name of a module of Python that is such a library (an extension without code for Python
            is one), a file, also beside the description, or a name that the system's loader finds.
        completion: how a device says that it is done, where functions only begin something; without it, it
            is done when they return.
    """

    path: str
    completion: Poll | Event | Step | None = None


class Process:
    """A driver in a process of its own, one for each device: what crashes or hangs there is an error here.

    Args:
        command: of a program that reads calls from its input and answers on its output
            (`inlay/runtime/driver_link.py` says how); words that are files beside the description are found.
        library: in the place of a command: a shared library, as `Library` names it.
        seconds: how long an answer may take; then the process is ended, and the next call starts it again.
    """

    def __init__(self, *command: str, library: str = "", seconds: float = 10.0) -> None:
        if bool(command) == bool(library):
            raise ValueError("found a Process, needed the words of a command or a library in it, not both")
        self.command, self.library, self.seconds = command, library, seconds


@dataclass(frozen=True, slots=True)
class Socket:
    """A driver behind a connection, as of a board: a server that answers as a `Process` does.

    Attributes:
        host, port: where it is.
        seconds: how long an answer may take.
    """

    host: str
    port: int
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Absent:
    """A device that is only described: code is made for nothing, and this is why."""

    why: str


@dataclass(frozen=True, slots=True)
class Mock:
    """A device that is not there: commands compute what the loop nests of their instructions say."""


Driver = Library | Process | Socket | Mock | Absent


def beside(driver: Driver, folder: Path) -> Driver:
    """Return a driver whose files in a folder are named by their whole paths."""

    def found(name: str) -> str:
        return str((folder / name).resolve()) if name and (folder / name).is_file() else name

    match driver:
        case Library(path=path):
            return replace(driver, path=found(path))
        case Process() if driver.library:
            return Process(library=found(driver.library), seconds=driver.seconds)
        case Process():
            return Process(*map(found, driver.command), seconds=driver.seconds)
        case Socket() | Mock() | Absent():
            return driver
        case _:
            assert_never(driver)


def place_of(driver: Library | Process | Socket) -> Place:
    """Return where the functions of a driver are."""
    match driver:
        case Library(path=path, completion=how):
            match how:
                case None:
                    return path
                case Step():
                    return Awaited(path, "step", how.function, how.seconds, how.cycles)
                case Poll():
                    return Awaited(path, "poll", how.function, how.seconds)
                case Event():
                    return Awaited(path, "event", how.function, how.seconds)
                case _:
                    assert_never(how)
        case Process():
            return Child(driver.command, driver.library, driver.seconds)
        case Socket(host=host, port=port, seconds=seconds):
            return Server(host, port, seconds)
        case _:
            assert_never(driver)
