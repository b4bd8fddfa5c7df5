"""A program for the machine, as data: functions, constants, kernels, entries.

Everything is referred to by position: instructions hold indices into the tables of their
`Program`. `builder.py` makes programs, `container.py` stores them, `verify.py` checks them.

**Entries.** A program is called through an `Entry`: a name, a function, and a description of its
parameters and results: tensors, and lists, options and tuples of them (`spec.py`). Dims of inputs are
formulas over the *symbols* of the entry. A symbol gets its value from one dim of one input (`n` from
axis 0 of `x`; with a solution formula also from a dim such as `2*n`); every dim is then compared with
its formula, and every `Requirement` (a bound, a divisibility, an equation between symbols) is
evaluated. So binding is straight-line work, and an error can name input, expectation and finding.
The function itself gets values alone and reads dims with `DIM`.

**Kernels** are what `INVOKE` runs: so many tensors, so many integers, and a body. The body of
native code is a list of phases, each a function
`int64_t phase(void *const *buffers, const int64_t *ints, int64_t part, int64_t parts)` in the
image of the program. `buffers` are the addresses of the tensors in order, then the workspace where
there is one. All parts of a phase end before the next phase starts. The result is 0, or k where
assertion k of the kernel (counted from 1) does not hold: then the run fails with its message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag, StrEnum
from typing import TypeAlias

from inlay.arith.deferred import AnyArray, bytes_of
from inlay.bytecode.formula import Formula
from inlay.bytecode.isa import Kind
from inlay.bytecode.spec import Spec, Symbol


class Effects(IntFlag):
    """What a call of a function may do that its arguments do not show: a part of its type.

    It holds for the code of the function and of all functions that this names, to call them or to
    make closures of them. What an argument or a capture reaches is told by that value itself, when
    the call begins. The numbers are those of the container and of the C runtime.
    """

    NONE = 0
    ORDERED = 1
    """Runs a kernel that keeps its place in the program."""
    CELLS = 2
    """Makes a cell, which a result may hold."""


@dataclass(frozen=True, slots=True)
class Function:
    """Code with its interface.

    Attributes:
        name: for people; need not be unique.
        params: kinds of the first slots of the frame.
        results: kinds of what `RETURN` leaves to the caller.
        frame: slots that the frame needs at most.
        code: 32-bit words.
        spans: (word position, index into the strings of the program), ascending: where the
            instructions from that position on come from.
        effects: at least what `bytecode.effects` finds in the code.
    """

    name: str
    params: tuple[Kind, ...]
    results: tuple[Kind, ...]
    frame: int
    code: tuple[int, ...]
    spans: tuple[tuple[int, int], ...] = ()
    effects: Effects = Effects.NONE


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor of the program: the bytes of `data` in row-major order, read as `dtype`[dims].

    Of a deferred array there are none yet: who writes a file has them computed into it.

    One whose memory is that of a device is copied there once, when the program is loaded.
    """

    dtype: str
    dims: tuple[int, ...]
    data: AnyArray | bytes | memoryview
    memory: int = 0

    @property
    def nbytes(self) -> int:
        """How many bytes the contents have."""
        return len(self.data) if isinstance(self.data, bytes) else self.data.nbytes

    def bytes(self) -> memoryview:
        """Return the contents as bytes, without copying what is contiguous."""
        if isinstance(self.data, bytes | memoryview):
            return memoryview(self.data).cast("B")
        return bytes_of(self.data)


class AccessCode(IntEnum):
    """What a kernel does to one of its tensors."""

    READ = 1
    WRITE = 2
    READ_WRITE = 3


MOST_PIECES = 16
PIECE_BYTES = 64 << 10
"""Bytes of an operand that a piece of a phase reads, at least."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of a native kernel.

    Attributes:
        offset: of its first instruction in the image, in bytes.
        parallel: whether it is called once for each of `parts` parts (else once, as part 0 of 1).
        pieces: of a parallel one, at most `MOST_PIECES`: fewer parts do so many pieces, forwards in one run
            of the kernel and backwards in the next. What the caches still hold of the last run is then read
            before it is replaced.
    """

    offset: int
    parallel: bool = False
    pieces: int = 1


@dataclass(frozen=True, slots=True)
class ImageBody:
    """Native code in the image of the program."""

    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class SymbolBody:
    """A C function with the signature of a phase, found by name when the program is loaded."""

    symbol: str
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class HostBody:
    """A callback of the embedding program (in Python: a function of arrays and integers)."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """A C function over tensors (`inlay_extern_t` of `runtime/include/inlay_extern.h`).

    It gets the tensors that the kernel reads, which come first, and those that it writes; a kernel
    with such a body takes no integers and no workspace.

    Attributes:
        name: under which it is looked up when the program is loaded.
        library: the shared library that had it when the program was made; empty where it is given
            when the program is loaded.
        symbol: its name in the library.
    """

    name: str
    library: str = ""
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class DevicePhase:
    """A step of a kernel of a device.

    Attributes:
        items: work items, a formula over the integers.
        offset: of its first instruction in the image of the program where the device runs native
            code; else -1, and the device's own image has it.
    """

    items: Formula
    offset: int = -1


@dataclass(frozen=True, slots=True)
class DeviceBody:
    """Code of a device: all tensors are in its memories.

    Attributes:
        memory: of the unit that runs it; its workspace is there.
        name: in the image of the device.
        phases: in order.
    """

    memory: int
    name: str
    phases: tuple[DevicePhase, ...]


@dataclass(frozen=True, slots=True)
class CopyBody:
    """A copy between memories: of the tensor that is read to the one that is written, which has as
    many bytes.
    """


Body: TypeAlias = ImageBody | SymbolBody | HostBody | FunctionBody | DeviceBody | CopyBody


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A kernel that does the work of several independent calls of another one.

    It takes the tensors of one call with a leading axis over the calls, except those at the
    positions `shared`, which all calls have in common; and one more integer, the number of calls.

    Attributes:
        kernel: its position.
        shared: ascending positions of tensors that are read.
    """

    kernel: int
    shared: tuple[int, ...] = ()


