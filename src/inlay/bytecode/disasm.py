"""The text of a program, and back: `parse(listing(p), resources(p))` is p up to the order of its
strings and pooled integers.

One line is one record. Numbers of functions, kernels and constants are written `f0`, `k0`, `c0`,
native shape code `e0`, targets as labels, messages and spans as JSON strings, formulas in braces over
`d` (the dim found), `s0 ..` (symbols) and `i0 ..` (integers of a kernel). Constants and the image are
named by digest; their bytes are a separate resource.

    .memories "host"
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
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import assert_never

from inlay.base.diagnostics import InternalError, error
from inlay.bytecode import formula, verify
from inlay.bytecode.builder import FunctionBuilder, Label, OperandValue, ProgramBuilder
from inlay.bytecode.formula import Formula
from inlay.bytecode.isa import BY_NAME, DTYPE_CODES, DTYPES, Instruction, Kind, OperandKind
from inlay.bytecode.program import (
    Access,
    Batch,
    Body,
    Constant,
    CopyBody,
    Device,
    DeviceBody,
    DevicePhase,
    Entry,
    Function,
    FunctionBody,
    HostBody,
    ImageBody,
    Kernel,
    Phase,
    Program,
    Requirement,
    ShapeCode,
    ShapeInput,
    SymbolBody,
    Target,
)
from inlay.bytecode.spec import (
    Dim,
    Element,
    ListSpec,
    OptionSpec,
    Spec,
    Symbol,
    TensorSpec,
    TupleSpec,
)

_PORTS = {Access.READ: "r", Access.WRITE: "w", Access.READ_WRITE: "rw"}
_ACCESSES = {text: access for access, text in _PORTS.items()}
_PREFIXES = {
    OperandKind.FUNCTION: "f", OperandKind.KERNEL: "k", OperandKind.CONSTANT: "c",
    OperandKind.SHAPE: "e",
}  # fmt: skip


def digest(data: bytes | memoryview) -> str:
    """Return the name of a resource."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def resources(program: Program) -> dict[str, bytes]:
    """Return the bytes that the text names by digest."""
    found = {digest(c.bytes()): bytes(c.bytes()) for c in program.constants}
    found |= {digest(d.image): d.image for d in program.devices}
    return found | {digest(program.image): program.image}


# ---------------------------------------------------------------------------- writing


