"""Calling the phases of an image for another processor, which QEMU emulates.

Each call is a program of its own: what enters the image, the image, and the arrays at a fixed address,
as an ELF file. It writes the arrays to its output and ends. So nothing is linked or
installed but the emulator.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inlay.codegen.image import Image
from tests.system import need

EMULATOR = "qemu-aarch64"
"""The command: it has all features of the architecture that LLVM uses here."""

_START, _CODE, _DATA, _PAGE = 0x10000000, 0x11000000, 0x20000000, 0x10000
_HEAD = struct.Struct("<6Q")  # phase, pointers, integers, part, parts, bytes of data
_ALIGNED = 64

_ENTER = (
    0xD2A40013,  # mov x19, #0x20000000: the data
    0xA9400269,  # ldp x9, x0, [x19]: phase, pointers
    0xA9410A61,  # ldp x1, x2, [x19, #16]: integers, part
    0xA9425263,  # ldp x3, x20, [x19, #32]: parts, bytes of data
    0xD63F0120,  # blr x9
    0xF9000260,  # str x0, [x19]: the status
    0xD2800808,  # mov x8, #64: write(1, data, bytes)
    0xD2800020,  # mov x0, #1
    0xAA1303E1,  # mov x1, x19
    0xAA1403E2,  # mov x2, x20
    0xD4000001,  # svc #0
    0xD2800BA8,  # mov x8, #93: exit(0)
    0xD2800000,  # mov x0, #0
    0xD4000001,  # svc #0
)
"""Enters a phase. The calls are those of Linux on Arm."""


class EmulatedImage:
    """An image for Arm that can be called like a `MappedImage`."""

    def __init__(self, image: Image) -> None:
        need(EMULATOR)
        assert image.arch == "aarch64"
        self._image = image

    def call(
        self,
        symbol: str,
        buffers: Sequence[np.ndarray],
        ints: Sequence[int] = (),
        part: int = 0,
        parts: int = 1,
    ) -> int:
        """Run one part of a phase; arrays must be contiguous. Return its status."""
        assert all(b.flags.c_contiguous for b in buffers), "kernels take dense arrays"
        table = _HEAD.size + 8 * len(buffers)
        places, size = [], _up(table + 8 * len(ints), _ALIGNED)
        for b in buffers:
            places.append(size)
            size = _up(size + b.nbytes, _ALIGNED)
        phase = _CODE + self._image.symbols[symbol]
        data = bytearray(size)
        _HEAD.pack_into(data, 0, phase, _DATA + _HEAD.size, _DATA + table, part, parts, size)
        struct.pack_into(f"<{len(places)}Q", data, _HEAD.size, *(_DATA + p for p in places))
        struct.pack_into(f"<{len(ints)}q", data, table, *ints)
        for p, b in zip(places, buffers, strict=True):
            data[p : p + b.nbytes] = b.tobytes()
        found = self._run(bytes(data))
        for p, b in zip(places, buffers, strict=True):
            if b.flags.writeable:
                b[...] = np.frombuffer(found, b.dtype, b.size, p).reshape(b.shape)
        return struct.unpack_from("<q", found)[0]

    def _run(self, data: bytes) -> bytes:
        enter = struct.pack(f"<{len(_ENTER)}I", *_ENTER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program"
            path.write_bytes(_elf([(_START, 5, enter), (_CODE, 5, self._image.data), (_DATA, 6, data)]))
            path.chmod(0o700)
            done = subprocess.run([EMULATOR, path], capture_output=True, check=True)
        assert len(done.stdout) == len(data), done.stderr
        return done.stdout


def _elf(segments: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Return an executable for Arm that starts with its first segment: address, flags and bytes of each."""
    entry = segments[0][0]
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 183, 1, entry, 64, 0, 0, 64, 56, len(segments), 0, 0, 0
    )
    table, content, at = b"", b"", _PAGE
    for address, flags, data in segments:
        table += struct.pack("<IIQQQQQQ", 1, flags, at, address, address, len(data), len(data), _PAGE)
        padded = data.ljust(_up(len(data), _PAGE), b"\0")
        content, at = content + padded, at + len(padded)
    return (head + table).ljust(_PAGE, b"\0") + content


def _up(n: int, step: int) -> int:
    return -(-n // step) * step
