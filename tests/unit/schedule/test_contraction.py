"""The default schedules of contractions keep the meaning and have the shape they are made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.arith.dtype import F32, I32, DType
from inlay.arith.expr import Int, lit, to_int
from inlay.ir.context import Context
from inlay.ir.op import NoAttrs
from inlay.ir.parser import parse_module
from inlay.ir.types import TensorType
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.stmt import For, If, LoopKind
from inlay.loop.walk import stmts_below
from inlay.machine.target import Target, baseline
from inlay.ops.convolution import ConvAttrs, DepthwiseAttrs, PackedConvAttrs
from inlay.ops.matmul import PackedAttrs
from inlay.ops.table import table
from inlay.schedule.rules.contraction import contract, contraction
from inlay.schedule.rules.contraction_plan import tile_options
from inlay.schedule.state import Illegal, Schedule
from tests.unit.schedule.programs import dim, hold_law

SMALL = baseline("x86_64", "v2")
"""Four lanes: panels of 8 columns."""


def packed_matmul(
    shape: Sequence[Int | int], n: int, panel: int, *, epilogue: str = "", dtype: DType = F32
) -> LoopFunction:
    dims = [to_int(d) for d in shape]
    x = te.placeholder(dims, dtype, "x")
    w = te.placeholder((-(-n // panel), dims[-1], panel), dtype, "w")
    result = TensorType((*dims[:-1], lit(n)), dtype)
    compute = table().definition("matmul_packed").compute
    y = compute(PackedAttrs(panel, n), [x, w], result)
    inputs = [x, w]
    if epilogue:
        b = te.placeholder((n,), dtype, "b")
        r = te.placeholder(result.shape, dtype, "r")
        inputs += [b, r]
        product = y
        y = te.compute(result.shape, lambda *i: te.maximum(product[i] + b[i[-1]] + r[i], 0), name="out")
    return from_te("matmul", inputs, [y])


def scheduled(f: LoopFunction) -> tuple[Schedule, tuple[str, ...]]:
    s = Schedule(f)
    [block] = [b for b in s.block_names() if s.block(b).init is not None]
    return s, contract(s, block, SMALL)


@pytest.mark.sample(3)
@pytest.mark.parametrize("epilogue", ["", "relu"])
@pytest.mark.parametrize(
    ("shape", "n", "sizes"),
    [
        ((dim("m"), 5), 16, [(0,), (1,), (7,), (13,)]),
        ((16, 3), 8, [()]),
        ((13, 3), 24, [()]),
        ((3, dim("m"), 4), 8, [(5,)]),
        ((dim("p"), dim("m"), dim("k")), 8, [(2, 5, 3), (1, 4, 0)]),
        ((5,), 16, [()]),
        ((6, 4), 10, [()]),
        ((6, 4), 3, [()]),
    ],
    ids=str,
)
def test_packed_matmul(shape: tuple, n: int, sizes: list, epilogue: str) -> None:
    f = packed_matmul(shape, n, 8, epilogue=epilogue)
    s, taken = scheduled(f)
    assert len(taken) == (2 if epilogue else 1)
    lowered = hold_law(f, s, *sizes)
    assert not lowered.workspaces
    text = print_function(lowered)
    # A known small number of operations is not worth waking other threads.
    assert ("parallel" in text) == any(isinstance(d, Int) for d in shape)
    assert " @register" in text


def test_an_epilogue_that_broadcasts_over_an_axis_of_one_element() -> None:
    x, w = te.placeholder((1, 6, 4), F32, "x"), te.placeholder((1, 4, 8), F32, "w")
    b = te.placeholder((1, 1, 8), F32, "b")
    result = TensorType((lit(1), lit(6), lit(8)), F32)
    y = table().definition("matmul_packed").compute(PackedAttrs(8, 8), [x, w], result)
    z = te.compute(result.shape, lambda _, i, j: y[0, i, j] + b[0, 0, j], name="z")
    f = from_te("biased", [x, w, b], [z])
    s, taken = scheduled(f)
    assert len(taken) == 2
    assert not hold_law(f, s).workspaces


def test_integers_keep_their_two_operations() -> None:
    f = packed_matmul((6, 4), 8, 8, dtype=I32)
    s, _ = scheduled(f)
    assert "fma" not in print_function(hold_law(f, s))


def test_machines_without_fma_multiply_and_add() -> None:
    for target, expected in [(baseline("x86_64", "v2"), False), (baseline("x86_64", "v3"), True)]:
        s = Schedule(packed_matmul((6, 4), 8, 8))
        contraction(s, target)
        assert ("fma" in print_function(s.function)) == expected


def test_the_reduction_is_the_only_serial_loop_in_a_tile() -> None:
    s, _ = scheduled(packed_matmul((12, 31), 8, 8, epilogue="relu"))
    from inlay.lower.lower import lower

    serial = [
        x.extent
        for x in stmts_below(lower(s.function, Target()).body)
        if isinstance(x, For) and x.kind is LoopKind.SERIAL
    ]
    assert serial == [2, 31]


def test_known_rows_get_two_sizes_of_tiles_and_symbols_a_cascade() -> None:
    assert tile_options(baseline("x86_64", "v4"), F32, 32, 56)[0] == (8,)
    assert tile_options(baseline("x86_64", "v4"), F32, 64, 15)[0] == (5,)
    assert tile_options(baseline("x86_64", "v3"), F32, 16, None)[0] == (6, 4, 3, 2, 1)
    assert tile_options(baseline("x86_64", "v3"), F32, 16, None)[2] == (4, 3, 2, 1)
    assert tile_options(baseline("x86_64", "v4"), F32, 32, None)[0] == (8, 4, 3, 2, 1)


def convolution(
    op: str, attrs: object, x: Sequence[Int | int], w: Sequence[int], *, epilogue: bool
) -> LoopFunction:
    source = te.placeholder([to_int(d) for d in x], F32, "x")
    weights = te.placeholder(w, F32, "w")
    definition = table().definition(op)
    operands = [TensorType(t.shape, F32) for t in (source, weights)]
    result = definition.op.type_rule(Context(), attrs, operands)
    assert isinstance(result, TensorType)
    y = definition.compute(attrs, [source, weights], result)
    inputs = [source, weights]
    if epilogue:
        b = te.placeholder((result.shape[-1],), F32, "b")
        inputs.append(b)
        conv = y
        y = te.compute(result.shape, lambda *i: te.maximum(conv[i] + b[i[-1]], 0), name="out")
    return from_te("conv", inputs, [y])


@pytest.mark.sample(2)
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(
    ("image", "kernel", "channels", "stride", "pad"),
    [
        ((1, 5, 7, 3), 3, 8, 1, 1),
        ((1, 6, 9, 3), 3, 10, 2, 1),
        ((2, 4, 4, 9), 1, 16, 1, 0),
        ((dim("n"), dim("h"), dim("w"), 2), 3, 8, 1, 1),
        ((1, 3, 7, 2), 5, 9, 1, 2),
        ((dim("n"), 4, 9, 2), 3, 8, 1, 1),
    ],
    ids=str,
)
def test_packed_convolution(
    image: tuple, kernel: int, channels: int, stride: int, pad: int, epilogue: bool
) -> None:
    attrs = PackedConvAttrs(strides=(stride, stride), pads=(pad,) * 4, panel=8, channels=channels)
    weights = (-(-channels // 8), kernel, kernel, image[-1], 8)
    f = convolution("conv_nhwc_packed", attrs, image, weights, epilogue=epilogue)
    s = Schedule(f)
    contraction(s, SMALL)
    sizes = {0: [()], 1: [(2,), (0,)], 3: [(1, 3, 9), (2, 1, 2)]}[len(f.dims)]
    lowered = hold_law(f, s, *sizes)
    assert bool(lowered.workspaces) == (pad > 0 and len(f.dims) == 3)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("image", "kernel", "dilation", "stride", "pads", "is_far"),
    [
        ((1, 1, 40, 3), 2, 11, 1, (11, 0), True),
        ((1, 1, 41, 2), 3, 15, 2, (15, 15), True),
        ((1, 1, 12, 2), 3, 15, 1, (15, 15), True),
        ((1, 1, 40, 3), 3, 2, 1, (2, 2), False),
        ((1, 3, 23, 2), 3, 8, 1, (3, 13), True),
    ],
    ids=str,
)
@pytest.mark.parametrize("op", ["conv_nhwc_packed", "depthwise_conv_nhwc"])
def test_windows_far_over_the_ends_are_tested_where_rows_differ(
    op: str, image: tuple, kernel: int, dilation: int, stride: int, pads: tuple, is_far: bool
) -> None:
    attrs = PackedConvAttrs(8, 8, strides=(1, stride), pads=(0, pads[0], 0, pads[1]), dilations=(1, dilation))
    weights: tuple[int, ...] = (1, 1, kernel, image[-1], 8)
    if op == "depthwise_conv_nhwc":
        attrs, weights = DepthwiseAttrs(attrs.strides, attrs.pads, attrs.dilations), (1, kernel, image[-1])
    f = convolution(op, attrs, image, weights, epilogue=True)
    s = Schedule(f)
    contraction(s, SMALL)
    hold_law(f, s)
    used = [step.primitive for step in s.trace]
    if op == "conv_nhwc_packed":
        assert ("partition" in used, "peel" in used) == (is_far, not is_far)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("rows", "kernel", "channels", "shared"),
    [
        (110, 7, 8, "0..16"),  # two rows behind the last tile of six; three reach over the end
        (114, 7, 8, "0..17"),
        (110, 7, 16, "0..32"),
        (110, 1, 8 * 16, "0..16"),
        (dim("w"), 1, 8, "0..(w // 6)"),
    ],
    ids=str,
)
def test_threads_share_the_tiles_of_one_line(
    rows: Int | int, kernel: int, channels: int, shared: str
) -> None:
    """Where panels are few, and without tests of windows in tiles that no window leaves."""
    pad = kernel // 2
    attrs = PackedConvAttrs(8, channels, strides=(1, 1), pads=(0, pad, 0, pad))
    f = convolution(
        "conv_nhwc_packed", attrs, (1, 1, rows, 2), (channels // 8, 1, kernel, 2, 8), epilogue=True
    )
    s = Schedule(f)
    contraction(s, SMALL)
    lowered = hold_law(f, s, *([()] if isinstance(rows, int) else [(40,), (3,)]))
    loops = [x for x in stmts_below(lowered.body) if isinstance(x, For) and x.kind is LoopKind.PARALLEL]
    shared_one = next(x for x in loops if f"0..{x.extent}" == shared)
    assert len(loops) == 1 or channels > 8
    assert channels == 128 or not any(isinstance(x, If) for x in stmts_below(shared_one.body))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("image", "kernel", "stride", "pad"),
    [
        ((1, 5, 17, 8), 3, 1, 1),
        ((1, 6, 9, 5), 3, 2, 1),
        ((2, 4, 4, 12), 3, 1, 0),
        ((1, dim("h"), dim("w"), 4), 3, 1, 1),
        ((1, 3, 16, 4), 5, 1, 2),
        ((1, 2, 2, 4), 5, 1, 2),
    ],
    ids=str,
)
def test_depthwise_convolution(image: tuple, kernel: int, stride: int, pad: int) -> None:
    attrs = DepthwiseAttrs(strides=(stride, stride), pads=(pad,) * 4)
    weights = (kernel, kernel, image[-1] if isinstance(image[-1], int) else 4)
    f = convolution("depthwise_conv_nhwc", attrs, image, weights, epilogue=True)
    s = Schedule(f)
    contraction(s, SMALL)
    lowered = hold_law(f, s, *([(3, 9), (1, 1), (2, 30)] if f.dims else [()]))
    assert "select" not in print_function(lowered)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("image", "groups", "channels", "stride"),
    [((1, 5, 9, 8), 4, 8, 1), ((1, 5, 9, 12), 3, 24, 2), ((1, dim("h"), 6, 4), 2, 16, 1)],
    ids=str,
)
def test_grouped_convolution(image: tuple, groups: int, channels: int, stride: int) -> None:
    attrs = ConvAttrs((stride, stride), (1, 1, 1, 1), groups=groups)
    weights = (3, 3, image[-1] // groups, channels)
    f = convolution("conv_nhwc", attrs, image, weights, epilogue=True)
    s = Schedule(f)
    contraction(s, SMALL)
    lowered = hold_law(f, s, *([(4,), (1,)] if f.dims else [()]))
    assert " @register" in print_function(lowered)


@pytest.mark.parametrize(("width", "is_half"), [(8, True), (4, True), (16, False)])
def test_groups_of_half_a_register_take_one(width: int, *, is_half: bool) -> None:
    """Panels of more groups shuffle what each of them reads."""
    attrs = ConvAttrs((1, 1), (), groups=32 // width)
    f = convolution("conv_nhwc", attrs, (1, 1, 3, 32), (1, 1, width, 32), epilogue=False)
    s = Schedule(f)
    contraction(s, replace(SMALL, vector_bytes=64, vector_registers=32))
    assert ("in 0..8 vector" in print_function(hold_law(f, s))) == is_half


@pytest.mark.parametrize(("width", "anew"), [(4, True), (2, False)])
def test_taps_load_anew_unless_groups_are_narrower_than_a_register(width: int, anew: bool) -> None:
    attrs = ConvAttrs((1, 1), (1, 1, 1, 1), groups=8 // width)
    f = convolution("conv_nhwc", attrs, (1, 5, 9, 8), (3, 3, width, 8), epilogue=False)
    s = Schedule(f)
    contraction(s, SMALL)
    assert SMALL.lanes(4) == 4
    assert ('loads="anew"' in print_function(hold_law(f, s, ()))) == anew


def test_batches_come_first() -> None:
    m = dim("m")
    a, b = te.placeholder((1, 3, m, 4), F32, "a"), te.placeholder((1, 3, 4, 6), F32, "b")
    result = TensorType((lit(1), lit(3), m, lit(6)), F32)
    y = table().definition("matmul").compute(NoAttrs(), [a, b], result)
    f = from_te("scores", [a, b], [y])
    s = Schedule(f)
    contraction(s, SMALL)
    lowered = hold_law(f, s, (5,))
    assert isinstance(lowered.body, For)
    assert lowered.body.extent == 3
    assert lowered.body.kind is LoopKind.PARALLEL


def test_other_reductions_are_left_to_other_rules() -> None:
    x = te.placeholder((4, 5), F32, "x")
    k = te.reduce_axis("k", 5)
    squares = te.compute((4,), lambda i: te.sum_over(k, x[i, k] * x[i, k]), name="y")
    s = Schedule(from_te("norm", [x], [squares]))
    with pytest.raises(Illegal, match="'c_y', which reads 'x' across the last axis of the result"):
        contraction(s, SMALL)
    assert s.trace == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("columns", [17, 24, 33, 40, 63, 64, 65, 100])
@pytest.mark.parametrize("rows", [2, 5, 8])
def test_panels_of_any_number_of_columns_compile(columns: int, rows: int) -> None:
    rng = np.random.default_rng(columns)
    x = rng.integers(-4, 5, (rows, 7)).astype(np.float32)
    w = rng.integers(-4, 5, (7, columns)).astype(np.float32)
    text = f"""fn main(x: Tensor[{rows}, 7, f32]) {{ matmul(x, f32[7, {columns}](#"w")) }}"""
    module = infer_types(parse_module(text, table(), resources={"w": w}))
    np.testing.assert_array_equal(inlay.compile(module, cache="none")(x), x @ w)
