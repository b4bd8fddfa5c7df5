"""Matches that lie side by side as one program of a device: what a compiler of a vendor takes and gives.

Compilers of NPUs take a graph of several layers and give one blob, with the scratch memory that it needs;
what is between the layers is their affair. So a description whose class has a `@region` writes no commands
one by one: its matches, and the largest sets of them of which one value comes out, are offered, and the
function under `@region` makes one call of each. It is given the commands as a graph (`Region`), so that it
can say them in the words of the vendor, and fails where the vendor refuses. Then the set is divided, and
halves are tried; a match that is refused by itself runs elsewhere, with that reason.

What a region means is still its commands one after the other, so the mock and `inlay check` need no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inlay.accel.accelerator import Architecture
from inlay.accel.c_arguments import Address, CCall, UnknownConstantError
from inlay.accel.chains import chains
from inlay.accel.match import Command
from inlay.accel.written import Shown, arguments, check_call, check_same
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, Var
from inlay.ir.types import TensorType
from inlay.runtime.driver_arguments import Argument, Tensor, digest_of

SCRATCH = "scratch"


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """An operand of a command of a region.

    Attributes:
        shape, dtype: of it; sizes that are open are no numbers.
        command: which of `r.commands` computes it; None for what comes from outside.
        input: which of `r.inputs` it is; None for constants, and for what is computed inside.
    """

    shape: tuple[Int, ...]
    dtype: str
    command: int | None
    input: int | None
    _known: np.ndarray | None
    _name: str

    @property
    def values(self) -> np.ndarray:
        """The values of a constant, as the instruction reads them."""
        if self._known is None:
            raise UnknownConstantError(f"'{self._name}' is no constant where it is asked for its values")
        return self._known


class Step(Shown):
    """A command of a region: `name`, dims and immediates by name, and operands as an `Edge` each."""

    def __init__(self, arch: Architecture, command: Command, edges: Mapping[str, Edge]) -> None:
        super().__init__(arch, command)
        self._operands = edges


class Region:
    """What the function under `@region` is given.

    Attributes:
        commands: in the order of the program; the last one computes the result.
        inputs: addresses of what is read from outside, without constants.
        outputs: addresses of results.
        free: bytes that scratch memory may take; None where nobody knows yet, or nothing bounds them.
    """

    def __init__(self, arch: Architecture, steps: Sequence[Command], free: int | None) -> None:
        made = {
            c.operands[n]: at for at, c in enumerate(steps) for n in c.instruction.writes if n in c.operands
        }
        outside = (
            e for c in steps for n, e in c.operands.items() if e not in made and _known(arch, c, n) is None
        )
        self.sources = tuple(dict.fromkeys(outside))
        self.results = tuple(
            steps[-1].operands[n] for n in steps[-1].instruction.writes if n in steps[-1].operands
        )
        self.commands = tuple(Step(arch, c, self._edges(arch, c, made)) for c in steps)
        self.inputs = tuple(Address(f"input {n}") for n in range(len(self.sources)))
        self.outputs = tuple(Address(f"output {n}") for n in range(len(self.results)))
        self.free = free
        self.asked = 0

    def scratch(self, size: int) -> Address:
        """Return the address of scratch memory of so many bytes: what the compiler of the vendor says.

        Raises:
            ValueError: more than what is free.
        """
        if self.free is not None and size > self.free:
            raise ValueError(f"scratch memory of {size} bytes: {self.free} are free")
        self.asked = max(self.asked, size, 1)
        return Address(SCRATCH)

    def _edges(self, arch: Architecture, c: Command, made: Mapping[Expr, int]) -> dict[str, Edge]:
        found: dict[str, Edge] = {}
        for name, e in c.operands.items():
            assert isinstance(e.type, TensorType), "operands are tensors"
            known, inside = _known(arch, c, name), made.get(e)
            at = None if known is not None or inside is not None else self.sources.index(e)
            found[name] = Edge(e.type.shape, e.type.dtype.name, inside, at, known, name)
        return found


def _known(arch: Architecture, c: Command, name: str) -> np.ndarray | None:
    return c.constant(name, arch)


@dataclass(frozen=True, slots=True, eq=False)
class WholeCall:
    """A region as one call.

    Attributes:
        variants: how it is written, for each set of constants by their digest.
        positions: the tensors of the kernel that these constants are.
        values: what each address is.
        scratch: bytes.
    """

    variants: Mapping[str, CCall]
    positions: tuple[int, ...]
    values: Mapping[str, Expr]
    scratch: int

    @property
    def function(self) -> str:
        """The function that is called."""
        return next(iter(self.variants.values())).function

    @property
    def formats(self) -> dict[str, DType]:
        """The formats of what addresses are of."""
        typed = {name: e.type for name, e in self.values.items()}
        return {name: t.dtype for name, t in typed.items() if isinstance(t, TensorType)}

    def arguments(self, tensors: Sequence[Expr], places: Mapping[Sym, int]) -> tuple[Argument, ...]:
        """Return what it is given.

        Args:
            tensors: of the kernel, what it reads before what it gives; scratch memory is behind them.
            places: of the dims of the program among the integers of the kernel.
        """
        operands: dict[str, Tensor | bytes] = {SCRATCH: Tensor(len(tensors))}
        for name, e in self.values.items():
            operands[name] = Tensor(next(i for i, t in enumerate(tensors) if t is e))
        return arguments(self.variants, self.positions, operands, places)


def whole_call(
    arch: Architecture,
    command: Command,
    tensors: Sequence[Expr] = (),
    known: Sequence[Mapping[int, np.ndarray]] = (),
    free: int | None = None,
) -> WholeCall:
    """Return the call that a region is.

    Args:
        arch: the architecture.
        command: the last one, with those before it.
        tensors: of the kernel, in order.
        known: for each call of the kernel in the program its operands that are constants, by position.
        free: bytes that scratch memory may take.

    Raises:
        CompileError: `accel.declaration`: it is no call, or says more than other bytes for other constants.
    """
    declared = arch.description.region
    assert declared is not None, "asked where there is one"
    positions = tuple(sorted(set[int].intersection(*(set(x) for x in known)))) if known else ()
    variants: dict[str, CCall] = {}
    scratch = 0
    values: dict[str, Expr] = {}
    for constants in known or ({},):
        digest = digest_of([constants[i] for i in positions])
        if digest in variants:
            continue
        said: dict[Expr, Expr] = {tensors[i]: make.const(constants[i]) for i in positions}
        steps = [
            replace(c, operands={n: said.get(e, e) for n, e in c.operands.items()}, before=())
            for c in command.steps
        ]
        region = Region(arch, steps, free)
        variants[digest] = check_call(declared.write(arch.device, region), declared.name)
        scratch = max(scratch, region.asked)
        values = {f"input {n}": e for n, e in enumerate(region.sources)}
        values |= {f"output {n}": e for n, e in enumerate(region.results)}
    check_same(variants, declared.name)
    return WholeCall(variants, positions, values, scratch)


@dataclass(frozen=True, slots=True)
class _Member:
    """A match as `chains` sees it."""

    command: Command
    operands: tuple[Expr, ...]
    length: int = 1

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.command.calls


def regions(
    calls: Mapping[Var, Call],
    uses: Mapping[Var, int],
    commands: Mapping[Var, Command],
    refused: Callable[[Command], Sequence[str]],
) -> Iterator[tuple[Command, Sequence[str]]]:
    """Yield sets of matches as one command each, and why the vendor refuses it; halves of what is refused.

    Args:
        calls, uses: of the block: what its values are, and how often each is read.
        commands: matches without reasons against them, by the value that each computes.
        refused: tells why a command cannot be.
    """
    members = {var: _Member(c, tuple(_read(c))) for var, c in commands.items() if _gives_one(c)}
    pending = [{var: members[var] for var in calls if var in members}]
    while pending:
        for chain in chains(pending.pop(), uses):
            whole = _joined([m.command for m in chain])
            why = refused(whole)
            yield whole, why
            half = len(chain) // 2
            if why and half:
                named = {m.command.operands[m.command.instruction.written]: m for m in chain}
                in_order = [v for v in calls if v in named]
                pending += [{v: named[v] for v in part} for part in (in_order[:half], in_order[half:])]


def _gives_one(c: Command) -> bool:
    return sum(n in c.operands for n in c.instruction.writes) == 1


def _read(command: Command) -> Iterator[Expr]:
    """Yield the values that a match reads, without constants and what it computes itself."""
    made = {c.operands[n] for c in command.steps for n in c.instruction.writes if n in c.operands}
    for c in command.steps:
        yield from (e for e in c.operands.values() if e not in made and not isinstance(e, Const))


def _joined(commands: Sequence[Command]) -> Command:
    """Return several matches, in the order of the program, as one."""
    before = [step for c in commands[:-1] for step in c.steps]
    last = commands[-1]
    whole = tuple(call for c in commands for call in c.calls)
    name = f"region_{len(commands)}"
    return replace(
        last, pattern=name, calls=whole, before=(*(replace(c, before=()) for c in before), *last.before)
    )
