"""Buffers of the loop IR: what loads and stores address.

Scopes say who holds the bytes while the kernel runs:

* `PARAM`: the caller gives it (a port of the kernel).
* `WORKSPACE`: scratch memory of the kernel, one per part of a parallel loop when `per_part`.
* `STACK`: a small fixed-size temporary in the frame of the function.
* `REGISTER`: a small fixed-size temporary that lives in registers: after unrolling, every index is
  a number (plus a vector loop's variable with stride one), so that it needs no address.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inlay.arith.dtype import DType
from inlay.arith.expr import Int, lit


class Scope(StrEnum):
    """Who holds a buffer's bytes."""

    PARAM = "param"
    WORKSPACE = "workspace"
    STACK = "stack"
    REGISTER = "register"


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A multi-dimensional array in one memory. Identity is the object.

    Attributes:
        name: for people and for text form (unique within a function).
        shape: extents.
        dtype: element format; booleans occupy one byte in memory.
        scope: who holds the bytes.
        strides: distance between neighbors of each axis, in elements; None = row-major, dense.
    """

    name: str
    shape: tuple[Int, ...]
    dtype: DType
    scope: Scope = Scope.PARAM
    strides: tuple[Int, ...] | None = None
    per_part: bool = False


def flat_index(b: Buffer, indices: tuple[Int, ...]) -> Int:
    """Return the distance of an element from the first, in elements."""
    strides = b.strides
    if strides is None:
        steps = [lit(1)]
        for extent in reversed(b.shape[1:]):
            steps.append(steps[-1] * extent)
        strides = tuple(reversed(steps))
    total = lit(0)
    for index, stride in zip(indices, strides, strict=False):
        total = total + index * stride
    return total
