"""Default schedules: the law, and the form of the result."""

from __future__ import annotations

import re

import numpy as np
import pytest

from inlay.arith.dtype import F16, F32, I8, I32, I64, U8, DType
from inlay.arith.expr import Int, to_int
from inlay.interp import loop as interp
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import ReduceOp
from inlay.loop.verify import check
from inlay.loop.walk import blocks_of
from inlay.lower.lower import lower
from inlay.machine.target import Target
from inlay.ops._indices import clamped
from inlay.ops.padding import PadAttrs, PadMode
from inlay.ops.table import table
from inlay.schedule.choose import schedule
from tests.unit.schedule.programs import dim, elementwise, gave_up, gemm, hold_law, layer_norm, softmax

TARGET = Target()


def scheduled(f: LoopFunction, *sizes: tuple[int, ...]) -> str:
    return print_function(hold_law(f, schedule(f, TARGET), *sizes))


@pytest.mark.parametrize("n", [1, 2, 5, 8, 31, 32, 64, 71, 100])
def test_elementwise_of_known_size(n: int) -> None:
    text = scheduled(elementwise(n))
    assert ("vector" in text) == (n >= 4)
    assert ("if" in text) == (n > 8 and n % 8 != 0)


def test_elementwise_of_symbolic_size() -> None:
    n = dim("n")
    text = scheduled(elementwise(n, 3), (0,), (1,), (3,), (21,), (50,))
    assert "parallel" in text
    assert text.count("vector") == 2  # the full tiles and the last


def test_small_kernels_stay_on_one_thread() -> None:
    assert "parallel" not in scheduled(elementwise(64))
    big = schedule(elementwise(1 << 20), TARGET)
    assert "parallel" in print_function(big.function)


def broadcast(n: Int | int, c: Int | int, h: Int | int) -> LoopFunction:
    x, b = te.placeholder((n, c, h, h), F32, "x"), te.placeholder((1, c, 1, 1), F32, "b")
    y = te.compute((n, c, h, h), lambda i, j, k, r: te.maximum(x[i, j, k, r] + b[0, j, 0, 0], 0.0), name="y")
    return from_te("bias", [x, b], [y])


def test_broadcast_keeps_two_axes() -> None:
    text = scheduled(broadcast(1, 3, 4))
    assert "x: f32[3, 16]" in text and "b: f32[3]" in text
    scheduled(broadcast(2, 3, 5))
    scheduled(broadcast(dim("n"), 3, 3), (2,), (0,))


def transpose(*shape: Int | int) -> LoopFunction:
    x = te.placeholder(shape, F32, "x")
    n, c, h, w = shape
    y = te.compute((n, h, w, c), lambda i, j, k, r: x[i, r, j, k], name="y")
    return from_te("nhwc", [x], [y])


def test_transpose() -> None:
    text = scheduled(transpose(1, 16, 3, 4))
    assert "x: f32[16, 12]" in text and "y: f32[12, 16]" in text
    scheduled(transpose(2, 3, 5, 4))
    scheduled(transpose(dim("n"), 9, 2, 2), (1,), (3,))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("n", [20, 3, None])
def test_the_middle_of_a_padded_line_is_a_copy(mode: str, n: int | None) -> None:
    x = te.placeholder((4, dim("n") if n is None else n), F32, "x")
    pad, shape = table().definition("pad"), (4, x.shape[1] + 5)
    assert pad.compute is not None
    y = pad.compute(PadAttrs(PadMode(mode)), [x, (0, 2, 0, 3)], TensorType(shape, F32))
    f = from_te("pad", [x], [y])
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    assert len(s.block_names()) == 3 and "select" not in print_function(s.function)
    assert ("vector" in print_function(s.function)) == (n != 3)
    hold_law(f, s, *([()] if n else [(1,), (3,), (30,)]))


