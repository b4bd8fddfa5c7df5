"""Kernels: the black boxes of the tensor IR.

A kernel is an implementation of a tensor-to-tensor computation: generated loop code, a library
symbol, a Python or C function, an accelerator's blob. The tensor IR sees its ports, workspaces,
effect and cost; the body is opaque behind `KernelBody`. A call of a kernel is an ordinary call whose
callee is a `GlobalVar` with the kernel's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from inlay.arith.expr import Int, Sym, ceildiv
from inlay.ir.types import FuncType, TensorType


class Access(StrEnum):
    """What a kernel does with a port."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    FILL = "fill"


@dataclass(frozen=True, slots=True)
class Port:
    """One tensor operand of a kernel.

    Attributes:
        name: for people.
        type: shape over the kernel's dims, and dtype.
        access: read, write (every element is written, none is read), update (it holds the
            tensor of the read port `may_alias`, and the kernel changes some of it: callers give one
            tensor for both) or fill (the kernel writes a part that nobody has written or read before,
            and nothing else of it: `may_alias` is as with update, or None where it is the first part).
        memories: names of allowed memories, None = any the device addresses.
        may_alias: index of a read port whose buffer this write port may share, element by element
            in place (each element is read before the same element is written).
    """

    name: str
    type: TensorType
    access: Access
    memories: tuple[str, ...] | None = None
    may_alias: int | None = None


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch bytes a kernel needs while it runs.

    Attributes:
        bytes: size over the kernel's dims.
        alignment: in bytes.
        per_part: one for each thread rather than one in all.
        parts: where there is one for each thread, how many of them the program has a place for. The runtime
            gives a run on more threads all that it needs.
        memory: where it must be; empty for any memory of the kernel's device.
        requested: why the runtime gives it for each run of the kernel; empty where the program has a
            place for it, and hands it to the kernel behind the ports.
    """

    bytes: Int
    alignment: int = 64
    per_part: bool = False
    memory: str = ""
    requested: str = ""
    parts: int = 1

    def planned(self, parts: int | None = None) -> Int:
        """Return the bytes that a program has a place for, on so many threads; on `self.parts` by default."""
        if not self.per_part:
            return self.bytes
        return ceildiv(self.bytes, self.alignment) * (self.alignment * (parts or self.parts))


@dataclass(frozen=True, slots=True)
class Accesses:
    """When the code of a kernel touches its tensors, and which of them may lie over each other.

    Attributes:
        phases: how many there are; all of one ends before the next begins.
        used: of each port, then of the scratch memory if there is any: the first and the last phase in
            which it is touched.
        overlays: pairs of a write port and a read port that may begin at one byte, whatever their sizes:
            nothing is read there after it was written.
        lies: where the kernel only copies, of each read port the bytes from the first one of its result to
            that of the port if there is to be nothing to do: every element is there already. Over the dims
            of the kernel; empty for others.
    """

    phases: int
    used: tuple[tuple[int, int], ...]
    overlays: tuple[tuple[int, int], ...] = ()
    lies: tuple[Int, ...] = ()


class KernelBody(Protocol):
    """The opaque inside of a kernel."""

    @property
    def kind(self) -> str:
        """`loops`, `python`, `symbol`, ...: says which part of the compiler understands it."""
        ...

    def text(self) -> str:
        """Return a form for people, and for hashing when it determines the behavior."""
        ...

    def digest(self) -> str:
        """Return a hash of the content, equal for bodies that behave the same."""
        ...

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        """Compute the write ports from the read ports: the meaning, slow."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Code that does the work of several calls of a kernel at once.

    It has the kernel's ports, each with a leading axis over the calls unless it is shared, and the
    kernel's integers followed by the number of calls. Every call gets the same result bits as alone.

    Attributes:
        code: name of the code.
        count: stands for the number of calls.
        shared: positions of the read ports for which all calls must be given the same bytes.
    """

    code: str
    count: Sym
    shared: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class ForeignBody:
    """Code from outside: a function of the host, or a C function over tensors.

    Attributes:
        language: `python` or `c`.
        name: under which it is looked up when the program is loaded.
        library: where a C function was found; empty where it is given when the program is loaded.
        symbol: its name there.
        run: computes the write ports from the read ports.
    """

    language: str
    name: str
    library: str
    symbol: str
    run: Callable[[Sequence[np.ndarray], Mapping[Sym, int]], tuple[np.ndarray, ...]]

    @property
    def kind(self) -> str:
        """Which part of the compiler understands it: the linker, as code from outside."""
        return "foreign"

    def text(self) -> str:
        """Return what it is, for people."""
        return f"{self.language} {self.name} {self.library} {self.symbol}".rstrip()

    def digest(self) -> str:
        """Return what tells it from others: code of one name is the same code."""
        return self.text()

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        """Run the code."""
        return self.run(inputs, dims)


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel of a module.

    Attributes:
        name: as in `GlobalVar`.
        type: what callers see: read ports in order are the parameters; one write port is the
            result, several are a tuple. `type.dims` are bound by the ports.
        ports: reads first, then writes.
        ints: integer arguments after the ports: dims that the code needs, over `type.dims`.
        workspaces: scratch memory, known when its code is made or its loops are lowered.
        stack: bytes of temporaries that its code has on the stack of one caller, known then too; None where
            nobody says.
        resource: name of the resource whose order its calls keep; None for pure kernels.
        cost_ns: predicted time over the dims, None when unknown.
        body: the implementation.
        origin: what it was made from, for reports (`conv2d+add+relu`).
        batch: how several independent calls may run as one; None if they may not.
        accesses: what its code says of its tensors; None where nobody knows.
        stays: bytes that are its own as long as the program is loaded, and the memory that they are in.
        note: what explanations say of its code.
    """

    name: str
    type: FuncType
    ports: tuple[Port, ...]
    body: KernelBody
    ints: tuple[Int, ...] = ()
    workspaces: tuple[Workspace, ...] = ()
    stack: int | None = None
    resource: str | None = None
    cost_ns: Int | None = None
    origin: str = ""
    batch: Batch | None = None
    accesses: Accesses | None = None
    stays: tuple[int, str] = (0, "")
    note: str = ""
