"""What a description offers of a block of a program: candidates, and what it does not take, with reasons.

A pattern that was found is a candidate; so are larger streams (`chains`) and regions (`region`). Of
operations in none, what agrees most is what `inlay explain` says of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from inlay.accel.above import Above
from inlay.accel.accelerator import Architecture
from inlay.accel.chains import larger
from inlay.accel.driver_calls import picoseconds
from inlay.accel.match import Command, Found, Patterns, fault_of
from inlay.accel.overlay import Block, Mismatch
from inlay.accel.pattern import Applied, Input, below
from inlay.accel.region import regions, whole_call
from inlay.accel.tiled import TiledCommand
from inlay.accel.written import encoded_call
from inlay.analysis.candidates import Candidate, Miss
from inlay.arith.dtype import I8
from inlay.ir.expr import Call, OpRef, Var
from inlay.ir.types import TensorType

_Missed = dict[int, tuple[tuple[int, int], Miss]]
"""The nearest miss of operations, by identity, with how near it is."""


def offered(
    patterns: Patterns, block: Block, device: str, loops: Mapping[int, str]
) -> list[Candidate | Miss]:
    """Return candidates of a block, and for operations that are in none the nearest miss.

    Args:
        patterns: of the architecture.
        block: of a program.
        device: that would run them.
        loops: why operations, by identity, are in no step that is repeated.
    """
    found: list[Candidate | Miss] = []
    missed: _Missed = {}
    taken: set[int] = set()
    streams: dict[Var, TiledCommand] = {}
    single: dict[Var, Command] = {}
    for var, call in block.calls.items():
        for result in patterns.at(var, block):
            match result:
                case Mismatch(depth=0):
                    pass
                case Mismatch(depth=depth, reason=reason):
                    _keep(missed, call, (-depth, 1), Miss(call, device, reason, depth))
                case Command() | TiledCommand():
                    reasons = result.reasons or unwritten(patterns.arch, result)
                    if not reasons:
                        found.append(_candidate(patterns.arch, result, device))
                        keep_fastest(streams, var, result)
                        keep_largest(single, var, result)
                        taken |= {id(x) for x in result.calls}
                    why = f"{result.pattern}: {'; '.join(reasons)}"
                    for x in result.calls:
                        _keep(
                            missed,
                            x,
                            (-len(result.calls), len(reasons)),
                            Miss(x, device, why, len(result.calls)),
                        )
    wholes = larger(patterns.tiler, block.calls, block.uses, streams)
    found += [_candidate(patterns.arch, whole, device) for whole in wholes]
    found = _with_regions(patterns.arch, block, device, single, found)
    above = Above(block)
    for call in block.calls.values():
        if why := loops.get(id(call)):
            missed[id(call)] = ((0, 0), Miss(call, device, why))
        elif id(call) not in missed and (miss := _outside(patterns, call, device, above, missed)) is not None:
            missed[id(call)] = ((0, 0), miss)
    return [*found, *(miss for call, (_, miss) in missed.items() if call not in taken)]


def keep_fastest(streams: dict[Var, TiledCommand], var: Var, result: Found) -> None:
    """Keep the stream that computes a value in the fewest cycles."""
    if isinstance(result, TiledCommand) and (var not in streams or result.total < streams[var].total):
        streams[var] = result


def keep_largest(single: dict[Var, Command], var: Var, result: Found) -> None:
    """Keep the command that does most of what computes a value."""
    if isinstance(result, Command) and (var not in single or len(result.calls) > len(single[var].calls)):
        single[var] = result


def _with_regions(
    arch: Architecture,
    block: Block,
    device: str,
    single: Mapping[Var, Command],
    found: Sequence[Candidate | Miss],
) -> list[Candidate | Miss]:
    """Return candidates with those of several matches; notes say why there are not more of these."""
    if arch.description.region is None:
        return list(found)
    made: list[Candidate | Miss] = []
    refused: dict[int, str] = {}
    for command, why in regions(block.calls, block.uses, single, partial(unwritten, arch)):
        if why:
            refused.update((id(c), f"{command.pattern} is refused: {'; '.join(why)}") for c in command.calls)
        else:
            made.append(_candidate(arch, command, device))
    return [
        *(
            replace(x, note=refused.get(id(x.calls[-1]), x.note)) if isinstance(x, Candidate) else x
            for x in (*found, *made)
        )
    ]


def joined(patterns: Patterns, block: Block) -> Iterator[Command]:
    """Yield the regions of a block, as if the vendor took all."""
    single: dict[Var, Command] = {}
    for var in block.calls:
        for found in patterns.at(var, block):
            if not isinstance(found, Mismatch) and not found.reasons:
                keep_largest(single, var, found)
    yield from (c for c, _ in regions(block.calls, block.uses, single, lambda _: ()))


def unwritten(arch: Architecture, command: Found) -> tuple[str, ...]:
    """Return why a command cannot be written: the encoding fails."""
    if isinstance(command, TiledCommand):
        return ()  # its words are a part of it
    try:
        if arch.description.region is not None:
            whole_call(arch, command)
        else:
            for c in command.steps:
                encoded_call(arch, c)
    except Exception as failure:  # noqa: BLE001 (code of others: the operation runs elsewhere, with the reason)
        return (fault_of(failure),)
    return ()


def _outside(patterns: Patterns, call: Call, device: str, above: Above, missed: _Missed) -> Miss | None:
    """Return that an operation is in no pattern, with those that there are; or not in its place in one.

    Of several patterns that one is told of which most of what reads it is as the pattern has it.

    Args:
        patterns: of the architecture.
        call: of the operation.
        device: that does not take it.
        above: what reads the values of the block.
        missed: why operations are no results of patterns.
    """
    assert isinstance(call.callee, OpRef), "operators are called"
    name = call.callee.op.name
    unlike = _unlike(patterns, call)
    having = [p for p in patterns.patterns if name in p.operators and isinstance(p.mapped.result, Applied)]
    if not having:
        takes = "; ".join(f"{p.name} of {', '.join(sorted(p.operators))}" for p in patterns.patterns)
        return Miss(call, device, f"{name}{unlike} is in none" + (f" ({takes})" if takes else ""))
    if unlike:
        return Miss(call, device, f"{name}{unlike} is in none: {having[0].name} takes integers")
    inner = [p.mapped.result for p in having if isinstance(p.mapped.result, Applied)]
    found = [
        (*above.nearest(call, result), p.name, result)
        for p, result in zip(having, inner, strict=True)
        if name not in result.operators
    ]
    if not found:
        return None
    depth, why, last, pattern, result = max(found, key=lambda x: x[0])
    if not why and id(last) in missed:
        known = missed[id(last)][1]
        return Miss(call, device, known.reason, known.depth)
    why = f": {why}" if why else ""
    wanted = " or ".join(result.operators)
    return Miss(call, device, f"{pattern} takes {name} with {wanted} behind it{why}", depth)


def _unlike(patterns: Patterns, call: Call) -> str:
    """Return the format of a result of floats where a device computes in integers alone; else nothing."""
    dtype = call.type.dtype if isinstance(call.type, TensorType) else I8
    read = (x for p in patterns.patterns for node in below(p.mapped.result) for x in node.operands)
    formats = {d for x in read if isinstance(x, Input) for d in x.dtypes or (dtype,)}
    return f" of {dtype}" if dtype.is_float and formats and all(d.is_integer for d in formats) else ""


def _keep(
    missed: dict[int, tuple[tuple[int, int], Miss]], call: Call, rank: tuple[int, int], m: Miss
) -> None:
    """Keep the nearest miss: what agrees most, then the fewest reasons."""
    if id(call) not in missed or rank < missed[id(call)][0]:
        missed[id(call)] = (rank, m)


def _candidate(arch: Architecture, command: Found, device: str) -> Candidate:
    note = command.note if isinstance(command, TiledCommand) else ""
    return Candidate(command.calls, device, command.pattern, picoseconds(arch, command), note)
