"""Selection by value: sort, top-k, and the places of what is not zero.

NaN sorts as the greatest value, and equal values keep their order. `nonzero` has a result of a size
that the data decide: it is decomposed into a count, which becomes a dim, and a fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from inlay.arith.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64
from inlay.arith.expr import Int, fresh, lit, minimum, product, to_int
from inlay.ir.builder import Builder
from inlay.ir.core_ops import TO_CONTROL
from inlay.ir.expr import Expr
from inlay.ir.make import const
from inlay.ir.op import NoAttrs, TypeContext
from inlay.ir.types import DimParam, ExistsType, TensorType, TupleType
from inlay.loop import te
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.scalar import Load
from inlay.loop.stmt import Alloc, For, If, Let, LoopKind, Seq, Stmt, Store
from inlay.ops import _rules as rules
from inlay.ops import elementwise, reduction
from inlay.ops._build import Array, copy_buffer, nest, serial_loops, widen, widened
from inlay.ops._define import FusionPattern, OpDef, Sample, by_name, define
from inlay.ops._entering import DENSE, Before, visit_entering
from inlay.ops._rules import ELEMENTS, NUMBERS, Types
from inlay.ops._samples import ints, noise
from inlay.ops._top_heap import first_of_line


@dataclass(frozen=True, slots=True)
class SortAttrs:
    """`axis`: sorted along; `descending`: greatest first."""

    axis: int = -1
    descending: bool = False


@dataclass(frozen=True, slots=True)
class TopKAttrs:
    """`axis`: searched; `largest`: the greatest elements, or the least."""

    axis: int = -1
    largest: bool = True


# --------------------------------------------------------------------------- order


def _before(a: te.ScalarValue, b: te.ScalarValue, *, descending: bool) -> te.ScalarValue:
    """Whether a strictly precedes b; NaN is the greatest value."""
    less = b < a if descending else a < b
    if not a.dtype.is_float:
        return less
    a_nan, b_nan = a.differs(a), b.differs(b)
    first, other = (a_nan, b_nan) if descending else (b_nan, a_nan)
    return less | (first & ~other)


def _sort_rule(ctx: TypeContext, a: SortAttrs, args: Types) -> TupleType:
    x = rules.tensor(ctx, args, 0, NUMBERS)
    rules.axis_of(ctx, a.axis, len(x.shape))
    return TupleType((x, TensorType(x.shape, I64)))


def _np_order(x: Array, axis: int, *, descending: bool) -> Array:
    """Return the stable order of elements along an axis, NaN as the greatest."""
    y = widen(x)
    if not descending:
        return np.argsort(y, axis, kind="stable")
    # A stable descending order is the reverse of the stable ascending order of the reversed line.
    back = np.argsort(np.flip(y, axis), axis, kind="stable")
    return np.flip(y.shape[axis] - 1 - back, axis)


def _sort_reference(a: SortAttrs, x: Array) -> tuple[Array, Array]:
    order = _np_order(x, a.axis, descending=a.descending).astype(np.int64)
    return np.take_along_axis(x, order, a.axis), order


def _sort_loops(a: SortAttrs, operands: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
    """Merge runs of doubling width, bottom up, in a line of indices; n log n comparisons."""
    (x,), (values, places) = operands, outputs
    axis = a.axis % len(x.shape)
    n = x.shape[axis]
    loops, i = serial_loops(x.shape)
    lines = [loop for d, loop in enumerate(loops) if d != axis]
    order = Buffer("order", (n,), I64, Scope.WORKSPACE)
    merged = Buffer("merged", (n,), I64, Scope.WORKSPACE)
    width = Buffer("width", (lit(1),), I64, Scope.REGISTER)

    def line(at: te.ScalarValue | Int) -> te.ScalarValue:
        value = te.Tensor(x)[(*i[:axis], at, *i[axis + 1 :])]
        return value.cast(widened(x.dtype))

    k, w, level = fresh("k"), fresh("w"), fresh("level")
    start = For(k, lit(0), n, LoopKind.SERIAL, Store(order, (to_int(k),), te.index(k).scalar))
    one_level = Let(
        w,
        Load(width, (lit(0),)),
        If(
            (te.index(w) < te.index(n)).scalar,
            Seq(
                (
                    _merge_level(order, merged, to_int(w), n, line, descending=a.descending),
                    copy_buffer(merged, order),
                    Store(width, (lit(0),), te.index(to_int(w) * 2).scalar),
                )
            ),
        ),
    )
    t = fresh("t")
    at = (*i[:axis], to_int(t), *i[axis + 1 :])
    source = te.Tensor(order)[to_int(t)]
    take = Seq(
        (
            Store(places, at, source.scalar),
            _through(source, lambda p: Store(values, at, Load(x, (*i[:axis], p, *i[axis + 1 :])))),
        )
    )
    body = Seq(
        (
            start,
            Store(width, (lit(0),), te.const(1, I64).scalar),
            For(level, lit(0), lit(63), LoopKind.SERIAL, one_level),
            For(t, lit(0), n, LoopKind.SERIAL, take),
        )
    )
    return nest(lines, Alloc(order, Alloc(merged, Alloc(width, body))))


def _through(index: te.ScalarValue, body: Callable[[Int], Stmt]) -> Stmt:
    """Bind an index and use it."""
    sym = fresh("p")
    return Let(sym, index.scalar, body(to_int(sym)))


def _merge_level(
    order: Buffer,
    merged: Buffer,
    w: Int,
    n: Int,
    line: Callable[[te.ScalarValue | Int], te.ScalarValue],
    *,
    descending: bool,
) -> Stmt:
    """Merge each pair of neighboring runs of `w` indices from `order` into `merged`."""
    heads = Buffer("heads", (lit(2),), I64, Scope.REGISTER)
    b, t, left, right = fresh("b"), fresh("t"), fresh("left"), fresh("right")
    low = to_int(b) * w * 2
    middle, high = minimum(low + w, n), minimum(low + w * 2, n)
    i, j = te.index(left), te.index(right)
    indices = te.Tensor(order)
    candidate_left, candidate_right = indices[to_int(left)], indices[to_int(right)]
    right_first = _before(line(candidate_right), line(candidate_left), descending=descending)
    # Loads are made only on the side of a select that is chosen, so empty runs are not read.
    exhausted = te.select(j < te.index(high), right_first, te.const(False, right_first.dtype))
    take_right = te.select(i < te.index(middle), exhausted, te.const(True, right_first.dtype))
    step = Let(
        left,
        Load(heads, (lit(0),)),
        Let(
            right,
            Load(heads, (lit(1),)),
            If(
                take_right.scalar,
                Seq(
                    (
                        Store(merged, (low + to_int(t),), candidate_right.scalar),
                        Store(heads, (lit(1),), (j + 1).scalar),
                    )
                ),
                Seq(
                    (
                        Store(merged, (low + to_int(t),), candidate_left.scalar),
                        Store(heads, (lit(0),), (i + 1).scalar),
                    )
                ),
            ),
        ),
    )
    pair = Seq(
        (
            Store(heads, (lit(0),), te.index(low).scalar),
            Store(heads, (lit(1),), te.index(middle).scalar),
            For(t, lit(0), high - low, LoopKind.SERIAL, step),
        )
    )
    count = (n + w * 2 - 1) // (w * 2)
    return For(b, lit(0), count, LoopKind.SERIAL, Alloc(heads, pair))


def _sort_samples() -> list[Sample]:
    made: list[Sample] = []
    for d in (F32, F64, F16, BF16, I32, I8):
        x = noise((3, 7), d, low=-3, high=3, seed="sort")
        for descending in (False, True):
            a = SortAttrs(-1, descending)
            made.append(Sample(f"{d} {descending}", a, (x,), (("m", "n"),), exact=True))
    special = np.array([1, np.nan, -np.inf, 2, 1, np.nan, np.inf, 0, -0.0, 1], np.float32)
    x = noise((9, 2, 3), F32, seed="sort3")
    return [
        *made,
        Sample("special", SortAttrs(0), (special,), (("n",),), exact=True),
        Sample("special down", SortAttrs(0, descending=True), (special,), exact=True),
        Sample("first axis", SortAttrs(0), (x,), (("n", 2, "k"),), exact=True),
        Sample("one", SortAttrs(0), (x[:1],), (("n", 2, "k"),), exact=True),
        Sample("none", SortAttrs(0), (x[:0],), (("n", 2, "k"),), exact=True),
        Sample("many", SortAttrs(0), (noise((100,), I32, high=50, seed="many"),), exact=True),
    ]


def _top_k_rule(ctx: TypeContext, a: TopKAttrs, args: Types) -> TupleType:
    x, k = rules.tensor(ctx, args, 0, NUMBERS), rules.int_value(ctx, args, 1)
    axis = rules.axis_of(ctx, a.axis, len(x.shape))
    ctx.at_least(k, 0, "the number of elements to choose")
    ctx.at_least(x.shape[axis] - k, 0, "there are as many elements as are to be chosen")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TupleType((TensorType(shape, x.dtype), TensorType(shape, I64)))


def _top_k_reference(a: TopKAttrs, x: Array, k: int) -> tuple[Array, Array]:
    order = _np_order(x, a.axis, descending=a.largest).astype(np.int64)
    order = np.take(order, range(k), a.axis)
    return np.take_along_axis(x, order, a.axis), order


FEW = 4
"""Elements that are kept in order all the time; of more, or of a number that is not known, a heap is."""


def _top_k_loops(a: TopKAttrs, operands: Sequence[object], outputs: Sequence[Buffer]) -> Stmt:
    """Search each line: by insertion for a few elements, and else by a heap."""
    x, k = operands
    assert isinstance(x, Buffer)
    assert isinstance(k, Int)
    values, places = outputs
    axis = a.axis % len(x.shape)
    loops, i = serial_loops(x.shape)
    lines = [loop for d, loop in enumerate(loops) if d != axis]

    def at(t: Int) -> tuple[Int, ...]:
        return (*i[:axis], t, *i[axis + 1 :])

    def before(one: te.ScalarValue, other: te.ScalarValue) -> te.ScalarValue:
        return _before(one, other, descending=a.largest)

    line = x, values, places, at, x.shape[axis]
    if k.value is None or k.value > FEW:
        return nest(lines, first_of_line(*line, k, before, largest=a.largest))
    return nest(lines, _inserted(*line, k.value, before))


def _inserted(
    x: Buffer,
    values: Buffer,
    places: Buffer,
    at: Callable[[Int], tuple[Int, ...]],
    n: Int,
    k: int,
    before: Before,
) -> Stmt:
    """Insert each element into the best so far: k comparisons for each that enters."""
    kept, wide = te.Tensor(values), widened(x.dtype)

    def visit(e: Int) -> Stmt:
        new = te.Tensor(x)[at(e)]

        def enters(t: int) -> te.ScalarValue:
            """Whether the new element belongs before place t, which may not be filled yet."""
            better = before(new.cast(wide), kept[at(lit(t))].cast(wide))
            return te.select(te.index(t) < te.index(e), better, te.const(True, BOOL))

        def put(t: int, value: te.ScalarValue, place: te.ScalarValue) -> Stmt:
            here = at(lit(t))
            return Seq((Store(values, here, value.scalar), Store(places, here, place.scalar)))

        steps: Stmt = put(0, new, te.index(e))
        for t in range(1, k):
            before_that = at(lit(t - 1))
            moved = put(t, kept[before_that], te.Tensor(places)[before_that])
            # From the last place on: what is in front moves back, if that is filled, or the new one goes in.
            filled = If((te.index(t) <= te.index(e)).scalar, moved)
            steps = If(enters(t - 1).scalar, Seq((filled, steps)), put(t, new, te.index(e)))
        return If(enters(k - 1).scalar, steps)

    return (
        visit_entering(x, at, (lit(0), lit(k * DENSE), n), kept[at(lit(k - 1))], before, visit)
        if k
        else Seq(())
    )


def _top_k_samples() -> list[Sample]:
    made: list[Sample] = []
    for d in (F32, F16, I32):
        x = noise((3, 8), d, low=-3, high=3, seed="topk")
        for largest in (True, False):
            a = TopKAttrs(-1, largest)
            made.append(Sample(f"{d} {largest}", a, (x, 3), (("m", "n"), "k"), exact=True))
    special = np.array([1, np.nan, -np.inf, 2, 1, np.nan, np.inf, 2], np.float32)
    x = noise((9, 2), F32, seed="topk0")
    return [
        *made,
        Sample("special", TopKAttrs(0), (special, 5), exact=True),
        Sample("special least", TopKAttrs(0, largest=False), (special, 5), exact=True),
        Sample("first axis", TopKAttrs(0), (x, 4), (("n", 2), "k"), exact=True),
        Sample("all", TopKAttrs(0), (x, 9), (("n", 2), "k"), exact=True),
        Sample("none", TopKAttrs(0), (x, 0), (("n", 2), "k"), exact=True),
        *_many_top_k(),
    ]


def _many_top_k() -> list[Sample]:
    """Return samples of more elements than are kept in order: many are equal, and some are NaN."""
    x = noise((2, 60), I32, low=-9, high=9, seed="many").astype(np.float32)
    x[0, ::7] = np.nan
    made = [Sample(f"many {n}", TopKAttrs(-1, n != 20), (x, n), exact=True) for n in (17, 20, 33, 60)]
    made.append(Sample("many down", TopKAttrs(0), (x.T.copy(), 40), (("n", "m"), 40), exact=True))
    long = noise((2, 400), I32, low=0, high=90, seed="long")
    wide = long.astype(np.float32) - 45
    wide[0, ::37], wide[0, 5::41], wide[1, ::2] = np.nan, -np.inf, 0
    wide[1, ::4] *= -1  # zeros of both signs are equal
    for k in (3, 20, 70):
        for largest in (True, False):
            a = TopKAttrs(-1, largest)
            made.append(Sample(f"long {k} {largest}", a, (wide, k), (("m", "n"), "k"), exact=True))
            made.append(Sample(f"long {k} {largest} known", a, (wide, k), (("m", 400), k), exact=True))
    others = [long.astype(d) for d in (np.uint8, np.int64, np.uint32, np.float16, np.float64)]
    others[2] += np.uint32(2**31 - 40)
    return [*made, *(Sample(f"long {x.dtype}", TopKAttrs(-1), (x, 9), exact=True) for x in others)]


# --------------------------------------------------------------------------- nonzero


def _nonzero_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> ExistsType:
    x = rules.least_rank(ctx, rules.tensor(ctx, args, 0, ELEMENTS), 1, "the input")
    k = ctx.fresh_dim("k")
    found = DimParam(k, high=product(x.shape))
    return ExistsType((found,), TensorType((lit(len(x.shape)), to_int(k)), I64))


def _nonzero_reference(a: NoAttrs, x: Array) -> Array:
    return np.array(np.nonzero(widen(x)), np.int64).reshape(x.ndim, -1)


def _nonzero_decompose(b: Builder, a: NoAttrs, args: tuple[Expr, ...]) -> Expr:
    """Count, make the count a dim, fill."""
    (x,) = args
    assert isinstance(x.type, TensorType)
    zero = const(np.zeros((), x.type.dtype.numpy))
    elements = by_name(elementwise.DEFINITIONS)
    is_set = b.emit(elements["not_equal"].op, (x, zero))
    ones = b.emit(elements["cast"].op, (is_set,), elementwise.CastAttrs(I64))
    axes = tuple(range(len(x.type.shape)))
    total = by_name(reduction.DEFINITIONS)["reduce_sum"].op
    count = b.emit(total, (ones,), reduction.ReduceAttrs(axes))
    return b.emit(_FILL.op, (x, b.emit(TO_CONTROL, (count,))))


def _fill_rule(ctx: TypeContext, a: NoAttrs, args: Types) -> TensorType:
    x = rules.least_rank(ctx, rules.tensor(ctx, args, 0, ELEMENTS), 1, "the input")
    k = rules.int_value(ctx, args, 1)
    return TensorType((lit(len(x.shape)), k), I64)


def _fill_reference(a: NoAttrs, x: Array, k: int) -> Array:
    found = np.array(np.nonzero(widen(x)), np.int64).reshape(x.ndim, -1)[:, :k]
    return np.pad(found, ((0, 0), (0, k - found.shape[1])))


def _fill_loops(a: NoAttrs, operands: Sequence[object], outputs: Sequence[Buffer]) -> Stmt:
    x, k = operands
    assert isinstance(x, Buffer)
    assert isinstance(k, Int)
    (out,) = outputs
    place = Buffer("place", (lit(1),), I64, Scope.REGISTER)
    loops, i = serial_loops(x.shape)
    zeros, cleared = serial_loops(out.shape)
    p = fresh("p")
    write = [Store(out, (lit(d), to_int(p)), te.index(i[d]).scalar) for d in range(len(i))]
    write.append(Store(place, (lit(0),), te.index(to_int(p) + 1).scalar))
    hit = te.Tensor(x)[i]
    is_set = hit if hit.dtype is BOOL else hit.differs(0)
    # The count was taken from the same data, so the bound always holds; it keeps memory safe.
    room = te.index(p) < te.index(k)
    body = Let(p, Load(place, (lit(0),)), If((is_set & room).scalar, Seq(tuple(write))))
    return Seq(
        (
            nest(zeros, Store(out, cleared, te.const(0, I64).scalar)),
            Alloc(place, Seq((Store(place, (lit(0),), te.const(0, I64).scalar), nest(loops, body)))),
        )
    )


def _nonzero_arrays() -> list[tuple[str, Array]]:
    x = noise((3, 4), F32, seed="nonzero")
    return [
        ("some", np.where(x > 0, x, 0).astype(np.float32)),
        ("bools", noise((2, 3, 4), BOOL, seed="nonzero")),
        ("ints", ints(0, 3, 0, -1)),
        ("nothing", np.zeros((2, 2), np.float32)),
        ("empty", x[:0]),
        ("nan", np.array([0, np.nan, -0.0, 1], np.float32)),
    ]


# --------------------------------------------------------------------------- the table

_FILL = define(
    "nonzero_fill",
    NoAttrs,
    _fill_rule,
    2,
    FusionPattern.OPAQUE,
    "the index of each element that is not 0, by columns, when there are k (an int) of them",
    reference=_fill_reference,
    loops=_fill_loops,
    samples=lambda: [Sample(name, NoAttrs(), (x, int(np.count_nonzero(x)))) for name, x in _nonzero_arrays()],
)

DEFINITIONS: tuple[OpDef, ...] = (
    define(
        "sort",
        SortAttrs,
        _sort_rule,
        1,
        FusionPattern.OPAQUE,
        "the elements along an axis in order, and where each was (i64); a tuple",
        reference=_sort_reference,
        loops=_sort_loops,
        samples=_sort_samples,
    ),
    define(
        "top_k",
        TopKAttrs,
        _top_k_rule,
        2,
        FusionPattern.OPAQUE,
        "the k (an int) first elements along an axis in order, and where each was; a tuple",
        reference=_top_k_reference,
        loops=_top_k_loops,
        samples=_top_k_samples,
    ),
    define(
        "nonzero",
        NoAttrs,
        _nonzero_rule,
        1,
        FusionPattern.OPAQUE,
        "the index of each element that is not 0, by columns: some k. Tensor[rank, k, i64]",
        reference=_nonzero_reference,
        decompose=_nonzero_decompose,
        data_dependent=True,
        samples=lambda: [
            Sample(name, NoAttrs(), (x,), (tuple(f"n{d}" for d in range(x.ndim)),))
            for name, x in _nonzero_arrays()
        ],
    ),
    _FILL,
)
