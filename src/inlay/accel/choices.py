"""Settings of a command that the compiler picks, limits over several sizes, and scratch memory.

A `Choice` is a number among a few: the rows of a block, how a memory is divided. Which one follows: of those
that keep the limits of the instruction and whose scratch memory (`Temp`) fits into what is free where the
command is called, the one with the fewest cycles; of equal ones the first.

    rows = Choice(64, 16, 4)

    @instruction(run, ..., block=Temp(ram, i32, (rows, K)), needs=(at_most(C * R * S, 4096),),
                 cycles=M * K * N // macs + M // rows * 100)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from inlay.accel.accelerator import Architecture
from inlay.accel.declare import Access, Instruction
from inlay.arith.bounds import bounds
from inlay.arith.expr import Int, Sym, evaluate, lit, product, symbols

TYPICAL = 64
"""What a dim of the program is thought to be where choices are compared."""


def choose(
    arch: Architecture, i: Instruction, sizes: Mapping[Sym, Int], free: int | None = None
) -> tuple[dict[Sym, Int], tuple[str, ...]]:
    """Return the values of the choices of an instruction; or why there are none.

    Args:
        arch: the architecture.
        i: the instruction.
        sizes: of its dims and immediates, over the dims of the program.
        free: bytes that its scratch memory may take; None where nothing bounds them.
    """
    own = {n: c for n, c in arch.description.choices.items() if c.sym in _mentioned(i)}
    found: list[tuple[int, dict[Sym, Int]]] = []
    refused: list[str] = []
    for values in itertools.product(*(c.values for c in own.values())):
        chosen = {c.sym: lit(v) for c, v in zip(own.values(), values, strict=True)}
        whole = {**sizes, **chosen}
        said = ", ".join(f"{n} = {v}" for n, v in zip(own, values, strict=True))
        reasons = [*_beyond(arch, i, whole), *_too_large(scratch_of(arch, i, whole), free)]
        refused += [f"{r} ({said})" if said else r for r in reasons]
        if not reasons:
            cycles = arch.number(i.cycles, whole)
            found.append((evaluate(cycles, dict.fromkeys(symbols(cycles), TYPICAL)), chosen))
    if not found:
        return {}, tuple(dict.fromkeys(refused))
    return min(found, key=lambda x: x[0])[1], ()


def scratch_of(arch: Architecture, i: Instruction, sizes: Mapping[Sym, Int]) -> Int:
    """Return the bytes of scratch memory that a command needs, over the dims of the program."""
    scratch = (x for x in i.operands.values() if x.access is Access.SCRATCH)
    return sum((product(arch.number(e, sizes) for e in x.shape) * x.dtype.itemsize for x in scratch), lit(0))


def _mentioned(i: Instruction) -> frozenset[Sym]:
    shapes = [i.operands[n].shape for n in i.operands]
    found = [i.cycles, *(n.value for n in i.needs), *(e for shape in shapes for e in shape)]
    return frozenset(s for e in found if isinstance(e, Int) for s in symbols(e)) | frozenset(
        e.sym for e in i.immediates.values()
    )


def _beyond(arch: Architecture, i: Instruction, sizes: Mapping[Sym, Int]) -> Iterator[str]:
    """Yield which limits of an instruction sizes leave."""
    for need in i.needs:
        value = arch.number(need.value, sizes)
        limit = arch.number(need.limit, sizes)
        reach = bounds(value - limit, {})
        if reach.high is None or reach.high > 0:
            yield f"{need.text} = {value}: at most {limit}"


def _too_large(scratch: Int, free: int | None) -> Iterator[str]:
    if free is None or scratch == 0:
        return
    reach = bounds(scratch, {})
    if reach.high is None or reach.high > free:
        yield f"scratch memory of {scratch} bytes: {free} are free"
