"""Figures of a board that come from the device that is here."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.cli.main import main
from inlay.codegen.backend_table import target_of
from inlay.codegen.backends import _opencl_here as detect
from inlay.codegen.backends.opencl import BACKEND, options_of
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text, find_board, read_board
from inlay.ops.table import table
from inlay.pipeline.detect import detected, find_detected
from inlay.runtime.device import Facts
from inlay.schedule.choose import FEW_ITEM_RULES, ITEM_RULES

GPU = Facts(
    "A GPU",
    1,
    2,
    24 << 30,
    6 << 30,
    has_f64=True,
    compute_units=100,
    offers="opencl,type=gpu,mhz=2000,unified=no,f16=yes,f64=yes",
)
PROCESSOR = dataclasses.replace(
    GPU,
    name="A processor",
    compute_units=10_000,
    has_f64=False,
    offers="opencl,type=cpu,mhz=2000,unified=yes,f16=no,f64=no",
)


@pytest.fixture
def here(monkeypatch):
    """Say what the driver finds."""

    def say(facts: Facts | None) -> list[str]:
        asked: list[str] = []

        def answer(driver: str, options: str) -> Facts | None:
            assert driver == "opencl"
            asked.append(options)
            return facts

        monkeypatch.setattr(detect, "_asked", answer)
        return asked

    return say


def test_a_gpu_has_its_own_figures(here):
    here(GPU)
    board, (found,) = detected(find_board("opencl"))
    arch = board.arch_of("cl0")
    assert (found.devices, found.name, found.is_processor) == (("cl0",), "A GPU", False)
    assert arch.speed.macs_per_ns == 100 * 2 * detect.GPU_MACS
    assert arch.speed.launch_ns == find_board("opencl").arch_of("cl0").speed.launch_ns
    assert board.memory("cl0.global").bytes == 24 << 30
    assert "f64" in arch.dtypes
    assert BACKEND.rules(arch) is ITEM_RULES
    assert board.links == find_board("opencl").links
    assert board.arch_of("cpu") == find_board("opencl").arch_of("cpu")


def test_a_processor_is_slower_than_the_host_that_it_is(here):
    here(PROCESSOR)
    board = find_detected("opencl")
    host, arch = board.arch_of("cpu").speed, board.arch_of("cl0")
    assert arch.speed.macs_per_ns == host.macs_per_ns * detect.AS_HOST
    assert arch.speed.transcendentals_per_ns < host.transcendentals_per_ns
    assert "f64" not in arch.dtypes
    assert BACKEND.rules(arch) is FEW_ITEM_RULES
    assert target_of(board, "cl0").vector_bytes == target_of(board, "cpu").vector_bytes
    assert {x.bytes_per_ns for x in board.links} == {detect.COPY_IN_MEMORY}


def test_a_divided_device_is_asked_once_with_its_options(here):
    asked = here(PROCESSOR)
    _, (found,) = detected(find_board("opencl_two"))
    assert found.devices == ("cl0", "cl1")
    assert asked == ["units=2"]


def test_without_a_device_the_figures_of_the_file_serve(here):
    here(None)
    assert detected(find_board("opencl")) == (find_board("opencl"), ())
    program = "fn main(x: Tensor[512, 512, f32]) -> Tensor[512, 512, f32] { matmul(x, x) }"
    assert inlay.explain(parse_module(program, table()), "opencl").total_ns > 0


def test_what_a_person_says_is_kept(here):
    asked = here(GPU)
    said = read_board("said", board_text("opencl").replace("detect = true", "detect = false"), place="")
    assert detected(said) == (said, ())
    assert not asked
    chosen = board_text("opencl").replace("detect = true", 'detect = true\nparameters = { schedule = "few" }')
    board = find_detected(read_board("chosen", chosen, place=""))
    assert BACKEND.rules(board.arch_of("cl0")) is FEW_ITEM_RULES


def test_the_schedule_is_not_for_the_driver(here):
    here(GPU)
    arch = find_detected("opencl").arch_of("cl0")
    assert arch.parameter("schedule") == "items"
    assert options_of(arch) == ""


def test_an_unknown_schedule_is_refused():
    text = board_text("opencl").replace("detect = true", 'parameters = { schedule = "many" }')
    with pytest.raises(CompileError, match="found schedule = 'many'.* needed few or items"):
        BACKEND.rules(read_board("wrong", text, place="").arch_of("cl0"))


def test_a_board_says_whether_it_guesses():
    with pytest.raises(CompileError, match="needed true or false"):
        read_board("wrong", board_text("opencl").replace("detect = true", "detect = 1"), place="")


@pytest.mark.parametrize("facts", [GPU, None], ids=["here", "absent"])
def test_what_was_found_is_shown(here, facts, capsys):
    here(facts)
    assert main(["targets", "show", "opencl"]) == 0
    shown = capsys.readouterr().out
    assert read_board("shown", shown, place="").devices == find_board("opencl").devices
    if facts:
        assert "# here, cl0: A GPU, 100 compute units, 24576 MiB, type gpu" in shown
        assert f"macs_per_ns = {200 * detect.GPU_MACS:g}" in shown
    else:
        assert "# no such device was found here" in shown


@pytest.mark.llvm
@pytest.mark.parametrize("rules", ["few", "items"])
def test_a_device_that_is_here(rules, tmp_path):
    """Kernels of either family give what the host gives."""
    path = tmp_path / "board.toml"
    parameters = f'parameters = {{ schedule = "{rules}" }}'
    path.write_text(board_text("opencl").replace("detect = true", f"detect = true\n{parameters}"))
    board, found = detected(find_board(str(path)))
    if not found:
        pytest.skip("no OpenCL device")
    assert found[0].words["type"] in ("cpu", "gpu", "accelerator")
    assert found[0].facts.has_f64 == ("f64" in board.arch_of("cl0").dtypes)
    program = parse_module(
        "fn main(x: Tensor[9, 33, f32], w: Tensor[33, 21, f32]) { softmax(matmul(x, w)) }", table()
    )
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((9, 33), (33, 21)))
    exe = inlay.compile(program, board=str(path), pins=("*=cl0",), cache="none")
    np.testing.assert_allclose(exe(x, w), inlay.compile(program, cache="none")(x, w), rtol=1e-5)