def listing(program: Program) -> str:
    """Return the text of a program."""
    lines = [".memories " + " ".join(_quote(name) for name in program.memories)]
    if program.target.triple:
        names = (program.target.triple, *program.target.features)
        lines.append(".target " + " ".join(_quote(name) for name in names))
    lines += [
        f".property {_quote(key)} {_quote(program.properties[key])}"
        for key in sorted(program.properties)
    ]
    if program.image:
        lines.append(f".image {digest(program.image)}")
    lines += [
        f".device {_quote(d.name)} driver {_quote(d.driver)} options {_quote(d.options)} memories "
        + " ".join(map(str, d.memories))
        + (" hardware " + " ".join(map(str, d.hardware)) if d.hardware else "")
        + f" image {digest(d.image)}"
        for d in program.devices
    ]
    lines += [
        f".constant {c.dtype} [{', '.join(map(str, c.dims))}] {digest(c.bytes())}"
        + (f" in {_quote(program.memories[c.memory])}" if c.memory else "")
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
    lines = [f".function {_quote(function.name)} {params} -> {results} frame {function.frame}"]
    rows = list(verify.instructions(function.code))
    targets = {word for _, row, words in rows for word in verify.targets_of(row, words)}
    spans = dict(function.spans)
    for pc, row, words in rows:
        if pc in targets:
            lines.append(f"L{pc}:")
        if pc in spans:
            lines.append(f"  .at {_quote(program.strings[spans[pc]])}")
        lines.append("  " + " ".join([row.name, *_operands(program, row, words)]))
    return lines


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


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
                yield _quote(program.strings[word])
            case OperandKind.DTYPE:
                yield DTYPES[word][0]
            case OperandKind.MEMORY:
                yield _quote(program.memories[word])
            case OperandKind.TARGET:
                yield f"L{word}"
            case _:
                yield _PREFIXES.get(kind, "") + str(word)


def _braces(steps: Formula, prefix: str, count: int) -> str:
    return "{" + formula.text(steps, [f"{prefix}{index}" for index in range(count)]) + "}"


def _kernel_line(kernel: Kernel) -> str:
    words = [".kernel", _quote(kernel.name), "ports", *(_PORTS[port] for port in kernel.ports)]
    words += ["ints", str(kernel.ints)]
    match kernel.body:
        case ImageBody(phases=phases):
            words.append("image")
            for phase in phases:
                words += [str(phase.offset), "parallel" if phase.parallel else "serial"]
        case SymbolBody(symbol=symbol, parallel=parallel):
            words += ["symbol", _quote(symbol), "parallel" if parallel else "serial"]
        case HostBody(name=name):
            words += ["host", _quote(name)]
        case FunctionBody(name=name, library=library, symbol=symbol):
            words += ["function", _quote(name), _quote(library), _quote(symbol)]
        case DeviceBody(memory=memory, name=name, phases=phases):
            words += ["device", str(memory), _quote(name)]
            for phase in phases:
                words += [str(phase.offset), _braces(phase.items, "i", kernel.ints)]
        case CopyBody():
            words.append("copy")
    if kernel.workspace is not None:
        words.append("workspace_per_part" if kernel.workspace_per_part else "workspace")
        words.append(_braces(kernel.workspace, "i", kernel.ints))
    words += ["cost", _braces(kernel.cost, "i", kernel.ints)]
    if kernel.ordered:
        words.append("ordered")
    if kernel.batch is not None:
        words += ["batch", f"k{kernel.batch.kernel}", *map(str, kernel.batch.shared)]
    if kernel.assertions:
        words += ["assert", *(_quote(message) for message in kernel.assertions)]
    return " ".join(words)


def _shape_line(shape: ShapeCode) -> str:
    inputs = [
        str(given.slot) + ("" if given.axis is None else f".{given.axis}") for given in shape.inputs
    ]
    return " ".join([f".shape {shape.offset} results {shape.results} inputs", *inputs])


def _entry_lines(entry: Entry) -> Iterator[str]:
    count = len(entry.symbols)
    yield f".entry {_quote(entry.name)} f{entry.function}"
    for side, specs in ((".input", entry.inputs), (".output", entry.outputs)):
        for spec in specs:
            yield f"{side} {_spec_text(spec, count)}"
    for index, symbol in enumerate(entry.symbols):
        yield f".symbol {_symbol_text(symbol, index)}"
    for requirement in entry.requirements:
        yield f".require {_quote(requirement.text)} {_braces(requirement.value, 's', count)}"


def _spec_text(spec: Spec, count: int) -> str:
    """Return a spec whose formulas see so many symbols."""
    name = _quote(spec.name)
    match spec:
        case TensorSpec(dtype=dtype, dims=dims):
            listed = ", ".join(
                _quote(dim.text)
                + (f" {_braces(dim.value, 's', count)}" if dim.value is not None else "")
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
    return f"{_quote(symbol.name)} input {symbol.input} axis {symbol.axis} {solution}"


# ---------------------------------------------------------------------------- reading

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<formula>\{[^}]*\})|(?P<word>->|[\w.:+-]+|[\[\](),]))"""
)


def parse(text: str, resources: Mapping[str, bytes]) -> Program:
    """Return the program of a text.

    Args:
        text: what `listing` writes.
        resources: bytes by digest.

    Raises:
        CompileError: `parse.expected` at the line; `container.bytecode` where the verifier refuses.
    """
    reader = _Reader(resources)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            reader.line(_Line(line))
        except _PROBLEMS as problem:
            raise error("parse.expected", f"line {number} of the listing: {problem}",
                        notes=[line.strip()]) from problem  # fmt: skip
    program = reader.finish()
    if found := verify.findings(program):
        raise error("container.bytecode", f"the program of the listing is wrong: {found[0]}")
    return program


# The builder calls a wrong program an internal error; here the text is at fault.
_PROBLEMS = (ValueError, KeyError, IndexError, AssertionError, InternalError)


class _Line:
    """Tokens of a line, taken from the front."""

    def __init__(self, line: str) -> None:
        self._tokens: list[str] = []
        at = 0
        line = line.rstrip()
        while at < len(line):
            found = _TOKEN.match(line, at)
            if found is None:
                raise ValueError(f"what begins at column {at + 1} is no token")
            self._tokens.append(found.group().strip())
            at = found.end()
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._tokens)

    def peek(self) -> str:
        return self._tokens[self._at] if self.more else ""

    def word(self) -> str:
        if not self.more:
            raise ValueError("more is needed")
        self._at += 1
        return self._tokens[self._at - 1]

    def expect(self, text: str) -> None:
        found = self.word()
        if found != text:
            raise ValueError(f"{text} is needed, found {found}")

    def number(self, prefix: str = "") -> int:
        text = self.word()
        if not text.startswith(prefix):
            raise ValueError(f"{prefix}<number> is needed, found {text}")
        return int(text.removeprefix(prefix))

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers that come next."""
        found: list[int] = []
        while self.peek().isdigit():
            found.append(self.number())
        return tuple(found)

    def string(self) -> str:
        text = self.word()
        if not text.startswith('"'):
            raise ValueError(f"a string is needed, found {text}")
        return json.loads(text)

    def formula(self, names: Sequence[str]) -> Formula:
        text = self.word()
        if not text.startswith("{"):
            raise ValueError(f"a formula is needed, found {text}")
        return formula.parse(text[1:-1], names)

    def list_of(self, opening: str, closing: str, item: Callable[[], None]) -> None:
        self.expect(opening)
        while self.peek() != closing:
            item()
            if self.peek() == ",":
                self.word()
        self.word()

    def end(self) -> None:
        if self.more:
            raise ValueError(f"nothing more is needed, found {self.peek()}")