def test_a_line_of_parts_that_lie_in_other_ways_is_in_one_loop() -> None:
    a, b = te.placeholder((16, 8), F32, "a"), te.placeholder((24, 16), F32, "b")

    def body(i: Int, j: Int) -> te.ScalarValue:
        return te.select(te.index(j) < 8, a[i, j], b[j - 8, i])

    f = from_te("f", [a, b], [te.compute((16, 32), body, name="y")])
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    assert len(s.block_names()) == 1
    hold_law(f, s)


def test_an_operand_of_rank_0_beside_one_that_lies_across() -> None:
    x, z = te.placeholder((40, 3), F32, "x"), te.placeholder((), F32, "z")
    f = from_te("f", [x, z], [te.compute((3, 40), lambda i, j: z[()] * x[j, i], name="y")])
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    hold_law(f, s)


def test_two_results_in_one_pass() -> None:
    x = te.placeholder((64,), F32, "x")
    a = te.compute((64,), lambda i: x[i] + 1.0, name="a")
    b = te.compute((64,), lambda i: x[i] * 2.0, name="b")
    text = scheduled(from_te("two", [x], [a, b]))
    assert text.count("\n  for") == 1


def test_anything_else_is_serial_loops() -> None:
    scheduled(gemm(3, 4, dim("k")), (0,), (2,))


def test_choice_is_repeatable() -> None:
    assert scheduled(elementwise(70)) == scheduled(elementwise(70))


# --------------------------------------------------------------------------- rows


def rows_scheduled(f: LoopFunction, *sizes: tuple[int, ...]) -> str:
    """Like `scheduled`, and no rule may have given up."""
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    return print_function(hold_law(f, s, *sizes))


def test_softmax_of_any_size_is_one_phase_over_rows() -> None:
    # Sums of exponentials depend on the order, so the inputs make them exact: all equal.
    f = softmax(dim("m"), dim("n"))
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    lowered = lower(s.function, TARGET)
    check(lowered)
    env = dict(zip(f.dims, (3, 37), strict=True))
    x = np.random.default_rng(0).standard_normal((3, 37)).astype(np.float32)
    (got,) = interp.run(lowered, [x], env)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)
    text = print_function(lowered)
    assert text.count("\n  for") == 1
    assert "workspace" not in text, "exponentials are where the result will be"


@pytest.mark.parametrize("length", [256, 4096])
def test_softmax_adds_exponentials_as_it_makes_them(length: int) -> None:
    """Also where rows are so long that they are added up in blocks."""
    lowered = lower(schedule(softmax(4, length), TARGET).function, TARGET)
    text = print_function(lowered)
    loop = text[text.index('steps="4 mixed"') :]
    made, added = loop.index("exp("), loop.index("] + y[")
    assert made < added < loop.index("}"), "in one body"
    assert f'prefetch="x {4 * length}"' in text, "the next row"


def test_layer_norm_keeps_rows_in_registers() -> None:
    f = layer_norm(dim("m"), 32)
    s = schedule(f, TARGET)
    assert gave_up(s) == []
    text = print_function(lower(s.function, TARGET))
    assert text.count("\n  for") == 1
    assert "workspace" not in text and "stack" not in text


def reduction(
    shape: tuple[Int | int, ...], axes: tuple[int, ...], op: ReduceOp, *, then: bool = False
) -> LoopFunction:
    x = te.placeholder(shape, F32, "x")
    kept = [d for d in range(len(shape)) if d not in axes]
    k = {d: te.reduce_axis(f"k{d}", shape[d]) for d in axes}

    def body(*i: Int) -> te.ScalarValue:
        at = dict(zip(kept, i, strict=True)) | k
        return te.reduce_over(op, list(k.values()), x[tuple(at[d] for d in range(len(shape)))])

    y = te.compute([shape[d] for d in kept], body, name="r")
    if then:
        z = te.compute(shape, lambda *i: x[i] - y[tuple(i[d] for d in kept)], name="z")
        return from_te("r", [x], [z])
    return from_te("r", [x], [y])


