"""Layout: the same elements elsewhere. Reshape, transpose, flip, broadcast, tile.

Shapes are control operands (`shape`), so they may be symbolic. Adding and
removing dims of 1 is `reshape`, filling a tensor with one value is `broadcast_to`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arith.dtype import F32, I32
from inlay.arith.expr import Int, floordiv, lit, mod, product
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.ops import _rules as rules
from inlay.ops._build import Array, Ints, element
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import Types
from inlay.ops._samples import noise


@dataclass(frozen=True, slots=True)
class PermAttrs:
    """`perm`: for each axis of the result, the axis of the operand."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AxesAttrs:
    """`axes`: to which the operator applies, in the order of its other operands."""

    axes: tuple[int, ...]


# --------------------------------------------------------------------------- reshape


def _reshape_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, shape = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    for i, d in enumerate(shape):
        ctx.at_least(d, 0, f"dim {i} of the new shape")
    ctx.equal(product(x.shape), product(shape), "elements before and after reshape")
    return TensorType(shape, x.dtype)


def _reshape_reference(a: NoAttrs, x: Array, shape: tuple[int, ...]) -> Array:
    return x.reshape(shape)


def _reshape_compute(a: NoAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    return reshaped(operands[0], result.shape)


def reshaped(x: te.Tensor, shape: Sequence[Int], name: str = "reshape") -> te.Tensor:
    """Return the same elements, in row-major order, in another shape.

    Dims are matched in groups of equal products, so that an index of the result that belongs to
    dims which do not change stays itself: `[b, s, h*d]` to `[b, s, h, d]` divides nothing by `s`.
    """
    groups = _groups(x.shape, shape)

    def body(*i: Int) -> te.ScalarValue:
        at: list[Int] = []
        for (i0, i1), (o0, o1) in groups:
            flat = lit(0)
            for d in range(o0, o1):
                flat = flat * shape[d] + i[d]
            at += _unflatten(flat, x.shape[i0:i1])
        return x[tuple(at)]

    return te.compute(shape, body, name=name)


Span = tuple[int, int]


def _groups(a: Sequence[Int], b: Sequence[Int]) -> list[tuple[Span, Span]]:
    """Cut two shapes of one size into the shortest runs of equal products."""
    found: list[tuple[Span, Span]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        cut = _shortest(a, b, i, j)
        if cut is None:
            found.append(((i, len(a)), (j, len(b))))
            break
        found.append(((i, cut[0]), (j, cut[1])))
        i, j = cut
    return found


def _shortest(a: Sequence[Int], b: Sequence[Int], i: int, j: int) -> Span | None:
    """Return the ends of the shortest runs from i and j with equal products; None if there is none."""
    best: Span | None = None
    left = lit(1)
    for end_a in range(i, len(a) + 1):
        if end_a > i:
            left = left * a[end_a - 1]
        right = lit(1)
        for end_b in range(j, len(b) + 1):
            if end_b > j:
                right = right * b[end_b - 1]
            taken = end_a - i + end_b - j
            if taken and left == right and (best is None or taken < sum(best) - i - j):
                best = (end_a, end_b)
    return best


def _unflatten(flat: Int, dims: Sequence[Int]) -> list[Int]:
    """Return the row-major index of an element by its number."""
    out: list[Int] = []
    for k, d in enumerate(dims):
        inner = floordiv(flat, product(dims[k + 1 :]))
        out.append(lit(0) if d == 1 else inner if k == 0 else mod(inner, d))
    return out


def _reshape_samples() -> list[Sample]:
    x = noise((2, 3, 8), F32, seed="reshape")
    none = NoAttrs()
    return [
        Sample("split", none, (x, (2, 3, 2, 4)), (("b", "s", 8), ("b", "s", 2, 4)), exact=True),
        Sample("merge", none, (x, (6, 8)), (("b", 3, 8), None), exact=True),
        Sample("mix", none, (x, (4, 12)), exact=True),
        Sample("ones", none, (x, (1, 2, 3, 1, 8, 1)), exact=True),
        Sample("flat", none, (x, (48,)), exact=True),
        Sample("to rank 0", none, (x[:1, :1, :1], ()), exact=True),
        Sample("from rank 0", none, (np.asarray(x[0, 0, 0]), (1, 1)), exact=True),
        Sample("empty", none, (x[:0], (3, 0, 5)), exact=True),
        Sample("bools", none, (x > 0, (8, 6)), exact=True),
    ]


# --------------------------------------------------------------------------- transpose, flip


def _transpose_rule(ctx: TypeContext, a: PermAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0)
    if sorted(a.perm) != list(range(len(x.shape))):
        raise ctx.fail(
            f"found perm {a.perm}, needed each axis of rank {len(x.shape)} once", id="type.bad-axis"
        )
    return TensorType(tuple(x.shape[p] for p in a.perm), x.dtype)


def _transpose_reference(a: PermAttrs, x: Array) -> Array:
    return x.transpose(a.perm)


def _transpose_compute(a: PermAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    inverse = [a.perm.index(d) for d in range(x.ndim)]
    return te.compute(
        result.shape, lambda *i: x[tuple(i[inverse[d]] for d in range(x.ndim))], name="transpose"
    )


def _transpose_samples() -> list[Sample]:
    x = noise((2, 3, 4, 5), F32, seed="transpose")
    names = (("a", "b", "c", "d"),)
    return [
        Sample("swap", PermAttrs((1, 0)), (x[0, 0],), (("m", "n"),), exact=True),
        Sample("last first", PermAttrs((0, 3, 1, 2)), (x,), names, exact=True),
        Sample("heads", PermAttrs((0, 2, 1, 3)), (x,), names, exact=True),
        Sample("cycle", PermAttrs((2, 0, 3, 1)), (x,), names, exact=True),
        Sample("same", PermAttrs((0, 1)), (x[0, 0],), (("m", "n"),), exact=True),
        Sample("rank 0", PermAttrs(()), (np.asarray(x[0, 0, 0, 0]),), exact=True),
        Sample("larger", PermAttrs((1, 0)), (noise((37, 50), I32),), (("m", "n"),), exact=True),
    ]


def _flip_rule(ctx: TypeContext, a: AxesAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0)
    rules.axes_of(ctx, a.axes, len(x.shape))
    return x


def _flip_reference(a: AxesAttrs, x: Array) -> Array:
    return np.flip(x, a.axes)


def _flip_compute(a: AxesAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axes = rules.fronts(a.axes, x.ndim)

    def body(*i: Int) -> te.ScalarValue:
        return x[tuple(x.shape[d] - 1 - v if d in axes else v for d, v in enumerate(i))]

    return te.compute(result.shape, body, name="flip")


def _flip_samples() -> list[Sample]:
    x = noise((2, 3, 4), F32, seed="flip")
    return [
        Sample("one", AxesAttrs((-1,)), (x,), (("a", "b", "c"),), exact=True),
        Sample("two", AxesAttrs((0, 1)), (x,), (("a", "b", "c"),), exact=True),
    ]


# --------------------------------------------------------------------------- broadcast, tile


def _broadcast_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, shape = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    for i, d in enumerate(shape):
        ctx.at_least(d, 0, f"dim {i} of the shape")
    return TensorType(rules.broadcast(ctx, (x.shape, shape)), x.dtype)


def _broadcast_reference(a: NoAttrs, x: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))


def _broadcast_compute(a: NoAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    return te.compute(result.shape, lambda *i: element(x, i), name="broadcast_to")


def _broadcast_samples() -> list[Sample]:
    x = noise((3, 1, 4), F32, seed="broadcast")
    none = NoAttrs()
    return [
        Sample("middle", none, (x, (3, 2, 4)), (("a", 1, "c"), ("a", "b", "c")), exact=True),
        Sample("in front", none, (x, (2, 3, 5, 4)), (("a", 1, 4), ("p", "a", "b", 4)), exact=True),
        Sample("both ways", none, (x, (2, 1)), (("a", 1, 4), ("b", 1)), exact=True),
        Sample("fill", none, (np.asarray(x[0, 0, 0]), (2, 3)), ((), ("m", "n")), exact=True),
        Sample("to nothing", none, (x, (3, 0, 4)), (("a", 1, 4), ("a", "b", 4)), exact=True),
    ]


def _tile_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x, repeats = rules.tensor(ctx, args, 0), rules.shape_values(ctx, args, 1)
    if len(repeats) != len(x.shape):
        raise ctx.fail(f"found {len(repeats)} repeats, needed {len(x.shape)}")
    for d, r in enumerate(repeats):
        ctx.at_least(r, 0, f"repeats of axis {d}")
    return TensorType(tuple(d * r for d, r in zip(x.shape, repeats, strict=True)), x.dtype)


def _tile_reference(a: NoAttrs, x: Array, repeats: tuple[int, ...]) -> Array:
    return np.tile(x, repeats)


def _tile_compute(a: NoAttrs, operands: Sequence[Any], result: TensorType) -> te.Tensor:
    x: te.Tensor = operands[0]
    repeats: Ints = operands[1]

    def body(*i: Int) -> te.ScalarValue:
        return x[tuple(v if repeats[d] == 1 else mod(v, x.shape[d]) for d, v in enumerate(i))]

    return te.compute(result.shape, body, name="tile")


def _tile_samples() -> list[Sample]:
    x = noise((2, 1, 3), F32, seed="tile")
    n = ("a", 1, "c")
    return [
        Sample("some", NoAttrs(), (x, (2, 4, 1)), (n, (2, 4, 1)), exact=True),
        Sample("free", NoAttrs(), (x, (1, 2, 3)), (n, ("p", "q", 3)), exact=True),
        Sample("away", NoAttrs(), (x, (2, 0, 1)), exact=True),
    ]


# --------------------------------------------------------------------------- the table

DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "reshape",
        NoAttrs,
        _reshape_rule,
        2,
        FusionPattern.LAYOUT,
        "x with another shape: the same elements in row-major order",
        reference=_reshape_reference,
        compute=_reshape_compute,
        samples=_reshape_samples,
        alias=0,
    ),
    define(
        "transpose",
        PermAttrs,
        _transpose_rule,
        1,
        FusionPattern.LAYOUT,
        "axes in another order: axis d of the result is axis perm[d] of x",
        reference=_transpose_reference,
        compute=_transpose_compute,
        samples=_transpose_samples,
    ),
    define(
        "flip",
        AxesAttrs,
        _flip_rule,
        1,
        FusionPattern.LAYOUT,
        "axes reversed",
        reference=_flip_reference,
        compute=_flip_compute,
        samples=_flip_samples,
    ),
    define(
        "broadcast_to",
        NoAttrs,
        _broadcast_rule,
        2,
        FusionPattern.BROADCAST,
        "x repeated to the common shape of its own and a given one",
        reference=_broadcast_reference,
        compute=_broadcast_compute,
        samples=_broadcast_samples,
    ),
    define(
        "tile",
        NoAttrs,
        _tile_rule,
        2,
        FusionPattern.LAYOUT,
        "x repeated along each axis as often as a shape says",
        reference=_tile_reference,
        compute=_tile_compute,
        samples=_tile_samples,
    ),
)

_OPS = {d.name: d.op for d in DEFINITIONS}
TRANSPOSE, RESHAPE, BROADCAST_TO = _OPS["transpose"], _OPS["reshape"], _OPS["broadcast_to"]
