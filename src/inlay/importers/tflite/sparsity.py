"""Constants that are stored without their zeros.

A tensor of rank r, of which b axes are cut into blocks, is a tensor of r + b axes: positions of blocks, then
positions inside of them. Its levels are these axes in the order in which they are stored. A level is dense
(all positions), or lists for each entry of the level before it which positions there are.

Source: SparsityParameters in schema.fbs of TensorFlow Lite, version 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_DENSE = 0
_WIDTHS = {1: np.int32, 2: np.uint16, 3: np.uint8}
"""Element types of lists of positions, by the numbers of their tables."""
_NUMBERS = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}


def dense(
    tflite: Any, sparsity: Any, content: bytes, dtype: np.dtype[Any], shape: Sequence[int], most: int
) -> np.ndarray:
    """Return a constant with its zeros.

    Args:
        tflite: the package that reads the format.
        sparsity: how it is stored.
        content: what is stored.
        dtype: of the elements.
        shape: of the tensor.
        most: how many elements it may have.

    Raises:
        ValueError: the file does not fit together, or the tensor is too large.
    """
    rank, blocked = len(shape), [int(sparsity.BlockMap(i)) for i in range(sparsity.BlockMapLength())]
    order = [int(sparsity.TraversalOrder(i)) for i in range(sparsity.TraversalOrderLength())]
    if math.prod(shape) > most:
        raise ValueError(f"a constant without its zeros has {math.prod(shape)} elements")
    if len(set(blocked)) < len(blocked) or not set(blocked) <= set(range(rank)):
        raise ValueError(f"axes {blocked} of a tensor of rank {rank} are cut into blocks")
    levels = [sparsity.DimMetadata(i) for i in range(sparsity.DimMetadataLength())]
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise ValueError(f"levels of storage are the axes {order}")
    blocks = [1] * rank
    for level, axis in zip(levels, order, strict=True):
        if axis >= rank:
            blocks[blocked[axis - rank]] = int(level.DenseSize())
    if any(b < 1 or d % b for d, b in zip(shape, blocks, strict=True)):
        raise ValueError(f"a tensor of shape {list(shape)} is cut into blocks of {blocks}")
    sizes = [d // b for d, b in zip(shape, blocks, strict=True)]
    sizes += [blocks[a] for a in blocked]
    entries, places = 1, np.zeros((len(order), 1), np.int64)
    for level, axis in zip(levels, order, strict=True):
        if level.Format() == _DENSE:
            if int(level.DenseSize()) != sizes[axis]:
                raise ValueError(f"a level has {level.DenseSize()} positions of {sizes[axis]}")
            before = np.repeat(np.arange(entries), sizes[axis])
            at = np.tile(np.arange(sizes[axis]), entries)
        else:
            before, at = _listed(tflite, level, entries, sizes[axis])
        entries = len(at)
        if entries > most:
            raise ValueError(f"a constant has {entries} entries")
        places = places[:, before]
        places[axis] = at
    values = np.frombuffer(content, dtype)
    if len(values) != entries:
        raise ValueError(f"a constant has {len(values)} elements in {entries} places")
    index = [places[a] * blocks[a] for a in range(rank)]
    for i, a in enumerate(blocked):
        index[a] = index[a] + places[rank + i]
    made = np.zeros(tuple(shape), dtype)
    made[tuple(index)] = values
    return made


def _listed(tflite: Any, level: Any, entries: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each position of a level the entry before it, and the position."""
    ends = _numbers(tflite, level.ArraySegmentsType(), level.ArraySegments())
    at = _numbers(tflite, level.ArrayIndicesType(), level.ArrayIndices())
    counts = np.diff(ends)
    if len(ends) != entries + 1 or ends[0] != 0 or np.any(counts < 0) or ends[-1] != len(at):
        raise ValueError(f"{len(at)} positions are cut into {len(ends) - 1} parts for {entries} entries")
    if np.any((at < 0) | (at >= size)):
        raise ValueError(f"a position is not below {size}")
    return np.repeat(np.arange(entries), counts), at


def _numbers(tflite: Any, kind: int, table: Any) -> np.ndarray:
    if kind not in _NUMBERS or table is None:
        raise ValueError("a level without positions")
    vector = getattr(tflite, _NUMBERS[kind])()
    vector.Init(table.Bytes, table.Pos)
    found = vector.ValuesAsNumpy() if vector.ValuesLength() else np.zeros(0, np.int64)
    return np.asarray(found, _WIDTHS[kind]).astype(np.int64)
