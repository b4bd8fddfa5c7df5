"""A small linker: relocatable ELF objects to one position-independent image.

The image is bytes that run wherever they are mapped readable and executable: code and constants,
everything addressed relative to the instruction, nothing to resolve at load time, no writable data.
What cannot be so is refused: writable or thread-local sections, absolute addresses, undefined
symbols, and relocation kinds that are not in the tables here.

Sources: ELF gABI chapters 4 and 5; x86-64 psABI 1.0 section 4.4; ELF for the Arm 64-bit
Architecture, section 5.7.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import InternalError

CODE_ALIGNMENT = 64

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 1, 2, 4, 8
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS = 1, 2, 4, 0x400
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
_MACHINES = {62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True, slots=True)
class Image:
    """Linked code.

    Attributes:
        data: the bytes; alignment of the place they are mapped to must be at least 64.
        symbols: offset of each exported function.
        arch: `x86_64` or `aarch64`.
        features: processor features that the code needs.
    """

    data: bytes
    symbols: dict[str, int]
    arch: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class _Relocation:
    offset: int
    kind: int
    symbol: int
    addend: int


class _Object:
    """One parsed object file."""

    def __init__(self, data: bytes, where: str) -> None:
        self.where = where
        if data[:6] != b"\x7fELF\x02\x01":
            raise InternalError("not a little-endian 64-bit ELF object", where=where)
        machine = struct.unpack_from("<H", data, 18)[0]
        if machine not in _MACHINES:
            raise InternalError(f"ELF machine {machine} is not known", where=where)
        self.arch = _MACHINES[machine]
        start, size, count, names = (
            struct.unpack_from("<Q", data, 40)[0],
            *struct.unpack_from("<HHH", data, 58),
        )
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
        table = data[raw[names][4] : raw[names][4] + raw[names][5]]
        self.sections: list[_Section] = []
        for name, type, flags, _, offset, length, link, info, align, _ in raw:
            content = b"" if type == _SHT_NOBITS else data[offset : offset + length]
            text = _string(table, name)
            self.sections.append(_Section(text, type, flags, content, length, link, info, max(align, 1)))
        self.symbols = self._read_symbols()

    def _read_symbols(self) -> list[_Symbol]:
        tables = [s for s in self.sections if s.type == _SHT_SYMTAB]
        if not tables:
            return []
        [table] = tables
        names = self.sections[table.link].data
        out: list[_Symbol] = []
        for i in range(0, len(table.data), 24):
            name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", table.data, i)
            out.append(_Symbol(_string(names, name), section, value, info >> 4 != 0))
        return out

    def loaded(self) -> list[int]:
        """Return the sections that are part of the image, code first."""
        kept = [i for i, s in enumerate(self.sections) if s.flags & _SHF_ALLOC and s.size]
        for i in kept:
            s = self.sections[i]
            if s.flags & (_SHF_WRITE | _SHF_TLS) or s.type != _SHT_PROGBITS:
                raise InternalError(
                    f"section {s.name} (type {s.type}, flags {s.flags:#x}) cannot be in an image "
                    "without writable data",
                    where=self.where,
                )
        return sorted(kept, key=lambda i: not self.sections[i].flags & _SHF_EXEC)

    def relocations(self) -> list[tuple[int, _Relocation]]:
        """Return the relocations of loaded sections."""
        out: list[tuple[int, _Relocation]] = []
        for s in self.sections:
            if s.type != _SHT_RELA or not self.sections[s.info].flags & _SHF_ALLOC:
                continue
            for i in range(0, len(s.data), 24):
                offset, info, addend = struct.unpack_from("<QQq", s.data, i)
                out.append((s.info, _Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)))
        return out


def link(
    objects: Sequence[tuple[str, bytes]], features: Sequence[str] = (), base: Image | None = None
) -> Image:
    """Merge objects into one image.

    Args:
        objects: a name and the bytes of each object, in the order of the image. Function `f` of
            object `o` is exported as `o.f`. Equal objects are in the image once.
        features: processor features that the code was compiled for.
        base: an image that the objects are put behind; what it has stays where it is.

    Raises:
        InternalError: an object needs what an image cannot have; the message names the relocation,
            section or symbol.
    """
    out = bytearray(base.data if base else b"")
    placed: dict[bytes, dict[str, int]] = {}
    exported = dict(base.symbols) if base else {}
    arches: dict[str, None] = {base.arch: None} if base and base.arch else {}
    for name, data in objects:
        functions = placed.get(data)
        if functions is None:
            parsed = _Object(data, name)
            arches[parsed.arch] = None
            functions = placed[data] = _place(out, parsed)
        exported.update((f"{name}.{symbol}", offset) for symbol, offset in functions.items())
    if len(arches) > 1:
        raise InternalError(f"objects for {' and '.join(arches)} in one image", where="codegen.image")
    out += b"\0" * (-len(out) % CODE_ALIGNMENT)
    return Image(bytes(out), exported, next(iter(arches), ""), tuple(features))


def _place(out: bytearray, o: _Object) -> dict[str, int]:
    """Append the sections of an object, resolve its relocations, return its functions."""
    place: dict[int, int] = {}
    for i in o.loaded():
        section = o.sections[i]
        align = max(section.align, CODE_ALIGNMENT if section.flags & _SHF_EXEC else 1)
        out += b"\0" * (-len(out) % align)
        place[i] = len(out)
        out += section.data
    apply = _apply_x86 if o.arch == "x86_64" else _apply_aarch64
    for section, relocation in o.relocations():
        target = _address(o, o.symbols[relocation.symbol], place) + relocation.addend
        apply(out, place[section] + relocation.offset, relocation.kind, target, o.where)
    return {s.name: place[s.section] + s.value for s in o.symbols if s.is_global and s.section in place}


def _address(o: _Object, s: _Symbol, place: dict[int, int]) -> int:
    if s.section in place:
        return place[s.section] + s.value
    what = {_SHN_UNDEF: "undefined", _SHN_ABS: "absolute"}.get(s.section, "unplaced")
    raise InternalError(f"{what} symbol {s.name!r} in compiled code", where=o.where)


def _apply_x86(out: bytearray, at: int, kind: int, target: int, where: str) -> None:
    # PC32, PLT32: a 32-bit distance. All symbols are in the image, so no table is needed.
    if kind in (2, 4):
        _fit(target - at, 32, where)
        struct.pack_into("<i", out, at, target - at)
    elif kind == 24:  # PC64
        struct.pack_into("<q", out, at, target - at)
    else:
        raise InternalError(f"relocation R_X86_64 number {kind} is not known", where=where)


def _apply_aarch64(out: bytearray, at: int, kind: int, target: int, where: str) -> None:
    if kind == 261:  # PREL32
        _fit(target - at, 32, where)
        struct.pack_into("<i", out, at, target - at)
        return
    word = struct.unpack_from("<I", out, at)[0]
    if kind in (282, 283):  # JUMP26, CALL26
        _fit(target - at, 28, where)
        word = (word & 0xFC000000) | ((target - at) >> 2 & 0x03FFFFFF)
    elif kind == 275:  # ADR_PREL_PG_HI21: pages, so the image must be mapped at a page
        pages = (target >> 12) - (at >> 12)
        _fit(pages, 21, where)
        word = (word & 0x9F00001F) | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind == 277:  # ADD_ABS_LO12_NC
        word = (word & ~(0xFFF << 10)) | (target & 0xFFF) << 10
    elif kind in _AARCH64_LDST:
        word = (word & ~(0xFFF << 10)) | ((target & 0xFFF) >> _AARCH64_LDST[kind]) << 10
    else:
        raise InternalError(f"relocation R_AARCH64 number {kind} is not known", where=where)
    struct.pack_into("<I", out, at, word)


# LDST{8,16,32,64,128}_ABS_LO12_NC: the offset in units of the access.
_AARCH64_LDST = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}


def _fit(value: int, bits: int, where: str) -> None:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise InternalError(f"a distance of {value} bytes does not fit a relocation", where=where)


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()
