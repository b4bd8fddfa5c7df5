"""Static checks of the tables of a program; `verify` checks its functions, and says what for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inlay.bytecode import formula
from inlay.bytecode.isa import DTYPES, MAX_COUNT, MAX_FRAME, MAX_RANK, MAX_SHAPE_INPUTS, Kind
from inlay.bytecode.program import (
    MOST_PIECES,
    AccessCode,
    BatchRecord,
    CopyBody,
    DeviceBody,
    Entry,
    FunctionBody,
    HostBody,
    ImageBody,
    Kernel,
    Program,
    ShapeCode,
    SymbolBody,
)
from inlay.bytecode.spec import Spec, Symbol, leaves, parts, slot_kind

_VALUES = frozenset(
    (Kind.INT, Kind.TENSOR, Kind.STORAGE, Kind.TUPLE, Kind.ADT, Kind.CLOSURE, Kind.CELL, Kind.ANY)
)
MAX_UNITS = 8
MAX_ALIGNMENT = 1 << 20
"""Units of a device."""
MAX_PHASES = 16
"""Phases of a kernel of a device."""
MAX_PORTS = 1024
MAX_SYMBOLS = 256


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: where (a function and word, or a table row), and what."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def table_findings(program: Program) -> Iterator[Finding]:
    """Check all but code."""
    for index, function in enumerate(program.functions):
        where = f"function {index} '{function.name}'"
        if not _VALUES.issuperset(function.params + function.results):
            yield Finding(where, "a param or result has a kind that no value has")
        if not len(function.params) <= function.frame <= MAX_FRAME:
            yield Finding(where, f"a frame of {function.frame} slots is not possible")
        if len(function.params) > MAX_COUNT or len(function.results) > MAX_COUNT:
            yield Finding(where, "too many params or results")
        last = -1
        for pc, span in function.spans:
            if pc <= last or pc > len(function.code) or span >= len(program.strings):
                yield Finding(where, "the span table is not ascending or leaves its tables")
                break
            last = pc
    yield from _device_findings(program)
    for index, constant in enumerate(program.constants):
        if not 0 <= constant.memory < max(len(program.memories), 1):
            yield Finding(f"constant {index}", f"there is no memory {constant.memory}")
        yield from _constant_findings(f"constant {index}", constant.dtype, constant.dims, constant.nbytes)
    for index, kernel in enumerate(program.kernels):
        yield from _kernel_findings(f"kernel {index} '{kernel.name}'", kernel, program)
    for index, shape in enumerate(program.shapes):
        yield from _shape_findings(f"shape code {index}", shape, program)
    if not program.memories:
        yield Finding("memories", "there is none")
    for index, memory in enumerate(program.memories):
        if memory.bytes is not None and not 0 <= memory.bytes <= formula.INT_MAX:
            yield Finding(f"memory {index}", f"it cannot have {memory.bytes} bytes")
        if not 0 < memory.alignment <= MAX_ALIGNMENT or memory.alignment & memory.alignment - 1:
            yield Finding(f"memory {index}", f"{memory.alignment} is no possible alignment")
    for value in program.pool:
        if not formula.INT_MIN <= value <= formula.INT_MAX:
            yield Finding("pool", f"{value} does not fit 64 bits")
    names: set[str] = set()
    for entry in program.entries:
        if entry.name in names:
            yield Finding(f"entry '{entry.name}'", "the name is taken")
        names.add(entry.name)
        yield from _entry_findings(f"entry '{entry.name}'", entry, program)


def _constant_findings(where: str, dtype: str, dims: tuple[int, ...], size: int) -> Iterator[Finding]:
    sizes = dict(DTYPES)
    if dtype not in sizes:
        yield Finding(where, f"there is no dtype {dtype}")
        return
    if len(dims) > MAX_RANK or any(dim < 0 for dim in dims):
        yield Finding(where, f"dims {list(dims)} are not possible")
        return
    expected = sizes[dtype]
    for dim in dims:
        expected *= dim
    if expected != size:
        yield Finding(where, f"{dtype} {list(dims)} are {expected} bytes, not {size}")


def _kernel_findings(where: str, kernel: Kernel, program: Program) -> Iterator[Finding]:
    if len(kernel.ports) > MAX_PORTS or not 0 <= kernel.ints <= MAX_COUNT:
        yield Finding(where, "too many tensors or integers")
    if kernel.spans and (len(kernel.spans) != len(kernel.ports) or not isinstance(kernel.body, ImageBody)):
        yield Finding(where, "phases are said of other tensors than it has, or of no native code")
    formulas = [("cost", kernel.cost)]
    if kernel.workspace is not None:
        formulas.append(("workspace", kernel.workspace))
    for label, steps in formulas:
        if wrong := formula.check(steps, kernel.ints):
            yield Finding(where, f"the {label} {wrong}")
    if kernel.workspace_in_port:
        is_native = isinstance(kernel.body, ImageBody | SymbolBody)
        if not (kernel.workspace and kernel.workspace_per_part and is_native):
            yield Finding(where, "a port is the workspace of each part, of native code that has none")
        if not kernel.ports or kernel.ports[-1] is not AccessCode.WRITE:
            yield Finding(where, "its workspace is in a port that it does not write")
    if kernel.batch is not None:
        yield from _batch_findings(where, kernel, kernel.batch, program)
    match kernel.body:
        case ImageBody(phases=phases):
            if not phases:
                yield Finding(where, "it has no phase")
            if any(not 0 <= a <= b < len(phases) for a, b in kernel.spans):
                yield Finding(where, "it touches a tensor in phases that it does not have")
            for phase in phases:
                if not 0 <= phase.offset < len(program.image):
                    yield Finding(where, f"offset {phase.offset} is outside the image")
                if not 1 <= phase.pieces <= (MOST_PIECES if phase.parallel else 1):
                    yield Finding(where, f"a phase is to be run in {phase.pieces} pieces")
        case SymbolBody(symbol=name) | HostBody(name=name):
            if not name:
                yield Finding(where, "its body has no name")
        case FunctionBody(name=name):
            if not name:
                yield Finding(where, "its body has no name")
            if kernel.ints or kernel.workspace is not None:
                yield Finding(where, "a function over tensors takes no integers and no workspace")
            order = [port is not AccessCode.READ for port in kernel.ports]
            if AccessCode.READ_WRITE in kernel.ports or order != sorted(order):
                yield Finding(where, "a function over tensors reads the first and writes the last")
        case DeviceBody():
            yield from _device_body_findings(where, kernel, kernel.body, program)
        case CopyBody():
            if kernel.ports != (AccessCode.READ, AccessCode.WRITE) or kernel.ints:
                yield Finding(where, "a copy reads one tensor and writes another, and no more")
            if kernel.workspace is not None:
                yield Finding(where, "a copy has no workspace")


def _device_findings(program: Program) -> Iterator[Finding]:
    taken = {0}
    for d in program.devices:
        where = f"device '{d.name}'"
        if not d.name or not d.driver or not 0 < len(d.memories) <= MAX_UNITS:
            yield Finding(where, "it has no name, no driver, or no possible number of memories")
        for memory in d.memories:
            if not 0 <= memory < len(program.memories) or memory in taken:
                yield Finding(where, f"memory {memory} is the host's, another's, or none")
            taken.add(memory)
        if d.hardware and len(d.hardware) != len(d.memories):
            yield Finding(where, "its memories and their hardware are not as many")
        for number in d.hardware:
            if not 0 <= number < len(program.memories):
                yield Finding(where, f"hardware {number} is not below the number of memories")


def _device_body_findings(
    where: str, kernel: Kernel, body: DeviceBody, program: Program
) -> Iterator[Finding]:
    if not any(body.memory in d.memories for d in program.devices):
        yield Finding(where, f"memory {body.memory} belongs to no device")
    if not body.name or not 0 < len(body.phases) <= MAX_PHASES:
        yield Finding(where, "its body has no name or no possible number of phases")
    if kernel.workspace is not None and kernel.workspace_per_part:
        yield Finding(where, "the workspace of a device's kernel is one block")
    for phase in body.phases:
        if wrong := formula.check(phase.items, kernel.ints):
            yield Finding(where, f"the items {wrong}")
        if phase.offset != -1 and not 0 <= phase.offset < len(program.image):
            yield Finding(where, f"offset {phase.offset} is outside the image")
    if len({phase.offset == -1 for phase in body.phases}) > 1:
        yield Finding(where, "some of its phases are native")


def _shape_findings(where: str, shape: ShapeCode, program: Program) -> Iterator[Finding]:
    if not 0 <= shape.offset < len(program.image):
        yield Finding(where, f"offset {shape.offset} is outside the image")
    if len(shape.inputs) > MAX_SHAPE_INPUTS or not 0 <= shape.results <= MAX_COUNT:
        yield Finding(where, "too many inputs or results")
    for given in shape.inputs:
        if given.slot < 0 or (given.axis is not None and not 0 <= given.axis < MAX_RANK):
            yield Finding(where, "an input is no slot and no axis of a tensor in one")


def _batch_findings(where: str, kernel: Kernel, batch: BatchRecord, program: Program) -> Iterator[Finding]:
    if not 0 <= batch.kernel < len(program.kernels):
        yield Finding(where, f"there is no kernel {batch.kernel}")
        return
    many = program.kernels[batch.kernel]
    if many.batch is not None or many.ports != kernel.ports or many.ints != kernel.ints + 1:
        yield Finding(where, "its batch does not take the same tensors and one integer more")
    if not isinstance(kernel.body, ImageBody) or not isinstance(many.body, ImageBody):
        yield Finding(where, "a batch is of native code")
    if many.workspace_in_port or kernel.workspace_in_port:
        yield Finding(where, "a batch has no workspace in a port")
    if AccessCode.READ_WRITE in kernel.ports:
        yield Finding(where, "a kernel that updates a tensor has no batch")
    if any(i >= len(kernel.ports) or kernel.ports[i] is not AccessCode.READ for i in batch.shared) or list(
        batch.shared
    ) != sorted(set(batch.shared)):
        yield Finding(where, "what a batch shares is not a list of tensors it reads")


def _entry_findings(where: str, entry: Entry, program: Program) -> Iterator[Finding]:
    if not 0 <= entry.function < len(program.functions):
        yield Finding(where, f"there is no function {entry.function}")
        return
    function = program.functions[entry.function]
    for label, kinds, specs in (
        ("params", function.params, entry.inputs),
        ("results", function.results, entry.outputs),
    ):
        needed = [slot_kind(spec) for spec in specs]
        if list(kinds) != needed:
            names = ", ".join(kind.name.lower() for kind in needed) or "none"
            yield Finding(where, f"the {label} of its function are not {names}")
        if len({spec.name for spec in specs}) != len(specs):
            yield Finding(where, f"two {label} have one name")
    yield from _scope_findings(where, entry.inputs, entry.symbols, 0, is_input=True)
    count = len(entry.symbols)
    yield from _scope_findings(where, entry.outputs, (), count, is_input=False)
    for requirement in entry.requirements:
        if wrong := formula.check(requirement.value, count):
            yield Finding(where, f"the requirement '{requirement.text}' {wrong}")


def _scope_findings(
    where: str, specs: Sequence[Spec], symbols: Sequence[Symbol], outer: int, *, is_input: bool
) -> Iterator[Finding]:
    """Check a scope whose formulas see `outer` symbols of the scopes around it."""
    places = list(leaves(specs))
    for index, symbol in enumerate(symbols):
        if not is_input:
            yield Finding(where, f"an output has a symbol '{symbol.name}'")
        if not 0 <= symbol.input < len(places):
            yield Finding(where, f"symbol '{symbol.name}' names input {symbol.input}")
        elif not 0 <= symbol.axis < len(places[symbol.input].dims):
            yield Finding(where, f"symbol '{symbol.name}' names axis {symbol.axis}")
        if wrong := formula.check(symbol.solution, outer + index + 1):
            yield Finding(where, f"the solution of symbol '{symbol.name}' {wrong}")
    count = outer + len(symbols)
    if count > MAX_SYMBOLS:
        yield Finding(where, f"a dim sees {count} symbols, more than {MAX_SYMBOLS}")
    for spec in places:
        if spec.dtype not in dict(DTYPES) or len(spec.dims) > MAX_RANK:
            yield Finding(where, f"'{spec.name}' has no possible type")
        for dim in spec.dims:
            if dim.value is None:
                if is_input:
                    yield Finding(where, f"a dim of input '{spec.name}' has no value")
            elif wrong := formula.check(dim.value, count):
                yield Finding(where, f"a dim of '{spec.name}' {wrong}")
    for part in parts(specs):
        element = part.element
        yield from _scope_findings(where, [element.spec], element.symbols, count, is_input=is_input)
