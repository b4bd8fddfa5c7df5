"""Whole models with their operations on drawn devices give what the host alone gives.

For every model of the shared data, some that are made here, and each of three boards some placements are
drawn from seeds: integers are equal, floats within the tolerance of the model, in both modes. A failure
tells the command that runs its draw again, `inlay run MODEL --board BOARD --pin ...`. On a board whose
second device boasts, predicted time alone puts most of a model there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

import inlay
from inlay.base.diagnostics import CompileError, InlayError
from inlay.runtime.device import OpenDevice
from tests.data import cases, model_case
from tests.differential.placements import Alone, alone, try_draw, try_placement
from tests.models.made_models import beam_search, made_case
from tests.models.test_remote_models import board as remote_board
from tests.models.test_remote_models import endpoint  # noqa: F401
from tests.unit.importers.onnx.test_quantized_recurrent import lstm

pytestmark = [pytest.mark.llvm, pytest.mark.data]

DEVICES = {"host_two": "cpu1", "opencl": "cl0", "remote": "far0"}
DRAWS = 4
"""For each model and board, but for what follows: 201 in all."""
FEWER = {("ultraface_rfb320", "opencl"): 1}
"""A processor as OpenCL device builds the kernels of this one in minutes."""
MODELS = [case.id for case in cases("onnx")]
MADE = {
    "beam_search": beam_search,
    "quantised_lstm": lambda: lstm("forward", per_column=False, lengths=False, unsigned=False),
    "quantised_lstm_both_ways": lambda: lstm("bidirectional", per_column=True, lengths=False, unsigned=True),
}

BOASTFUL = """
summary = "two devices; the second one says that it is fast and near"
[[arch]]
name = "boast"
generator = "llvm"
loader = "native"
macs_per_ns = 100000
elements_per_ns = 10000
transcendentals_per_ns = 10000
launch_ns = 0
[[memory]]
name = "host"
bytes_per_ns = 1
[[memory]]
name = "cpu1.mem"
owner = "cpu1"
bytes_per_ns = 10000
[[device]]
name = "cpu0"
arch = "native"
memories = ["host"]
[[device]]
name = "cpu1"
arch = "boast"
memories = ["cpu1.mem"]
[[engine]]
name = "copier"
memories = ["host", "cpu1.mem"]
[[link]]
from = "host"
to = "cpu1.mem"
engine = "copier"
bytes_per_ns = 1000
latency_ns = 1
[[link]]
from = "cpu1.mem"
to = "host"
engine = "copier"
bytes_per_ns = 1000
latency_ns = 1
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Callable[[str], Alone]:
    """Models by name, each with what the host alone gives, made once."""
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    folder = tmp_path_factory.mktemp("made")

    def find(name: str) -> Alone:
        case = made_case(name, MADE[name](), folder) if name in MADE else model_case(name)
        return alone(case, cache)

    return functools.cache(find)


def check(model: Alone, board: str, name: str, draws: int, cache: str) -> list[str]:
    """Try some draws; return the outcomes."""
    tried = (try_draw(model, board, DEVICES[name], s, cache=cache, name=name) for s in range(draws))
    return list(tried)


def present(driver: str) -> None:
    """Skip where no device is here."""
    try:
        OpenDevice(driver).close()
    except InlayError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["mnist8", "gen_greedy_decode_onnx"])
def test_some_placements(models, name, tmp_path_factory):
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    assert "split" in check(models(name), "host_two", "host_two", 2, cache)


@pytest.mark.parametrize(
    "name",
    [
        "quantised_lstm",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in [*MODELS, *MADE]
            if name != "quantised_lstm"
        ),
    ],
)
def test_a_device_that_boasts(models, name, tmp_path, tmp_path_factory):
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    board = tmp_path / "boastful.toml"
    board.write_text(BOASTFUL)
    modes = ("sequential", "parallel")
    assert try_placement(models(name), str(board), (), cache=cache, modes=modes) == "split"


@pytest.mark.parametrize("pin", ["DynamicQuantizeLSTM", "*"])
def test_a_node_as_a_whole(models, pin, tmp_path_factory):
    """A pin of a node does not mean what the virtual machine runs for it, rows of lists."""
    cache = str(tmp_path_factory.getbasetemp() / "placements")
    model, pins = models("quantised_lstm"), (f"{pin}=cpu1",)
    found = try_placement(model, "host_two", pins, cache=cache, modes=("sequential",))
    assert found == "split"


@pytest.mark.parametrize("pin", ["get_row=cpu1", "get_r*=cpu1"])
def test_a_pin_of_what_the_virtual_machine_runs(models, pin):
    path = models("quantised_lstm").case.model
    with pytest.raises(CompileError, match="the virtual machine runs get_row") as failure:
        inlay.explain(path, "host_two", pins=(pin,))
    named = "placement.unsupported-op" if pin == "get_row=cpu1" else "placement.bad-pin"
    assert failure.value.ids == (named,)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host_two", "opencl"])
@pytest.mark.parametrize("name", [*MODELS, *MADE])
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
