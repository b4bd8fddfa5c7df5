"""Calls of one executable that run kernels of the same weights together: same bits, own failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import InlayError
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline import batches as found_by
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, load_executable
from tests.boards import PARTED

TURNS = """
fn step(x: Tensor[1, 8, f32], w: Tensor[8, 8, f32]) -> Tensor[1, 8, f32] { tanh(matmul(x, w)) }

fn turn(x: Tensor[1, 8, f32], n: some int n. int[n]) -> Tensor[1, 8, f32] {
  if (int_less(int(n), int(1))) {
    x
  } else {
    @turn(@step(@step(x, f32[8, 8](#"a")), f32[8, 8](#"b")), int(n - 1))
  }
}

fn main(x: Tensor[1, 8, f32], n: some int n. int[n]) -> Tensor[1, 8, f32] { @turn(x, int(n)) }

entry main("x", "n") -> ("y");
"""
"""A call by itself has one kernel ready at a time, so a batch has commands of several calls."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program, whose two layers are one kernel."""
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(0, 0.5, (8, 8)).astype(np.float32) for name in "ab"}
    path = tmp_path_factory.mktemp("together") / "turns.inlay"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(found_by, "LEAST_SHARED", 1)
        inlay.compile(parse_module(TURNS, table(), resources=weights), board=PARTED, batch=True).save(path)
    return path


def inputs(seed: int, turns: int) -> dict[str, np.ndarray]:
    """Return the inputs of a request."""
    x = np.random.default_rng(seed).normal(size=(1, 8)).astype(np.float32)
    return {"x": x, "n": np.array(turns)}


def alone(file: Path) -> Executable:
    """Return the program as it runs by itself."""
    return load_executable(file, threads=1, mode="sequential")


@pytest.mark.parametrize(("threads", "own"), [(1, None), (2, None), (2, 2), (3, 2)])
def test_requests_share_kernels_and_keep_their_bits(file: Path, threads: int, own: int | None) -> None:
    settings = Settings(threads=threads, own_batches=own, trace=True)
    together, by_itself = load_executable(file, settings=settings), alone(file)
    given = [inputs(i, 60 + 17 * i) for i in range(8)]
    expected = [by_itself.run(x)["y"] for x in given]
    company = [together.submit(inputs(0, 10**9)) for _ in range(2)]
    while not any(event.name.endswith(".batch") for event in together.events()):
        assert not any(request.done() for request in company)
    requests = [together.submit(x) for x in given]
    for request, y in zip(requests, expected, strict=True):
        np.testing.assert_array_equal(request.result(60)["y"], y)
    for request in company:
        request.cancel()
        with pytest.raises(InlayError):
            request.result(60)
    assert together.live_objects() == 0


WIDE = """
fn turn(x: Tensor[1, 8, f32], n: some int n. int[n]) -> Tensor[1, 8, f32] {
  if (int_less(int(n), int(1))) {
    x
  } else {
    @turn(matmul(tanh(matmul(x, f32[8, 4096](#"a"))), f32[4096, 8](#"b")), int(n - 1))
  }
}

fn main(x: Tensor[1, 8, f32], n: some int n. int[n]) -> Tensor[1, 8, f32] { @turn(x, int(n)) }

entry main("x", "n") -> ("y");
"""


def test_rows_of_many_bytes_are_copied_by_all_threads(tmp_path: Path) -> None:
    """Twelve rows of 16 KB go into a batch and out of one in each turn."""
    rng = np.random.default_rng(4)
    weights = {
        "a": rng.normal(0, 0.3, (8, 4096)).astype(np.float32),
        "b": rng.normal(0, 0.02, (4096, 8)).astype(np.float32),
    }
    wide = tmp_path / "wide.inlay"
    inlay.compile(parse_module(WIDE, table(), resources=weights), board=PARTED, batch=True).save(wide)
    together, by_itself = load_executable(wide, settings=Settings(threads=2, trace=True)), alone(wide)
    given = [inputs(i, 200 + 11 * i) for i in range(12)]
    expected = [by_itself.run(x)["y"] for x in given]
    for _ in range(3):
        requests = [together.submit(x) for x in given]
        for request, y in zip(requests, expected, strict=True):
            np.testing.assert_array_equal(request.result(60)["y"], y)
    assert any(event.name.endswith(".batch") for event in together.events())


@pytest.mark.parametrize(
    "others", [{"threads": 1}, {"threads": 2, "mode": "sequential"}, {"threads": 2, "races": True}]
)
def test_batches_of_ones_own_are_refused_where_none_are_shared(file: Path, others: dict[str, object]) -> None:
    with pytest.raises(InlayError, match="own_batches=2, which does nothing here: calls share") as found:
        load_executable(file, settings=Settings(own_batches=2, **others))
    assert found.value.ids == ("option.no-effect",)


@pytest.mark.parametrize("own", [0, 1])
def test_who_is_given_up_takes_nobody_along(file: Path, own: int) -> None:
    together, by_itself = load_executable(file, settings=Settings(threads=2, own_batches=own)), alone(file)
    expected = by_itself.run(inputs(0, 300))["y"]
    for _ in range(3):
        late = [together.submit(inputs(0, 10**9), timeout=0.01) for _ in range(3)]
        given_up = [together.submit(inputs(0, 10**9)) for _ in range(3)]
        right = [together.submit(inputs(0, 300)) for _ in range(3)]
        for request in given_up:
            request.cancel()
        for request in right:
            np.testing.assert_array_equal(request.result(60)["y"], expected)
        for request, id in [*((r, "run.deadline") for r in late), *((r, "run.cancelled") for r in given_up)]:
            with pytest.raises(InlayError) as found:
                request.result(60)
            assert found.value.ids == (id,)
