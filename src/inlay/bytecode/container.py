"""The `.inlay` file: one program with its native image and constants, in sections with digests.

    file     = header, section table, sections in the order of the table; padding is zero
    header   = magic[8] version:u32 sections:u32 file_bytes:u64 zero:u64 sha256(table)[32]
    row      = id[4] alignment:u32 offset:u64 bytes:u64 zero:u64 sha256(section)[32]

Everything is little-endian. Offsets count from the start of the file. The image and the constants
begin at pages, so that both can be mapped from the file; each constant begins at a multiple of 64.
All other sections but `STRS` are lists of 32-bit words, and a 64-bit number is two words, low
first; `_Tables` reads and writes them and is their definition.

| id | contents |
|---|---|
| `STRS` | strings: count, count + 1 positions of their ends and starts, UTF-8 bytes |
| `META` | target, memories, properties |
| `POOL` | 64-bit integers |
| `FUNC` | functions: name, kinds, frame size, and their part of `CODE` |
| `CODE` | instruction words of all functions |
| `SMAP` | for each function, where its instructions come from |
| `CONS` | constants: dtype, dims, and their part of `CDAT` |
| `KERN` | kernels |
| `SHAP` | native shape code: where it is, what it takes, how many results |
| `ENTR` | entries |
| `DEVS` | devices besides the host: names, memories, and their part of `DIMG` |
| `DIMG` | what devices are given to run |
| `IMAG` | native code |
| `CDAT` | bytes of constants; an element of a tensor of strings is a position in `STRS` |

**Trust.** A reader checks every count, offset and index against what is there before it uses it;
a wrong file is refused with a `container.*` diagnostic. The digests find damage, not forgery. All
but that of `CDAT` are checked on each load; that one too unless the caller asks not to (it costs
a reading of all constants). Native code is code: to load a file is to trust who made it.

The same program gives the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, TypeAlias, assert_never

from inlay.base.diagnostics import error
from inlay.bytecode import verify
from inlay.bytecode.formula import MAX_STEPS, OPERATOR_NAMES, Arg, Formula
from inlay.bytecode.isa import DTYPE_CODES, DTYPES, MAX_RANK, Kind
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
    MAX_NESTING,
    Dim,
    Element,
    ListSpec,
    OptionSpec,
    Spec,
    Symbol,
    TensorSpec,
    TupleSpec,
)

MAGIC = b"\x89INLAY\r\n"
VERSION = 5
SPEC_FORMS = (TensorSpec, TupleSpec, ListSpec, OptionSpec)
"""Forms of values of signatures; their positions are their numbers in the file."""
PAGE = 4096
CONSTANT_ALIGN = 64
SECTIONS = (
    "STRS", "META", "POOL", "FUNC", "CODE", "SMAP", "CONS", "KERN", "SHAP", "ENTR", "DEVS",
    "DIMG", "IMAG", "CDAT",
)  # fmt: skip
_HEADER = struct.Struct("<8sIIQQ32s")
_ROW = struct.Struct("<4sIQQQ32s")
_MASK = 0xFFFFFFFF

Buffer: TypeAlias = bytes | bytearray | memoryview


# ---------------------------------------------------------------------------- writing


def chunks(program: Program) -> Iterator[Buffer]:
    """Yield the file piece by piece, without copying constants."""
    sections = _sections(program)
    table = bytearray()
    offset = _HEADER.size + _ROW.size * len(sections)
    places: list[int] = []
    for name, alignment, pieces in sections:
        offset = _up(offset, alignment)
        size = sum(len(piece) for piece in pieces)
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        table += _ROW.pack(name.encode(), alignment, offset, size, 0, digest.digest())
        places.append(offset)
        offset += size
    header = _HEADER.pack(MAGIC, VERSION, len(sections), offset, 0, hashlib.sha256(table).digest())
    yield header
    yield bytes(table)
    position = len(header) + len(table)
    for place, (_, _, pieces) in zip(places, sections, strict=True):
        if place > position:
            yield bytes(place - position)
        position = place
        for piece in pieces:
            yield piece
            position += len(piece)


def to_bytes(program: Program) -> bytes:
    """Return the whole file."""
    return b"".join(chunks(program))


def save(program: Program, path: Path) -> None:
    """Write the file; readers see the old file or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as stream:
        for chunk in chunks(program):
            stream.write(chunk)
    partial.replace(path)


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def _sections(program: Program) -> list[tuple[str, int, list[Buffer]]]:
    strings = _Strings(program.strings)
    made: dict[str, list[Buffer]] = {
        "META": [_meta(program, strings)],
        "POOL": [b"".join(struct.pack("<q", value) for value in program.pool)],
        "FUNC": [_functions(program, strings)],
        "CODE": [_pack(function.code) for function in program.functions],
        "SMAP": [
            _pack([len(f.spans), *(word for pair in f.spans for word in pair)])
            for f in program.functions
        ],
        "CONS": [_constants(program)],
        "KERN": [_kernels(program, strings)],
        "SHAP": [_shapes(program)],
        "ENTR": [_entries(program, strings)],
        "DEVS": [_devices(program, strings)],
        "DIMG": [_padded(device.image) for device in program.devices],
        "IMAG": [program.image],
        "CDAT": list(_constant_pieces(program)),
    }
    made["STRS"] = [strings.pack()]
    alignment = {"IMAG": PAGE, "CDAT": PAGE, "POOL": 8}
    return [(name, alignment.get(name, 4), made[name]) for name in SECTIONS]


