"""Whole programs over the processor and a device behind a server: they compute what one place does."""

from __future__ import annotations

import itertools
import statistics
import struct
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode.program import CopyBody, DeviceBody
from inlay.machine.target import baseline, host, offered
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import EventKind
from tests.data import model_case
from tests.drivers.build import offers
from tests.drivers.serving import Running, served
from tests.unit.placement.cases import read
from tests.unit.placement.test_compiled import SOURCE

pytestmark = [pytest.mark.cc, pytest.mark.llvm]
KINDS = {"remote": ("native", offers()), "remote_opencl": ("opencl", "")}
DRAWN = ["remote", pytest.param("remote_opencl", marks=pytest.mark.slow)]
"""The driver behind the server of each board, and its options."""


def board_at(folder: Path, server: Running, name: str) -> str:
    """Return a board with the endpoint of a server, as if it were near."""
    text = (resources.files("inlay.machine") / "boards" / f"{name}.toml").read_text()
    for old, new in (
        ('endpoint = "tcp://127.0.0.1:5555"', f'endpoint = "{server.endpoint}", key = "none"'),
        ("latency_ns = 60000", "latency_ns = 0"),
        ("bytes_per_ns = 0.8", "bytes_per_ns = 2.5"),
        ("launch_ns = 80000", "launch_ns = 0"),
    ):
        assert old in text
        text = text.replace(old, new)
    file = folder / "far.toml"
    file.write_text(text)
    return str(file)


PLACED = SOURCE.replace("DEVICE", "far0")


@pytest.fixture
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((5, 8)).astype(np.float32),
        "w": rng.standard_normal((8, 8)).astype(np.float32),
    }


@pytest.fixture
def expected(inputs) -> dict[str, np.ndarray]:
    return inlay.compile(read(PLACED.replace("on(far0, ", "(")), cache="none").run(inputs)


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("board", DRAWN)
def test_a_program_over_two_processes(board, suite, tmp_path, inputs, expected):
    driver, options = KINDS[board]
    with served(suite, driver, options) as server:
        file = board_at(tmp_path, server, board)
        exe = inlay.compile(read(PLACED), board=file, verify=True, cache="none", threads=2)
        bodies = {type(k.body) for k in exe.program.kernels}
        assert {DeviceBody, CopyBody} <= bodies
        for _ in range(2):
            same(exe.run(inputs), expected)


@pytest.mark.data
@pytest.mark.slow
def test_a_model_over_two_processes(suite, tmp_path):
    case = model_case("mnist8")
    with served(suite, "opencl", "") as server:
        board = board_at(tmp_path, server, "remote_opencl")
        exe = inlay.compile(case.model, board=board, cache="none")
        assert any(isinstance(k.body, DeviceBody) for k in exe.program.kernels)
        for run in list(case.runs())[:2]:
            case.check(exe.run(run.inputs), run.outputs)


def test_times_are_those_of_the_device_by_the_clock_of_the_host(suite, tmp_path, inputs):
    """The server's clock is seconds off, and its kernels are shorter than a round trip to it."""
    with served(suite, "native", offers()) as server:
        program = compilation(read(PLACED), board=board_at(tmp_path, server, "remote"), cache="none").program
        exe = executable_of(program, settings=Settings(threads=1, mode="sequential", trace=True))
        for _ in range(20):
            exe.run(inputs)
    events = exe.events()
    calls = {e.call: e for e in events if e.kind is EventKind.CALL}
    assert len(calls) == 1
    begin, end = (
        f(getattr(e, a) for e in events if e.kind is EventKind.CALL)
        for f, a in ((min, "begin"), (max, "end"))
    )
    runs = [e for e in events if e.kind is EventKind.RUN and e.device]
    kernels = [e for e in runs if e.queue == 0]
    assert len(kernels) >= 80 and len(runs) > len(kernels)
    assert all(begin <= e.begin <= e.end <= end for e in runs)
    # The middle of many: what else the machine does makes some kernels as long as it likes, and where a
    # queue is behind, what the clocks are wrong by may leave a kernel no time.
    lasts = statistics.median(e.end - e.begin for e in kernels)
    apart = min(b.begin - a.begin for a, b in itertools.pairwise(kernels))
    assert 0 < lasts < apart / 2


