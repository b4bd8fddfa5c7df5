"""Checks that indices are inside their axes: what keeps a wrong index from a wrong answer.

The kernel of a gather or scatter cannot say which index is wrong, and a test for each element would
keep its loops from vectors. So the question is asked once, before: a kernel finds the least and the
greatest index, which costs one reading of the indices and nothing of the data, and the machine
compares the two with the axis. The pass `check-indices` puts this in front of every operator whose
indices are not known to be inside.

    let ends = index_extremes(index);               // [least, ~greatest]
    let inside = check_indices(index, ends, int(n)); // index, or the program stops
    let y = gather(x, inside);

The greatest is stored as its complement, whose order is the reverse and which never overflows: so
both are one minimum. Without any index both are the greatest integer, which every check accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import I32, I64, U64
from inlay.arith.expr import Int, lit
from inlay.base.diagnostics import error
from inlay.ir.op import Effect, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import INTEGERS, Types
from inlay.ops._samples import ints

_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ColumnsAttrs:
    """`columns`: how many columns, of the last dim, are looked at one by one; 0 takes all as one."""

    columns: int = 0


@dataclass(frozen=True, slots=True)
class IndicesAttrs:
    """`why` is whose indices they are, and begins the message."""

    why: str = ""


def extremes(index: Array, columns: int = 0) -> Array:
    """Return the least and the complement of the greatest index, of all or of each column."""
    wide = np.minimum(index, _MOST) if index.dtype == np.uint64 else index
    wide = wide.astype(np.int64)
    parts = [wide[..., k] for k in range(columns)] if columns else [wide]
    ends = [end for p in parts for end in (p.min(initial=_MOST), (~p).min(initial=_MOST))]
    return np.array(ends, np.int64)


def require_inside(why: str, least: int, greatest: int, size: int) -> None:
    """Refuse indices outside an axis.

    Raises:
        RunError: `run.check-failed`.
    """
    for found in (least, greatest):
        if not -size <= found < size and least <= greatest:
            raise error("run.check-failed", outside(why, found, size))


def outside(why: str, index: int | str, size: int | str) -> str:
    """Return the message for an index outside an axis of a size."""
    return f"{why}: found index {index}, needed one of an axis of {size} elements"


def _extremes_rule(ctx: TypeContext, a: ColumnsAttrs, args: Types) -> TensorType:
    index = rules.tensor(ctx, args, 0, INTEGERS)
    if a.columns and (not index.shape or index.shape[-1] != lit(a.columns)):
        raise ctx.fail(f"found indices that have not {a.columns} columns")
    return TensorType((lit(2 * max(a.columns, 1)),), I64)


def _extremes_reference(a: ColumnsAttrs, index: Array) -> Array:
    return extremes(index, a.columns)


def _extremes_compute(a: ColumnsAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (index,) = operands
    shape = index.shape[: index.ndim - 1] if a.columns else index.shape

    def body(i: Int) -> te.ScalarValue:
        axes = [te.reduce_axis(f"k{d}", n) for d, n in enumerate(shape)]
        v = index[(*axes, i // 2) if a.columns else tuple(axes)]
        v = (te.minimum(v, _MOST) if v.dtype is U64 else v).cast(I64)
        end = te.select(te.index(i % 2).equals(0), v, ~v)
        return te.min_over(axes, end) if axes else end

    return te.compute(result.shape, body, name="extremes")


def _extremes_samples() -> list[Sample]:
    index = ints(3, -1, 4, 1, -5, 9).reshape(3, 2)
    n = (("m", 2),)
    return [
        Sample("all", ColumnsAttrs(), (index,), (("m", "n"),), exact=True),
        Sample("columns", ColumnsAttrs(2), (index,), n, exact=True),
        Sample("i32", ColumnsAttrs(), (index.astype(np.int32),), n, exact=True),
        Sample("u64", ColumnsAttrs(), (np.array([1, 2**64 - 1], np.uint64),), exact=True),
        Sample("one", ColumnsAttrs(), (np.asarray(-7),), exact=True),
        Sample("a tuple", ColumnsAttrs(2), (ints(5, -2),), exact=True),
        Sample("none", ColumnsAttrs(), (index[:0],), n, exact=True),
        Sample("long", ColumnsAttrs(), (np.arange(5000, dtype=I32.numpy) % 997,), (("m",),)),
    ]


def _check_rule(ctx: TypeContext, a: IndicesAttrs, args: Types) -> TensorType:
    index, ends = rules.tensor(ctx, args, 0, INTEGERS), rules.tensor(ctx, args, 1, (I64,))
    for k in range(2, len(args)):
        rules.int_value(ctx, args, k)
    rules.same_shape(ctx, ends, (lit(2 * (len(args) - 2)),), "the least and greatest indices")
    return index


def _check_reference(a: IndicesAttrs, index: Array, ends: Array, *sizes: int) -> Array:
    for k, size in enumerate(sizes):
        require_inside(a.why, int(ends[2 * k]), ~int(ends[2 * k + 1]), size)
    return index


def _check_samples() -> list[Sample]:
    index = ints(3, -1, 4, 1, -4, 4).reshape(3, 2)
    return [
        Sample("one axis", IndicesAttrs("gather"), (index, extremes(index), 5)),
        Sample("two axes", IndicesAttrs("gather_nd"), (index, extremes(index, 2), 5, 6)),
        Sample("none", IndicesAttrs("gather"), (index[:0], extremes(index[:0]), 0)),
    ]


DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "index_extremes",
        ColumnsAttrs,
        _extremes_rule,
        1,
        FusionPattern.REDUCTION,
        "least index and complement of the greatest, of all or of each column of the last dim",
        reference=_extremes_reference,
        compute=_extremes_compute,
        samples=_extremes_samples,
    ),
    define(
        "check_indices",
        IndicesAttrs,
        _check_rule,
        (3, None),
        FusionPattern.CONTROL,
        "the index, if its extremes are inside axes of these sizes, or the program stops",
        reference=_check_reference,
        effect=Effect.FAILS,
        alias=0,
        samples=_check_samples,
    ),
)
