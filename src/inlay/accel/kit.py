"""The conformance kit: whether a description is right, and its driver does what it says.

Three answers to each drawn program that a pattern takes are compared: what the program means, what the loop
nest of the instruction gives for the command (the mock), and what the driver writes. Where the first two
differ the pattern gives the instruction something else than it means; where the last two differ the
encoding or the driver is wrong. The driver gets results in the middle of bytes that it must leave alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from inlay.accel.backend import AcceleratorBackend
from inlay.accel.borrowed import bytes_of, places, taken
from inlay.accel.c_arguments import CCalls
from inlay.accel.declare import Absent, Driver, Mock
from inlay.accel.driver_calls import results_of, running, scratch_bytes
from inlay.accel.engines import Stream
from inlay.accel.kit_header import compiler, header_fault
from inlay.accel.kit_order import waits
from inlay.accel.kit_places import place_of
from inlay.accel.kit_sequences import merged, stays
from inlay.accel.kit_streams import is_near, last_units, own_cycles
from inlay.accel.launch import Launcher
from inlay.accel.match import Command, Found, fault_of
from inlay.accel.offered import joined, unwritten
from inlay.accel.overlay import Mismatch, blocks
from inlay.accel.pattern import Pattern
from inlay.accel.samples import Sample, call_sequences, samples, sequences
from inlay.accel.tiled import Made, TiledCommand
from inlay.arith.expr import evaluate
from inlay.base.diagnostics import InlayError
from inlay.base.span import NO_SPAN
from inlay.interp.tensor import evaluate as evaluate_module
from inlay.ir.expr import Call, Function
from inlay.ir.op import Op
from inlay.ir.types import TensorType
from inlay.ir.walk import spine
from inlay.ops.table import table

GUARD = 64
"""Elements before and behind a result that a driver must not touch."""
_DRAWN = 20
"""Programs drawn for each that is to be taken."""
COST = "cost"
"""The section of cycles that are not those of the device."""
_CLOSE = 1e-4
"""How far the meaning of an instruction of floats may be from the program, relative and absolute: programs
do not say in what order they sum. What a driver gives is compared with that meaning bit for bit."""
SEQUENCES = "streams of several matches"
"""The section of what is right by itself, and wrong behind each other."""
REGIONS = "regions of several matches"
"""The section of what is right by itself, and wrong as one program."""
_FEWER = 5
"""Trials of a pattern for each program of several."""
_ORDERED = 2
"""Programs of each pattern whose every wait is taken away in turn."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a check.

    Attributes:
        section: of the description.
        what: was checked.
        trials: how often.
        failure: what went wrong; empty where nothing did.
        program: the smallest that shows it.
        at: file and line to look at first, where something went wrong.
    """

    section: str
    what: str
    trials: int
    failure: str = ""
    program: str = ""
    at: str = ""


def checks(backend: AcceleratorBackend, trials: int, seed: int) -> Iterator[Checked | str]:
    """As `_checks`, with places in the file where something went wrong."""
    for found in _checks(backend, trials, seed):
        if isinstance(found, Checked) and found.failure and not found.at:
            yield replace(found, at=place_of(backend.cls, found.section, found.failure))
        else:
            yield found


def _checks(backend: AcceleratorBackend, trials: int, seed: int) -> Iterator[Checked | str]:
    """Check a description and its driver, step by step; yield the name of a step before it begins.

    Args:
        backend: of the description.
        trials: programs for each pattern.
        seed: of what is drawn.
    """
    try:
        patterns = backend.patterns(())
    except InlayError as failure:
        said = "; ".join(d.message for d in failure.diagnostics)
        first = next((str(d.span) for d in failure.diagnostics if d.span != NO_SPAN), "")
        yield Checked("declarations", "the class", 1, said, at=Path(first).name)
        return
    d = backend.description
    yield Checked("declarations", f"{len(d.instructions)} instructions, {len(d.patterns)} patterns", 1)
    if isinstance(d.cls.emit, CCalls) and d.cls.emit.header and compiler() is None:
        yield Checked("encoding", "nothing is held against the header: there is no C compiler here", 0)
    is_right = True
    for p in patterns.patterns:
        yield f"pattern {p.name}"
        found = _pattern(backend, p, trials, seed)
        is_right = is_right and not found.failure
        yield found
    if isinstance(d.cls.emit, Stream) and patterns.patterns:
        if is_right:
            yield SEQUENCES
            yield check_sequences(backend, -(-trials // _FEWER), seed)
        yield "instructions"
        yield from _unused(backend, trials, seed)
    elif d.region is not None and patterns.patterns and is_right:
        yield REGIONS
        yield check_regions(backend, -(-trials // _FEWER), seed)


def check_sequences(backend: AcceleratorBackend, trials: int, seed: int) -> Checked:
    """Check streams of several matches, each of which is right by itself."""
    patterns, taken, streams, kept, drawn = backend.patterns(()), 0, 0, 0, 0
    failed: list[tuple[Sample, str]] = []
    for sample in islice(sequences(patterns.patterns, seed), trials * _DRAWN):
        drawn, before = drawn + 1, streams
        for command in merged(patterns, sample.module.functions["main"]):
            streams, kept = streams + 1, kept + stays(command)
            wrong = waits(patterns.arch, command) or _compare(backend, SEQUENCES, sample, command)[1]
            if wrong:
                failed.append((sample, wrong))
        taken += streams > before
        if taken == trials:
            break
    if failed:
        sample, wrong = min(failed, key=lambda x: len(x[0].text))
        return Checked(SEQUENCES, "programs of two or three matches", taken, wrong, sample.text)
    if not drawn:
        return Checked(SEQUENCES, "no pattern computes an operand of another", 0)
    what = f"{taken} of {drawn} are one stream, and right; values stay in {kept} of {streams} streams of them"
    return Checked(SEQUENCES, what, taken)


def check_regions(backend: AcceleratorBackend, trials: int, seed: int) -> Checked:
    """Check programs of several matches, each of which is right by itself."""
    patterns, declared, taken, drawn = backend.patterns(()), backend.description.region, 0, 0
    refused: dict[str, None] = {}
    for sample in islice(call_sequences(patterns.arch, patterns.patterns, seed), trials * _DRAWN):
        drawn += 1
        (block,) = blocks(sample.module.functions["main"].body)
        command = next((c for c in joined(patterns, block) if len(c.calls) == len(block.calls)), None)
        if command is None:
            continue
        if why := unwritten(patterns.arch, command):
            refused.update(dict.fromkeys(why))
            continue
        taken += 1
        _, wrong = _compare(backend, REGIONS, sample, command)
        if wrong:
            assert declared is not None, "asked where there is one"
            section = f"region {declared.name}, or the driver"
            return Checked(section, "programs of two or three matches", taken, wrong, sample.text)
        if taken == trials:
            break
    if not taken:
        why = f": {'; '.join(list(refused)[:2])}" if refused else ""
        return Checked(REGIONS, f"none of {drawn} programs of several matches is one{why}", 0)
    return Checked(REGIONS, f"{taken} of {drawn} programs are one, and right", taken)


def _unused(backend: AcceleratorBackend, trials: int, seed: int) -> Iterator[Checked]:
    """Yield instructions that no match uses: then their meaning is none of what patterns take."""
    patterns = backend.patterns(())
    left = dict.fromkeys(backend.description.instructions)
    for p in patterns.patterns:
        for sample in islice(samples(patterns.arch, p, seed), _DRAWN):
            if not left:
                return
            found = _command(backend, p, sample)
            if isinstance(found, TiledCommand) and found.made is not None:
                for x in found.made.scheduled.stream:
                    left.pop(x.command.name, None)
    for name in left:
        why = "no program that a pattern takes is computed with it: what it means is not what they say"
        yield Checked(f"instruction {name}", "programs that use it", trials, why)


def _pattern(backend: AcceleratorBackend, p: Pattern, trials: int, seed: int) -> Checked:
    patterns, reasons, taken = backend.patterns(()), dict[str, int](), 0
    failed: list[tuple[Sample, str, str]] = []
    drawn = 0
    for sample in islice(samples(patterns.arch, p, seed), trials * _DRAWN):
        drawn += 1
        found = _command(backend, p, sample)
        if isinstance(found, Mismatch) or found.reasons:
            why = found.reason if isinstance(found, Mismatch) else "; ".join(found.reasons)
            reasons[why] = reasons.get(why, 0) + 1
            continue
        taken += 1
        section, message = _of_header(backend, found) if taken == 1 else ("", "")
        if message:  # what the driver makes of other arguments than it wants says nothing
            return Checked(section, f"programs of {p.name}", taken, message, sample.text)
        section, message = _compare(backend, f"pattern {p.name}", sample, found)
        if isinstance(found, TiledCommand) and taken <= _ORDERED and (not message or section == COST):
            section, message = _of_stream(backend, sample, found, (section, message))
        if message:
            failed.append((sample, section, message))
        if taken == trials:
            break
    if failed:
        sample, section, message = min(failed, key=lambda x: len(x[0].text))
        return Checked(section, f"programs of {p.name}", taken, message, sample.text)
    if taken == 0:
        often = sorted(reasons, key=lambda why: -reasons[why])[:3]
        why = f"none of {drawn} programs is taken: {' | '.join(often) or 'none of that form is a program'}"
        return Checked(f"pattern {p.name}", "programs that it takes", drawn, why)
    return Checked(f"pattern {p.name}", f"{taken} of {drawn} programs are taken, and right", taken)


def _of_header(backend: AcceleratorBackend, command: Found) -> tuple[str, str]:
    """Return the section and what the header of the vendor says else; empty texts where it agrees."""
    if not isinstance(command, Command):
        return "", ""
    try:
        wrong = header_fault(backend.patterns(()).arch, command, backend.folder)
    except Exception as failure:  # noqa: BLE001 (code of others)
        wrong = fault_of(failure)
    return (f"encoding of {_instructions(command)}", wrong) if wrong else ("", "")


def _of_stream(
    backend: AcceleratorBackend, sample: Sample, command: TiledCommand, known: tuple[str, str]
) -> tuple[str, str]:
    """Return what is wrong with a stream that gives the right result; what is known where nothing is."""
    arch = backend.patterns(()).arch
    if wrong := waits(arch, command):
        return "order", wrong
    if isinstance(backend.driver, Absent):
        return known
    main = sample.module.functions["main"]

    def run(made: Made) -> tuple[np.ndarray, int]:
        (got,), _, cycles = _run(backend, backend.driver, main, sample, replace(command, made=made))
        return got, cycles

    for section, wrong in (
        own_cycles(arch, command, run),
        last_units(arch, command, evaluate_module(sample.module, sample.inputs, _meaning), run),
    ):
        if wrong:
            return section, wrong
    return known


def _command(backend: AcceleratorBackend, p: Pattern, sample: Sample) -> Found | Mismatch:
    function = sample.module.functions["main"]
    lets, _ = spine(function.body)
    last = next(let.var for let in reversed(lets) if isinstance(let.value, Call))
    (block,) = blocks(function.body)
    patterns = backend.patterns(())
    return next(x for q, x in zip(patterns.patterns, patterns.at(last, block), strict=True) if q is p)


def _compare(backend: AcceleratorBackend, section: str, sample: Sample, command: Found) -> tuple[str, str]:
    """Return the section and what differs; empty texts where nothing does.

    Args:
        backend: of the description.
        section: that is named where instructions, as they are asked, mean something else than the program.
        sample: the program.
        command: what it became.
    """
    given: Any = evaluate_module(sample.module, sample.inputs, _meaning)
    want: Sequence[np.ndarray] = cast("Any", given) if isinstance(given, tuple) else (given,)
    main, named = sample.module.functions["main"], _instructions(command)
    try:
        meant, _, _ = _run(backend, Mock(), main, sample, command)
    except InlayError as failure:
        return f"encoding of {named}", failure.diagnostics[0].message
    if at := _differ(want, meant, exact=False):
        return section, f"the instruction {named} means something else {at}"
    driver = backend.driver
    if isinstance(driver, Absent):
        return "", ""
    try:
        got, touched, cycles = _run(backend, driver, main, sample, command)
    except InlayError as failure:
        return "drivers", failure.diagnostics[0].message
    except Exception as failure:  # noqa: BLE001 (code of others)
        return f"encoding of {named}", fault_of(failure)
    section = f"meaning or encoding of {named}, or the driver"
    if at := _differ(meant, got, exact=True):
        return section, f"the driver gives something else {at}"
    if touched:
        return section, "the driver writes beside its result"
    return _lies(backend, command, cycles)


def _lies(backend: AcceleratorBackend, command: Found, cycles: int) -> tuple[str, str]:
    """Return whether the clock of a driver and the cycles that are declared differ by more than a quarter."""
    if not cycles:
        return "", ""
    arch = backend.patterns(()).arch
    begin = arch.number(type(arch.device).launch_cycles)
    said = evaluate(command.cycles(arch), {}) - evaluate(begin, {})
    if is_near(said, cycles):
        return "", ""
    return COST, f"{said} cycles are predicted of {_instructions(command)}, and the device takes {cycles}"


def _meaning(op: Op, attrs: object, args: Sequence[Any]) -> Any:
    return table().definition(op).evaluate(attrs, *args)


def _differ(want: Sequence[np.ndarray], got: Sequence[np.ndarray], *, exact: bool) -> str:
    """Return where results differ; those of floats in the order of sums, where they need not be exact."""
    for number, (w, g) in enumerate(zip(want, got, strict=True)):
        is_float = w.dtype.kind == "f"
        if is_float and not exact:
            wrong = ~np.isclose(g, w, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
        else:
            wrong = (w != g) & ~(np.isnan(w) & np.isnan(g)) if is_float else w != g
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            which = f" of result {number}" if len(want) > 1 else ""
            return f"at {at}{which}: {g[at]}, and {w[at]} is right"
    return ""


def _instructions(command: Found) -> str:
    """Return the names of the instructions of a command."""
    if isinstance(command, Command):
        return command.instruction.name
    assert command.made is not None, "a command that is taken has a stream"
    return " and ".join(
        s.main.meaning.instruction.name for p in command.made.scheduled.parts for s in p.group.steps
    )


def _run(
    backend: AcceleratorBackend, driver: Driver, main: Function, sample: Sample, command: Found
) -> tuple[tuple[np.ndarray, ...], bool, int]:
    """Return what a driver writes, whether it wrote elsewhere too, and the cycles it reports; 0 if none."""
    arch, results = backend.patterns(()).arch, results_of(main)
    inside: list[np.ndarray] = []
    around: list[np.ndarray] = []
    for value in results:
        assert isinstance(value.type, TensorType), "a result is a tensor"
        shape = [evaluate(e, {}) for e in value.type.shape]
        count = int(np.prod(shape, dtype=np.int64))
        around.append(np.full(count + 2 * GUARD, 0x55, value.type.dtype.numpy))
        inside.append(around[-1][GUARD : GUARD + count].reshape(shape))
    before = [x.copy() for x in sample.inputs]
    arrays = [*sample.inputs, *inside]
    if isinstance(command, Command):
        scratch = scratch_bytes(arch, driver, command, main.params, results)
        arrays += [np.empty(evaluate(scratch, {}), np.uint8)] if scratch != 0 else []
    if isinstance(command, TiledCommand) and command.made is not None and arch.borrowed:
        arrays.append(np.empty(bytes_of(places(taken(arch, command.made.scheduled.stream))), np.uint8))
    runs = running(arch, driver, backend.name, command, main.params, results, ())
    runs(arrays, [])
    touched = any((x[:GUARD] != 0x55).any() or (x[-GUARD:] != 0x55).any() for x in around)
    changed = any(not np.array_equal(a, b) for a, b in zip(before, sample.inputs, strict=True))
    cycles = runs.cycles if isinstance(runs, Launcher) and not isinstance(driver, Mock) else 0
    return tuple(x.copy() for x in inside), bool(touched or changed), cycles
