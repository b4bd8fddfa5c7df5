"""Operators of the user that end later: coroutine functions, and functions that answer with futures."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import DeadlineError, RunError
from inlay.runtime.session import Executable

RULE = "(x: Tensor[n, f32]) -> Tensor[n, f32]"
TWICE = "fn main<n>(x: Tensor[n, f32], y: Tensor[n, f32]) { add(later(x), later(y)) }"
X, Y = np.arange(3, dtype=np.float32), np.full(3, 5, np.float32)


def compiled(function: Callable[..., Any], mode: Any = "parallel") -> Executable:
    later = inlay.extern("later", RULE, python=function)
    module = inlay.load(io.StringIO(TWICE), externs=[later])
    return inlay.compile(module, threads=2, mode=mode)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_coroutine_gives_the_result(mode: str) -> None:
    async def double(x: np.ndarray) -> np.ndarray:
        await asyncio.sleep(0)
        return 2 * x

    np.testing.assert_array_equal(compiled(double, mode)(X, Y), 2 * X + 2 * Y)


def test_calls_are_under_way_at_the_same_time() -> None:
    first: list[Future[np.ndarray]] = []

    def both(x: np.ndarray) -> Future[np.ndarray]:
        """Answer with a future that the next call makes done."""
        mine: Future[np.ndarray] = Future()
        first.append(mine)
        if len(first) == 2:
            for future in first:
                future.set_result(x)
        return mine

    found = compiled(both).run({"x": X, "y": X}, timeout=30)
    np.testing.assert_array_equal(found["output"], 2 * X)


def test_what_it_raises_is_the_cause() -> None:
    async def fail(x: np.ndarray) -> np.ndarray:
        await asyncio.sleep(0)
        raise ValueError("no such shelf")

    with pytest.raises(RunError) as caught:
        compiled(fail)(X, Y)
    assert caught.value.ids == ("run.kernel-failed",)
    assert "no such shelf" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_wrong_result_is_refused() -> None:
    async def wrong(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float64)

    with pytest.raises(RunError) as caught:
        compiled(wrong)(X, Y)
    assert caught.value.ids == ("run.bad-result",)


def test_what_never_ends_is_left_behind() -> None:
    async def never(x: np.ndarray) -> np.ndarray:
        await asyncio.Event().wait()
        return x

    with pytest.raises(DeadlineError):
        compiled(never).run({"x": X, "y": Y}, timeout=0.05)
