"""Tensor expressions over a batch: the same computation for many samples at once.

A group computes `out = f(x, w)` for one sample. Over a batch, tensors that differ from sample to
sample get a leading axis, tensors that all samples share stay as they are:

    y[i, j]    = sum_k x[i, k] * w[k, j]          one sample
    y[b, i, j] = sum_k x[b, i, k] * w[k, j]       a batch that shares w

Every element keeps its formula and its reduction axes, in their order: what a sample gets does not
depend on the batch it is in. What changes is what schedules can do: a product of a row and a matrix
becomes a product of two matrices, and each weight is read once for the whole batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from inlay.arith.expr import Int, Sym, fresh, to_int
from inlay.loop.buffer import Buffer
from inlay.loop.te import Tensor
from inlay.loop.walk import Rewrite


def batch(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], shared: Collection[int], count: Sym
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return a group over `count` samples: its inputs and its outputs.

    Args:
        inputs: the placeholders of the group.
        outputs: its results; in the returned group each has the leading axis `count`.
        shared: positions of the inputs that are the same for all samples.
        count: how many samples there are.

    Cost: linear in the size of the group.
    """
    batched = _Batch(to_int(count))
    for position, t in enumerate(inputs):
        batched.made[t] = t if position in shared else batched.widened(t)
    for t in outputs:
        batched.add(t)
    made = batched.made
    return tuple(made[t] for t in inputs), tuple(batched.varying(made[t], t) for t in outputs)


class _Batch:
    """What each tensor of the group has become; one that depends on no sample is itself."""

    def __init__(self, count: Int) -> None:
        self._count = count
        self.made: dict[Tensor, Tensor] = {}

    def widened(self, t: Tensor) -> Tensor:
        """Return a placeholder with the leading axis."""
        return Tensor(self._buffer(t))

    def varying(self, new: Tensor, old: Tensor) -> Tensor:
        """Return a tensor with the leading axis, though all samples may have the same."""
        if new is not old:
            return new
        axis = fresh("b")
        return Tensor(self._buffer(old), (axis, *old.axes), old.body, old.inputs, old.tag, old.stored)

    def add(self, root: Tensor) -> None:
        """Make a tensor and all it reads; producers first, without recursion."""
        waiting = [root]
        while waiting:
            t = waiting[-1]
            missing = [x for x in t.inputs if x not in self.made]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if t not in self.made:
                self.made[t] = self._compute(t)

    def _compute(self, t: Tensor) -> Tensor:
        inputs = tuple(self.made[x] for x in t.inputs)
        changed = {
            old.buffer: new.buffer for old, new in zip(t.inputs, inputs, strict=True) if new is not old
        }
        if not changed or t.body is None:
            return t
        axis = fresh("b")
        sample = to_int(axis)

        def access(buffer: Buffer, indices: tuple[Int, ...]) -> tuple[Buffer, tuple[Int, ...]]:
            new = changed.get(buffer)
            return (buffer, indices) if new is None else (new, (sample, *indices))

        body = Rewrite(access=access).scalar(t.body)
        return Tensor(self._buffer(t), (axis, *t.axes), body, inputs, t.tag, t.stored)

    def _buffer(self, t: Tensor) -> Buffer:
        return Buffer(t.buffer.name, (self._count, *t.buffer.shape), t.buffer.dtype)
