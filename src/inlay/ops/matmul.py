"""Matrix products, batched, and the packed form that the schedules are made for.

`matmul` has the meaning of NumPy's: the last two dims multiply, those before broadcast, an operand
of rank 1 is a row on the left and a column on the right. Dense layers and general products are
compositions: `add(matmul(x, transpose(w)), b)`. Narrow floats accumulate in f32.

**Packed weights.** `pack_weights` lays a matrix `[k, n]` out as `[ceil(n / panel), k, panel]`, zeros behind
the last column, so that a kernel reads one panel front to back; `matmul_packed` multiplies by it. Several
matrices `[..., k, n]` are laid out one by one, and multiply as those of `matmul` do. Panels of 16-bit floats
are widened where they are read, under an operand of f32. Constant folding runs the packing when the weights
are constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import BF16, F16, F32, F64, I32
from inlay.arith.expr import Int, ceildiv, floordiv, lit, mod
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import ELEMENTS, NUMBERS, Types
from inlay.ops._samples import noise
from inlay.ops.reduction import then


@dataclass(frozen=True, slots=True)
class PackAttrs:
    """`panel`: columns in a panel, the last dim of the result."""

    panel: int


@dataclass(frozen=True, slots=True)
class PackedAttrs:
    """`panel`: columns in a panel of the right operand; `n`: columns of the result."""

    panel: int
    n: int


# --------------------------------------------------------------------------- matmul


def _rule(ctx: TypeContext, attrs: NoAttrs, args: Types) -> TensorType:
    a, b = rules.tensors(ctx, args, NUMBERS)
    shape = matmul_shape(ctx, a.shape, b.shape)
    return TensorType(shape, a.dtype)


def matmul_shape(ctx: TypeContext, a: tuple[Int, ...], b: tuple[Int, ...]) -> tuple[Int, ...]:
    """Return the shape of a product, and require that the inner dims agree."""
    if not a or not b:
        raise ctx.fail("found an operand of rank 0, needed rank 1 or more", id="type.rank-mismatch")
    rows = b[-2:][0]
    ctx.equal(a[-1], rows, "columns of lhs and rows of rhs")
    batch = rules.broadcast(ctx, (a[:-2], b[:-2]))
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def product(
    a: te.Tensor,
    b: te.Tensor,
    shape: Sequence[Int],
    element: Callable[[te.ScalarValue, te.ScalarValue], te.ScalarValue],
    name: str,
) -> te.Tensor:
    """Return the sum over the inner axis of `element(a, b)`."""

    def body(*i: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", a.shape[-1])
        tail = (a.ndim > 1) + (b.ndim > 1)
        batch = i[: len(i) - tail]
        row = i[len(batch)] if a.ndim > 1 else None
        column = i[-1] if b.ndim > 1 else None
        at_a = (*_batch(a.shape[:-2], batch), *(() if row is None else (row,)), k)
        at_b = (*_batch(b.shape[:-2], batch), k, *(() if column is None else (column,)))
        return te.sum_over(k, element(a[at_a], b[at_b]))

    return te.compute(shape, body, name=name, tag="matmul")


def _batch(dims: Sequence[Int], batch: Sequence[Int]) -> tuple[Int, ...]:
    """Return where an element of a batch is along dims that are broadcast to it."""
    tail = batch[len(batch) - len(dims) :]
    return tuple(lit(0) if d == 1 else i for d, i in zip(dims, tail, strict=True))


def _compute(attrs: NoAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    a, b = operands
    wide = widened(a.dtype)
    y = product(a, b, result.shape, lambda x, y: x.cast(wide) * y.cast(wide), "matmul")
    return y if wide is a.dtype else then(y, lambda v: v.cast(a.dtype), "matmul")


def _reference(attrs: NoAttrs, a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(widen(a), widen(b))).astype(a.dtype)


def _samples() -> list[Sample]:
    none = NoAttrs()
    made = [
        Sample(f"{d}", none, (noise((5, 7), d), noise((7, 4), d)), (("m", "k"), ("k", "n")))
        for d in (F32, F64, F16, BF16, I32)
    ]
    a, b = noise((2, 3, 5, 7), F32, seed="a"), noise((7, 6), F32, seed="b")
    c = noise((3, 7, 6), F32, seed="c")
    return [
        *made,
        Sample("shared right side", none, (a, b), (("p", 3, "m", 7), (7, "n"))),
        Sample("batches", none, (a, c), (("p", "q", "m", "k"), ("q", "k", "n"))),
        Sample("batch of one", none, (a[:, :1], c), (("p", 1, "m", 7), (3, 7, 6))),
        Sample("row", none, (b[:, 0].copy(), b), (("k",), ("k", "n"))),
        Sample("column", none, (a, b[:, 0].copy()), (("p", 3, "m", "k"), ("k",))),
        Sample("dot", none, (b[:, 0].copy(), b[:, 1].copy()), (("k",), ("k",))),
        Sample("rows, batched", none, (b[:, 0].copy(), c), (("k",), ("q", "k", "n"))),
        Sample("larger", none, (noise((33, 70), F32), noise((70, 35), F32)), (("m", "k"), ("k", "n"))),
        Sample("nothing to add", none, (a[..., :0], b[:0]), ((2, 3, "m", "k"), ("k", 6))),
        Sample("no rows", none, (a[..., :0, :], b), ((2, 3, "m", 7), (7, 6))),
    ]


# --------------------------------------------------------------------------- packed


def _pack_rule(ctx: TypeContext, attrs: PackAttrs, args: Types) -> TensorType:
    w = rules.tensor(ctx, args, 0, ELEMENTS)
    rules.least_rank(ctx, w, 2, "the matrix")
    panel = _panel(ctx, attrs.panel)
    return TensorType((*w.shape[:-2], ceildiv(w.shape[-1], panel), w.shape[-2], lit(panel)), w.dtype)


def _panel(ctx: TypeContext, panel: int) -> int:
    if panel < 1:
        raise ctx.fail(f"found panel {panel}, needed at least 1")
    return panel


def pack_reference(attrs: PackAttrs, w: Array) -> Array:
    """Return matrices in panels."""
    *batch, k, n = w.shape
    panels = -(-n // attrs.panel)
    full = np.zeros((*batch, k, panels * attrs.panel), w.dtype)
    full[..., :n] = w
    return np.moveaxis(full.reshape(*batch, k, panels, attrs.panel), -2, -3)


def _pack_compute(attrs: PackAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (w,) = operands

    def body(*i: Int) -> te.ScalarValue:
        *batch, p, k, j = i
        column = p * attrs.panel + j
        inside = inside_panels(column, w.shape[-1], attrs.panel)
        return te.guarded(inside, w[(*batch, k, column)], te.const(0, w.dtype))

    return te.compute(result.shape, body, name="packed")


def inside_panels(index: Int, size: Int, panel: int) -> te.ScalarValue | None:
    """Whether an index into whole panels is in range; None where panels divide the size."""
    return None if mod(size, lit(panel)) == 0 else te.index(index) < te.index(size)


def _packed_rule(ctx: TypeContext, attrs: PackedAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, NUMBERS)
    w = rules.weights_of(ctx, args, x)
    rules.least_rank(ctx, x, 1, "the left operand")
    rules.least_rank(ctx, w, 3, "the packed operand")
    panel = _panel(ctx, attrs.panel)
    *several, panels, terms, columns = w.shape
    if several:
        rules.least_rank(ctx, x, 2, "the left operand of several matrices")
    ctx.equal(x.shape[-1], terms, "columns of lhs and rows of the packed rhs")
    ctx.equal(panels, ceildiv(attrs.n, panel), "panels of the packed rhs")
    ctx.equal(columns, lit(panel), "columns of a panel")
    batch = rules.broadcast(ctx, (x.shape[:-2], tuple(several)))
    return TensorType((*batch, *x.shape[-2:-1], lit(attrs.n)), x.dtype)


def _packed_reference(attrs: PackedAttrs, x: Array, w: Array) -> Array:
    *batch, panels, k, panel = w.shape
    whole = np.moveaxis(widen(w), -3, -2).reshape(*batch, k, panels * panel)[..., : attrs.n]
    return np.asarray(np.matmul(widen(x), whole)).astype(x.dtype)


def _packed_compute(attrs: PackedAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    x, w = operands
    wide, panel = widened(x.dtype), lit(attrs.panel)

    def body(*i: Int) -> te.ScalarValue:
        k = te.reduce_axis("k", x.shape[-1])
        rows = i[-2:-1] if x.ndim > 1 else ()
        batch = i[: len(i) - 1 - len(rows)]
        weight = w[(*_batch(w.shape[:-3], batch), floordiv(i[-1], panel), k, mod(i[-1], panel))]
        return te.sum_over(k, x[(*_batch(x.shape[:-2], batch), *rows, k)].cast(wide) * weight.cast(wide))

    y = te.compute(result.shape, body, name="matmul", tag="matmul_packed")
    return y if wide is x.dtype else then(y, lambda v: v.cast(x.dtype), "matmul")


def _pack_samples() -> list[Sample]:
    several = Sample("of several", PackAttrs(4), (noise((2, 5, 10), F32),), (("b", "k", "n"),), exact=True)
    return [
        *(
            Sample(f"{k}x{n} by {p}", PackAttrs(p), (noise((k, n), F32),), (("k", "n"),), exact=True)
            for k, n, p in ((3, 8, 4), (5, 10, 4), (4, 3, 16), (1, 1, 1), (0, 5, 2))
        ),
        several,
    ]


def _packed_samples() -> list[Sample]:
    made: list[Sample] = []
    cases = (((5, 7), 12, 4), ((2, 3, 9), 10, 8), ((33, 70), 48, 16), ((6,), 5, 4), ((9, 40), 24, 16))
    formats = (F32, BF16, F32, F32, F16)
    for (shape, n, panel), d in zip(cases, formats, strict=True):
        w = pack_reference(PackAttrs(panel), noise((shape[-1], n), d, seed="w"))
        rows = tuple(f"m{i}" for i in range(len(shape) - 1))
        made.append(
            Sample(
                f"{shape} to {n} by {panel} of {d}",
                PackedAttrs(panel, n),
                (noise(shape, F32), w),
                ((*rows, "k"), (w.shape[0], "k", panel)),
            )
        )
    for batch, left in (((3,), (3, 5)), ((3,), (5,)), ((3,), (2, 1, 5)), ((2, 1), (2, 3, 5)), ((3,), (3, 1))):
        w = pack_reference(PackAttrs(8), noise((*batch, 9, 20), F32, seed="w"))
        x = noise((*left, 9), F32)
        made.append(Sample(f"{left} by {batch} matrices", PackedAttrs(8, 20), (x, w)))
    return made


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "matmul",
        NoAttrs,
        _rule,
        2,
        FusionPattern.CONTRACTION,
        "matrix product, as NumPy's matmul",
        reference=_reference,
        compute=_compute,
        samples=_samples,
        terms=lambda _, x, w: x.shape[-1],
    ),
    define(
        "pack_weights",
        PackAttrs,
        _pack_rule,
        1,
        FusionPattern.LAYOUT,
        "[..., k, n] as panels of columns [..., ceil(n/panel), k, panel], zeros behind the last",
        reference=pack_reference,
        compute=_pack_compute,
        samples=_pack_samples,
    ),
    define(
        "matmul_packed",
        PackedAttrs,
        _packed_rule,
        2,
        FusionPattern.CONTRACTION,
        "[..., k] times packed panels [ceil(n/panel), k, panel], to [..., n]; of several matrices, "
        "as matmul of several",
        reference=_packed_reference,
        compute=_packed_compute,
        samples=_packed_samples,
        form_of="matmul",
        terms=lambda _, x, w: w.shape[-2],
    ),
)