@pytest.mark.sample(8)
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.MAX_NUMBER])
@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((5, 64), (1,)),
        ((5, 37), (1,)),
        ((5, 3), (1,)),
        ((64,), (0,)),
        ((70,), (0,)),
        ((2, 3, 20), (1,)),
        ((2, 3, 20), (0,)),
        ((2, 3, 20), (0, 2)),
        ((2, 3, 20), (0, 1, 2)),
        ((2, 3, 4, 9), (2, 3)),
        ((1, 6, 1, 16), (1, 2)),
        ((5, 12), (1,)),
        ((40, 3), (0,)),
        ((6, 7, 2), (0, 1)),
    ],
)
def test_reductions(shape: tuple[int, ...], axes: tuple[int, ...], op: ReduceOp, then: bool) -> None:
    rows_scheduled(reduction(shape, axes, op, then=then))


@pytest.mark.parametrize("rows", [5, 12, 64])
def test_lanes_are_combined_four_by_four_before_one_by_one(rows: int) -> None:
    f = reduction((rows, 12), (1,), ReduceOp.MAX, then=False)
    text = print_function(hold_law(f, schedule(f, TARGET)))
    written_out = [int(line.split("0..")[1].split()[0]) for line in text.splitlines() if "unroll" in line]
    assert "0..4 vector" in text
    assert max(written_out) == 4


@pytest.mark.parametrize("columns", [2, 3])
def test_a_few_long_columns_are_reduced_by_vectors_down(columns: int) -> None:
    f = reduction((640, columns), (0,), ReduceOp.MAX, then=False)
    text = print_function(hold_law(f, schedule(f, TARGET)))
    loops = [line.split("..")[1].split("{")[0].strip() for line in text.splitlines() if "for " in line]
    assert loops[0] == str(columns)
    assert loops[3:6] == ["20", "4 unroll", "8 vector"]


def test_reductions_of_symbolic_size() -> None:
    for axes in ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)):
        f = reduction((dim("a"), dim("b"), dim("c")), axes, ReduceOp.SUM)
        rows_scheduled(f, (2, 3, 37), (3, 2, 5), (1, 1, 1), (2, 0, 3))


@pytest.mark.parametrize(("terms", "rule"), [(256, "dots"), (20, "contraction")])
def test_rows_by_one_column_are_added_along_the_rows(terms: int, rule: str) -> None:
    k = te.reduce_axis("k", terms)
    x, w = te.placeholder((5, terms), F32, "x"), te.placeholder((terms, 1), F32, "w")
    y = te.compute((5, 1), lambda i, j: te.sum_over([k], x[i, k] * w[k, j]), name="y")
    f = from_te("product", [x, w], [te.compute((5, 1), lambda i, j: te.maximum(y[i, j], 0.0), name="z")])
    s = schedule(f, TARGET)
    assert s.rule == rule
    hold_law(f, s, ())


@pytest.mark.sample(3)
@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize(
    ("rows", "rule"), [(32, "rows"), (dim("n"), "rows"), (1, "split_reductions")], ids=str
)
def test_squares_along_rows_are_added_along_the_rows(rows: Int | int, rule: str, kept: int) -> None:
    """Axes of one element that are kept for them are no columns of a product."""
    columns = 64 if rule == "rows" else 40_000
    x = te.placeholder((rows, columns), F32, "x")
    k = te.reduce_axis("k", columns)
    shape = (rows, *(1,) * kept)
    f = from_te("f", [x], [te.compute(shape, lambda i, *_: te.sum_over(k, x[i, k] * x[i, k]), name="y")])
    s = schedule(f, Target())
    assert s.rule == rule
    hold_law(f, s, *[(n,) for n in (1, 5)] if isinstance(rows, Int) else [()])


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)], ids=["tokens first", "heads first"])
def test_rows_are_taken_as_the_largest_operand_lies(order: tuple[int, ...]) -> None:
    """What reads the same row again, the axis `g`, is inside; results lie in another order."""
    tokens = dim("t")
    k, extents = te.reduce_axis("k", 64), (tokens, 3, 64)
    x = te.placeholder([extents[n] for n in order], F32, "x")
    q = te.placeholder((3, 2, 64), F32, "q")

    def body(h: Int, g: Int, t: Int) -> te.ScalarValue:
        at = (t, h, k)
        return te.sum_over([k], x[tuple(at[n] for n in order)] * q[h, g, k])

    f = from_te("scores", [x, q], [te.compute((3, 2, tokens), body, name="y")])
    s = schedule(f, TARGET)
    assert s.rule == "rows"
    hold_law(f, s, (0,), (1,), (5,))
    around = [s.loop(n).extent for n in s.loops_of(next(blocks_of(f.body)).name)[:3]]
    assert around == [*(extents[n] for n in order[:2]), 2]