def _pack(words: Iterable[int]) -> bytes:
    packed = array("I", words)
    assert packed.itemsize == 4, "words have 32 bits"
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _wide(value: int) -> tuple[int, int]:
    return value & _MASK, (value >> 32) & _MASK


class _Strings:
    """The strings of the program, then those of the tables."""

    def __init__(self, first: Sequence[str]) -> None:
        self._all = list(first)
        self._at = {text: index for index, text in reversed(list(enumerate(first)))}

    def __call__(self, text: str) -> int:
        if text not in self._at:
            self._at[text] = len(self._all)
            self._all.append(text)
        return self._at[text]

    def pack(self) -> bytes:
        encoded = [text.encode() for text in self._all]
        ends = [0]
        for text in encoded:
            ends.append(ends[-1] + len(text))
        return _pack([len(encoded), *ends]) + b"".join(encoded)


def _meta(program: Program, strings: _Strings) -> bytes:
    words = [strings(program.target.triple), len(program.target.features)]
    words += [strings(name) for name in program.target.features]
    words += [len(program.memories), *(strings(name) for name in program.memories)]
    words.append(len(program.properties))
    for key in sorted(program.properties):
        words += [strings(key), strings(program.properties[key])]
    return _pack(words)


def _functions(program: Program, strings: _Strings) -> bytes:
    words = [len(program.functions)]
    start = 0
    for f in program.functions:
        words += [strings(f.name), start, len(f.code), f.frame]
        words += [len(f.params), *f.params, len(f.results), *f.results]
        start += len(f.code)
    return _pack(words)


def _constants(program: Program) -> bytes:
    words = [len(program.constants)]
    offset = 0
    for c in program.constants:
        size = c.bytes().nbytes
        words += [DTYPE_CODES[c.dtype], len(c.dims)]
        for value in (*c.dims, offset, size):
            words += _wide(value)
        words.append(c.memory)
        offset = _up(offset + size, CONSTANT_ALIGN)
    return _pack(words)


def _constant_pieces(program: Program) -> Iterator[Buffer]:
    for c in program.constants:
        data = c.bytes()
        yield data
        yield bytes(-data.nbytes % CONSTANT_ALIGN)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _devices(program: Program, strings: _Strings) -> bytes:
    words = [len(program.devices)]
    for d in program.devices:
        words += [strings(d.name), strings(d.driver), strings(d.options)]
        hardware = d.hardware or (0,) * len(d.memories)
        words += [len(d.memories), *d.memories, *hardware, *_wide(len(d.image))]
    return _pack(words)


def _formula(steps: Formula) -> list[int]:
    words = [len(steps)]
    for step in steps:
        if isinstance(step, Arg):
            words += [1, step.index]
        elif isinstance(step, str):
            words.append(2 + OPERATOR_NAMES.index(step))
        else:
            words += [0, *_wide(step)]
    return words


