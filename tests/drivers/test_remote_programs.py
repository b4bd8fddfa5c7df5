"""Whole programs over the processor and a device behind a server: they compute what one place does."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.bytecode.program import CopyBody, DeviceBody
from tests.data import model_case
from tests.drivers.serving import Running, served
from tests.unit.placement.cases import read
from tests.unit.placement.test_compiled import SOURCE

pytestmark = [pytest.mark.cc, pytest.mark.llvm]


def board_at(folder: Path, server: Running) -> str:
    """Return the board `remote` with the endpoint of a server, as if it were near."""
    text = (resources.files("inlay.machine") / "boards" / "remote.toml").read_text()
    old = 'endpoint = "tcp://127.0.0.1:5555"'
    assert old in text
    file = folder / "far.toml"
    text = text.replace(old, f'endpoint = "{server.endpoint}"')
    for far, near in (("latency_ns = 60000", "latency_ns = 0"), ("launch_ns = 80000", "launch_ns = 0")):
        assert far in text
        text = text.replace(far, near)
    file.write_text(text)
    return str(file)


def test_a_program_over_two_processes(suite, tmp_path):
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((5, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 8)).astype(np.float32),
    }
    text = SOURCE.replace("DEVICE", "far0")
    one = inlay.compile(read(text.replace("on(far0, ", "(")), cache="none").run(inputs)
    with served(suite, "opencl", "") as server:
        board = board_at(tmp_path, server)
        exe = inlay.compile(read(text), board=board, verify=True, cache="none", threads=2)
        bodies = {type(k.body) for k in exe.program.kernels}
        assert {DeviceBody, CopyBody} <= bodies
        for _ in range(2):
            two = exe.run(inputs)
            for name, expected in one.items():
                np.testing.assert_allclose(two[name], expected, rtol=1e-5, atol=1e-5)
        server.process.kill()
        for _ in range(2):
            with pytest.raises(CompileError, match=server.endpoint) as failure:
                exe.run(inputs)
            assert failure.value.ids == ("run.device-lost",)
    with served(suite, "opencl", "", server.endpoint):
        again = inlay.compile(read(text), board=board, cache="none").run(inputs)
    for name, expected in one.items():
        np.testing.assert_allclose(again[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.data
@pytest.mark.slow
def test_a_model_over_two_processes(suite, tmp_path):
    case = model_case("mnist8")
    with served(suite, "opencl", "") as server:
        exe = inlay.compile(case.model, board=board_at(tmp_path, server), cache="none")
        assert any(isinstance(k.body, DeviceBody) for k in exe.program.kernels)
        for run in list(case.runs())[:2]:
            case.check(exe.run(run.inputs), run.outputs)
