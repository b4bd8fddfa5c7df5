"""Whole models split over the devices of a board: by what people say, and by predicted time.

Every case is compiled once, its program uses both devices, and in every mode its results are those of
the same model on the host alone and those that are stored.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import inlay
from inlay.api import compilation
from inlay.base.diagnostics import RunError
from inlay.bytecode.program import CopyBody, DeviceBody, ImageBody, Program
from inlay.machine.board_file import board_text
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from inlay.runtime.trace import device_times, queue_names, timeline
from tests.data import REPOSITORY, Run, data_path, minilm, model_case

pytestmark = [pytest.mark.llvm, pytest.mark.data]
SLOW = pytest.mark.slow

SMALL_AND_FAST = """
summary = "two devices; the second has a fast memory too small for what a network begins with"
[[memory]]
name = "host"
bytes_per_ns = 1
[[memory]]
name = "cpu1.mem"
owner = "cpu1"
bytes = "4MiB"
bytes_per_ns = 100
[[device]]
name = "cpu0"
arch = "native"
memories = ["host"]
[[device]]
name = "cpu1"
arch = "native"
memories = ["cpu1.mem"]
[[engine]]
name = "copier"
memories = ["host", "cpu1.mem"]
[[link]]
from = "host"
to = "cpu1.mem"
engine = "copier"
bytes_per_ns = 8
latency_ns = 2000
[[link]]
from = "cpu1.mem"
to = "host"
engine = "copier"
bytes_per_ns = 8
latency_ns = 2000
"""
"""For a model that is one chain: two equal devices gain nothing by sharing it."""
AS_SAID = board_text("opencl").replace("detect = true", "detect = false")
"""The device that is here may be the host's processor, and nothing is gained by it; a GPU is fast."""
WRITTEN = {"small_and_fast": SMALL_AND_FAST, "opencl_as_said": AS_SAID}
HOSTS = {"host_two": "cpu0", "small_and_fast": "cpu0", "opencl": "cpu", "opencl_as_said": "cpu"}
DEVICES = {"host_two": "cpu1", "small_and_fast": "cpu1", "opencl": "cl0", "opencl_as_said": "cl0"}


@dataclass
class Model:
    """A model, the runs that are stored, how two sets of outputs are compared, and the sizes to plan for."""

    path: Path
    runs: list[Run]
    check: Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], None]
    typical: tuple[str, ...] = ()

    @functools.cached_property
    def alone(self) -> list[dict[str, np.ndarray]]:
        """What each run gives on the host alone."""
        exe = inlay.compile(self.path, cache="none", threads=1)
        return [exe.run(run.inputs) for run in self.runs]


def sentence_model(path: Path) -> Model:
    """MiniLM of any batch and length, built into a file."""
    minilm()
    source = REPOSITORY / "examples" / "sentence_embedding" / "build_minilm.py"
    spec = importlib.util.spec_from_file_location("build_minilm", source)
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    onnx.save(builder.build(), path)
    runs = []
    with np.load(data_path("minilm", "runs.npz")) as stored:
        for run in range(3):
            names = ("input_ids", "attention_mask", "token_type_ids")
            inputs = {name: stored[f"run{run}/in/{name}"] for name in names}
            runs.append(Run(inputs, {"embedding": stored[f"run{run}/out/embedding"]}))

    def check(found, expected) -> None:
        np.testing.assert_allclose(found["embedding"], expected["embedding"], atol=1e-5)

    return Model(path, runs, check)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Callable[[str], Model]:
    """Models by name, each with what it gives alone, made once."""
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def find(name: str) -> Model:
        if name == "minilm":
            return sentence_model(folder / "minilm.onnx")
        case = model_case(name)
        # One window of speech takes as long as its weights are read: no device is faster at that.
        typical = ("batch=64",) if name == "silero_vad_16k" else ()
        return Model(case.model, case.runs(), case.check, typical)

    return find


def case(model: str, board: str, *pins: str, slow: bool = True):
    """Pins name the HOST and the DEVICE of the board; without any, predicted time decides."""
    how = "said" if pins else "by-cost"
    marks = (SLOW,) if slow else ()
    return pytest.param(model, board, pins, id=f"{model}-{board}-{how}", marks=marks)