def _kernels(program: Program, strings: _Strings) -> bytes:
    words = [len(program.kernels)]
    for k in program.kernels:
        words += [strings(k.name), len(k.ports), *(port - 1 for port in k.ports), k.ints]
        match k.body:
            case ImageBody(phases=phases):
                words += [0, len(phases)]
                for phase in phases:
                    words += [*_wide(phase.offset), int(phase.parallel)]
            case SymbolBody(symbol=symbol, parallel=parallel):
                words += [1, strings(symbol), int(parallel)]
            case HostBody(name=name):
                words += [2, strings(name)]
            case FunctionBody(name=name, library=library, symbol=symbol):
                words += [3, strings(name), strings(library), strings(symbol)]
            case DeviceBody(memory=memory, name=name, phases=phases):
                words += [4, memory, strings(name), len(phases)]
                for phase in phases:
                    words += [*_wide(phase.offset), *_formula(phase.items)]
            case CopyBody():
                words.append(5)
        if k.workspace is None:
            words.append(0)
        else:
            words += [2 if k.workspace_per_part else 1, *_formula(k.workspace)]
        words += _formula(k.cost)
        words += [len(k.assertions), *(strings(message) for message in k.assertions)]
        words.append(int(k.ordered))
        if k.batch is None:
            words.append(0)
        else:
            words += [1 + k.batch.kernel, len(k.batch.shared), *k.batch.shared]
    return _pack(words)


def _shapes(program: Program) -> bytes:
    words = [len(program.shapes)]
    for shape in program.shapes:
        words += [*_wide(shape.offset), shape.results, len(shape.inputs)]
        for given in shape.inputs:
            words += [given.slot, 0 if given.axis is None else given.axis + 1]
    return _pack(words)


def _entries(program: Program, strings: _Strings) -> bytes:
    words = [len(program.entries)]
    for entry in program.entries:
        words += [strings(entry.name), entry.function]
        words += _scope([len(entry.inputs)], entry.inputs, entry.symbols, strings)
        words += _scope([len(entry.outputs)], entry.outputs, (), strings)
        words.append(len(entry.requirements))
        for requirement in entry.requirements:
            words += [strings(requirement.text), *_formula(requirement.value)]
    return _pack(words)


def _scope(
    words: list[int], specs: Sequence[Spec], symbols: Sequence[Symbol], strings: _Strings
) -> list[int]:
    """Return the words, followed by symbols and specs: who reads specs must know the symbols."""
    words.append(len(symbols))
    for symbol in symbols:
        words += [strings(symbol.name), symbol.input, symbol.axis, *_formula(symbol.solution)]
    for spec in specs:
        words += _spec(spec, strings)
    return words


def _spec(spec: Spec, strings: _Strings) -> list[int]:
    words = [strings(spec.name), SPEC_FORMS.index(type(spec))]
    match spec:
        case TensorSpec(dtype=dtype, dims=dims):
            words += [DTYPE_CODES[dtype], len(dims)]
            for dim in dims:
                words += [strings(dim.text), int(dim.value is not None)]
                words += _formula(dim.value) if dim.value is not None else []
        case TupleSpec(fields=fields):
            words.append(len(fields))
            for f in fields:
                words += _spec(f, strings)
        case ListSpec(element=element) | OptionSpec(element=element):
            words += _scope([], [element.spec], element.symbols, strings)
        case _:
            assert_never(spec)
    return words


# ---------------------------------------------------------------------------- reading


def _refuse(id: str, message: str, *notes: str, hint: str = "") -> NoReturn:
    raise error(f"container.{id}", message, notes=notes, hint=hint)


@dataclass(frozen=True, slots=True)
class Section:
    """Where a section is in the file."""

    name: str
    offset: int
    size: int
    digest: bytes


