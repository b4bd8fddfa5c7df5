"""Reading the large initializers of a model file where they lie, before the rest is parsed.

Protobuf holds a model as bytes and once more as messages, and hands out each weight as a copy: three times
the weights at the peak. So the file is walked by the lengths of its fields first. The bytes of each large
initializer are read into an array of their own, and what remains is a small model that says of these tensors
that their data is elsewhere, as models with external data say it:

    ModelProto { 7: GraphProto { 5: TensorProto { 1: dims, 2: element type, 8: name, 9: bytes }, .. }, .. }

What is unusual in any way is left to protobuf: fields that occur twice or lie across their end, tensors with
other data beside the bytes. Nothing is known here of a tensor but how many bytes its file gives it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np
from onnx import TensorProto

from inlay.base.pages import pages

LEAST = 1 << 16
"""Bytes of an initializer that is read apart: below, parsing it costs nothing."""

_BYTES = 2
"""The kind of field that says how many bytes it has."""
_HEAD = 20
"""Bytes of the longest tag with the longest number behind it."""
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _ELEMENT, _NAME, _RAW, _DOC, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 12, 13, 14
_SINGLE = frozenset((_ELEMENT, _NAME, _RAW))
_EXPECTED = frozenset((_DIMS, _ELEMENT, _NAME, _RAW, _DOC))


class _UnusualError(Exception):
    """A file that is left to protobuf."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: its number and kind, and where its tag, its value and the next field begin."""

    number: int
    kind: int
    tag: int
    value: int
    end: int


def read_apart(path: Path, most: int) -> tuple[bytes, dict[str, np.ndarray]] | None:
    """Return a model without its large initializers, and their bytes by the location that it names.

    None where the file is unusual, has no large initializer, or more than `most` bytes.

    Raises:
        OSError: the file cannot be read.
    """
    if sys.byteorder != "little":
        return None
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if not LEAST <= size <= most:
            return None
        try:
            return _Reader(stream).model(size)
        except _UnusualError:
            return None


@dataclass(slots=True)
class _Reader:
    """Walks a file by the lengths of its fields."""

    stream: BufferedReader

    def model(self, size: int) -> tuple[bytes, dict[str, np.ndarray]] | None:
        """Return the small model and the bytes of its large initializers."""
        fields = list(self._fields(0, size))
        graphs = [f for f in fields if f.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BYTES:
            raise _UnusualError
        inside = list(self._fields(graphs[0].value, graphs[0].end))
        large = [f for f in inside if f.number == _INITIALIZER and f.end - f.value >= LEAST]
        found = {f.tag: parts for f in large if (parts := self._tensor(f)) is not None}
        if not found:
            return None
        rest = [self._bytes(a, b) for a, b in _between(inside, found, graphs[0])]
        outside = [self._bytes(0, graphs[0].tag), self._bytes(graphs[0].end, size)]
        prefix = _prefix([*rest, *outside, *(head for head, _ in found.values())])
        graph, data = [rest[0]], dict[str, np.ndarray]()
        for index, ((head, raw), after) in enumerate(zip(found.values(), rest[1:], strict=True)):
            location = f"{prefix}{index}"
            data[location] = self._array(raw)
            graph += [_message(_INITIALIZER, head + _elsewhere(location.encode())), after]
        return outside[0] + _message(_GRAPH, b"".join(graph)) + outside[1], data

    def _tensor(self, tensor: _Field) -> tuple[bytes, _Field] | None:
        """Return an initializer without its bytes, and where these are; None where it is no plain one."""
        if tensor.kind != _BYTES:
            raise _UnusualError
        fields = list(self._fields(tensor.value, tensor.end))
        numbers = [f.number for f in fields]
        if not _EXPECTED.issuperset(numbers) or any(numbers.count(n) != 1 for n in _SINGLE):
            return None
        raw = next(f for f in fields if f.number == _RAW)
        if raw.kind != _BYTES or raw.end - raw.value < LEAST:
            return None
        return self._bytes(tensor.value, raw.tag) + self._bytes(raw.end, tensor.end), raw

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """Yield the fields of a message, in order."""
        at = start
        while at < end:
            head = self._bytes(at, min(at + _HEAD, end))
            tag, here = _number(head, 0)
            value, kind = at + here, tag & 7
            match kind:
                case 0:  # a number
                    after = at + _number(head, here)[1]
                case 1:  # 64 bits
                    after = value + 8
                case 2:  # bytes
                    size, here = _number(head, here)
                    value = at + here
                    after = value + size
                case 5:  # 32 bits
                    after = value + 4
                case _:
                    raise _UnusualError
            if after > end:
                raise _UnusualError
            yield _Field(tag >> 3, kind, at, value, after)
            at = after

    def _bytes(self, start: int, end: int) -> bytes:
        self.stream.seek(start)
        found = self.stream.read(end - start)
        if len(found) != end - start:
            raise _UnusualError
        return found

    def _array(self, raw: _Field) -> np.ndarray:
        """Return bytes of the file, in memory that is given back as soon as nobody has them."""
        memory = pages(raw.end - raw.value)
        self.stream.seek(raw.value)
        if self.stream.readinto(memory) != len(memory):
            raise _UnusualError
        array = np.frombuffer(memory, np.uint8)
        array.flags.writeable = False
        return array


def _between(
    fields: Sequence[_Field], cut: dict[int, tuple[bytes, _Field]], whole: _Field
) -> Iterator[tuple[int, int]]:
    """Yield where what lies before, between and behind some fields of a message begins and ends."""
    start = whole.value
    for f in fields:
        if f.tag in cut:
            yield start, f.tag
            start = f.end
    yield start, whole.end


def _prefix(parts: Sequence[bytes]) -> str:
    """Return the beginning of locations that nothing in a file can name: it does not occur there."""
    prefix = "in the model "
    while any(prefix.encode() in part for part in parts):
        prefix = "-" + prefix
    return prefix


def _elsewhere(location: bytes) -> bytes:
    """Return the fields of a tensor that say where its data is."""
    entry = _message(1, b"location") + _message(2, location)
    return _message(_EXTERNAL, entry) + _varint(_LOCATION << 3) + _varint(TensorProto.EXTERNAL)


def _message(number: int, content: bytes) -> bytes:
    """Return a field that holds bytes."""
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _UnusualError
