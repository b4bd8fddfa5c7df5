"""Mapping an image into this process and calling its phases on NumPy arrays.

For tests, benchmarks and tuning; programs run through the C runtime.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from inlay.codegen.image import Image

_PHASE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class MappedImage:
    """An image that can be called; keep it alive while its functions are in use."""

    def __init__(self, image: Image) -> None:
        size = max(len(image.data), 1)
        self._map = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._map.write(image.data)
        self._view = (ctypes.c_char * size).from_buffer(self._map)
        self._base = ctypes.addressof(self._view)
        self.symbols: Mapping[str, int] = image.symbols

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
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(b.ctypes.data for b in buffers))
        values = (ctypes.c_int64 * max(len(ints), 1))(*ints)
        return _PHASE(self._base + self.symbols[symbol])(pointers, values, part, parts)