class Container:
    """A file whose header, table and digests were checked; its tables are read on demand.

    Raises (constructor and methods):
        CompileError: `container.not-inlay`, `container.version`, `container.truncated`,
            `container.corrupt`, `container.digest`.
    """

    def __init__(self, buffer: Buffer, *, check_constants: bool = True) -> None:
        self.buffer = memoryview(buffer).cast("B")
        self.sections = _read_table(self.buffer)
        for name, section in self.sections.items():
            if name == "CDAT" and not check_constants:
                continue
            if hashlib.sha256(self.bytes(name)).digest() != section.digest:
                _refuse("digest", f"section {name} is not what was written",
                        hint="copy the file again, or compile the model again")  # fmt: skip
        self._strings = _read_strings(self.bytes("STRS"))

    @property
    def strings(self) -> Sequence[str]:
        """The strings of the program, then those of the tables."""
        return self._strings

    def bytes(self, name: str) -> memoryview:
        """Return the contents of a section."""
        section = self.sections[name]
        return self.buffer[section.offset : section.offset + section.size]

    def target(self) -> Target:
        """Return what the image was compiled for."""
        words = self._words("META")
        triple = words.string()
        return Target(triple, tuple(words.strings()))

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries; indices into other tables are not checked here."""
        words = self._words("ENTR")
        made = tuple(words.entry() for _ in range(words.count()))
        words.end()
        return made

    def kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels; offsets into the image are not checked here."""
        words = self._words("KERN")
        made = tuple(words.kernel() for _ in range(words.count()))
        words.end()
        return made

    def program(self) -> Program:
        """Return the whole program, verified; constants and image refer to the buffer.

        Raises:
            CompileError: also `container.bytecode`, when the verifier refuses it.
        """
        program = self._program()
        if found := verify.findings(program):
            _refuse("bytecode", f"the program in the file is wrong: {found[0]}",
                    *(str(f) for f in found[1:10]))  # fmt: skip
        return program

    def _words(self, name: str) -> _Words:
        data = self.bytes(name)
        if len(data) % 4:
            _refuse("corrupt", f"section {name} has {len(data)} bytes, which are no 32-bit words")
        return _Words(name, data, self._strings)

    def _program(self) -> Program:
        meta = self._words("META")
        target = Target(meta.string(), tuple(meta.strings()))
        memories = tuple(meta.strings())
        properties = {meta.string(): meta.string() for _ in range(meta.count())}
        meta.end()
        pool = self.bytes("POOL")
        if len(pool) % 8:
            _refuse("corrupt", f"section POOL has {len(pool)} bytes, which are no 64-bit integers")
        return Program(
            functions=self._functions(),
            entries=self.entries(),
            constants=self._constants(),
            kernels=self.kernels(),
            shapes=self._shapes(),
            pool=struct.unpack(f"<{len(pool) // 8}q", pool),
            strings=tuple(self._strings),
            memories=memories,
            devices=self.devices(),
            target=target,
            image=bytes(self.bytes("IMAG")),
            properties=properties,
        )

    def _functions(self) -> tuple[Function, ...]:
        table, code, spans = (self._words(name) for name in ("FUNC", "CODE", "SMAP"))
        made: list[Function] = []
        for _ in range(table.count()):
            name = table.string()
            start, size, frame = table.word(), table.word(), table.word()
            if start != code.position:
                _refuse("corrupt", f"the code of function '{name}' does not follow the one before")
            params, results = table.kinds(), table.kinds()
            words = code.take(size)
            pairs = spans.take(2 * spans.count())
            made.append(
                Function(name, params, results, frame, words, tuple(zip(pairs[::2], pairs[1::2])))
            )
        for words in (table, code, spans):
            words.end()
        return tuple(made)

    def devices(self) -> tuple[Device, ...]:
        """Return the devices besides the host, with what they are given to run.

        Raises:
            CompileError: `container.corrupt`, `container.truncated`.
        """
        table, data = self._words("DEVS"), self.bytes("DIMG")
        made: list[Device] = []
        at = 0
        for _ in range(table.count()):
            names = table.string(), table.string(), table.string()
            memories = table.take(table.count())
            hardware = table.take(len(memories))
            size = table.wide()
            if not 0 <= size <= len(data) - at:
                _refuse("corrupt", f"the image of device '{names[0]}' is outside its section")
            image = bytes(data[at : at + size])
            made.append(Device(*names, memories, image, hardware if any(hardware) else ()))
            at += _up(size, 4)
        table.end()
        if at != len(data):
            _refuse("corrupt", "bytes follow the image of the last device")
        return tuple(made)

    def _shapes(self) -> tuple[ShapeCode, ...]:
        words = self._words("SHAP")
        made: list[ShapeCode] = []
        for _ in range(words.count()):
            offset, results = words.wide(), words.word()
            slots = [(words.word(), words.word()) for _ in range(words.count())]
            inputs = tuple(ShapeInput(slot, axis - 1 if axis else None) for slot, axis in slots)
            made.append(ShapeCode(offset, inputs, results))
        words.end()
        return tuple(made)

    def _constants(self) -> tuple[Constant, ...]:
        table, data = self._words("CONS"), self.bytes("CDAT")
        made: list[Constant] = []
        end = 0
        for _ in range(table.count()):
            dtype = table.dtype()
            dims = tuple(table.wide() for _ in range(table.rank()))
            offset, size = table.wide(), table.wide()
            if offset != _up(end, CONSTANT_ALIGN) or size < 0 or offset + size > len(data):
                _refuse("corrupt", f"constant {len(made)} does not follow the one before")
            end = offset + size
            made.append(Constant(dtype, dims, data[offset:end], table.word()))
        table.end()
        return tuple(made)


