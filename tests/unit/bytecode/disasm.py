"""The text of a program. `asm` reads it back: `parse(listing(p), resources(p))` is p up to the order
of its strings and pooled integers.

One line is one record. Numbers of functions, kernels and constants are written `f0`, `k0`, `c0`,
native shape code `e0`, targets as labels, messages and spans as JSON strings, formulas in braces over
`d` (the dim found), `s0 ..` (symbols) and `i0 ..` (integers of a kernel). Constants and the image are
named by digest; their bytes are a separate resource.

    .memory "host" heap align 64
    .constant f32 [2, 3] sha256:9f..
    .device "cl0" driver "opencl" options "" memories 1 image sha256:77..
    .kernel "add" ports r r w ints 1 image 0 parallel 64 serial workspace {4*i0} cost {10}
    .shape 128 results 3 inputs 2 0.1
    .entry "main" f0
    .input "x" f32 ["n" {s0}, "64" {64}]
    .symbol "n" input 0 axis 0 {d}
    .require "n <= 8" {s0 <= 8}
    .function "main" (tensor) -> (tensor) frame 3
      .at "node 'Relu_0'"
      COPY 0
    L2:
      RETURN
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import assert_never

from inlay.base.lexer import quote
from inlay.bytecode import formula, verify
from inlay.bytecode.formula import Formula
from inlay.bytecode.isa import DTYPES, Instruction, Kind, OperandKind
from inlay.bytecode.program import (
    AccessCode,
    CopyBody,
    DeviceBody,
    Effects,
    Entry,
    Function,
    FunctionBody,
    HostBody,
    ImageBody,
    Kernel,
    Program,
    ShapeCode,
    SymbolBody,
)
from inlay.bytecode.spec import ListSpec, OptionSpec, Spec, Symbol, TensorSpec, TupleSpec

PORTS = {AccessCode.READ: "r", AccessCode.WRITE: "w", AccessCode.READ_WRITE: "rw"}
PREFIXES = {
    OperandKind.FUNCTION: "f",
    OperandKind.KERNEL: "k",
    OperandKind.CONSTANT: "c",
    OperandKind.SHAPE: "e",
}


def digest(data: bytes | memoryview) -> str:
    """Return the name of a resource."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def resources(program: Program) -> dict[str, bytes]:
    """Return the bytes that the text names by digest."""
    found = {digest(c.bytes()): bytes(c.bytes()) for c in program.constants}
    found |= {digest(d.image): d.image for d in program.devices}
    return found | {digest(program.image): program.image}


def listing(program: Program) -> str:
    """Return the text of a program."""
    lines = [
        f".memory {quote(m.name)} {m.kind}"
        + (f" bytes {m.bytes}" if m.bytes is not None else "")
        + f" align {m.alignment}"
        for m in program.memories
    ]
    if program.target.triple:
        names = (program.target.triple, *program.target.features)
        lines.append(".target " + " ".join(quote(name) for name in names))
    lines += [
        f".property {quote(key)} {quote(program.properties[key])}" for key in sorted(program.properties)
    ]
    if program.image:
        lines.append(f".image {digest(program.image)}")
    lines += [
        f".device {quote(d.name)} driver {quote(d.driver)} options {quote(d.options)} memories "
        + " ".join(map(str, d.memories))
        + (" hardware " + " ".join(map(str, d.hardware)) if d.hardware else "")
        + f" image {digest(d.image)}"
        for d in program.devices
    ]
    lines += [
        f".constant {c.dtype} [{', '.join(map(str, c.dims))}] {digest(c.bytes())}"
        + (f" in {quote(program.memories[c.memory].name)}" if c.memory else "")
        for c in program.constants
    ]
    lines += [_kernel_line(kernel) for kernel in program.kernels]
    lines += [_shape_line(shape) for shape in program.shapes]
    for entry in program.entries:
        lines += _entry_lines(entry)
    for function in program.functions:
        lines += function_lines(program, function)
    return "\n".join(lines) + "\n"


def function_lines(program: Program, function: Function) -> list[str]:
    """Return the lines of one function, its header first."""
    params, results = (_kinds(kinds) for kinds in (function.params, function.results))
    effects = "".join(f" {e.name.lower()}" for e in Effects if e in function.effects)
    head = f".function {quote(function.name)} {params} -> {results} frame {function.frame}{effects}"
    lines = [head]
    rows = list(verify.instructions(function.code))
    targets = {word for _, row, words in rows for word in verify.targets_of(row, words)}
    spans = dict(function.spans)
    for pc, row, words in rows:
        if pc in targets:
            lines.append(f"L{pc}:")
        if pc in spans:
            lines.append(f"  .at {quote(program.strings[spans[pc]])}")
        lines.append("  " + " ".join([row.name, *_operands(program, row, words)]))
    return lines


def _kinds(kinds: Sequence[Kind]) -> str:
    return "(" + ", ".join(kind.name.lower() for kind in kinds) + ")"


