"""Contractions on a matrix unit: which, in what blocks, and that they mean the same."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.matrix_tiles import MOST_SUMS, matrix_blocks
from inlay.arith.dtype import F32, I8, I32, U8, DType
from inlay.arith.expr import Int
from inlay.codegen.llvm import emit_module
from inlay.codegen.phases import flatten
from inlay.interp import loop as interp
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.loop.scalar import UnaryOp
from inlay.loop.stmt import For, LoopKind
from inlay.loop.walk import stmts_below
from inlay.lower.lower import lower
from inlay.machine.matrix_units import MATRIX_PRODUCTS
from inlay.machine.target import Target, host
from inlay.schedule.choose import decide
from inlay.schedule.rules.contraction import contraction
from inlay.schedule.state import Schedule
from tests.unit.codegen.support import run_native
from tests.unit.codegen.test_matrices import UNIT
from tests.unit.schedule.programs import dim, hold_law

UNIT_OF = MATRIX_PRODUCTS["u8i8"]
SAID = Target(matrix=("u8i8", "i8"))
"""A machine of which a board says that it has a unit, and LLVM nothing."""


def packed_conv(
    image: tuple[int, int],
    channels: tuple[int, int],
    kernel: int = 1,
    *,
    stride: int = 1,
    x_format: DType = U8,
    rounds: bool = True,
    images: Int | int = 1,
) -> LoopFunction:
    """A convolution of x with weights in panels of 16, brought back to u8 if `rounds`."""
    (h, w), (c, oc) = image, channels
    groups = -(-c // 4)
    x = te.placeholder((images, h, w, 4 * groups), x_format, "x")
    k = te.placeholder((-(-oc // 16), kernel, kernel, groups, 16, 4), I8, "w")
    scale = te.placeholder((oc,), F32, "scale")
    ky, kx = te.reduce_axis("ky", kernel), te.reduce_axis("kx", kernel)
    kc, kj = te.reduce_axis("kc", groups), te.reduce_axis("kj", 4)
    shape = (images, (h - kernel) // stride + 1, (w - kernel) // stride + 1, oc)

    def term(b: Int, i: Int, j: Int, o: Int) -> te.ScalarValue:
        left = x[b, i * stride + ky, j * stride + kx, kc * 4 + kj].cast(I32)
        return te.sum_over((ky, kx, kc, kj), left * k[o // 16, ky, kx, kc, o % 16, kj].cast(I32))

    s = te.compute(shape, term, name="s", tag="conv")

    def rounded(*at: Int) -> te.ScalarValue:
        value = te.unary(UnaryOp.ROUND_EVEN, s[at].cast(F32) * scale[at[-1]])
        return te.minimum(te.maximum(value, 0.0), 255.0).cast(U8)

    result = te.compute(shape, rounded, name="y", tag="requantize") if rounds else s
    return from_te("conv", [x, k, scale] if rounds else [x, k], [result])


SMALL = [
    pytest.param(((1, 9), (32, 16), 1), id="one line"),
    pytest.param(((5, 8), (32, 16), 1), id="lines that blocks do not divide"),
    pytest.param(((3, 17), (16, 32), 2), id="windows"),
    pytest.param(((2, 8), (32, 48), 1), id="panels not of two"),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", SMALL)
def test_sums_on_the_unit_are_the_sums(case: tuple) -> None:
    f = packed_conv(*case)
    s = Schedule(f)
    contraction(s, SAID)
    assert "@matrix" in print_function(s.function)
    hold_law(f, s)


@pytest.mark.sample(1)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("rounds", [False, True])
def test_strides_and_sums_that_are_the_result(stride: int, *, rounds: bool) -> None:
    f = packed_conv((4, 8 * stride + 1), (32, 16), 2, stride=stride, x_format=I8, rounds=rounds)
    s = Schedule(f)
    contraction(s, SAID)
    assert "@matrix" in print_function(s.function)
    hold_law(f, s)


@pytest.mark.parametrize("height", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_number_of_images_that_is_not_known_is_a_loop_outside(height: int) -> None:
    f = packed_conv((height, 9), (32, 16), images=dim("n"))
    s = Schedule(f)
    contraction(s, SAID)
    if height == 1:  # then images are the lines, which blocks have to know
        assert "@matrix" not in print_function(s.function)
    else:
        assert "@matrix" in print_function(s.function)
    hold_law(f, s, (1,), (3,))


@pytest.mark.parametrize(
    ("case", "why"),
    [(((4, 8), (32, 8), 1), "columns"), (((1, 1), (256, 64), 1), "rows"), (((4, 8), (4, 16), 1), "steps")],
)
def test_what_does_not_pay_is_left_to_dot_products(case: tuple, why: str) -> None:
    s = Schedule(packed_conv(*case))
    contraction(s, SAID)
    assert "@matrix" not in print_function(s.function), why


def test_a_machine_without_a_unit_has_none() -> None:
    s = Schedule(packed_conv((5, 8), (32, 16)))
    contraction(s, Target(dot=("u8i8",)))
    assert "@matrix" not in print_function(s.function)


@pytest.mark.sample(2)
@pytest.mark.parametrize("x_format", [U8, I8])
@pytest.mark.parametrize("case", [((7, 7), (64, 64), 3), ((6, 30), (80, 96), 3), ((3, 112), (24, 64), 1)])
def test_compiled_is_the_interpreter(case: tuple, x_format: DType) -> None:
    f = packed_conv(*case, x_format=x_format)
    decision = decide(f, host())
    assert decision.facts["matrix"] == tuple(k.name for k in host().matrix_kinds)
    rng = np.random.default_rng(5)
    inputs: list[np.ndarray] = []
    for b in f.params[:2]:
        info = np.iinfo(b.dtype.numpy)
        inputs.append(rng.integers(info.min, info.max + 1, [e.value for e in b.shape]).astype(info.dtype))
    inputs.append(rng.random(f.params[2].shape[0].value or 0).astype(np.float32) * np.float32(1e-4))
    lowered = lower(decision.function, host())
    [got] = run_native(lowered, inputs, {}, target=host())
    dots = lower(decide(f, Target(arch="x86_64", features=())).function, Target())
    [want] = run_native(dots, inputs, {}, target=host())
    np.testing.assert_array_equal(got, want)
    small = packed_conv((3, 5), (32, 16), x_format=x_format)
    parts = [
        inputs[0][:, :3, :5, :1].repeat(32, 3)[..., :32],
        inputs[1][:1, :1, :1, :1].repeat(8, 3),
        inputs[2][:16],
    ]
    [here] = run_native(lower(decide(small, host()).function, host()), parts, {}, target=host())
    np.testing.assert_array_equal(here, interp.run(small, parts, {})[0])


def test_code_for_a_described_machine_has_its_instructions() -> None:
    decision = decide(packed_conv((7, 7), (64, 64), 3), UNIT)
    module = emit_module(lower(decision.function, UNIT), UNIT).text
    assert "@llvm.x86.tdpbusd(i8" in module
    assert module.count("call void @llvm.x86.ldtilecfg") == 1, "the last lines have the shapes of the others"


@pytest.mark.parametrize("images", [1, dim("n")])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(((56, 56), (64, 64), 1), id="few panels"),
        pytest.param(((28, 28), (128, 512), 1), id="lines first"),
        pytest.param(((14, 14), (1024, 256), 1), id="lines that blocks do not divide"),
        pytest.param(((7, 7), (512, 512), 1), id="few lines"),
    ],
)
def test_threads_share_a_long_loop_whatever_the_number_of_images(case: tuple, images: Int | int) -> None:
    function = decide(packed_conv(*case, images=images), UNIT).function
    assert "@matrix" in print_function(function)
    loops = [x for x in stmts_below(function.body) if isinstance(x, For)]
    assert loops[0].kind is LoopKind.PARALLEL
    assert (loops[0].extent.value or 0) >= 4
    assert not any(isinstance(x, For) for x in flatten(function.body) if x is not loops[0])


def test_far_second_factors_are_asked_for_ahead() -> None:
    far = decide(packed_conv((7, 7), (512, 512), 3), UNIT).function
    near = decide(packed_conv((56, 56), (64, 64), 1), UNIT).function
    assert "prefetch" in print_function(far)
    assert "prefetch" not in print_function(near)
    assert "llvm.prefetch" in emit_module(lower(far, UNIT), UNIT).text


@pytest.mark.sample(8)
@pytest.mark.parametrize("rows", range(1, 60, 7))
@pytest.mark.parametrize("lines", [1, 5, 14])
@pytest.mark.parametrize("columns", [16, 48, 512])
@pytest.mark.parametrize("groups", [6, 17, 36])
def test_blocks_cover_rows_and_columns_and_fit(rows: int, lines: int, columns: int, groups: int) -> None:
    x = matrix_blocks(UNIT_OF, rows, lines, columns, groups, 9, 48 << 10)
    if x is None:
        return
    assert rows % (x.rows * x.along) == 0
    assert columns // UNIT_OF.columns % x.across == 0
    assert groups % x.steps == 0
    assert x.rows <= UNIT_OF.rows
    assert x.steps <= UNIT_OF.steps
    assert x.along * x.lines * x.across <= MOST_SUMS
    assert x.lines <= lines