def read(buffer: Buffer, *, check_constants: bool = True) -> Program:
    """Return the verified program of a file; constants refer to ``buffer``.

    Raises:
        CompileError: as `Container` and `Container.program`.
    """
    return Container(buffer, check_constants=check_constants).program()


def _read_table(data: memoryview) -> dict[str, Section]:
    if bytes(data[:8]) != MAGIC:
        _refuse("not-inlay", "the file does not begin as an .inlay file does",
                hint="give a file that `inlay compile` or `Executable.save` wrote")  # fmt: skip
    if len(data) < _HEADER.size:
        _refuse("truncated", f"the file ends after {len(data)} bytes, within its header")
    _, version, count, size, zero, digest = _HEADER.unpack(data[: _HEADER.size])
    if version != VERSION:
        _refuse("version", f"the file has format version {version}, this runtime reads {VERSION}",
                hint="compile the model again with this version")  # fmt: skip
    if size != len(data):
        _refuse("truncated", f"the file has {len(data)} bytes, its header says {size}")
    if count != len(SECTIONS) or zero:
        _refuse("corrupt", f"the header names {count} sections, not {len(SECTIONS)}")
    end = _HEADER.size + count * _ROW.size
    table = data[_HEADER.size : end]
    if len(table) < count * _ROW.size:
        _refuse("truncated", "the file ends within its section table")
    if hashlib.sha256(table).digest() != digest:
        _refuse("digest", "the section table is not what was written")
    found: dict[str, Section] = {}
    for want, row in zip(SECTIONS, _ROW.iter_unpack(table), strict=True):
        name, alignment, offset, bytes_, zero, section_digest = row
        expected = {"IMAG": PAGE, "CDAT": PAGE, "POOL": 8}.get(want, 4)
        if name != want.encode() or alignment != expected or zero:
            _refuse("corrupt", f"the row of section {want} is malformed")
        if offset != _up(end, alignment) or offset + bytes_ > len(data):
            _refuse("corrupt", f"section {want} does not follow the one before")
        end = offset + bytes_
        found[want] = Section(want, offset, bytes_, section_digest)
    if end != len(data):
        _refuse("corrupt", f"{len(data) - end} bytes follow the last section")
    return found


def _read_strings(data: memoryview) -> list[str]:
    count = int.from_bytes(data[:4], "little")
    start = 4 * (count + 2)
    if len(data) < start:
        _refuse("corrupt", "the string table is shorter than it says")
    ends = struct.unpack(f"<{count + 1}I", data[4:start])
    made: list[str] = []
    text = data[start:]
    if ends[0] != 0 or ends[-1] != len(text):
        _refuse("corrupt", "the string table does not end where its last string does")
    for a, b in pairwise(ends):
        if a > b:
            _refuse("corrupt", f"string {len(made)} ends before it begins")
        try:
            made.append(str(text[a:b], "utf-8"))
        except UnicodeDecodeError:
            _refuse("corrupt", f"string {len(made)} is not UTF-8")
    return made