def _operands(program: Program, row: Instruction, words: Sequence[int]) -> Iterator[str]:
    if row.operands and row.operands[0][1] is OperandKind.TARGETS:
        yield from (f"L{word}" for word in words)
        return
    for (_, kind), word in zip(row.operands, words, strict=True):
        match kind:
            case OperandKind.IMMEDIATE:
                yield str(word - (word >> 31 << 32))
            case OperandKind.POOL:
                yield str(program.pool[word])
            case OperandKind.MESSAGE:
                yield quote(program.strings[word])
            case OperandKind.DTYPE:
                yield DTYPES[word][0]
            case OperandKind.MEMORY:
                yield quote(program.memories[word].name)
            case OperandKind.TARGET:
                yield f"L{word}"
            case _:
                yield PREFIXES.get(kind, "") + str(word)


def _braces(steps: Formula, prefix: str, count: int) -> str:
    return "{" + formula.text(steps, [f"{prefix}{index}" for index in range(count)]) + "}"


def _kernel_line(kernel: Kernel) -> str:
    words = [".kernel", quote(kernel.name), "ports", *(PORTS[port] for port in kernel.ports)]
    words += ["ints", str(kernel.ints)]
    match kernel.body:
        case ImageBody(phases=phases):
            words.append("image")
            for phase in phases:
                words += [str(phase.offset), "parallel" if phase.parallel else "serial"]
                words += ["pieces", str(phase.pieces)] if phase.pieces > 1 else []
        case SymbolBody(symbol=symbol, parallel=parallel):
            words += ["symbol", quote(symbol), "parallel" if parallel else "serial"]
        case HostBody(name=name):
            words += ["host", quote(name)]
        case FunctionBody(name=name, library=library, symbol=symbol):
            words += ["function", quote(name), quote(library), quote(symbol)]
        case DeviceBody(memory=memory, name=name, phases=phases):
            words += ["device", str(memory), quote(name)]
            for phase in phases:
                words += [str(phase.offset), _braces(phase.items, "i", kernel.ints)]
        case CopyBody():
            words.append("copy")
    if kernel.workspace is not None:
        each = "workspace_in_port" if kernel.workspace_in_port else "workspace_per_part"
        words.append(each if kernel.workspace_per_part else "workspace")
        words.append(_braces(kernel.workspace, "i", kernel.ints))
    words += ["cost", _braces(kernel.cost, "i", kernel.ints)]
    if kernel.ordered:
        words.append("ordered")
    if kernel.batch is not None:
        words += ["batch", f"k{kernel.batch.kernel}", *map(str, kernel.batch.shared)]
    if kernel.sizes:
        words += ["sizes", *(_braces(size, "i", kernel.ints) for size in kernel.sizes)]
    if kernel.spans:
        words += ["spans", *(f"{first}-{last}" for first, last in kernel.spans)]
    if kernel.assertions:
        words += ["assert", *(quote(message) for message in kernel.assertions)]
    return " ".join(words)


def _shape_line(shape: ShapeCode) -> str:
    inputs = [str(given.slot) + ("" if given.axis is None else f".{given.axis}") for given in shape.inputs]
    return " ".join([f".shape {shape.offset} results {shape.results} inputs", *inputs])


def _entry_lines(entry: Entry) -> Iterator[str]:
    count = len(entry.symbols)
    yield f".entry {quote(entry.name)} f{entry.function}"
    for side, specs in ((".input", entry.inputs), (".output", entry.outputs)):
        for spec in specs:
            yield f"{side} {_spec_text(spec, count)}"
    for index, symbol in enumerate(entry.symbols):
        yield f".symbol {_symbol_text(symbol, index)}"
    for requirement in entry.requirements:
        yield f".require {quote(requirement.text)} {_braces(requirement.value, 's', count)}"


def _spec_text(spec: Spec, count: int) -> str:
    """Return a spec whose formulas see so many symbols."""
    name = quote(spec.name)
    match spec:
        case TensorSpec(dtype=dtype, dims=dims):
            listed = ", ".join(
                quote(dim.text) + (f" {_braces(dim.value, 's', count)}" if dim.value is not None else "")
                for dim in dims
            )
            return f"{name} {dtype} [{listed}]"
        case TupleSpec(fields=fields):
            return f"{name} tuple (" + ", ".join(_spec_text(f, count) for f in fields) + ")"
        case ListSpec(element=element) | OptionSpec(element=element):
            word = "list" if isinstance(spec, ListSpec) else "option"
            symbols = [_symbol_text(s, count + k) for k, s in enumerate(element.symbols)]
            inner = _spec_text(element.spec, count + len(symbols))
            return f"{name} {word} ({', '.join(symbols)}) {inner}"
        case _:
            assert_never(spec)


def _symbol_text(symbol: Symbol, before: int) -> str:
    names = ["d", *(f"s{k}" for k in range(before))]
    solution = "{" + formula.text(symbol.solution, names) + "}"
    return f"{quote(symbol.name)} input {symbol.input} axis {symbol.axis} {solution}"