UNKNOWN_COST: Formula = (1_000_000_000,)
"""Of a kernel whose time nobody predicts: it is no part of what calls of other sizes are compared by."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What `INVOKE` runs.

    Attributes:
        name: for reports and profiles.
        ports: what happens to each tensor, in the order of `buffers`.
        ints: how many integers are passed.
        body: how it runs.
        workspace: bytes of scratch, a formula over the integers; None for none.
        workspace_per_part: whether every part gets so many bytes: part p uses those from
            p * workspace (rounded up to 64) on.
        workspace_in_port: whether the last port, which is written, is such a workspace: it is taken where it
            is enough for all parts of a run, and else one that the machine allocates stands in its place.
        cost: predicted time on one thread in nanoseconds, a formula over the integers. A kernel
            predicted to be shorter than a hand-off runs as part 0 of 1; `UNKNOWN_COST` counts as long.
        assertions: messages of what a phase may find not to hold.
        batch: what may run instead of several calls; None for nothing.
        ordered: whether it does more than to write its ports. Then whatever precedes it in the
            program has ended before it begins, and what follows begins when it has ended.
        sizes: for each port the bytes that its code may touch, formulas over the integers; empty
            where nobody says. Checked launches hold them against the tensors.
        spans: for each port the first and the last phase that touches it; empty where nobody says. What is
            written may lie over parts of what only earlier phases read, or touch at all.
    """

    name: str
    ports: tuple[AccessCode, ...]
    ints: int
    body: Body
    workspace: Formula | None = None
    workspace_per_part: bool = False
    cost: Formula = UNKNOWN_COST
    assertions: tuple[str, ...] = ()
    batch: BatchRecord | None = None
    ordered: bool = False
    sizes: tuple[Formula, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    workspace_in_port: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRecord:
    """A device besides the host.

    Attributes:
        name: on its board, for messages.
        driver: name of the driver (`runtime/include/inlay_driver.h`).
        options: for the driver, when it opens the device.
        memories: positions of the memories of its units, in order.
        image: what the device is given to run: source text, or what its loader takes.
        hardware: for each unit, a number. Units of one number that is not 0, of this and of other
            devices, are one piece of hardware: kernels of two of them never run at once. Empty where
            each is a piece of its own.
    """

    name: str
    driver: str
    options: str = ""
    memories: tuple[int, ...] = ()
    image: bytes = b""
    hardware: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShapeInput:
    """An integer that shape code takes: what a slot holds, or a dim of the tensor in it."""

    slot: int
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class ShapeCode:
    """Native code that does what a straight line of integer instructions does.

    It is a function `int64_t f(const int64_t *in, int64_t *out)` that writes result i to `out[2*i]`,
    the integer of slot i, and answers 0; or anything else, where one of the instructions would fail.
    Then what is in `out` means nothing, and the instructions say what is wrong.

    Attributes:
        offset: of its first instruction in the image, in bytes.
        inputs: what it takes, in the frame of the `EVAL` that names it.
        results: how many slots the instructions push.
    """

    offset: int
    inputs: tuple[ShapeInput, ...]
    results: int


@dataclass(frozen=True, slots=True)
class Requirement:
    """A relation between symbols that must hold: `value` (over the symbols) is not 0."""

    text: str
    value: Formula


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that the outside calls by name, with what it takes and gives."""

    name: str
    function: int
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    symbols: tuple[Symbol, ...] = ()
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageTarget:
    """The machine that the image needs.

    Attributes:
        triple: as LLVM writes it; empty for a program without native code.
        features: CPU features as LLVM names them, sorted.
    """

    triple: str = ""
    features: tuple[str, ...] = ()


NO_TARGET = ImageTarget()
"""What a program without native code needs."""


class MemoryKind(StrEnum):
    """How a memory comes to its bytes; the order is that of the numbers in files."""

    HEAP = "heap"
    STATIC = "static"
    STACK = "stack"
    ROM = "rom"
    INTERNAL = "internal"
    REGISTER = "register"


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that a program may use.

    Attributes:
        name: as the board says it.
        kind: how it comes to its bytes.
        bytes: how many it has; None where nothing bounds them.
        alignment: of everything in it, a power of two.
    """

    name: str
    kind: MemoryKind = MemoryKind.HEAP
    bytes: int | None = None
    alignment: int = 64


HOST_MEMORY = Memory("host")


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All of an executable.

    Attributes:
        functions, constants, kernels, shapes, entries: the tables.
        pool: integers that do not fit an instruction word.
        strings: messages, spans and strings of constants, referred to by position; the first is the
            empty one wherever there are tensors of strings.
        memories: that `STORAGE` may ask for; memory 0 is the host's, and so is each that no device
            has.
        devices: besides the host.
        target: what the image was compiled for.
        image: native code: position independent, no relocations left, mapped at a page.
        properties: free-form facts for people (name of the model, version of the compiler).
    """

    functions: tuple[Function, ...]
    entries: tuple[Entry, ...] = ()
    constants: tuple[Constant, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    shapes: tuple[ShapeCode, ...] = ()
    pool: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    memories: tuple[Memory, ...] = (HOST_MEMORY,)
    devices: tuple[DeviceRecord, ...] = ()
    target: ImageTarget = NO_TARGET
    image: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


RELATIONS = "relations"
"""The property with what checks demand of dims (`pipeline/relations.py`)."""
