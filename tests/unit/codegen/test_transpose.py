"""Copies across the grain: transposed in registers, and read nowhere that a copy would not."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.arith.dtype import BF16, F16, F32, F64, I8, I16, I64, U8, DType
from inlay.arith.expr import floordiv, fresh, lit, to_int
from inlay.loop import te
from inlay.loop.from_te import from_te
from inlay.loop.func import LoopFunction
from inlay.loop.stmt import For
from inlay.loop.walk import is_transposed, stmts_below
from inlay.lower.lower import lower
from inlay.machine.target import Target, baseline, host
from inlay.schedule.choose import decide
from tests.examples import examples
from tests.unit.codegen.support import run_native

LEVELS = [
    x for x in (baseline("x86_64", f"v{n}") for n in (2, 3, 4)) if set(x.features) <= set(host().features)
]
TARGETS = [*LEVELS, baseline("aarch64")] if host().arch == "x86_64" else [host()]


def counted(x: te.ScalarValue) -> te.ScalarValue:
    """Add one so often that it is no cheap body."""
    for _ in range(20):
        x = x + 1.0
    return x


Body = Callable[[te.ScalarValue], te.ScalarValue]
BODIES: dict[str, tuple[DType, DType, Body]] = {
    **{str(t): (t, t, lambda x: x) for t in (U8, I16, F16, BF16, F32, F64, I64)},
    "u8 as f32": (U8, F32, lambda x: x.cast(F32) * 0.5),
    "i8 as i64": (I8, I64, lambda x: x.cast(I64)),
    "long": (F32, F32, counted),
    "f64 as f32": (F64, F32, lambda x: x.cast(F32)),
}


def crossed(batch: int, rows: int, columns: int, kind: str, *, is_open: bool = False) -> LoopFunction:
    """Matrices whose rows become columns, each element by itself."""
    before, _, body = BODIES[kind]
    n = to_int(fresh("n")) if is_open else rows
    x = te.placeholder((batch, n, columns), before, "x")
    y = te.compute((batch, columns, n), lambda b, j, i: body(x[b, i, j]), name="y")
    return from_te("crossed", [x], [y])


def lowered(f: LoopFunction, target: Target) -> LoopFunction:
    return lower(decide(f, target).function, target)


def tiles(f: LoopFunction) -> int:
    return sum(isinstance(x, For) and is_transposed(x) for x in stmts_below(f.body))


def numbers(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 100, shape).astype(dtype.numpy)


def hold(f: LoopFunction, x: np.ndarray, kind: str, target: Target) -> None:
    _, after, _ = BODIES[kind]
    dims = {d.name: x.shape[1] for d in f.dims}
    (found,) = run_native(lowered(f, target), [x], dims, parts=2, target=target)
    want = x.transpose(0, 2, 1).astype(np.float64) * (0.5 if kind == "u8 as f32" else 1)
    want = want + (20 if kind == "long" else 0)
    np.testing.assert_array_equal(found.reshape(want.shape), want.astype(after.numpy))


@pytest.mark.sample(10)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("kind", BODIES)
def test_rows_become_columns(kind: str, target: Target) -> None:
    for batch, rows, columns in ((1, 64, 64), (2, 67, 33), (3, 130, 17)):
        f = crossed(batch, rows, columns, kind)
        hold(f, numbers((batch, rows, columns), BODIES[kind][0]), kind, target)


@settings(max_examples=examples(6))
@given(st.sampled_from(sorted(BODIES)), st.tuples(*[st.integers(1, n) for n in (3, 150, 150)]), st.booleans())
def test_any_size(kind: str, shape: tuple[int, int, int], is_open: bool) -> None:
    hold(crossed(*shape, kind, is_open=is_open), numbers(shape, BODIES[kind][0]), kind, host())


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("kind", ["u8", "f32", "f64", "long"])
def test_tiles_are_used_where_they_fit(kind: str, target: Target) -> None:
    assert tiles(lowered(crossed(1, 256, 256, kind), target)) > 0
    assert tiles(lowered(crossed(1, 256, 1, kind), target)) == 0


def test_other_operands_lie_as_they_like() -> None:
    """A map that is halved along the loop outside, beside one that is across."""
    x, z = te.placeholder((64, 128), F32, "x"), te.placeholder((64, 64), F32, "z")
    y = te.compute((128, 64), lambda j, i: x[i, j] + counted(z[floordiv(j, lit(2)), i]), name="y")
    f = lowered(from_te("f", [x, z], [y]), host())
    assert tiles(f) > 0
    a, b = numbers((64, 128), F32), numbers((64, 64), F32)
    (found,) = run_native(f, [a, b], target=host())
    np.testing.assert_array_equal(found.reshape(128, 64), a.T + np.repeat(b, 2, 0) + 20)


def test_what_is_conditional_is_not_loaded_for_all() -> None:
    x = te.placeholder((256, 256), F32, "x")
    y = te.compute((256, 256), lambda j, i: te.select(te.index(j) < 200, x[i, j], 0.0), name="y")
    assert tiles(lowered(from_te("f", [x], [y]), host())) == 0


def test_elements_a_few_apart_are_shuffled() -> None:
    x = te.placeholder((100, 3), U8, "x")
    f = from_te("f", [x], [te.compute((3, 100), lambda c, i: x[i, c], name="y")])
    given = numbers((100, 3), U8)
    for target in TARGETS:
        (found,) = run_native(lowered(f, target), [given], target=target)
        np.testing.assert_array_equal(found.reshape(3, 100), given.T)


@pytest.mark.parametrize("columns", [16, 20, 33])
def test_nothing_is_read_behind_the_last_row(columns: int) -> None:
    page = mmap.PAGESIZE
    count = -(-67 * columns * 4 // page) + 1
    area = mmap.mmap(-1, count * page)
    last = ctypes.addressof(ctypes.c_char.from_buffer(area)) + (count - 1) * page
    libc = ctypes.CDLL(None)
    whole = np.frombuffer(area, np.float32, count=(count - 1) * page // 4)
    x = whole[-67 * columns :].reshape(1, 67, columns)
    x[...] = numbers(x.shape, F32)
    assert libc.mprotect(ctypes.c_void_p(last), page, 0) == 0
    try:
        hold(crossed(1, 67, columns, "f32"), x, "f32", host())
    finally:
        libc.mprotect(ctypes.c_void_p(last), page, mmap.PROT_READ | mmap.PROT_WRITE)
