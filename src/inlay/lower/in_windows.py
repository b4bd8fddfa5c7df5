"""Kernels whose operands and result lie in larger tensors: the same loops, other addresses.

    schedulable func f(x: f32[n, 64]) -> (y: f32[n, 32])

with its operand at column 16 of a tensor of 96 columns and its result at column 64 of the same becomes

    schedulable func f(x: f32[n, 64] strides [96, 1] first 16, whole: f32[n, 96])
                   -> (y: f32[n, 32] strides [96, 1] first 64)

Callers give the larger tensors. Nests and indices stay as they are, so that a kernel is scheduled as if its
tensors were dense; but for axes that can be one only where rows lie one behind the other.

A result in a larger tensor is one of the parts of which that consists. From the second part on, the tensor is
an operand, too, which is what puts parts in order; the code does not touch it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from inlay.arith.expr import Int, lit
from inlay.loop.buffer import Buffer
from inlay.loop.func import LoopFunction
from inlay.loop.walk import Rewrite


@dataclass(frozen=True, slots=True)
class Window:
    """Where a tensor lies in a larger one that has its shape but for one axis.

    Attributes:
        axis: along which it is a part.
        first: its first index there.
        extent: of the larger tensor along the axis.
    """

    axis: int
    first: int
    extent: int

    def shape(self, part: tuple[Int, ...]) -> tuple[Int, ...]:
        """Return the shape of the larger tensor."""
        return (*part[: self.axis], lit(self.extent), *part[self.axis + 1 :])

    def text(self) -> str:
        """Return it for keys."""
        return f"{self.axis}:{self.first}/{self.extent}"


@dataclass(frozen=True, slots=True)
class Windows:
    """Which tensors of a kernel lie in larger ones.

    Attributes:
        reads: by position among the operands.
        result: of the only result.
        continues: whether other parts of what the result is in are there already.
    """

    reads: Mapping[int, Window] = field(default_factory=dict[int, Window])
    result: Window | None = None
    continues: bool = False

    def text(self) -> str:
        """Return it for keys."""
        reads = " ".join(f"{i}={w.text()}" for i, w in sorted(self.reads.items()))
        result = "" if self.result is None else f"{self.result.text()} {self.continues}"
        return f"({reads}) -> ({result})"


def in_windows(f: LoopFunction, windows: Windows) -> LoopFunction:
    """Return a function of dense tensors for tensors in larger ones; it has one result."""
    *operands, result = f.params
    reads = [_placed(b, windows.reads.get(i)) for i, b in enumerate(operands)]
    write = _placed(result, windows.result)
    moved = {a: b for a, b in zip(f.params, (*reads, write), strict=True) if a is not b}
    if windows.continues:
        assert windows.result is not None, "a part continues what it is in"
        reads.append(Buffer(_other("whole", f), windows.result.shape(result.shape), result.dtype))
    body = Rewrite(buffers=moved).stmt(f.body)
    return replace(f, params=(*reads, write), n_reads=len(reads), body=body)


def _placed(b: Buffer, window: Window | None) -> Buffer:
    if window is None:
        return b
    steps = [lit(1)]
    for extent in reversed(window.shape(b.shape)[1:]):
        steps.append(steps[-1] * extent)
    strides = tuple(reversed(steps))
    return replace(b, strides=strides, first=strides[window.axis] * window.first)


def _other(name: str, f: LoopFunction) -> str:
    taken = {b.name for b in f.params}
    while name in taken:
        name += "_"
    return name
