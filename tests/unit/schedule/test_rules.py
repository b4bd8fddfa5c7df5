"""Default schedules: the law, and the form of the result."""

from __future__ import annotations

import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.printer import print_function
from inlay.schedule.choose import schedule
from inlay.schedule.target import GenericTarget
from tests.unit.schedule.programs import dim, elementwise, gemm, hold_law

TARGET = GenericTarget()


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
    y = te.compute(
        (n, c, h, h),
        lambda i, j, k, r: te.maximum(x[i, j, k, r] + b[0, j, 0, 0], 0.0),
        name="y",
    )
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