def pool(n: Int | int, c: Int | int, *, channels_last: bool, mean: bool) -> LoopFunction:
    shape = (n, 6, 6, c) if channels_last else (n, c, 6, 18)
    x = te.placeholder(shape, F32, "x")
    k, r = te.reduce_axis("k", 2), te.reduce_axis("r", 2)

    def body(*i: Int) -> te.ScalarValue:
        if channels_last:
            return te.sum_over([k, r], x[i[0], i[1] * 2 + k, i[2] * 2 + r, i[3]])
        return te.sum_over([k, r], x[i[0], i[1], i[2] * 2 + k, i[3] * 2 + r])

    out = (n, 3, 3, c) if channels_last else (n, c, 3, 9)
    y = te.compute(out, body, name="y", tag="pool")
    if mean:
        y = te.compute(out, lambda *i: y[i] * 0.25, name="z")
    return from_te("pool", [x], [y])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("mean", [False, True])
def test_pooling(channels_last: bool, mean: bool) -> None:
    rows_scheduled(pool(1, 16, channels_last=channels_last, mean=mean))
    rows_scheduled(pool(dim("n"), 11, channels_last=channels_last, mean=mean), (2,), (0,))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("channels", "lanes", "vectors", "is_masked"),
    [
        (3, 0, 0, False),
        (4, 4, 1, False),
        (5, 8, 1, True),
        (16, 8, 2, False),
        (24, 8, 3, False),
        (28, 8, 4, True),
        (40, 8, 3, True),
        (64, 8, 4, False),
    ],
)
def test_channels_are_reduced_several_vectors_at_a_time_and_few_as_a_part_of_one(
    channels: int, lanes: int, vectors: int, *, is_masked: bool
) -> None:
    f = pool(1, channels, channels_last=True, mean=False)
    s = schedule(f, Target(vector_bytes=32))
    text = print_function(hold_law(f, s))
    assert (f"in 0..{lanes} vector" in text) == (lanes > 0)
    assert (f"in 0..{vectors} unroll" in text) == (vectors > 1)
    assert ("if " in text) == is_masked


@pytest.mark.parametrize(("channels", "is_short"), [(8, True), (12, False)])
def test_few_bytes_are_a_part_of_a_vector_if_they_fill_it(channels: int, *, is_short: bool) -> None:
    x, r = te.placeholder((6, channels), U8, "x"), te.reduce_axis("r", 6)
    y = te.compute((channels,), lambda c: te.max_over([r], x[r, c]), name="y")
    s = schedule(from_te("f", [x], [y]), Target(vector_bytes=32))
    assert (f"in 0..{channels} vector" in print_function(s.function)) == is_short


def test_indices_of_a_row_leave_its_vectors_whole() -> None:
    """They are 64 bits wide, but one number for all lanes."""
    x, rows = te.placeholder((9, 32), F32, "x"), te.placeholder((6,), I64, "rows")
    y = te.compute((6, 32), lambda i, c: x[clamped(rows[i], to_int(9)), c] * 2.0, name="y")
    text = scheduled(from_te("f", [x, rows], [y]))
    assert "in 0..8 vector" in text


