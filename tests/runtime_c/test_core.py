"""The C core without Python: strict C99, and sanitizers over valid, broken and forged files."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode import container, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import DTYPE_CODES, Kind
from inlay.bytecode.program import AccessCode, Constant, CopyBody, DeviceRecord, Entry, Kernel
from inlay.bytecode.spec import Dim, TensorSpec
from inlay.runtime.session import executable_of
from tests.data import REPOSITORY
from tests.runtime_c.build import MODES, NoSanitizerError, room, write
from tests.runtime_c.build import build as driver_with
from tests.runtime_c.build import drive as driven
from tests.runtime_c.build import strict_objects as strictly_compiled
from tests.system import need, needs
from tests.unit.bytecode.test_container import reseal
from tests.unit.runtime.generate import CALLBACKS, Generator
from tests.unit.runtime.generate_flow import FlowGenerator
from tests.unit.runtime.test_agreement import ARGUMENTS
from tools.gen_opcodes import c_table, markdown_table

pytestmark = [pytest.mark.cc, needs("gcc")]


def test_generated_files_are_fresh():
    assert (REPOSITORY / "runtime/src/opcodes.inc").read_text() == c_table()
    assert (REPOSITORY / "docs/language/bytecode_table.md").read_text() == markdown_table()


@pytest.fixture(scope="module")
def strict_objects() -> list[Path]:
    need("nm")
    return strictly_compiled()


def test_core_needs_only_memory_functions_of_libc(strict_objects):
    table = subprocess.run(["nm", "-u", *strict_objects], check=True, capture_output=True, text=True).stdout
    needed = {line.split()[-1] for line in table.splitlines() if " U " in f" {line}"}
    foreign = {n for n in needed if not n.startswith("inlay_") and n != "_GLOBAL_OFFSET_TABLE_"}
    assert foreign <= {"memcpy", "memset", "memmove", "memcmp", "strlen", "strcmp"}, foreign


def test_core_keeps_no_globals(strict_objects):
    command = ["nm", "--print-file-name", "--portability", *strict_objects]
    table = subprocess.run(command, check=True, capture_output=True, text=True)
    symbols = [line.rpartition("]: ")[2].rpartition(": ")[2].split() for line in table.stdout.splitlines()]
    assert symbols
    # Relocated constant tables (`.data.rel.ro`, which are `d`) are read-only once loaded.
    assert [name for name, kind, *_ in symbols if kind in "bBcC"] == []


def build(sanitizer: str) -> Path:
    """Compile the driver with a sanitizer; skip where there is none."""
    try:
        return driver_with(sanitizer)
    except NoSanitizerError as failure:
        pytest.skip(str(failure))


@pytest.fixture(scope="module")
def driver() -> Path:
    return build("address,undefined")


@pytest.fixture(scope="module")
def thread_driver() -> Path:
    return build("thread")


def drive(driver: Path, files: list[Path], **settings: Any) -> list[str]:
    """Run files; skip where the sanitizer cannot run."""
    try:
        return driven(driver, files, **settings)
    except NoSanitizerError as failure:
        pytest.skip(str(failure))


def expected(seed: int) -> str:
    exe = executable_of(Generator(seed).program_of(), engine="python", callbacks=CALLBACKS)
    try:
        results = exe(*ARGUMENTS)
    except RunError as caught:
        return f"{caught.ids[0]} {caught.diagnostics[0].message}"
    names = {"int64": "i64", "float32": "f32"}
    shown = [
        f"{DTYPE_CODES[names[r.dtype.name]]}:{''.join(f'{d},' for d in r.shape)}:{r.tobytes().hex()}"
        for r in results
    ]
    return " ".join(["ok", *shown])


def test_valid_programs_under_sanitizers(driver, tmp_path):
    seeds = list(range(5000, 5150))
    files = write(tmp_path, [writer.to_bytes(Generator(s).program_of()) for s in seeds])
    for seed, line in zip(seeds, drive(driver, files), strict=True):
        assert line == expected(seed), seed


@pytest.mark.parametrize(("mode", "seed"), [("parallel", 0), ("replay", 1), ("replay", 2)])
def test_modes_under_sanitizers(driver, tmp_path, mode, seed):
    seeds = list(range(5000, 5100))
    files = write(tmp_path, [writer.to_bytes(Generator(s).program_of()) for s in seeds])
    assert drive(driver, files, mode=mode, seed=seed) == drive(driver, files)


@pytest.mark.parametrize(("mode", "seed"), [("sequential", 0), ("parallel", 0), ("replay", 1)])
def test_inputs_that_may_be_written_over(driver, tmp_path, mode, seed):
    """Results are the same, and so is what fails but for that; nothing beyond such an input is touched."""
    seeds = list(range(5000, 5100))
    files = write(tmp_path, [writer.to_bytes(Generator(s).program_of()) for s in seeds])
    lines = drive(driver, files, mode=mode, seed=seed, is_spare=True)
    for line, usual in zip(lines, drive(driver, files), strict=True):
        assert line == usual or usual.startswith("run.read-only")


def flow_files(folder: Path, seeds: range, **what: bool) -> list[Path]:
    return write(folder, [writer.to_bytes(FlowGenerator(s, **what).program_of()) for s in seeds])


@pytest.mark.parametrize(("mode", "seed"), [("parallel", 0), ("parallel", 1), ("replay", 1), ("replay", 2)])
def test_tasks_under_sanitizers(driver, tmp_path, mode, seed):
    files = flow_files(tmp_path, range(6000, 6150))
    lines = drive(driver, files, mode=mode, seed=seed, is_flow=True)
    assert lines == drive(driver, files, is_flow=True)
    assert 5 < sum("broken" in line for line in lines) < 75


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (1, "use before ready"),
        (2, "reuse while in flight"),
        (3, "missing wait"),
        (4, "overtaken"),
        (5, "overtaken"),
        (6, "overwritten while live"),
    ],
)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("closures", [False, True], ids=["calls", "closures"])
def test_races_are_found(driver, tmp_path, kind, word, nth, closures):
    """Plans made wrong: an edge, a wait or a guard less, a call that is not waited for though it has
    effects, a write through a view. What was needed is missed, or the result is right because other edges order the same two."""
    files = flow_files(tmp_path, range(8100, 8160), cells=kind == 5, closures=closures)
    right = drive(driver, files, mode="replay", seed=3, is_flow=True)
    lines = drive(driver, files, mode="replay", seed=3, is_flow=True, spoil=(kind, nth))
    found = [line for line in lines if line.startswith("spoiled run.race ")]
    assert len(found) >= 2
    assert any(f"run.race {word}: " in line for line in found)
    for line, expected_line in zip(lines, right, strict=True):
        if line not in found:
            assert line.removeprefix("spoiled ") == expected_line


def test_workers_under_the_thread_sanitizer(thread_driver, tmp_path):
    seeds = list(range(5000, 5060))
    files = write(tmp_path, [writer.to_bytes(Generator(s).program_of()) for s in seeds])
    assert drive(thread_driver, files, mode="parallel") == drive(thread_driver, files)
    files = flow_files(tmp_path, range(7000, 7100))
    lines = drive(thread_driver, files, mode="parallel", is_flow=True)
    assert lines == drive(thread_driver, files, is_flow=True)


def test_a_device_that_ends_kernels_late(driver, thread_driver, tmp_path):
    files = flow_files(tmp_path, range(9000, 9060))
    lines = drive(driver, files, is_flow=True)
    assert any("broken" in line for line in lines)
    for one in (driver, thread_driver):
        assert drive(one, files, mode="parallel", has_device=True) == lines


@pytest.mark.parametrize("mode", MODES)
def over_devices(seed: int) -> bytes:
    """x goes through the memories of two units and comes back; `seed` orders what may overlap."""
    b = ProgramBuilder(
        memories=("host", "far", "second"),
        devices=(DeviceRecord("dev0", "host", f"units=2 seed={seed}", (1, 2)),),
    )
    copy = b.kernel(Kernel("to", (AccessCode.READ, AccessCode.WRITE), 0, CopyBody()))
    b.constant(Constant("i64", (3,), np.array([7, 8, 9]), memory=2))
    main = b.function("main", [Kind.TENSOR, Kind.TENSOR], [Kind.TENSOR, Kind.TENSOR])
    for memory in ("far", "second", "host", "host"):
        main.emit("INT", 3), main.emit("ALLOCATE", memory, "i64", 1)
    for source, target in ((0, 2), (2, 3), (3, 4)):
        main.emit("COPY", source), main.emit("COPY", target), main.emit("INVOKE", copy)
    main.emit("CONST", 0), main.emit("COPY", 5), main.emit("INVOKE", copy)
    main.emit("COPY", 4), main.emit("COPY", 5), main.emit("RETURN")
    three = (Dim("3", (3,)),)
    inputs = (TensorSpec("x", "i64", three), TensorSpec("y", "f32", (Dim("2", (2,)), *three)))
    outputs = (TensorSpec("a", "i64", three), TensorSpec("b", "i64", three))
    b.entry(Entry("main", main.index, inputs, outputs))
    return writer.to_bytes(b.finish())


@pytest.mark.parametrize("how", ["0", "0,1", "0,2,5"])
def test_devices_under_sanitizers(driver, tmp_path, how):
    files = write(tmp_path, [over_devices(seed) for seed in range(4)])
    want = " ".join(
        ["ok", *(f"4:3,:{np.array(v, np.int64).tobytes().hex()}" for v in ([1, 2, 3], [7, 8, 9]))]
    )
    done = subprocess.run([driver, how, *files], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    assert done.stdout.splitlines() == [want] * 4


def copies_of_a_device(seed: int) -> tuple[bytes, str]:
    """Copies that chance picks, between the host and two units that run beside it; what comes out."""
    code = bytes(64)
    head = (b"", len(code).to_bytes(8, "little"), (0).to_bytes(4, "little"))
    image = b"INLAYNC1" + (0).to_bytes(4, "little") + b"".join(head) + code
    memories = ("host", "far", "second")
    device = DeviceRecord("dev0", "native", "units=2", (1, 2), image)
    b = ProgramBuilder(memories=memories, devices=(device,))
    copy = b.kernel(Kernel("to", (AccessCode.READ, AccessCode.WRITE), 0, CopyBody()))
    main = b.function("main", [Kind.TENSOR, Kind.TENSOR], [Kind.TENSOR, Kind.TENSOR])
    generator = random.Random(seed)
    held: dict[int, np.ndarray] = {}
    for i, memory in enumerate([*memories, *memories, "host"]):
        main.emit("INT", 3), main.emit("ALLOCATE", memory, "i64", 1)
        made = main.depth - 1
        held[made] = np.arange(i, i + 3)
        main.emit("CONST", b.constant(Constant("i64", (3,), held[made])))
        main.emit("COPY", made), main.emit("INVOKE", copy)
    for _ in range(60):
        source, target = generator.sample(list(held), 2)
        main.emit("COPY", source), main.emit("COPY", target), main.emit("INVOKE", copy)
        held[target] = held[source]
    ends = [min(held), max(held)]  # both in the host
    main.emit("COPY", ends[0]), main.emit("COPY", ends[1]), main.emit("RETURN")
    three = (Dim("3", (3,)),)
    inputs = (TensorSpec("x", "i64", three), TensorSpec("y", "f32", (Dim("2", (2,)), *three)))
    outputs = (TensorSpec("a", "i64", three), TensorSpec("b", "i64", three))
    b.entry(Entry("main", main.index, inputs, outputs))
    results = " ".join(f"4:3,:{held[end].astype(np.int64).tobytes().hex()}" for end in ends)
    return writer.to_bytes(b.finish()), f"ok {results}"


def test_commands_started_behind_others(driver, thread_driver, tmp_path):
    """The race detector and the thread sanitizer watch a device that has several at a time."""
    programs, expected = zip(*(copies_of_a_device(seed) for seed in range(10)), strict=True)
    files = write(tmp_path, list(programs))
    for mode in MODES:
        assert drive(driver, files, mode=mode) == list(expected)
    for _ in range(3):
        assert drive(driver, files, mode="parallel") == list(expected)
        assert drive(thread_driver, files, mode="parallel") == list(expected)


def test_refused_memory_of_devices_under_sanitizers(driver, tmp_path):
    assert drive(driver, write(tmp_path, [over_devices(1)]), limit=1) == []


@pytest.mark.parametrize("mode", MODES)
def test_refused_memory_under_sanitizers(driver, tmp_path, mode):
    files = write(tmp_path, [writer.to_bytes(Generator(s).program_of()) for s in range(6)])
    assert drive(driver, files, limit=1, mode=mode) == []
    files = flow_files(tmp_path, range(4))
    assert drive(driver, files, limit=1, mode=mode, is_flow=True) == []


def mutations(count: int) -> list[bytes]:
    """Files with a few changed bytes or words, whose digests are right again."""
    generator = random.Random(1)
    made = []
    for index in range(count):
        data = bytearray(writer.to_bytes(Generator(index % 40).program_of()))
        sections = container.Container(bytes(data)).sections
        names = ["CODE"] * 6 + ["FUNC", "KERN", "ENTR", "CONS", "STRS", "META", "SMAP", "POOL"]
        for _ in range(generator.randint(1, 3)):
            section = sections[generator.choice(names)]
            if not section.size:
                continue
            place = section.offset + generator.randrange(section.size)
            if generator.random() < 0.7:
                place = place // 4 * 4
                word = generator.choice([0, 1, 2, 3, 7, 60, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF])
                data[place : place + 4] = word.to_bytes(4, "little")
            else:
                data[place] = generator.randrange(256)
        made.append(reseal(data))
    return made


def test_forged_files_under_sanitizers(driver, tmp_path):
    """What the verifier accepts is executed too: it must stay within bounds and end."""
    datas = mutations(300)
    lines = drive(driver, write(tmp_path, datas))
    assert len(lines) == len(datas)
    assert not any("LIVE" in line for line in lines)
    refused = [line.startswith("container.") for line in lines]
    assert 50 < sum(refused) < len(datas)
    for data, is_refused, line in zip(datas, refused, lines, strict=True):
        reason = python_refusal(data)
        # Strings are only shown, so the core does not look into them; names of inputs neither.
        is_about_names = "UTF-8" in reason or "have one name" in reason
        assert is_refused == bool(reason) or is_about_names, (line, reason)


def python_refusal(data: bytes) -> str:
    """Return why the Python reader refuses a file; nothing if it does not."""
    try:
        container.read(data)
    except CompileError as caught:
        return str(caught)
    return ""


STRUCTURED = """
fn main(x: Tensor[3, i64], xs: List[some k. Tensor[k, 3, f32]], o: Option[Tensor[3, i64]]) -> (
  List[List[some k. Tensor[k, 3, f32]]], Option[Tensor[3, i64]], Tensor[3, i64], List[Tensor[3, i64]]
) {
  let ys: List[some k. Tensor[k, 3, f32]] = @list.insert(xs, int(1), @list.at(xs, int(-1)));
  (Cons(ys, Cons(@list.reverse(xs), Nil[ROW]())), o, x, Cons(x, Cons(x, Nil[Tensor[3, i64]]())))
}
"""


def structured_files(folder: Path) -> list[Path]:
    source = folder / "structured.inl"
    source.write_text(STRUCTURED.replace("ROW", "List[some k. Tensor[k, 3, f32]]"))
    program = inlay.compile(source).program
    path = folder / "structured.inlay"
    writer.save(program, path)
    return [path]


def test_structure_under_sanitizers(driver, tmp_path):
    """Counts come first: of the outer list, then each inner one; of the option; of the last list."""
    files = structured_files(tmp_path)
    (line,) = drive(driver, files)
    assert line.startswith("ok 2 3 2 1 2 4:3,:")
    assert len(line.split(" ")) == 6 + 5 + 1 + 1 + 2
    for mode, seed in (("parallel", 0), ("replay", 1)):
        assert drive(driver, files, mode=mode, seed=seed) == [line]
    assert drive(driver, files, limit=1) == []


def test_truncated_files_under_sanitizers(driver, tmp_path):
    data = writer.to_bytes(Generator(3).program_of())
    datas = [data[:size] for size in range(0, len(data), 97)]
    lines = drive(driver, write(tmp_path, datas))
    assert all(line.startswith("container.") for line in lines)


def run_alone(name: str) -> subprocess.CompletedProcess[str]:
    """Run the program of a test that needs little of the runtime."""
    try:
        made = room(name)
    except NoSanitizerError as failure:
        pytest.skip(str(failure))
    return subprocess.run([made], check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ["blocks", "choice"])
def test_a_room_alone(name):
    ran = run_alone(name)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]


@pytest.mark.parametrize("name", ["parking", "pool"])
def test_threads_under_the_thread_sanitizer(name):
    ran = run_alone(name)
    if "unexpected memory mapping" in ran.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
