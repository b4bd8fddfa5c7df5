"""What is fuzzed: for each target, which input a seed names and what must hold of any input.

A target's `check` returns a word for what happened (`ok`, `refused`, ...) or raises `Finding`: an
exception that is no refusal, a disagreement, a run beyond its time. It runs in a process with a
limit of memory (`run.py`), which ends when native code crashes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import onnx

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.arith.dtype import BY_NAME
from inlay.base.diagnostics import CompileError, InternalError, RunError
from inlay.bytecode import container, formula
from inlay.bytecode.program import Entry, HostBody, Program
from inlay.bytecode.spec import TensorSpec
from inlay.importers.onnx.graph import import_model
from inlay.importers.onnx.load import parse_model
from inlay.importers.tflite.graph import import_bytes
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.prelude import prelude, with_prelude
from inlay.ops.table import table
from inlay.runtime.native import Callback
from inlay.runtime.session import executable_of
from tests.data import REPOSITORY, find_data
from tests.fuzz.against_onnxruntime import compared
from tests.fuzz.draw_control import drawn
from tests.fuzz.mutate_inlay import executable
from tests.fuzz.mutate_onnx import damaged_bytes, damaged_model
from tests.fuzz.mutate_text import damaged_text
from tests.onnx_tests import load
from tests.runtime_c.build import drive, write
from tests.unit.importers.tflite.kernel_cases import accumulator, case, names
from tests.unit.runtime.generate import CALLBACKS
from tests.unit.runtime.test_agreement import ARGUMENTS

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 30
"""No input of these sizes may take as long as this; most take milliseconds."""


MEMORY = 6 << 30
"""Bytes of addresses that one input may make us take: code generation reserves about one GiB."""


class Finding(Exception):
    """Something that must not happen."""


@dataclass(frozen=True)
class Target:
    """Something that reads what others wrote.

    Attributes:
        suffix: of files that hold its inputs, and perhaps how their names end.
        make: the input that a seed names.
        check: what holds of inputs; several at once, because a process may be started for them.
        batch: how many inputs are checked at once.
    """

    suffix: str
    make: Callable[[int], bytes]
    check: Callable[[Sequence[bytes]], list[str]]
    batch: int = 1


def corpus(suffix: str) -> list[Path]:
    """Return the files of the corpus of a kind, in order."""
    return sorted(CORPUS.glob(f"*/*{suffix}"))


@contextlib.contextmanager
def bounded() -> Generator[None]:
    """Limit time and memory; turn what is no refusal, and what takes too long, into a finding."""

    def late(_signal: int, _frame: object) -> None:
        raise Finding(f"it takes more than {SECONDS} s")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Finding, CompileError, RunError, MemoryError):
        raise
    except InternalError as fault:
        raise Finding(str(fault)) from fault
    except Exception as fault:
        raise Finding(f"{type(fault).__name__}: {fault}") from fault
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, previous)


def each(check: Callable[[bytes], str]) -> Callable[[Sequence[bytes]], list[str]]:
    """Return the check of one input as a check of several; a refusal is a result."""

    def run(datas: Sequence[bytes]) -> list[str]:
        found = []
        for data in datas:
            try:
                with bounded():
                    found.append(check(data))
            except (CompileError, RunError):
                found.append("refused")
            except MemoryError:
                found.append("memory")
        return found

    return run


# --------------------------------------------------------------------------- models


@functools.cache
def small_models() -> tuple[bytes, ...]:
    """Return the models of the corpus."""
    return tuple(d for d in (p.read_bytes() for p in corpus(".onnx")) if len(d) < 8000)


@functools.cache
def many_models() -> tuple[bytes, ...]:
    """Return these, and the models of the ONNX backend tests that are small."""
    found = [t.model for t in load("node") if t.model is not None]
    data = (m.SerializeToString() for m in found)
    return (*small_models(), *(d for d in data if len(d) < 8000))


MANY = 100_000
"""The first seed that damages one of `many_models`; smaller ones damage one of the corpus."""


def damaged(seed: int) -> bytes:
    """Return the damaged model that a seed names."""
    random = Random(seed)
    data = random.choice(many_models() if seed >= MANY else small_models())
    if random.random() < 0.3:
        return damaged_bytes(data, random)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        return damaged_model(model, random).SerializeToString()
    except Exception:
        return damaged_bytes(data, random)


def _imported(data: bytes) -> Module:
    return import_model(parse_model(data, "damaged"), table())


def _import(data: bytes) -> str:
    _imported(data)
    return "ok"


def _compile(data: bytes) -> str:
    return _run(_imported(data))


def _run(module: Module) -> str:
    exe = executable_of(compilation(module, cache="none").program, threads=1)
    entry = exe.entries[0]
    sizes = _sizes(entry)
    if sizes is None:
        return "unsized"
    inputs = [
        np.ones(
            [formula.evaluate(d.value, sizes) or 0 for d in spec.dims if d.value], BY_NAME[spec.dtype].numpy
        )
        for spec in entry.inputs
        if isinstance(spec, TensorSpec)
    ]
    try:
        exe(*inputs)
    except (CompileError, RunError):
        return "stopped"
    return "ok"


def _sizes(entry: Entry) -> list[int] | None:
    """Return 2 for every symbol, if that makes inputs of a reasonable size."""
    sizes = [2] * len(entry.symbols)
    for spec in entry.inputs:
        if not isinstance(spec, TensorSpec):
            return None
        dims = [formula.evaluate(d.value, sizes) for d in spec.dims if d.value]
        if any(d is None or d < 0 for d in dims) or np.prod([float(d or 0) for d in dims]) > 1e6:
            return None
    return sizes


@functools.cache
def tflite_models() -> tuple[bytes, ...]:
    """Return small TFLite models: some of one operator, some that run graphs, those of the shared data."""
    folder = find_data()
    paths = sorted((folder / "cases").glob("*/model.tflite")) if folder is not None else []
    drawn_ones = [case(name).content for name in list(names())[::5]]
    small = [p.read_bytes() for p in paths if p.stat().st_size < 80_000]
    return (*drawn_ones, accumulator(), *small)


FIELDS = (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\0", b"\1\0\0\0")
"""What offsets and numbers of a flatbuffer are changed to."""


def _damaged_tflite(seed: int) -> bytes:
    """Change bytes and fields, mostly behind the weights, where the tables are; or cut the end off."""
    random = Random(seed)
    data = bytearray(random.choice(tflite_models()))
    if random.random() < 0.15:
        return bytes(data[: random.randrange(len(data))])
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(random.choice((0, max(0, len(data) - 12_000))), len(data))
        new = random.choice((*FIELDS, bytes([random.randrange(256)])))
        data[at : at + len(new)] = new
    return bytes(data)


def _import_tflite(data: bytes) -> str:
    import_bytes(data, table())
    return "ok"


def _control(seed: int) -> bytes:
    return drawn(seed).SerializeToString()


# --------------------------------------------------------------------------- programs in text


@functools.cache
def texts() -> tuple[str, ...]:
    """Return programs in text form."""
    folder = REPOSITORY / "tests"
    paths = [*sorted(folder.glob("text/**/*.inl")), *sorted(folder.glob("errors/*.inl")), *corpus(".inl")]
    found = [p.read_bytes().decode("utf-8", "replace") for p in paths]
    return tuple(t for t in found if len(t) < 6000)


def _damaged_text(seed: int) -> bytes:
    random = Random(seed)
    return damaged_text(random.choice(texts()), random.choice(texts()), random).encode(
        "utf-8", "surrogatepass"
    )


def _read_text(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    infer_types(with_prelude(parse_module(text, table(), name="damaged", known=prelude())))
    return "ok"


# --------------------------------------------------------------------------- executables

_BEYOND = ("run.cancelled", "run.out-of-memory", "run.stack-limit", "container.symbol", "container.target")
"""What depends on the limits of a run, or on the C functions that the two sides know."""


def _executables(driver: Path, datas: Sequence[bytes]) -> list[str]:
    """Run executables under sanitizers, and hold the outcome against that of Python."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            lines = drive(driver, write(Path(folder), datas))
        except AssertionError as failure:
            raise Finding(f"the C core under sanitizers: {failure}") from None
    if len(lines) != len(datas):
        raise Finding(f"{len(lines)} lines for {len(datas)} files")
    found = []
    for i, (data, line) in enumerate(zip(datas, lines, strict=True)):
        try:
            found.append(_agree(data, line))
        except Finding as finding:
            raise Finding(f"input {i}: {finding}") from finding
    return found


