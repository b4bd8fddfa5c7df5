"""Memory in pages of its own, which goes back to the system with the last reference to it.

What an allocator frees it keeps for itself where something else lies behind it: weights that are freed one by
one would stay resident until the last one goes.
"""

from __future__ import annotations

import mmap

LARGE = 4 << 20
"""Bytes from which on memory is asked for in large pages: two of x86."""


def pages(size: int) -> mmap.mmap:
    """Return so many bytes, at least one, all zero; in large pages where that pays."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
