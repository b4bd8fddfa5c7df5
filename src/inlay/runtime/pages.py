"""Memory of executables that were never in a file."""

from __future__ import annotations

import mmap

import numpy as np

from inlay.arith.deferred import DeferredArray
from inlay.base.pages import pages
from inlay.bytecode.writer import Piece


def in_memory(pieces: list[Piece]) -> mmap.mmap:
    """Return memory that holds the pieces, one after the other; some, where there are none.

    Each piece is taken off the list when it has been copied or computed here, so that what nobody else refers
    to is freed: weights are there once, not twice.

    Weights are read from end to end in each call. With small pages the tables that say where these are do
    not stay in caches: ResNet-50 in 8 bits, 25 MB, took 5 percent longer.
    """
    size = max(1, sum(x.nbytes if isinstance(x, DeferredArray) else len(x) for x in pieces))
    memory = pages(size)
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        if isinstance(piece, DeferredArray):
            at = memory.tell()
            piece.write(np.frombuffer(memory, piece.dtype, piece.size, at).reshape(piece.shape))
            memory.seek(at + piece.nbytes)
        else:
            memory.write(piece)
        del piece
    return memory
