"""Reductions over axes, arg-reductions, and running sums.

`axes` may be negative and may be empty (then nothing is reduced, but the value is still mapped:
`reduce_l2` of no axes is the magnitude). The result has the element type of the operand. A maximum
or minimum of no elements is the least or greatest value of the type (infinite for floats); a sum of
none is 0, a product 1, a mean NaN (0 for integers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType, from_numpy
from inlay.arith.expr import Int, floordiv, fresh, lit, product, to_int
from inlay.ir.op import TypeContext
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import IntrinsicOp, Load, ReduceOp, UnaryOp
from inlay.loop.stmt import Alloc, For, LoopKind, Seq, Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops._build import Array, highest, lowest, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, define
from inlay.ops._rules import BOOLS, FLOATS, NUMBERS, Types
from inlay.ops._samples import noise

Domain = tuple[DType, ...]
Numpy = Callable[[Array, tuple[int, ...], bool], Array]
"""`(x, axes, keepdims)` to the reduced array."""


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """`axes`: reduced; `keepdims`: whether they stay as dims of 1."""

    axes: tuple[int, ...]
    keepdims: bool = False


@dataclass(frozen=True, slots=True)
class ArgReduceAttrs:
    """`axis`: searched; `keepdims`: whether it stays as 1; `last`: the last of equals, not first."""

    axis: int
    keepdims: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class CumulativeAttrs:
    """`axis`: runs along; `exclusive`: without the element itself; `reverse`: from the end."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