# ------------------------------------------------------------------- native code for a processor there


def needs_of(exe: inlay.Executable) -> set[str]:
    """Return what the image of the device needs of its processor."""
    (device,) = exe.program.devices
    assert device.driver == "remote"
    (size,) = struct.unpack_from("<I", device.image, 8)
    return set(device.image[12 : 12 + size].decode().split())


def test_code_is_for_the_processor_that_the_server_offers(suite, tmp_path, inputs, expected):
    """Of an older processor than this one; a newer executable is refused there by name."""
    here, small = offered(host().offers), baseline(host().arch, "v2")
    file = tmp_path / "model.inlay"
    with served(suite, "native", offers()) as server:
        exe = inlay.compile(read(PLACED), board=board_at(tmp_path, server, "remote"), cache="none")
        assert needs_of(exe) == {here.arch, *here.features}
        exe.save(file)
    with served(suite, "native", f"offers={small.offers}", server.endpoint):
        exe = inlay.compile(read(PLACED), board=str(tmp_path / "far.toml"), cache="none")
        assert needs_of(exe) == {small.arch, *small.features}
        same(exe.run(inputs), expected)
        if set(here.features) > set(small.features):
            with pytest.raises(RunError, match=r"'far0': the image needs [\w-]+, which") as failure:
                inlay.load_executable(file)
            assert failure.value.ids == ("run.build-failed",)


@pytest.mark.parametrize(
    ("driver", "options", "match"),
    [
        ("null", "", "found 'null' where board 'far' has 'far0', needed a processor"),
        (
            "native",
            "offers=aarch64,neon" if host().arch == "x86_64" else "offers=x86_64,sse4.1",
            f"needed a processor of architecture {host().arch}",
        ),
    ],
)
def test_devices_that_native_code_is_not_for(driver, options, match, suite, tmp_path):
    with served(suite, driver, options) as server:
        with pytest.raises(CompileError, match=match) as failure:
            inlay.compile(read(PLACED), board=board_at(tmp_path, server, "remote"), cache="none")
        assert failure.value.ids == ("target.other-device",)


def test_a_processor_that_does_not_answer_is_told_when_code_is_made_for_it(tmp_path, inputs, expected):
    text = (resources.files("inlay.machine") / "boards" / "remote.toml").read_text()
    board = str(tmp_path / "far.toml")
    Path(board).write_text(text.replace('127.0.0.1:5555"', '127.0.0.1:9", key = "none", connect = 60'))
    with pytest.raises(RunError, match="nothing answers within 60 ms|libzmq") as failure:
        inlay.compile(read(PLACED), board=board, cache="none")
    assert failure.value.ids == ("run.device-absent",)
    # Where nothing is put there, nobody is asked.
    text = PLACED.replace("on(far0, ", "on(cpu, ")
    same(inlay.compile(read(text), board=board, cache="none").run(inputs), expected)


def test_a_server_computes_on_all_units_that_its_processor_offers(suite, tmp_path):
    """Matrix units too, for which the process that runs the code asks its system."""
    rng = np.random.default_rng(4)
    x, w = rng.integers(0, 256, (32, 64), np.uint8), rng.integers(-128, 128, (64, 32), np.int8)
    weights = f"i8[64, 32]({', '.join(map(str, w.ravel().tolist()))})"
    text = f"fn main(x: Tensor[32, 64, u8]) {{ on(far0, matmul_integer(x, {weights})) }} entry main;"
    with served(suite, "native", offers()) as server:
        exe = inlay.compile(read(text), board=board_at(tmp_path, server, "remote"), cache="none")
        [found] = exe.run({"x": x}).values()
    [device] = exe.program.devices
    assert all(feature.encode() in device.image for feature in host().features)
    np.testing.assert_array_equal(found, x.astype(np.int32) @ w.astype(np.int32))
