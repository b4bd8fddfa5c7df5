"""Whole models with their operations on drawn devices give what the host alone gives.

For every model of the shared data and each of three boards some placements are drawn from seeds:
integers are equal, floats within the tolerance of the model, in both modes. A failure tells the command
that runs its draw again, `inlay run MODEL --board BOARD --pin ...`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from inlay.base.diagnostics import InlayError
from inlay.runtime.device import Device
from tests.data import cases, model_case
from tests.differential.placements import Alone, alone, try_draw
from tests.models.test_remote_models import board as remote_board
from tests.models.test_remote_models import endpoint  # noqa: F401

pytestmark = [pytest.mark.llvm, pytest.mark.data]

DEVICES = {"host_two": "cpu1", "opencl": "cl0", "remote": "far0"}
DRAWS = 4
"""For each model and board, but for what follows: 201 in all."""
FEWER = {("ultraface_rfb320", "opencl"): 1}
"""A processor as OpenCL device builds the kernels of this one in minutes."""
MODELS = [case.id for case in cases("onnx")]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Callable[[str], Alone]:
    """Models by name, each with what the host alone gives, made once."""
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    return functools.cache(lambda name: alone(model_case(name), cache))


def check(model: Alone, board: str, name: str, draws: int, cache: str) -> list[str]:
    """Try some draws; return the outcomes."""
    tried = (try_draw(model, board, DEVICES[name], s, cache=cache, name=name) for s in range(draws))
    return list(tried)


def present(driver: str) -> None:
    """Skip where no device is here."""
    try:
        Device(driver).close()
    except InlayError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))


@pytest.mark.parametrize("name", ["mnist8", "gen_greedy_decode_onnx"])
def test_some_placements(models, name, tmp_path_factory):
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    assert "split" in check(models(name), "host_two", "host_two", 2, cache)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host_two", "opencl"])
@pytest.mark.parametrize("name", MODELS)
def test_placements(models, name, board, tmp_path_factory):
    if board == "opencl":
        present("opencl")
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    check(models(name), board, board, FEWER.get((name, board), DRAWS), cache)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_placements_behind_a_server(models, name, endpoint, tmp_path, tmp_path_factory):  # noqa: F811
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    check(models(name), remote_board(tmp_path, endpoint, {}), "remote", DRAWS, cache)