class _Reader:
    """Builds the program line by line; labels are resolved when a function ends."""

    def __init__(self, resources: Mapping[str, bytes]) -> None:
        self._resources = resources
        self._builder = ProgramBuilder()
        self._bodies: list[list[_Line]] = []
        self._headers: list[FunctionBuilder] = []
        self._entry: list[str | int] = []
        self._specs: list[tuple[str, _Line]] = []
        self._records: dict[str, Callable[[_Line], None]] = {
            ".memories": self._memories, ".target": self._target, ".property": self._property,
            ".image": self._image, ".device": self._device, ".constant": self._constant,
            ".kernel": self._kernel, ".shape": self._shape, ".entry": self._entry_line,
            ".function": self._function,
        }  # fmt: skip

    def line(self, line: _Line) -> None:
        head = line.peek()
        if head in (".input", ".output", ".symbol", ".require"):
            assert self._entry, f"{head} belongs after .entry"
            self._specs.append((line.word(), line))
        elif head in self._records:
            line.word()
            self._finish_entry()
            self._records[head](line)
            line.end()
        else:
            assert self._bodies, f"{head} belongs in a function"
            self._bodies[-1].append(line)

    def finish(self) -> Program:
        self._finish_entry()
        for function, body in zip(self._headers, self._bodies, strict=True):
            try:
                _write_body(function, body, self._headers)
            except _PROBLEMS as problem:
                raise error(
                    "parse.expected", f"function '{function.name}' of the listing: {problem}"
                ) from problem
        try:
            return self._builder.finish(check=False)
        except InternalError as problem:
            raise error("parse.expected", f"the listing is incomplete: {problem.message}",
                        notes=[problem.where]) from problem  # fmt: skip

    def _memories(self, line: _Line) -> None:
        names: list[str] = []
        while line.more:
            names.append(line.string())
        self._builder.memories = tuple(names)

    def _target(self, line: _Line) -> None:
        triple = line.string()
        features: list[str] = []
        while line.more:
            features.append(line.string())
        self._builder.target = Target(triple, tuple(features))

    def _property(self, line: _Line) -> None:
        key = line.string()
        self._builder.properties[key] = line.string()

    def _image(self, line: _Line) -> None:
        self._builder.image = self._resources[line.word()]

    def _device(self, line: _Line) -> None:
        name = line.string()
        line.expect("driver")
        driver = line.string()
        line.expect("options")
        options = line.string()
        line.expect("memories")
        memories = line.numbers()
        hardware: tuple[int, ...] = ()
        if line.peek() == "hardware":
            line.expect("hardware")
            hardware = line.numbers()
        line.expect("image")
        image = self._resources[line.word()]
        made = Device(name, driver, options, memories, image, hardware)
        self._builder.devices = (*self._builder.devices, made)

    def _constant(self, line: _Line) -> None:
        dtype = line.word()
        assert dtype in DTYPE_CODES, f"there is no dtype {dtype}"
        dims: list[int] = []
        line.list_of("[", "]", lambda: dims.append(line.number()))
        data, memory = self._resources[line.word()], 0
        if line.more:
            line.expect("in")
            memory = self._builder.memories.index(line.string())
        self._builder.constant(Constant(dtype, tuple(dims), data, memory))

    def _kernel(self, line: _Line) -> None:
        name = line.string()
        line.expect("ports")
        ports: list[Access] = []
        while line.peek() in _ACCESSES:
            ports.append(_ACCESSES[line.word()])
        line.expect("ints")
        ints = line.number()
        names = [f"i{index}" for index in range(ints)]
        body = _read_body(line, names)
        workspace, per_part = None, False
        if line.peek().startswith("workspace"):
            per_part = line.word() == "workspace_per_part"
            workspace = line.formula(names)
        line.expect("cost")
        cost = line.formula(names)
        ordered = line.peek() == "ordered"
        if ordered:
            line.word()
        batch = None
        if line.peek() == "batch":
            line.word()
            number = line.number("k")
            shared: list[int] = []
            while line.peek().isdigit():
                shared.append(line.number())
            batch = Batch(number, tuple(shared))
        assertions: list[str] = []
        if line.peek() == "assert":
            line.word()
            while line.more:
                assertions.append(line.string())
        self._builder.kernel(
            Kernel(
                name, tuple(ports), ints, body, workspace, per_part, cost, tuple(assertions), batch,
                ordered,
            )
        )

    def _shape(self, line: _Line) -> None:
        offset = line.number()
        line.expect("results")
        results = line.number()
        line.expect("inputs")
        inputs: list[ShapeInput] = []
        while line.more:
            slot, _, axis = line.word().partition(".")
            inputs.append(ShapeInput(int(slot), int(axis) if axis else None))
        self._builder.shapes.append(ShapeCode(offset, tuple(inputs), results))

    def _entry_line(self, line: _Line) -> None:
        self._entry = [line.string(), line.number("f")]

    def _finish_entry(self) -> None:
        if not self._entry:
            return
        name, function = self._entry
        assert isinstance(name, str), "an entry begins with its name"
        assert isinstance(function, int), "an entry names a function"
        names = [f"s{k}" for k in range(sum(head == ".symbol" for head, _ in self._specs))]
        specs: dict[str, list[Spec]] = {".input": [], ".output": []}
        symbols: list[Symbol] = []
        requirements: list[Requirement] = []
        for head, line in self._specs:
            if head in specs:
                specs[head].append(_read_spec(line, names))
            elif head == ".symbol":
                symbols.append(_read_symbol(line, names[: len(symbols)]))
            else:
                requirements.append(Requirement(line.string(), line.formula(names)))
            line.end()
        self._builder.entry(
            Entry(name, function, tuple(specs[".input"]), tuple(specs[".output"]), tuple(symbols),
                  tuple(requirements))
        )  # fmt: skip
        self._entry = []
        self._specs = []

    def _function(self, line: _Line) -> None:
        name = line.string()
        kinds: list[list[Kind]] = [[], []]
        line.list_of("(", ")", lambda: kinds[0].append(Kind[line.word().upper()]))
        line.expect("->")
        line.list_of("(", ")", lambda: kinds[1].append(Kind[line.word().upper()]))
        line.expect("frame")
        line.number()
        self._headers.append(self._builder.function(name, kinds[0], kinds[1]))
        self._bodies.append([])


