"""Reads the text of a program, which `disasm` defines and writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from inlay.base.diagnostics import InternalError, error
from inlay.bytecode import formula, verify
from inlay.bytecode.builder import FunctionBuilder, Label, OperandValue, ProgramBuilder
from inlay.bytecode.formula import Formula
from inlay.bytecode.isa import BY_NAME, DTYPE_CODES, Kind, OperandKind
from inlay.bytecode.program import (
    AccessCode,
    BatchRecord,
    Body,
    Constant,
    CopyBody,
    DeviceBody,
    DevicePhase,
    DeviceRecord,
    Effects,
    Entry,
    FunctionBody,
    HostBody,
    ImageBody,
    ImageTarget,
    Kernel,
    Memory,
    MemoryKind,
    Phase,
    Program,
    Requirement,
    ShapeCode,
    ShapeInput,
    SymbolBody,
)
from inlay.bytecode.spec import Dim, Element, ListSpec, OptionSpec, Spec, Symbol, TensorSpec, TupleSpec
from tests.unit.bytecode.disasm import PORTS, PREFIXES

_ACCESSES = {text: access for access, text in PORTS.items()}
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
            raise error(
                "parse.expected", f"line {number} of the listing: {problem}", notes=[line.strip()]
            ) from problem
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
        self._builder = ProgramBuilder(memories=())
        self._bodies: list[list[_Line]] = []
        self._headers: list[FunctionBuilder] = []
        self._entry: list[str | int] = []
        self._specs: list[tuple[str, _Line]] = []
        self._records: dict[str, Callable[[_Line], None]] = {
            ".memory": self._memory,
            ".target": self._target,
            ".property": self._property,
            ".image": self._image,
            ".device": self._device,
            ".constant": self._constant,
            ".kernel": self._kernel,
            ".shape": self._shape,
            ".entry": self._entry_line,
            ".function": self._function,
        }

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
            raise error(
                "parse.expected", f"the listing is incomplete: {problem.message}", notes=[problem.where]
            ) from problem

    def _memory(self, line: _Line) -> None:
        name, kind, bytes_ = line.string(), MemoryKind(line.word()), None
        if line.peek() == "bytes":
            line.word()
            bytes_ = line.number()
        line.expect("align")
        made = Memory(name, kind, bytes_, line.number())
        self._builder.memories = (*self._builder.memories, made)

    def _target(self, line: _Line) -> None:
        triple = line.string()
        features: list[str] = []
        while line.more:
            features.append(line.string())
        self._builder.target = ImageTarget(triple, tuple(features))

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
        made = DeviceRecord(name, driver, options, memories, image, hardware)
        self._builder.devices = (*self._builder.devices, made)

    def _constant(self, line: _Line) -> None:
        dtype = line.word()
        assert dtype in DTYPE_CODES, f"there is no dtype {dtype}"
        dims: list[int] = []
        line.list_of("[", "]", lambda: dims.append(line.number()))
        data, memory = self._resources[line.word()], 0
        if line.more:
            line.expect("in")
            memory = self._builder.memory(line.string())
        self._builder.constant(Constant(dtype, tuple(dims), data, memory))

    def _kernel(self, line: _Line) -> None:
        name = line.string()
        line.expect("ports")
        ports: list[AccessCode] = []
        while line.peek() in _ACCESSES:
            ports.append(_ACCESSES[line.word()])
        line.expect("ints")
        ints = line.number()
        names = [f"i{index}" for index in range(ints)]
        body = _read_body(line, names)
        workspace, word = None, ""
        if line.peek().startswith("workspace"):
            word = line.word()
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
            batch = BatchRecord(number, tuple(shared))
        sizes: list[Formula] = []
        if line.peek() == "sizes":
            line.word()
            sizes += [line.formula(names) for _ in ports]
        spans: list[tuple[int, int]] = []
        if line.peek() == "spans":
            line.word()
            for _ in ports:
                first, last = line.word().split("-")
                spans.append((int(first), int(last)))
        assertions: list[str] = []
        if line.peek() == "assert":
            line.word()
            while line.more:
                assertions.append(line.string())
        self._builder.kernel(
            Kernel(
                name,
                tuple(ports),
                ints,
                body,
                workspace,
                word in ("workspace_per_part", "workspace_in_port"),
                cost,
                tuple(assertions),
                batch,
                ordered,
                tuple(sizes),
                tuple(spans),
                word == "workspace_in_port",
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
            Entry(
                name,
                function,
                tuple(specs[".input"]),
                tuple(specs[".output"]),
                tuple(symbols),
                tuple(requirements),
            )
        )
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
        function = self._builder.function(name, kinds[0], kinds[1])
        while line.more:
            function.effects |= Effects[line.word().upper()]
        self._headers.append(function)
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
                offset, parallel = line.number(), mode()
                pieces = 1
                if line.peek() == "pieces":
                    line.expect("pieces")
                    pieces = line.number()
                phases.append(Phase(offset, parallel, pieces))
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
                    operands.append(line.number(PREFIXES.get(kind, "")))
        line.end()
        function.emit(head, *operands)
