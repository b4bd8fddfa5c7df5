"""The storages of an activation, one run of a function: when they are in use, and why they escape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from inlay.arith.expr import Int, Sym, symbols
from inlay.base.span import NO_SPAN, Span
from inlay.ir.expr import Call, Function, Var
from inlay.memory.chains import VectorClock
from inlay.memory.plan import Arms

IN_RESULT = "it is part of the result"
"""Why a storage escapes that the result of its function shows."""
LEAVES = "it leaves a loop"
"""Why a storage escapes that is made in a turn of a loop, and may be its result."""
CARRIED = "a loop carries it"
"""Why a storage escapes that is made in a turn of a loop, and may be there in later turns."""
TAKEN = "a function takes it"
"""Why a storage escapes that a call of a function is given."""


@dataclass(slots=True, eq=False)
class Storage:
    """One storage, or several that share their bytes.

    Attributes:
        vars: the variables of `alloc_storage`, the first one made first.
        bytes: the size.
        alignment: of the first byte.
        memories: where it may be, in order of preference; empty for the host's heap.
        start: the first position at which it is in use.
        end: the last one.
        escapes: why it may outlive its interval; empty when it does not.
        name: of a tensor in it, for reports.
        accesses: the positions at which kernels read or write it, for each of them; in a loop several times.
        chain: of the kernel that writes it first (`chains`).
        clock: of the kernel that writes it last.
        span: of the first kernel.
        arms: in which of the arms of branches it is made.
        reasons: all that it escapes for; `escapes` is the first.
        takers: which calls of functions take it, and as which operand.
        is_foreign: whether somebody else made it: the caller, or a function that was called.
    """

    vars: list[Var]
    bytes: Int
    alignment: int
    memories: tuple[str, ...]
    start: int
    end: int
    escapes: str = ""
    name: str = ""
    accesses: list[int] = field(default_factory=list[int])
    chain: int = 0
    clock: VectorClock = ()
    span: Span = NO_SPAN
    arms: Arms = ()
    reasons: dict[str, None] = field(default_factory=dict[str, None])
    takers: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_foreign: bool = False

    @property
    def is_result(self) -> bool:
        """Whether the result of the function shows it."""
        return IN_RESULT in self.reasons

    def unknown(self, known: Collection[Sym]) -> Sym | None:
        """Return a dim of its size that is not among those, if there is one."""
        return next((s for s in symbols(self.bytes) if s not in known), None)


@dataclass(frozen=True, slots=True)
class Request:
    """Scratch memory that the runtime gives a kernel for a run of it.

    Attributes:
        kernel: its name.
        why: the program has no place for it.
        position: where the kernel is invoked.
        bytes: over the dims of the function; None where they are not said by those.
        per_part: so many for each part that the kernel is divided into.
    """

    kernel: str
    why: str
    position: int
    bytes: Int | None
    per_part: bool


@dataclass(slots=True, eq=False)
class Activation:
    """The storages of one function with code of its own.

    Attributes:
        function: the function.
        name: for reports.
        outer: the function around it, None for a function of the module.
        storages: in order of `start`.
        requests: what the runtime gives kernels while they run.
        positions: how many there are.
        kernels: the kernels that are invoked, in order.
        at: the position of each variable that a let of a spine binds; the first one of a kernel's.
        reads: where kernels read what is in no storage of it, such as inputs; as `Storage.accesses`.
        params: of the function, as foreign storages; None for what is no tensor.
        sites: calls of functions, in order.
        var: of a local function.
    """

    function: Function
    name: str
    outer: Function | None = None
    storages: list[Storage] = field(default_factory=list[Storage])
    positions: int = 0
    requests: tuple[Request, ...] = ()
    kernels: Sequence[Invocation] = ()
    at: Mapping[Var, int] = field(default_factory=dict[Var, int])
    reads: Mapping[Var, Sequence[int]] = field(default_factory=dict[Var, Sequence[int]])
    params: Sequence[Storage | None] = ()
    sites: Sequence[Site] = ()
    var: Var | None = None

    def phases(self) -> list[int]:
        """Return the positions of all phases of its kernels and of its calls of functions, in order."""
        return [at for call in self.kernels for at in range(call.first, call.last + 1)]


class Invocation(NamedTuple):
    """A call of a kernel: its name, the positions of its first and its last phase, and the arms around it.

    A call of a function is one of a single phase.
    """

    kernel: str
    first: int
    last: int
    arms: Arms = ()


class Site(NamedTuple):
    """A call of a function.

    Attributes:
        call: the expression.
        position: of it.
        arms: in which of the arms of branches it stands.
        inside: the loop that makes it in every turn; empty for none.
        results: tensors that it gives, as foreign storages; None where its result is something else.
    """

    call: Call
    position: int
    arms: Arms
    inside: str
    results: Sequence[Storage] | None