def _read_body(line: _Line, names: Sequence[str]) -> Body:
    def mode() -> bool:
        word = line.word()
        assert word in ("parallel", "serial"), f"parallel or serial is needed, found {word}"
        return word == "parallel"

    match line.word():
        case "image":
            phases: list[Phase] = []
            while line.peek().isdigit():
                phases.append(Phase(line.number(), mode()))
            return ImageBody(tuple(phases))
        case "symbol":
            return SymbolBody(line.string(), mode())
        case "host":
            return HostBody(line.string())
        case "function":
            return FunctionBody(line.string(), line.string(), line.string())
        case "device":
            memory, name = line.number(), line.string()
            steps: list[DevicePhase] = []
            while line.peek().lstrip("-").isdigit():
                offset = line.number()
                steps.append(DevicePhase(line.formula(names), offset))
            return DeviceBody(memory, name, tuple(steps))
        case "copy":
            return CopyBody()
        case other:
            raise ValueError(f"image, symbol, host, function, device or copy is needed, found {other}")


def _read_spec(line: _Line, names: Sequence[str]) -> Spec:
    name, word = line.string(), line.word()
    if word == "tuple":
        fields: list[Spec] = []
        line.list_of("(", ")", lambda: fields.append(_read_spec(line, names)))
        return TupleSpec(name, tuple(fields))
    if word in ("list", "option"):
        symbols: list[Symbol] = []
        known = list(names)

        def symbol() -> None:
            symbols.append(_read_symbol(line, known))
            known.append(f"s{len(known)}")

        line.list_of("(", ")", symbol)
        element = Element(_read_spec(line, known), tuple(symbols))
        return ListSpec(name, element) if word == "list" else OptionSpec(name, element)
    assert word in DTYPE_CODES, f"there is no dtype {word}"
    dims: list[Dim] = []

    def dim() -> None:
        text = line.string()
        dims.append(Dim(text, line.formula(names) if line.peek().startswith("{") else None))

    line.list_of("[", "]", dim)
    return TensorSpec(name, word, tuple(dims))