CONVOLUTIONS = ("conv*=DEVICE", "matmul*=HOST")
PRODUCTS = ("*matmul*=DEVICE",)
ACTIVATIONS = ("sigmoid=DEVICE", "mul=DEVICE", "relu=DEVICE")
CASES = [
    case("mnist8", "host_two", *CONVOLUTIONS, slow=False),
    case("micro_kws_qdq", "host_two", *CONVOLUTIONS),
    case("micro_kws_qdq", "small_and_fast"),
    case("micro_kws_qdq", "opencl", *CONVOLUTIONS),
    case("micro_kws_qdq", "opencl_as_said"),
    case("silero_vad_16k", "host_two", *ACTIVATIONS),
    case("silero_vad_16k", "small_and_fast"),
    case("silero_vad_16k", "opencl", *ACTIVATIONS),
    case("silero_vad_16k", "opencl_as_said"),
    case("ultraface_rfb320", "host_two", "conv*=DEVICE"),
    case("ultraface_rfb320", "host_two"),
    case("ultraface_rfb320", "opencl", "relu=DEVICE"),
    case("ultraface_rfb320", "opencl_as_said"),
    case("minilm", "host_two", *PRODUCTS),
    case("minilm", "small_and_fast"),
    case("minilm", "opencl", *PRODUCTS),
    case("minilm", "opencl_as_said"),
]


def split(model: Model, board: str, said: Sequence[str], folder: Path, *, plan: str = "serial") -> Program:
    """Compile; both devices have kernels, and values move between them."""
    pins = [p.replace("HOST", HOSTS[board]).replace("DEVICE", DEVICES[board]) for p in said]
    if board in WRITTEN:
        text, board = WRITTEN[board], str(folder / f"{board}.toml")
        Path(board).write_text(text)
    options = {"pins": tuple(pins), "plan": plan, "cache": "none", "typical": model.typical}
    # In floats where nobody says what is where: a device without bytes has a part of those only.
    program = compilation(
        inlay.load(model.path), board=board, threads=1, exact_qdq=not pins, **options
    ).program
    bodies = {type(k.body) for k in program.kernels}
    assert {ImageBody, DeviceBody, CopyBody} <= bodies
    return program


def loaded(program: Program, settings: Settings) -> Executable:
    """Skip where the device is not here."""
    try:
        return executable_of(program, settings=settings)
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))


@pytest.mark.parametrize(("name", "board", "pins"), CASES)
def test_models(models, name, board, pins, tmp_path):
    model = models(name)
    program = split(model, board, pins, tmp_path)
    for mode in ("sequential", "parallel"):
        exe = loaded(program, Settings(threads=2, mode=mode))
        for run, alone in zip(model.runs, model.alone, strict=True):
            found = exe.run(run.inputs)
            model.check(found, alone)
            model.check(found, run.outputs)
            again = exe.run(run.inputs)
            for output, value in found.items():
                np.testing.assert_array_equal(again[output], value)
        assert exe.live_objects() == 0


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host_two", "opencl"])
def test_copies_beside_kernels(models, board, tmp_path):
    """While the device computes one product, the result of another one leaves."""
    program = split(models("minilm"), board, PRODUCTS, tmp_path, plan="parallel")
    exe = loaded(program, Settings(threads=2, mode="parallel", trace=True))
    for _ in range(200):  # where others have the processors, it may take a while
        for run in models("minilm").runs:
            models("minilm").check(exe.run(run.inputs), run.outputs)
            events = exe.events()
            [device] = device_times(events)
            if not device.together:
                continue
            rows = [e for e in timeline(events, queue_names(program))["traceEvents"] if e["ph"] == "M"]
            names = {e["args"]["name"] for e in rows if e["name"] == "thread_name"}
            engine = {"host_two": "copier", "opencl": "cl0.transfer"}[board]
            assert {DEVICES[board], engine} < names
            return
    pytest.fail("no copy went on beside a kernel")
