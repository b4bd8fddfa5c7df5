"""Writes a program as a container; `container` defines the form, `rows` reads what this writes.

The same program gives the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, assert_never

from inlay.arith.deferred import DeferredArray, bytes_of
from inlay.base.files import writing
from inlay.bytecode.container import (
    CONSTANT_ALIGN,
    HEADER,
    MAGIC,
    ROW,
    SECTIONS,
    UNSEALED,
    VERSION,
    Buffer,
    alignment_of,
    up,
)
from inlay.bytecode.formula import OPERATOR_NAMES, Arg, Formula
from inlay.bytecode.isa import DTYPE_CODES
from inlay.bytecode.program import (
    CopyBody,
    DeviceBody,
    FunctionBody,
    HostBody,
    ImageBody,
    MemoryKind,
    Program,
    SymbolBody,
)
from inlay.bytecode.rows import HAS_SIZES, HAS_SPANS, SPEC_FORMS
from inlay.bytecode.spec import ListSpec, OptionSpec, Spec, Symbol, TensorSpec, TupleSpec

_MASK = 0xFFFFFFFF

Piece: TypeAlias = Buffer | DeferredArray
"""Bytes of a file, or what computes them."""


def chunks(program: Program, *, seals: bool = True) -> Iterator[Buffer]:
    """Yield the file piece by piece, without copying constants; those that are deferred one at a time.

    Args:
        program: to be written.
        seals: whether constants get their digest, which takes longer than all else here. Without, the file is
            for this process; `container.sealed` makes one for others of it.
    """
    return map(_bytes, pieces(program, seals=seals))


def pieces(program: Program, *, seals: bool) -> Iterator[Piece]:
    """Yield the pieces of the file, arguments as of `chunks`; constants that are deferred still are."""
    sections = _sections(program)
    table = bytearray()
    offset = HEADER.size + ROW.size * len(sections)
    places: list[int] = []
    for name, alignment, parts in sections:
        offset = up(offset, alignment)
        size = sum(_size(part) for part in parts)
        digest = _digest(parts) if seals or name != "CDAT" else UNSEALED
        table += ROW.pack(name.encode(), alignment, offset, size, 0, digest)
        places.append(offset)
        offset += size
    header = HEADER.pack(MAGIC, VERSION, len(sections), offset, 0, hashlib.sha256(table).digest())
    yield header
    yield bytes(table)
    position = len(header) + len(table)
    for place, (_, _, parts) in zip(places, sections, strict=True):
        if place > position:
            yield bytes(place - position)
        position = place
        for part in parts:
            yield part
            position += _size(part)


def _size(piece: Piece) -> int:
    return piece.nbytes if isinstance(piece, DeferredArray) else len(piece)


def _bytes(piece: Piece) -> Buffer:
    return bytes_of(piece) if isinstance(piece, DeferredArray) else piece


def _digest(pieces: Iterable[Piece]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(_bytes(piece))
    return digest.digest()


def to_bytes(program: Program) -> bytes:
    """Return the whole file."""
    return b"".join(chunks(program))


def save(program: Program, path: Path, inputs: Iterable[Path | str] = ()) -> None:
    """Write the file, but not over inputs; readers see the old file or the new one, never a part."""
    with writing(path, inputs=inputs) as stream:
        for chunk in chunks(program):
            stream.write(chunk)


def _sections(program: Program) -> list[tuple[str, int, list[Piece]]]:
    strings = _Strings(program.strings)
    made: dict[str, list[Piece]] = {
        "META": [_meta(program, strings)],
        "POOL": [b"".join(struct.pack("<q", value) for value in program.pool)],
        "FUNC": [_functions(program, strings)],
        "CODE": [_pack(function.code) for function in program.functions],
        "SMAP": [
            _pack([len(f.spans), *(word for pair in f.spans for word in pair)]) for f in program.functions
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
    return [(name, alignment_of(name), made[name]) for name in SECTIONS]


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
        # A path may hold bytes that are no text; a container's strings are UTF-8.
        encoded = [text.encode(errors="backslashreplace") for text in self._all]
        ends = [0]
        for text in encoded:
            ends.append(ends[-1] + len(text))
        return _pack([len(encoded), *ends]) + b"".join(encoded)


def _meta(program: Program, strings: _Strings) -> bytes:
    words = [strings(program.target.triple), len(program.target.features)]
    words += [strings(name) for name in program.target.features]
    words.append(len(program.memories))
    for m in program.memories:
        kind = tuple(MemoryKind).index(m.kind)
        size = -1 if m.bytes is None else m.bytes
        words += [strings(m.name), kind, *_wide(size), m.alignment]
    words.append(len(program.properties))
    for key in sorted(program.properties):
        words += [strings(key), strings(program.properties[key])]
    return _pack(words)


def _functions(program: Program, strings: _Strings) -> bytes:
    words = [len(program.functions)]
    start = 0
    for f in program.functions:
        words += [strings(f.name), start, len(f.code), f.frame, f.effects]
        words += [len(f.params), *f.params, len(f.results), *f.results]
        start += len(f.code)
    return _pack(words)


def _constants(program: Program) -> bytes:
    words = [len(program.constants)]
    offset = 0
    for c in program.constants:
        size = c.nbytes
        words += [DTYPE_CODES[c.dtype], len(c.dims)]
        for value in (*c.dims, offset, size):
            words += _wide(value)
        words.append(c.memory)
        offset = up(offset + size, CONSTANT_ALIGN)
    return _pack(words)


def _constant_pieces(program: Program) -> Iterator[Piece]:
    for c in program.constants:
        yield c.data if isinstance(c.data, DeferredArray) else c.bytes()
        yield bytes(-c.nbytes % CONSTANT_ALIGN)


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
                    words += [*_wide(phase.offset), phase.pieces if phase.parallel else 0]
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
            words += [1 + k.workspace_per_part + k.workspace_in_port, *_formula(k.workspace)]
        words += _formula(k.cost)
        words += [len(k.assertions), *(strings(message) for message in k.assertions)]
        words.append(int(k.ordered))
        if k.batch is None:
            words.append(0)
        else:
            words += [1 + k.batch.kernel, len(k.batch.shared), *k.batch.shared]
        words.append(HAS_SIZES * bool(k.sizes) + HAS_SPANS * bool(k.spans))
        for size in k.sizes:
            words += _formula(size)
        words += [phase for span in k.spans for phase in span]
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