def test_contractions_without_a_rule_of_their_own() -> None:
    rows_scheduled(gemm(3, 24, dim("k"), bias=True), (0,), (5,))
    rows_scheduled(gemm(dim("m"), dim("n"), 7, bias=True), (3, 21), (2, 8), (1, 1))


@pytest.mark.parametrize(
    ("channels", "lanes"), [(144, 32), (96, 32), (64, 32), (24, 24), (256, 32)], ids=lambda n: str(n)
)
def test_bytes_are_moved_in_whole_vectors(channels: int, lanes: int) -> None:
    x = te.placeholder((9, channels), U8, "x")
    y = te.compute((11, channels), lambda i, c: te.select(te.index(i) < 9, x[i, c], 7), name="y")
    text = scheduled(from_te("f", [x], [y]))
    assert f"in 0..{lanes} vector" in text
    assert "if" not in text


@pytest.mark.parametrize(
    ("dtype", "columns", "lanes"), [(U8, 100, [32, 4]), (U8, 45, [32, 8, 4]), (F16, 42, [16, 8])]
)
def test_rows_of_narrow_elements_end_in_shorter_vectors(dtype: DType, columns: int, lanes: list[int]) -> None:
    """Of rows that are taken, and of those with a frame."""
    x, at = te.placeholder((9, columns), dtype, "x"), te.placeholder((5,), I64, "at")

    def taken(i: Int, c: Int) -> te.ScalarValue:
        return x[te.minimum(te.maximum(at[i], 0), 8), c]

    def framed(i: Int, c: Int) -> te.ScalarValue:
        is_inside = (te.index(c) >= 1) & (te.index(c) <= columns)
        return te.select(is_inside, x[i, c - 1], te.const(7, dtype))

    rows = from_te("f", [x, at], [te.compute((5, columns), taken, name="y")])
    frames = from_te("f", [x], [te.compute((9, columns + 2), framed, name="y")])
    for f in (rows, frames):
        ends = re.findall(r"in (\d+)\.\.(\d+) vector", scheduled(f))
        assert [int(end) - int(first) for first, end in ends] == lanes


def test_short_rows_of_bytes_with_a_frame_are_left_to_llvm() -> None:
    """Which makes vectors of many rows, where a vector of one would ask for each lane whether it is inside."""
    x = te.placeholder((9, 28), U8, "x")

    def framed(i: Int, c: Int) -> te.ScalarValue:
        return te.select((te.index(c) >= 1) & (te.index(c) <= 28), x[i, c - 1], te.const(7, U8))

    text = scheduled(from_te("f", [x], [te.compute((9, 30), framed, name="y")]))
    assert "vector" not in text and "unroll" not in text


@pytest.mark.parametrize("fill", [0, 3])
def test_taps_outside_are_left_out_if_they_are_zero_and_copied_if_not(fill: int) -> None:
    x, w = te.placeholder((4, 4, 8), U8, "x"), te.placeholder((3, 3, 8), I8, "w")

    def inside(i: Int, j: Int, c: Int) -> te.ScalarValue:
        at = (te.index(i) >= 1) & (te.index(i) < 5) & (te.index(j) >= 1) & (te.index(j) < 5)
        return te.select(at, x[i - 1, j - 1, c], te.const(fill, U8))

    around = te.compute((6, 6, 8), inside, name="around", tag="pad", stored=True)
    ky, kx = te.reduce_axis("ky", 3), te.reduce_axis("kx", 3)

    def taps(i: Int, j: Int, c: Int) -> te.ScalarValue:
        return te.sum_over((ky, kx), around[i + ky, j + kx, c].cast(I32) * w[ky, kx, c].cast(I32))

    f = from_te("f", [x, w], [te.compute((4, 4, 8), taps, name="y", tag="depthwise")])
    s = schedule(f, TARGET)
    assert s.rule == "contraction"
    assert ("pad" in " ".join(s.block_names())) == (fill != 0)
    hold_law(f, s)