class _Words:
    """Reads a section of words; every count is held against the words that are left."""

    def __init__(self, name: str, data: memoryview, strings: Sequence[str]) -> None:
        self._name = name
        self._all = array("I", bytes(data))
        if sys.byteorder == "big":
            self._all.byteswap()
        self._strings = strings
        self.position = 0

    def fail(self, message: str) -> NoReturn:
        _refuse("corrupt", f"section {self._name} at word {self.position}: {message}")

    def end(self) -> None:
        if self.position != len(self._all):
            self.fail(f"{len(self._all) - self.position} words follow the last row")

    def word(self) -> int:
        if self.position >= len(self._all):
            self.fail("the section ends within a row")
        self.position += 1
        return self._all[self.position - 1]

    def take(self, count: int) -> tuple[int, ...]:
        if count > len(self._all) - self.position:
            self.fail("the section ends within a row")
        self.position += count
        return tuple(self._all[self.position - count : self.position])

    def count(self) -> int:
        """Read the length of a list whose items are a word at least."""
        value = self.word()
        if value > len(self._all) - self.position:
            self.fail(f"a list of {value} items does not fit")
        return value

    def wide(self) -> int:
        low, high = self.word(), self.word()
        value = low | high << 32
        return value - (1 << 64) if value >> 63 else value

    def flag(self) -> bool:
        return bool(self.below(2, "flag"))

    def below(self, limit: int, what: str) -> int:
        value = self.word()
        if value >= limit:
            self.fail(f"{what} {value} is not below {limit}")
        return value

    def string(self) -> str:
        return self._strings[self.below(len(self._strings), "string")]

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.count())]

    def dtype(self) -> str:
        return DTYPES[self.below(len(DTYPES), "dtype")][0]

    def rank(self) -> int:
        return self.below(MAX_RANK + 1, "rank")

    def kinds(self) -> tuple[Kind, ...]:
        words = self.take(self.count())
        try:
            return tuple(Kind(word) for word in words)
        except ValueError:
            self.fail("a slot has no possible kind")

    def formula(self) -> Formula:
        steps: list[int | Arg | str] = []
        for _ in range(self.below(MAX_STEPS + 1, "length of a formula")):
            code = self.below(2 + len(OPERATOR_NAMES), "operator")
            if code == 0:
                steps.append(self.wide())
            elif code == 1:
                steps.append(Arg(self.word()))
            else:
                steps.append(OPERATOR_NAMES[code - 2])
        return tuple(steps)

    def kernel(self) -> Kernel:
        name = self.string()
        accesses = [Access(1 + self.below(3, "access")) for _ in range(self.count())]
        ints = self.word()
        body = self._body()
        workspace_kind = self.below(3, "workspace")
        workspace = self.formula() if workspace_kind else None
        return Kernel(
            name,
            tuple(accesses),
            ints,
            body,
            workspace,
            workspace_kind == 2,
            self.formula(),
            tuple(self.strings()),
            ordered=self.flag(),
            batch=self._batch(),
        )

    def _batch(self) -> Batch | None:
        kernel = self.word()
        if kernel == 0:
            return None
        return Batch(kernel - 1, tuple(self.word() for _ in range(self.count())))

    def _body(self) -> Body:
        match self.below(6, "body"):
            case 0:
                return ImageBody(
                    tuple(Phase(self.wide(), self.flag()) for _ in range(self.count()))
                )
            case 1:
                return SymbolBody(self.string(), self.flag())
            case 2:
                return HostBody(self.string())
            case 3:
                return FunctionBody(self.string(), self.string(), self.string())
            case 4:
                memory, name = self.word(), self.string()
                phases = [(self.wide(), self.formula()) for _ in range(self.count())]
                return DeviceBody(memory, name, tuple(DevicePhase(f, o) for o, f in phases))
            case _:
                return CopyBody()

    def entry(self) -> Entry:
        name, function = self.string(), self.word()
        count = self.count()
        symbols = self._symbols()
        inputs = tuple(self._spec(1) for _ in range(count))
        count = self.count()
        if self._symbols():
            self.fail("outputs have symbols")
        outputs = tuple(self._spec(1) for _ in range(count))
        requirements = tuple(
            Requirement(self.string(), self.formula()) for _ in range(self.count())
        )
        return Entry(name, function, inputs, outputs, symbols, requirements)

    def _symbols(self) -> tuple[Symbol, ...]:
        return tuple(
            Symbol(self.string(), self.word(), self.word(), self.formula())
            for _ in range(self.count())
        )

    def _spec(self, depth: int) -> Spec:
        if depth > MAX_NESTING + 1:
            self.fail(f"lists and tuples are nested deeper than {MAX_NESTING}")
        name = self.string()
        form = SPEC_FORMS[self.below(len(SPEC_FORMS), "form")]
        if form is TensorSpec:
            dtype = self.dtype()
            dims = [
                Dim(self.string(), self.formula() if self.flag() else None)
                for _ in range(self.rank())
            ]
            return TensorSpec(name, dtype, tuple(dims))
        if form is TupleSpec:
            return TupleSpec(name, tuple(self._spec(depth + 1) for _ in range(self.count())))
        symbols = self._symbols()
        element = Element(self._spec(depth + 1), symbols)
        return ListSpec(name, element) if form is ListSpec else OptionSpec(name, element)
