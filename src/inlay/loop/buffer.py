"""Buffers of the loop IR: what loads and stores address.

A scope says where the bytes are while the kernel runs. It is the name of a memory of the board, which is
obeyed or refused, or one of these constraints:

* `PARAM`: the caller gives it (a port of the kernel).
* `WORKSPACE`: any memory that is no stack: scratch memory of the kernel, one per part of a parallel loop
  when `per_part`.
* `STACK`: a small fixed-size temporary in the frame of the function.
* `REGISTER`: a small fixed-size temporary that lives in registers: after unrolling, every index is
  a number (plus a vector loop's variable with stride one), so that it needs no address.
* `MATRIX`: sums in the registers of a matrix unit; only `MATRIX` loops touch them.

To a schedule, which does not know how much room there is, the last four are preferences: lowering puts
what does not fit one step further out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from inlay.arith.divisions import rejoined
from inlay.arith.dtype import DType
from inlay.arith.expr import Int, lit


class Scope(str):
    """Where a buffer's bytes are: one of the constraints below, or the name of a memory."""

    __slots__ = ()
    PARAM: ClassVar[Scope]
    WORKSPACE: ClassVar[Scope]
    STACK: ClassVar[Scope]
    REGISTER: ClassVar[Scope]
    MATRIX: ClassVar[Scope]

    @property
    def is_memory(self) -> bool:
        """Whether it names a memory."""
        return self not in (Scope.PARAM, Scope.WORKSPACE, Scope.STACK, Scope.REGISTER, Scope.MATRIX)

    @property
    def is_scratch(self) -> bool:
        """Whether lowered functions have such buffers as workspaces."""
        return self == Scope.WORKSPACE or self.is_memory


Scope.PARAM = Scope("param")
Scope.WORKSPACE = Scope("workspace")
Scope.STACK = Scope("stack")
Scope.REGISTER = Scope("register")
Scope.MATRIX = Scope("matrix")


_AT_THE_BEGINNING = lit(0)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A multi-dimensional array in one memory. Identity is the object.

    Attributes:
        name: for people and for text form (unique within a function).
        shape: extents.
        dtype: element format; booleans occupy one byte in memory.
        scope: where the bytes are.
        strides: distance between neighbors of each axis, in elements; None = row-major, dense.
        per_part: whether each part of a parallel loop has one.
        first: elements before the first one, from where the caller says that the buffer begins: a window
            of a larger tensor is given that tensor.
    """

    name: str
    shape: tuple[Int, ...]
    dtype: DType
    scope: Scope = Scope.PARAM
    strides: tuple[Int, ...] | None = None
    per_part: bool = False
    first: Int = _AT_THE_BEGINNING


def flat_index(b: Buffer, indices: tuple[Int, ...]) -> Int:
    """Return the distance of an element from where its buffer begins, in elements.

    Of a loop over several axes, neighbors are seen to be next to each other.
    """
    strides = b.strides
    if strides is None:
        steps = [lit(1)]
        for extent in reversed(b.shape[1:]):
            steps.append(steps[-1] * extent)
        strides = tuple(reversed(steps))
    total = b.first
    for index, stride in zip(indices, strides, strict=False):
        total = total + index * stride
    return rejoined(total)
