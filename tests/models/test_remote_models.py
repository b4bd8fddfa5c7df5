"""Whole models split over the processor and one behind `inlay serve`, in another process.

As in `test_split_models`: by what people say and by predicted time, both devices have kernels, and the
results are those of the same model on the host alone and those that are stored.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import resources

import numpy as np
import pytest

from inlay.api import compilation
from inlay.bytecode.program import CopyBody, DeviceBody, ImageBody, Program
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import device_times, queue_names, timeline
from tests.models.test_split_models import models  # noqa: F401

pytestmark = [pytest.mark.llvm, pytest.mark.data]
SLOW = pytest.mark.slow

NEAR = {
    "launch_ns = 80000": "launch_ns = 0",
    "latency_ns = 60000": "latency_ns = 0",
    "bytes_per_ns = 0.8": "bytes_per_ns = 2.5",
}
FAST = {**NEAR, "launch_ns = 80000": "macs_per_ns = 400\nelements_per_ns = 80\ntranscendentals_per_ns = 10"}
FLOATS = {**FAST, "launch_ns = 80000": "dtypes = ['f32', 'i32', 'i64', 'bool']\n" + FAST["launch_ns = 80000"]}
"""What a test's board says otherwise: a server that is near; one whose processor is faster besides; one
that handles no small integers, too.

With the facts of the board as it comes, models as small as two of these stay where they are; and a chain
that a faster processor can take as a whole goes there as a whole.
"""
ACTIVATIONS = ("sigmoid", "mul", "relu")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The processor, served by the command in a process of its own."""
    server = subprocess.Popen(
        [sys.executable, "-m", "inlay", "serve", "--anyone", "--listen", "tcp://127.0.0.1:*"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = server.stdout.readline().strip()
    try:
        if not line:
            error = server.stderr.read()
            assert "run.device-absent" in error
            pytest.skip(error)
        yield line.rpartition(" ")[2]
    finally:
        server.terminate()
        server.communicate(timeout=30)
    assert server.returncode == 0 or not line


def board(folder, endpoint: str, changes: dict[str, str]) -> str:
    text = (resources.files("inlay.machine") / "boards" / "remote.toml").read_text()
    for old, new in {'"tcp://127.0.0.1:5555"': f'"{endpoint}", key = "none"', **changes}.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "far.toml"
    file.write_text(text)
    return str(file)


def split(model, board: str, *operators: str) -> Program:
    """Compile; both devices have kernels, and values move between them."""
    pins = tuple(f"{operator}=far0" for operator in operators)
    # In floats where nobody says what is far: a device without bytes has a part of those only.
    choices = {"threads": 1, "cache": "none", "exact_qdq": not operators}
    choices["typical"] = model.typical
    program = compilation(model.path, board=board, pins=pins, **choices).program
    assert {ImageBody, DeviceBody, CopyBody} <= {type(k.body) for k in program.kernels}
    (device,) = program.devices
    assert (device.name, device.driver) == ("far0", "remote")
    return program


@pytest.mark.parametrize(
    ("name", "changes", "operators"),
    [
        pytest.param("mnist8", {}, ("conv*",), id="mnist8-said"),
        pytest.param("micro_kws_qdq", {}, ("conv*",), id="micro_kws_qdq-said", marks=SLOW),
        pytest.param("micro_kws_qdq", FLOATS, (), id="micro_kws_qdq-by-cost", marks=SLOW),
        pytest.param("silero_vad_16k", NEAR, ACTIVATIONS, id="silero_vad_16k-said", marks=SLOW),
        pytest.param("silero_vad_16k", FAST, (), id="silero_vad_16k-by-cost", marks=SLOW),
        pytest.param("ultraface_rfb320", NEAR, ("conv*",), id="ultraface_rfb320-said", marks=SLOW),
        pytest.param("ultraface_rfb320", FAST, (), id="ultraface_rfb320-by-cost", marks=SLOW),
        pytest.param("minilm", NEAR, ("*matmul*",), id="minilm-said", marks=SLOW),
        pytest.param("minilm", FAST, (), id="minilm-by-cost", marks=SLOW),
    ],
)
def test_models(models, endpoint, name, changes, operators, tmp_path):  # noqa: F811
    model = models(name)
    program = split(model, board(tmp_path, endpoint, changes), *operators)
    for mode in ("sequential", "parallel"):
        exe = executable_of(program, settings=Settings(threads=2, mode=mode))
        for run, alone in zip(model.runs, model.alone, strict=True):
            found = exe.run(run.inputs)
            model.check(found, alone)
            model.check(found, run.outputs)
            again = exe.run(run.inputs)
            for output, value in found.items():
                np.testing.assert_array_equal(again[output], value)
        assert exe.live_objects() == 0


@pytest.mark.slow
def test_copies_beside_kernels(models, endpoint, tmp_path):  # noqa: F811
    """While the processor there computes one product, the result of another one leaves.

    By its own times: a queue of the device is a row, and both rows have something in them at once.
    """
    model = models("minilm")
    program = split(model, board(tmp_path, endpoint, NEAR), "*matmul*")
    exe = executable_of(program, settings=Settings(threads=2, mode="parallel", trace=True))
    for _ in range(20):
        for run in model.runs:
            model.check(exe.run(run.inputs), run.outputs)
            events = exe.events()
            [device] = device_times(events)
            if not device.together:
                continue
            assert (device.device, set(device.queues)) == ("far0", {0, 1})
            rows = [e for e in timeline(events, queue_names(program))["traceEvents"] if e["ph"] == "M"]
            names = {e["args"]["name"] for e in rows if e["name"] == "thread_name"}
            assert {"far0", "far0.transfer"} < names
            return
    pytest.fail("no copy went on beside a kernel")