def _read_symbol(line: _Line, before: Sequence[str]) -> Symbol:
    name = line.string()
    line.expect("input")
    index = line.number()
    line.expect("axis")
    axis = line.number()
    return Symbol(name, index, axis, line.formula(["d", *before]))


def _write_body(
    function: FunctionBuilder, body: Sequence[_Line], functions: Sequence[FunctionBuilder]
) -> None:
    labels: dict[str, Label] = {}

    def label(name: str) -> Label:
        assert name.startswith("L"), f"a label is needed, found {name}"
        return labels.setdefault(name, function.label())

    for line in body:
        head = line.word()
        if head.endswith(":"):
            function.place(label(head[:-1]))
            continue
        if head == ".at":
            function.at(line.string())
            continue
        row = BY_NAME.get(head)
        if row is None:
            raise ValueError(f"there is no instruction {head}")
        if row.operands and row.operands[0][1] is OperandKind.TARGETS:
            targets: list[Label] = []
            while line.more:
                targets.append(label(line.word()))
            function.emit(head, targets)
            continue
        operands: list[OperandValue] = []
        for _, kind in row.operands:
            match kind:
                case OperandKind.TARGET:
                    operands.append(label(line.word()))
                case OperandKind.MESSAGE | OperandKind.MEMORY:
                    operands.append(line.string())
                case OperandKind.DTYPE:
                    operands.append(line.word())
                case OperandKind.FUNCTION:
                    operands.append(functions[line.number("f")])
                case _:
                    operands.append(line.number(_PREFIXES.get(kind, "")))
        line.end()
        function.emit(head, *operands)
