"""The `.inlay` file: one program with its native image and constants, in sections with digests.

    file     = header, section table, sections in the order of the table; padding is zero
    header   = magic[8] version:u32 sections:u32 file_bytes:u64 zero:u64 sha256(table)[32]
    row      = id[4] alignment:u32 offset:u64 bytes:u64 zero:u64 sha256(section)[32]

Everything is little-endian. Offsets count from the start of the file. The image and the constants
begin at pages, so that both can be mapped from the file; each constant begins at a multiple of 64.
All other sections but `STRS` are lists of 32-bit words, and a 64-bit number is two words, low
first. `writer` writes the rows of every section and `rows` reads them: the two are their definition.

| id | contents |
|---|---|
| `STRS` | strings: count, count + 1 positions of their ends and starts, UTF-8 bytes |
| `META` | target, memories, properties |
| `POOL` | 64-bit integers |
| `FUNC` | functions: name, kinds, frame size, effects, and their part of `CODE` |
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
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from inlay.bytecode import verify
from inlay.bytecode.program import (
    Constant,
    DeviceRecord,
    Effects,
    Entry,
    Function,
    ImageTarget,
    Kernel,
    Memory,
    MemoryKind,
    Program,
    ShapeCode,
    ShapeInput,
)
from inlay.bytecode.rows import Words, refuse

MAGIC = b"\x89INLAY\r\n"
VERSION = 8
PAGE = 4096
CONSTANT_ALIGN = 64
SECTIONS = tuple("STRS META POOL FUNC CODE SMAP CONS KERN SHAP ENTR DEVS DIMG IMAG CDAT".split())
HEADER = struct.Struct("<8sIIQQ32s")
ROW = struct.Struct("<4sIQQQ32s")

UNSEALED = bytes(32)
"""In place of the digest of constants that nobody has computed yet."""

Buffer: TypeAlias = bytes | bytearray | memoryview


def up(value: int, alignment: int) -> int:
    """Return the next multiple of an alignment."""
    return -(-value // alignment) * alignment


def alignment_of(section: str) -> int:
    """Return the multiple at which a section begins."""
    return {"IMAG": PAGE, "CDAT": PAGE, "POOL": 8}.get(section, 4)


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
                refuse(
                    "digest",
                    f"section {name} is not what was written",
                    hint="copy the file again, or compile the model again",
                )
        self._strings = _read_strings(self.bytes("STRS"))

    @property
    def strings(self) -> Sequence[str]:
        """The strings of the program, then those of the tables."""
        return self._strings

    def bytes(self, name: str) -> memoryview:
        """Return the contents of a section."""
        section = self.sections[name]
        return self.buffer[section.offset : section.offset + section.size]

    def target(self) -> ImageTarget:
        """Return what the image was compiled for."""
        words = self._words("META")
        triple = words.string()
        return ImageTarget(triple, tuple(words.strings()))

    def properties(self) -> dict[str, str]:
        """Return the facts for people, by name."""
        return self._meta()[2]

    def _meta(self) -> tuple[ImageTarget, tuple[Memory, ...], dict[str, str]]:
        """Return the target, the memories, and the properties."""
        words = self._words("META")
        target = ImageTarget(words.string(), tuple(words.strings()))
        memories = tuple([self._memory(words) for _ in range(words.count())])
        properties = {words.string(): words.string() for _ in range(words.count())}
        words.end()
        return target, memories, properties

    def memories(self) -> tuple[Memory, ...]:
        """Return the memories of the machine that the program is for."""
        return self._meta()[1]

    def _memory(self, words: Words) -> Memory:
        name, kind = words.string(), tuple(MemoryKind)[words.below(len(MemoryKind), "kind")]
        size, alignment = words.wide(), words.word()
        return Memory(name, kind, None if size < 0 else size, alignment)

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
            refuse(
                "bytecode", f"the program in the file is wrong: {found[0]}", *(str(f) for f in found[1:10])
            )
        return program

    def _words(self, name: str) -> Words:
        data = self.bytes(name)
        if len(data) % 4:
            refuse("corrupt", f"section {name} has {len(data)} bytes, which are no 32-bit words")
        return Words(name, data, self._strings)

    def _program(self) -> Program:
        target, memories, properties = self._meta()
        pool = self.bytes("POOL")
        if len(pool) % 8:
            refuse("corrupt", f"section POOL has {len(pool)} bytes, which are no 64-bit integers")
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
            effects = Effects(table.below(4, "effects"))
            if start != code.position:
                refuse("corrupt", f"the code of function '{name}' does not follow the one before")
            params, results = table.kinds(), table.kinds()
            words = code.take(size)
            pairs = spans.take(2 * spans.count())
            spanned = tuple(zip(pairs[::2], pairs[1::2]))
            made.append(Function(name, params, results, frame, words, spanned, effects))
        for words in (table, code, spans):
            words.end()
        return tuple(made)

    def devices(self) -> tuple[DeviceRecord, ...]:
        """Return the devices besides the host, with what they are given to run.

        Raises:
            CompileError: `container.corrupt`, `container.truncated`.
        """
        table, data = self._words("DEVS"), self.bytes("DIMG")
        made: list[DeviceRecord] = []
        at = 0
        for _ in range(table.count()):
            names = table.string(), table.string(), table.string()
            memories = table.take(table.count())
            hardware = table.take(len(memories))
            size = table.wide()
            if not 0 <= size <= len(data) - at:
                refuse("corrupt", f"the image of device '{names[0]}' is outside its section")
            image = bytes(data[at : at + size])
            made.append(DeviceRecord(*names, memories, image, hardware if any(hardware) else ()))
            at += up(size, 4)
        table.end()
        if at != len(data):
            refuse("corrupt", "bytes follow the image of the last device")
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
            if offset != up(end, CONSTANT_ALIGN) or size < 0 or offset + size > len(data):
                refuse("corrupt", f"constant {len(made)} does not follow the one before")
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


def sealed(container: Container) -> Iterator[Buffer]:
    """Yield the bytes of a file for other processes: with the digest of its constants."""
    section = container.sections["CDAT"]
    if section.digest != UNSEALED:
        yield container.buffer
        return
    table = container.buffer[HEADER.size : HEADER.size + ROW.size * len(SECTIONS)]
    *rows, (name, alignment, offset, size, zero, _) = ROW.iter_unpack(table)
    last = (name, alignment, offset, size, zero, hashlib.sha256(container.bytes("CDAT")).digest())
    made = b"".join(ROW.pack(*row) for row in (*rows, last))
    magic, version, count, whole, zero, _ = HEADER.unpack(container.buffer[: HEADER.size])
    yield HEADER.pack(magic, version, count, whole, zero, hashlib.sha256(made).digest())
    yield made
    yield container.buffer[HEADER.size + len(made) :]


def _read_table(data: memoryview) -> dict[str, Section]:
    if bytes(data[:8]) != MAGIC:
        refuse(
            "not-inlay",
            "the file does not begin as an .inlay file does",
            hint="give a file that `inlay compile` or `Executable.save` wrote",
        )
    if len(data) < HEADER.size:
        refuse("truncated", f"the file ends after {len(data)} bytes, within its header")
    _, version, count, size, zero, digest = HEADER.unpack(data[: HEADER.size])
    if version != VERSION:
        refuse(
            "version",
            f"the file has format version {version}, this runtime reads {VERSION}",
            hint="compile the model again with this version",
        )
    if size != len(data):
        refuse("truncated", f"the file has {len(data)} bytes, its header says {size}")
    if count != len(SECTIONS) or zero:
        refuse("corrupt", f"the header names {count} sections, not {len(SECTIONS)}")
    end = HEADER.size + count * ROW.size
    table = data[HEADER.size : end]
    if len(table) < count * ROW.size:
        refuse("truncated", "the file ends within its section table")
    if hashlib.sha256(table).digest() != digest:
        refuse("digest", "the section table is not what was written")
    found: dict[str, Section] = {}
    for want, row in zip(SECTIONS, ROW.iter_unpack(table), strict=True):
        name, alignment, offset, bytes_, zero, section_digest = row
        expected = alignment_of(want)
        if name != want.encode() or alignment != expected or zero:
            refuse("corrupt", f"the row of section {want} is malformed")
        if offset != up(end, alignment) or offset + bytes_ > len(data):
            refuse("corrupt", f"section {want} does not follow the one before")
        end = offset + bytes_
        found[want] = Section(want, offset, bytes_, section_digest)
    if end != len(data):
        refuse("corrupt", f"{len(data) - end} bytes follow the last section")
    return found


def _read_strings(data: memoryview) -> list[str]:
    count = int.from_bytes(data[:4], "little")
    start = 4 * (count + 2)
    if len(data) < start:
        refuse("corrupt", "the string table is shorter than it says")
    ends = struct.unpack(f"<{count + 1}I", data[4:start])
    made: list[str] = []
    text = data[start:]
    if ends[0] != 0 or ends[-1] != len(text):
        refuse("corrupt", "the string table does not end where its last string does")
    for a, b in pairwise(ends):
        if a > b:
            refuse("corrupt", f"string {len(made)} ends before it begins")
        try:
            made.append(str(text[a:b], "utf-8"))
        except UnicodeDecodeError:
            refuse("corrupt", f"string {len(made)} is not UTF-8")
    return made