def _agree(data: bytes, line: str) -> str:
    if "LIVE" in line:
        raise Finding(f"objects survive a call: {line}")
    native = line.split(" ")[0]
    try:
        with bounded():
            program = container.read(data)
    except (CompileError, RunError) as refusal:
        if native.startswith("container.") or "UTF-8" in str(refusal):
            return "refused"
        raise Finding(f"Python refuses, C does not: {refusal} / {line}") from None
    if native.startswith("container."):
        raise Finding(f"C refuses, Python does not: {line}")
    if native in _BEYOND or not _fits(program.entries):
        return "ran"
    try:
        with bounded():
            exe = executable_of(program, engine="python", callbacks=_callbacks(program))
            exe(*ARGUMENTS)
            found = "ok"
    except MemoryError:
        return "ran"
    except (CompileError, RunError) as stopped:
        found = stopped.ids[0]
    if found.startswith("input.") and native.startswith("input."):
        return "mismatch"  # C stops at the first input that does not fit, Python says all
    if found != native and found not in _BEYOND:
        raise Finding(f"Python: {found}, C: {line}")
    return found


def _callbacks(program: Program) -> dict[str, Callback]:
    """Return what the driver does, under the names that the program has for it, right or damaged.

    The driver goes by the number of tensors: names are for those who give functions by name.
    """
    bodies = [kernel.body for kernel in program.kernels]
    return dict.fromkeys([b.name for b in bodies if isinstance(b, HostBody)], _called)


def _called(tensors: list[np.ndarray], integers: list[int]) -> None:
    match tensors:
        case []:
            pass
        case [out]:
            CALLBACKS["fill"]([out], integers or [0])
        case [source, *_, out]:
            CALLBACKS["combine"]([source, out], integers or [0])


def _fits(entries: Sequence[Entry]) -> bool:
    """Whether the driver's arguments fit the first entry, so that both sides run it."""
    return bool(entries) and [s.dtype for s in entries[0].inputs if isinstance(s, TensorSpec)] == [
        "i64",
        "f32",
    ]


def targets(driver: Path | None) -> dict[str, Target]:
    """Return the targets; without those that need a driver, or onnxruntime, where there is none."""
    found = {
        "onnx": Target(".onnx", damaged, each(_import)),
        "onnx-compile": Target(".onnx", damaged, each(_compile)),
        "inl": Target(".inl", _damaged_text, each(_read_text)),
    }
    if importlib.util.find_spec("tflite") is not None:
        found["tflite"] = Target(".tflite", _damaged_tflite, each(_import_tflite))
    if importlib.util.find_spec("onnxruntime") is not None:
        found["control"] = Target("-control.onnx", _control, each(compared))
    if driver is not None:
        check = functools.partial(_executables, driver)
        found["inlay"] = Target(".inlay", executable, check, batch=40)
    return found
