"""A deferred array has the elements of the array that it stands for, and takes no memory until it is asked."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from inlay.arith.deferred import LEAST, DeferredArray, bytes_of, deferred, elements, transposed

LARGE = LEAST // 4 + 1


def _source(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _twice(source: np.ndarray, out: np.ndarray) -> None:
    out[...] = 2 * source


def test_what_is_small_is_computed_at_once() -> None:
    assert isinstance(deferred((4,), np.dtype(np.float32), _source(4), _twice), np.ndarray)
    turned = transposed(_source(2, 3), (1, 0))
    assert isinstance(turned, np.ndarray)
    assert turned.flags.c_contiguous
    assert isinstance(transposed(np.full((2, LARGE), "x", object), (1, 0)), np.ndarray), (
        "strings are no bytes"
    )


def test_it_is_written_where_it_is_asked_to() -> None:
    source = _source(2, LARGE)
    late = deferred(source.shape, np.dtype(np.float64), source, _twice)
    assert isinstance(late, DeferredArray)
    assert (late.shape, late.dtype, late.size, late.nbytes) == ((2, LARGE), np.float64, 2 * LARGE, 16 * LARGE)
    out = np.empty(late.shape, late.dtype)
    late.write(out)
    assert np.array_equal(out, 2 * source)
    assert bytes_of(late).tobytes() == out.tobytes()


def test_its_elements_go_when_nobody_has_them() -> None:
    late = deferred((LARGE,), np.dtype(np.float32), _source(LARGE), _twice)
    assert isinstance(late, DeferredArray)
    first, second = late.array(), late.array()
    assert first is second, "who compares arrays that are kept finds them the same"
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    watched = weakref.ref(first)
    gc.disable()
    try:
        del first, second
        assert watched() is None
    finally:
        gc.enable()


def test_other_orders_of_axes_are_views_of_the_source() -> None:
    source = _source(3, LARGE, 2)
    once = transposed(source, (1, 2, 0))
    again = transposed(once, (2, 1, 0))
    assert np.shares_memory(elements(again), source), "reading it takes no copy"
    want = source.transpose(1, 2, 0).transpose(2, 1, 0)
    assert np.array_equal(elements(again), want)
    assert isinstance(again, DeferredArray)
    assert again.array().flags.c_contiguous
    assert bytes_of(again).tobytes() == want.tobytes()


def test_one_may_come_of_another() -> None:
    source = _source(LARGE, 2)
    late = deferred(source.shape, source.dtype, transposed(transposed(source, (1, 0)), (1, 0)), _twice)
    assert bytes_of(transposed(late, (1, 0))).tobytes() == (2 * source).T.tobytes()