def reduced_shape(shape: Sequence[Int], axes: Sequence[int], *, keepdims: bool) -> tuple[Int, ...]:
    """Return the shape after reducing axes counted from the front."""
    if keepdims:
        return tuple(lit(1) if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def reduce(
    x: te.Tensor,
    axes: Sequence[int],
    op: ReduceOp,
    element: Callable[[te.ScalarValue], te.ScalarValue] = lambda v: v,
    *,
    keepdims: bool,
    name: str,
    tag: str = "",
) -> te.Tensor:
    """Combine `element(x[...])` over axes counted from the front, in the order of the axes."""
    shape = reduced_shape(x.shape, axes, keepdims=keepdims)

    def body(*i: Int) -> te.ScalarValue:
        over = {a: te.reduce_axis(f"r{a}", x.shape[a]) for a in axes}
        rest = iter([v for d, v in enumerate(i) if d not in axes] if keepdims else i)
        at = [over[d] if d in over else next(rest) for d in range(x.ndim)]
        value = element(x[tuple(at)])
        return te.reduce_over(op, [over[a] for a in axes], value) if axes else value

    return te.compute(shape, body, name=name, tag=tag)


def then(x: te.Tensor, f: Callable[[te.ScalarValue], te.ScalarValue], name: str) -> te.Tensor:
    """Map every element."""
    return te.compute(x.shape, lambda *i: f(x[i]), name=name)


def _rule(ctx: TypeContext, attrs: ReduceAttrs, x: TensorType) -> TensorType:
    axes = rules.axes_of(ctx, attrs.axes, len(x.shape))
    return TensorType(reduced_shape(x.shape, axes, keepdims=attrs.keepdims), x.dtype)


def _reduction(
    name: str,
    doc: str,
    op: ReduceOp,
    numpy: Numpy,
    *,
    before: Callable[[te.ScalarValue], te.ScalarValue] = lambda v: v,
    after: Callable[[te.ScalarValue], te.ScalarValue] | None = None,
    domain: Domain = NUMBERS,
) -> OpDef:
    """Make a reduction: `after(combine(before(x)))`, in the widened format of floats.

    `numpy(x, axes, keepdims)` is the meaning on widened arrays.
    """

    def rule(ctx: TypeContext, a: ReduceAttrs, args: Types) -> TensorType:
        return _rule(ctx, a, rules.tensor(ctx, args, 0, domain))

    def reference(a: ReduceAttrs, x: Array) -> Array:
        axes = rules.fronts(a.axes, x.ndim)
        return np.asarray(numpy(widen(x), axes, a.keepdims)).astype(x.dtype)

    def compute(a: ReduceAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
        (x,) = operands
        wide = widened(x.dtype)
        total = reduce(
            x,
            rules.fronts(a.axes, x.ndim),
            op,
            lambda v: before(v.cast(wide)),
            keepdims=a.keepdims,
            name=name,
        )
        if after is None and wide is x.dtype:
            return total
        return then(total, lambda v: (after(v) if after else v).cast(x.dtype), name)

    return define(
        name,
        ReduceAttrs,
        rule,
        1,
        FusionPattern.REDUCTION,
        doc,
        reference=reference,
        compute=compute,
        samples=lambda: _samples(domain),
    )


def _samples(domain: Domain) -> list[Sample]:
    made: list[Sample] = []
    for d in (F32, F64, F16, BF16, I32, U8, BOOL):
        if d in domain:
            x = noise((2, 3, 5), d, seed="reduce")
            made += [
                Sample(f"last {d}", ReduceAttrs((-1,)), (x,), (("a", "b", "c"),)),
                Sample(f"middle {d}", ReduceAttrs((1,), keepdims=True), (x,), (("a", "b", 5),)),
            ]
    d = F32 if F32 in domain else BOOL
    x = noise((3, 4, 2, 3), d, seed="reduce4")
    made += [
        Sample("all", ReduceAttrs((0, 1, 2, 3)), (x,), (("a", "b", "c", "d"),)),
        Sample("two", ReduceAttrs((-1, 1)), (x,), (("a", "b", 2, "d"),)),
        Sample("none", ReduceAttrs(()), (x,), (("a", "b", 2, "d"),)),
        Sample("empty", ReduceAttrs((1,)), (x[:, :0],), (("a", "b", 2, 3),)),
        Sample("rank 0", ReduceAttrs(()), (np.asarray(x[0, 0, 0, 0]),)),
    ]
    if F32 in domain:
        special = np.array([[1, np.nan, 2], [np.inf, 1, -np.inf], [-np.inf] * 3, [88, 89, 90]])
        made.append(Sample("special", ReduceAttrs((1,)), (special.astype(np.float32),)))
    return made


# --------------------------------------------------------------------------- mean, log-sum-exp


def mean_stage(
    x: te.Tensor,
    axes: Sequence[int],
    element: Callable[[te.ScalarValue], te.ScalarValue] = lambda v: v,
    *,
    keepdims: bool,
    name: str,
) -> te.Tensor:
    """Return the mean of `element(x[...])` in the widened format, as a sum and a product."""
    wide = widened(x.dtype)
    total = reduce(
        x, axes, ReduceOp.SUM, lambda v: element(v.cast(wide)), keepdims=keepdims, name=name + "_sum"
    )
    count = product(x.shape[a] for a in axes)
    return then(total, lambda v: v / te.index(count, wide), name)


def _mean_reference(a: ReduceAttrs, x: Array) -> Array:
    axes = rules.fronts(a.axes, x.ndim)
    count = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    if from_numpy(x.dtype).is_float:
        total = _np_sum(widen(x), axes, a.keepdims)
        return np.asarray(total / total.dtype.type(count)).astype(x.dtype)
    total = np.asarray(x.astype(np.int64).sum(axes, keepdims=a.keepdims))
    down = total // max(count, 1)
    return np.asarray(down + ((total < 0) & (total != down * max(count, 1)))).astype(x.dtype)


def _mean_compute(a: ReduceAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axes = rules.fronts(a.axes, x.ndim)
    if x.dtype.is_float:
        mean = mean_stage(x, axes, keepdims=a.keepdims, name="mean")
        return mean if mean.dtype is x.dtype else then(mean, lambda v: v.cast(x.dtype), "mean")
    total = reduce(x, axes, ReduceOp.SUM, lambda v: v.cast(I64), keepdims=a.keepdims, name="mean_sum")
    # An empty sum is 0, so dividing it by 1 instead of 0 gives the 0 that is promised.
    count = te.maximum(te.index(product(x.shape[i] for i in axes)), 1)
    return then(total, lambda v: te.trunc_div(v, count).cast(x.dtype), "mean")


def _mean_samples() -> list[Sample]:
    beyond_floats = np.array([2**61 + 1, 2**61 + 2, -7], np.int64)
    return [*_samples(NUMBERS), Sample("great", ReduceAttrs((0,)), (beyond_floats,), (("n",),))]


def _np_logsumexp(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    top = x.max(axes, keepdims=True, initial=-np.inf)
    finite = np.asarray(np.where(np.isinf(top), x.dtype.type(0), top), x.dtype)
    total = np.asarray(np.log(_np_sum(np.exp(x - finite), axes, True)) + finite)
    return total if keep else np.squeeze(total, axes)


def _logsumexp_reference(a: ReduceAttrs, x: Array) -> Array:
    return _np_logsumexp(widen(x), rules.fronts(a.axes, x.ndim), a.keepdims).astype(x.dtype)


def _logsumexp_compute(a: ReduceAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
    (x,) = operands
    axes = rules.fronts(a.axes, x.ndim)
    top, total = shifted_exp_sum(x, axes)
    rest = [d for d in range(x.ndim) if d not in axes]

    def body(*i: Int) -> te.ScalarValue:
        at = list(i)
        if not a.keepdims:
            at = [lit(0)] * x.ndim
            for d, v in zip(rest, i, strict=True):
                at[d] = v
        log = te.intrinsic(IntrinsicOp.LOG, total[tuple(at)])
        return (log + top[tuple(at)]).cast(x.dtype)

    return te.compute(result.shape, body, name="logsumexp")


def shifted_exp_sum(x: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Return the maximum m over axes (0 where it is infinite) and the sum of exp(x - m).

    Both keep the reduced axes as 1 and have the widened format.
    """
    wide = widened(x.dtype)
    top = reduce(x, axes, ReduceOp.MAX, lambda v: v.cast(wide), keepdims=True, name="top")
    top = then(top, lambda v: te.select(te.intrinsic(IntrinsicOp.IS_INF, v, dtype=BOOL), 0.0, v), "shift")

    def body(*i: Int) -> te.ScalarValue:
        over = {a: te.reduce_axis(f"r{a}", x.shape[a]) for a in axes}
        at = tuple(over.get(d, v) for d, v in enumerate(i))
        value = te.intrinsic(IntrinsicOp.EXP, x[at].cast(wide) - top[i])
        return te.sum_over(list(over.values()), value) if over else value

    return top, te.compute(top.shape, body, name="exp_sum")


# --------------------------------------------------------------------------- argmax, argmin


def _arg_rule(ctx: TypeContext, a: ArgReduceAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, NUMBERS)
    axis = rules.axis_of(ctx, a.axis, len(x.shape))
    ctx.at_least(x.shape[axis], 1, "an element to choose")
    return TensorType(reduced_shape(x.shape, (axis,), keepdims=a.keepdims), I64)


def _arg_reduction(name: str, doc: str, op: ReduceOp, numpy: Callable[..., Array]) -> OpDef:
    def reference(a: ArgReduceAttrs, x: Array) -> Array:
        axis, wide = a.axis % x.ndim, widen(x)
        if a.last:
            found = x.shape[axis] - 1 - numpy(np.flip(wide, axis), axis=axis)
        else:
            found = numpy(wide, axis=axis)
        return np.asarray(np.expand_dims(found, axis) if a.keepdims else found).astype(np.int64)

    def compute(a: ArgReduceAttrs, operands: Sequence[te.Tensor], result: TensorType) -> te.Tensor:
        (x,) = operands
        axis, wide = a.axis % x.ndim, widened(x.dtype)
        best = reduce(x, (axis,), op, lambda v: v.cast(wide), keepdims=a.keepdims, name="best")

        def body(*i: Int) -> te.ScalarValue:
            k = te.reduce_axis("k", x.shape[axis])
            at = (*i[:axis], k, *(i[axis + 1 :] if a.keepdims else i[axis:]))
            v = x[at].cast(wide)
            hit = v.equals(best[i])
            if wide.is_float:  # the extreme is NaN exactly if there is one
                hit = hit | te.intrinsic(IntrinsicOp.IS_NAN, v, dtype=BOOL)
            if a.last:
                return te.max_over(k, te.select(hit, te.index(k), -1))
            return te.min_over(k, te.select(hit, te.index(k), te.index(x.shape[axis])))

        return te.compute(result.shape, body, name=name)

    return define(
        name,
        ArgReduceAttrs,
        _arg_rule,
        1,
        FusionPattern.REDUCTION,
        doc,
        reference=reference,
        compute=compute,
        samples=_arg_samples,
    )


def _arg_samples() -> list[Sample]:
    made: list[Sample] = []
    for d in (F32, F16, BF16, I32, I8, U8):
        x = noise((3, 6, 4), d, seed="arg")
        made += [
            Sample(f"first {d}", ArgReduceAttrs(1), (x,), (("a", "b", "c"),)),
            Sample(f"last {d}", ArgReduceAttrs(-1, keepdims=True, last=True), (x,)),
        ]
    ties = np.array([[1, 3, 3, 0], [np.nan, 5, np.nan, 1], [-np.inf] * 4], np.float32)
    made += [
        Sample("ties", ArgReduceAttrs(1), (ties,)),
        Sample("last of ties", ArgReduceAttrs(1, last=True), (ties,)),
        Sample("along 0", ArgReduceAttrs(0), (ties,), (("m", "n"),)),
        Sample("nothing left", ArgReduceAttrs(1), (ties[:0],), (("m", 4),)),
    ]
    return made


# --------------------------------------------------------------------------- running sums


def _cumulative_rule(ctx: TypeContext, a: CumulativeAttrs, args: Types) -> TensorType:
    x = rules.tensor(ctx, args, 0, NUMBERS)
    rules.axis_of(ctx, a.axis, len(x.shape))
    return x


def _cumulative(name: str, doc: str, numpy: Callable[..., Array], start: int) -> OpDef:
    """Make a running reduction; `start` is the identity."""

    def reference(a: CumulativeAttrs, x: Array) -> Array:
        axis = a.axis % x.ndim
        y = np.flip(widen(x), axis) if a.reverse else widen(x)
        total = numpy(y, axis=axis, dtype=y.dtype)
        if a.exclusive and x.shape[axis]:
            head = np.full_like(np.take(total, [0], axis), start)
            total = np.concatenate([head, np.take(total, range(x.shape[axis] - 1), axis)], axis)
        return np.asarray(np.flip(total, axis) if a.reverse else total).astype(x.dtype)

    def loops(a: CumulativeAttrs, operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
        (x,), (y,) = operands, outputs
        return _running(a, x, y, start, multiply=name == "cumprod")

    return define(
        name,
        CumulativeAttrs,
        _cumulative_rule,
        1,
        FusionPattern.OPAQUE,
        doc,
        reference=reference,
        loops=loops,
        samples=_cumulative_samples,
    )


def _running(a: CumulativeAttrs, x: Buffer, y: Buffer, start: int, *, multiply: bool) -> Stmt:
    """Write the running totals of lines along the axis, in the widened format.

    Lines that lie side by side go together, as many as `_SIDE_BY_SIDE` says and then the rest in fewer.
    """
    rank, axis = len(x.shape), a.axis % len(x.shape)
    last = x.shape[-1] if axis != rank - 1 else lit(1)
    done, parts = lit(0), list[Stmt]()
    for width in (*_SIDE_BY_SIDE, 1):
        count = floordiv(last - done, lit(width))
        if count != 0:
            parts.append(_running_lines(a, (x, y), start, (done, count, width), multiply=multiply))
        done = done + count * width
    return Seq(tuple(parts))


_SIDE_BY_SIDE = (128, 32, 8, 4)
"""Lines whose totals are carried together: of f32 a row of each is half a kilobyte, or a few vectors."""


def _running_lines(
    a: CumulativeAttrs,
    buffers: tuple[Buffer, Buffer],
    start: int,
    lines: tuple[Int, Int, int],
    *,
    multiply: bool,
) -> Stmt:
    """Write the totals of `count` times `width` neighboring lines from one on.

    Totals are carried in registers, not read back from the output, so that narrow floats round once.
    """
    (x, y), (first, count, width) = buffers, lines
    from_x, rank, axis = te.Tensor(x), len(x.shape), a.axis % len(x.shape)
    wide = widened(x.dtype)
    total = Buffer("total", (lit(width),), wide, scope=Scope.REGISTER)
    loops = [fresh(f"i{d}") for d in range(rank)]
    lane = fresh("lane")
    at, own = list(map(to_int, loops)), to_int(lane) if width > 1 else lit(0)
    if a.reverse:
        at[axis] = x.shape[axis] - 1 - to_int(loops[axis])
    if axis != rank - 1:
        at[-1] = first + to_int(loops[-1]) * width + own
    here, now = from_x[tuple(at)].cast(wide), te.ScalarValue(Load(total, (own,)))
    update = Store(total, (own,), (now * here if multiply else now + here).scalar)
    write = Store(y, tuple(at), now.cast(y.dtype).scalar)
    begin = Store(total, (own,), te.const(start, wide).scalar)

    def each(step: Stmt) -> Stmt:
        return For(lane, lit(0), lit(width), LoopKind.VECTOR, step) if width > 1 else step

    steps = (each(write), each(update)) if a.exclusive else (each(update), each(write))
    line = For(loops[axis], lit(0), x.shape[axis], LoopKind.SERIAL, Seq(steps))
    body: Stmt = Alloc(total, Seq((each(begin), line)))
    for d in reversed([d for d in range(rank) if d != axis]):
        body = For(loops[d], lit(0), count if d == rank - 1 else x.shape[d], LoopKind.SERIAL, body)
    return body


def _cumulative_samples() -> list[Sample]:
    x = noise((3, 5, 4), F32, seed="cum")
    return [
        Sample("plain", CumulativeAttrs(1), (x,), (("a", "b", "c"),)),
        Sample("exclusive", CumulativeAttrs(-1, exclusive=True), (x,), (("a", "b", 4),)),
        Sample("reverse", CumulativeAttrs(0, reverse=True), (x,), (("a", "b", 4),)),
        Sample("both", CumulativeAttrs(1, exclusive=True, reverse=True), (x,)),
        Sample("i32", CumulativeAttrs(0), (noise((6,), I32, seed="cum"),), (("n",),)),
        Sample("f16", CumulativeAttrs(0), (noise((6, 2), F16, seed="cum"),), (("n", 2),)),
        Sample("side by side", CumulativeAttrs(0), (noise((3, 77), F32, seed="cum"),), (("a", "b"),)),
        Sample("empty", CumulativeAttrs(1, exclusive=True), (x[:, :0],), (("a", "b", 4),)),
    ]


# --------------------------------------------------------------------------- the table


def _abs(v: te.ScalarValue) -> te.ScalarValue:
    return te.unary(UnaryOp.ABS, v) if v.dtype.is_signed else v


def _square(v: te.ScalarValue) -> te.ScalarValue:
    return v * v


def _log(v: te.ScalarValue) -> te.ScalarValue:
    return te.intrinsic(IntrinsicOp.LOG, v)


def _sqrt(v: te.ScalarValue) -> te.ScalarValue:
    return te.unary(UnaryOp.SQRT, v)


def _np_sum(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    """Sum with the axes laid last: NumPy sums pairwise along contiguous elements only."""
    if not axes or not x.size:
        return x.sum(axes, keepdims=keep, dtype=x.dtype)
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    rows = np.ascontiguousarray(x.transpose(*kept, *axes))
    total = rows.reshape(*(x.shape[d] for d in kept), -1).sum(-1, dtype=x.dtype)
    dims = tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes)
    return np.asarray(total).reshape(dims)


def _np_extreme(f: Callable[..., Array], start: Callable[[DType], object]) -> Numpy:
    def extreme(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return f(x, axes, keepdims=keep, initial=start(from_numpy(x.dtype)))

    return extreme


DEFINITIONS: tuple[OpDef, ...] = (
    _reduction("reduce_sum", "sum; integers wrap", ReduceOp.SUM, _np_sum),
    _reduction(
        "reduce_prod",
        "product; integers wrap",
        ReduceOp.PRODUCT,
        lambda x, axes, k: x.prod(axes, keepdims=k, dtype=x.dtype),
    ),
    _reduction("reduce_max", "greatest; NaN if any is", ReduceOp.MAX, _np_extreme(np.max, lowest)),
    _reduction("reduce_min", "least; NaN if any is", ReduceOp.MIN, _np_extreme(np.min, highest)),
    _reduction(
        "reduce_any",
        "whether any holds",
        ReduceOp.OR,
        lambda x, axes, k: np.asarray(x.any(axes, keepdims=k)),
        domain=BOOLS,
    ),
    _reduction(
        "reduce_all",
        "whether all hold",
        ReduceOp.AND,
        lambda x, axes, k: np.asarray(x.all(axes, keepdims=k)),
        domain=BOOLS,
    ),
    _reduction(
        "reduce_l1",
        "sum of magnitudes",
        ReduceOp.SUM,
        lambda x, axes, k: _np_sum(np.abs(x), axes, k),
        before=_abs,
    ),
    _reduction(
        "reduce_l2",
        "square root of the sum of squares",
        ReduceOp.SUM,
        lambda x, axes, k: np.sqrt(_np_sum(x * x, axes, k)),
        before=_square,
        after=_sqrt,
        domain=FLOATS,
    ),
    _reduction(
        "reduce_sum_square",
        "sum of squares",
        ReduceOp.SUM,
        lambda x, axes, k: _np_sum(x * x, axes, k),
        before=_square,
    ),
    _reduction(
        "reduce_log_sum",
        "logarithm of the sum",
        ReduceOp.SUM,
        lambda x, axes, k: np.log(_np_sum(x, axes, k)),
        after=_log,
        domain=FLOATS,
    ),
    define(
        "reduce_logsumexp",
        ReduceAttrs,
        lambda ctx, a, args: _rule(ctx, a, rules.tensor(ctx, args, 0, FLOATS)),
        1,
        FusionPattern.REDUCTION,
        "log of the sum of exp(x), shifted by the maximum",
        reference=_logsumexp_reference,
        compute=_logsumexp_compute,
        samples=lambda: _samples(FLOATS),
    ),
    define(
        "reduce_mean",
        ReduceAttrs,
        lambda ctx, a, args: _rule(ctx, a, rules.tensor(ctx, args, 0, NUMBERS)),
        1,
        FusionPattern.REDUCTION,
        "sum divided by count; integers truncate",
        reference=_mean_reference,
        compute=_mean_compute,
        samples=_mean_samples,
    ),
    _arg_reduction(
        "argmax", "index of the greatest; of the first NaN if there is one", ReduceOp.MAX, np.argmax
    ),
    _arg_reduction("argmin", "index of the least; of the first NaN if there is one", ReduceOp.MIN, np.argmin),
    _cumulative("cumsum", "running sum", np.cumsum, 0),
    _cumulative("cumprod", "running product", np.cumprod, 1),
)

OVER_AXES = tuple([d.name for d in DEFINITIONS if d.op.attrs_type is ReduceAttrs])
"""Names of the reductions over any axes, whose order does not matter."""
