"""Programs that use devices: their memories, kernels, copies, constants and failures."""

from __future__ import annotations

import mmap
from random import Random

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode import container, formula, verify, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import (
    AccessCode,
    Constant,
    CopyBody,
    DeviceBody,
    DevicePhase,
    DeviceRecord,
    Entry,
    HostBody,
    ImageTarget,
    Kernel,
    Program,
)
from inlay.bytecode.spec import Symbol
from inlay.codegen.opencl import OPENCL, make_image
from inlay.machine.target import host
from inlay.runtime import _runtime
from inlay.runtime.session import executable_of
from tests.drivers.kernels import TEXTS
from tests.unit.bytecode import assembler, disasm
from tests.unit.bytecode.test_container import reseal
from tests.unit.codegen.support import parsed
from tests.unit.runtime.programs import native_image, spec

READ, WRITE = AccessCode.READ, AccessCode.WRITE
N = ["n"]
AFFINE = """
int64_t affine(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    const int32_t *x = b[0]; int32_t *y = b[1];
    for (int64_t i = part; i < n[0]; i += parts) y[i] = x[i] * 3 + 1;
    return 0;
}
int64_t checked(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    const int32_t *x = b[0]; int32_t *y = b[1];
    for (int64_t i = part; i < n[0]; i += parts) {
        if (x[i] < 0) return 1;
        y[i] = x[i];
    }
    return 0;
}
"""
MODES = [("sequential", None), ("parallel", None), ("replay", 3), ("replay", 4)]


@pytest.fixture(scope="module")
def native(tmp_path_factory) -> tuple[bytes, list[int]]:
    return native_image(AFFINE, tmp_path_factory.mktemp("native"), ["affine", "checked"])


def f(text: str) -> formula.Formula:
    return formula.parse(text, N)


class Writer:
    """A program over x: i32[n], with memories `far` (and `second`) of a device."""

    def __init__(
        self, native: tuple[bytes, list[int]], driver: str = "host", options: str = "units=2"
    ) -> None:
        image, self.offsets = native
        is_native = driver == "host"
        text = make_image([parsed(TEXTS[0])], OPENCL).text.encode()
        device = DeviceRecord("dev0", driver, options, (1, 2), b"" if is_native else text)
        self.b = ProgramBuilder(
            image=image,
            target=ImageTarget(host().triple, ()),
            memories=("host", "far", "second"),
            devices=(device,),
        )
        self.is_native = is_native
        self.copy = self.b.kernel(Kernel("to", (READ, WRITE), 0, CopyBody()))
        self.main = self.b.function("main", [Kind.TENSOR], [Kind.TENSOR])
        self.main.emit("COPY", 0), self.main.emit("DIM", 0)  # slot 1: n

    def kernel(self, memory: int = 1, which: int = 0, **more) -> int:
        offset = self.offsets[which] if self.is_native else -1
        name = ("affine", "checked")[which]
        body = DeviceBody(memory, name, (DevicePhase(f("n"), offset),))
        return self.b.kernel(Kernel(name, (READ, WRITE), 1, body, **more))

    def tensor(self, memory: int) -> None:
        """Push a tensor i32[n] of a memory."""
        name = self.b.memories[memory].name
        self.main.emit("COPY", 1), self.main.emit("ALLOCATE", name, "i32", 1)

    def invoke(self, kernel: int, source: int, target: int, *, ints: bool) -> None:
        self.main.emit("COPY", source), self.main.emit("COPY", target)
        if ints:
            self.main.emit("COPY", 1)
        self.main.emit("INVOKE", kernel)

    def finish(self) -> Program:
        self.main.emit("RETURN")
        symbol = Symbol("n", 0, 0, formula.parse("d", ["d"]))
        inputs, outputs = (spec("x", "i32", "n", N),), (spec("y", "i32", "n", N),)
        self.b.entry(Entry("main", self.main.index, inputs, outputs, (symbol,)))
        return self.b.finish()


def chain(writer: Writer, length: int = 3) -> Program:
    """x -> far -> affine ... affine -> host: slots 2, 3 are on the device, 4 is the result."""
    kernel = writer.kernel(1)
    writer.tensor(1), writer.tensor(1), writer.tensor(0)
    writer.invoke(writer.copy, 0, 2, ints=False)
    for i in range(length):
        writer.invoke(kernel, 2 + i % 2, 3 - i % 2, ints=True)
    writer.invoke(writer.copy, 2 + length % 2, 4, ints=False)
    writer.main.emit("COPY", 4)
    return writer.finish()


def expected(x: np.ndarray, length: int = 3) -> np.ndarray:
    for _ in range(length):
        x = x * 3 + 1
    return x


X = np.arange(100, dtype=np.int32) - 50


@pytest.mark.parametrize(("mode", "seed"), MODES)
@pytest.mark.parametrize("driver", ["host", "opencl"])
def test_kernels_and_copies(native, driver, mode, seed):
    program = chain(Writer(native, driver))
    try:
        exe = executable_of(program, threads=2, mode=mode, seed=seed)
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))
    for n in (100, 0, 1, 77):
        np.testing.assert_array_equal(exe(X[:n]), expected(X[:n]))
    assert exe.live_objects() == 0


def test_the_reference_interpreter_agrees(native):
    exe = executable_of(chain(Writer(native)), engine="python")
    np.testing.assert_array_equal(exe(X), expected(X))


@pytest.mark.parametrize(("mode", "seed"), MODES)
def test_two_units_and_copies_between_them(native, mode, seed):
    w = Writer(native)
    first, second = w.kernel(1), w.kernel(2)
    w.tensor(1), w.tensor(1), w.tensor(2), w.tensor(2), w.tensor(0)
    w.invoke(w.copy, 0, 2, ints=False)
    w.invoke(first, 2, 3, ints=True)
    w.invoke(w.copy, 3, 4, ints=False)
    w.invoke(second, 4, 5, ints=True)
    w.invoke(w.copy, 5, 6, ints=False)
    w.main.emit("COPY", 6)
    exe = executable_of(w.finish(), threads=2, mode=mode, seed=seed)
    np.testing.assert_array_equal(exe(X), expected(X, 2))


@pytest.mark.parametrize("driver", ["host", "opencl"])
def test_constants_are_on_the_device_once(native, driver):
    w = Writer(native, driver)
    data = np.arange(8, dtype=np.int32)
    constant = w.b.constant(Constant("i32", (8,), data, memory=1))
    kernel = w.kernel(1)
    w.tensor(1), w.tensor(0)
    w.main.emit("CONST", constant)
    w.invoke(kernel, 4, 2, ints=True)
    w.invoke(w.copy, 2, 3, ints=False)
    w.main.emit("COPY", 3)
    try:
        exe = executable_of(w.finish())
    except RunError as failure:
        if failure.ids != ("run.device-absent",):
            raise
        pytest.skip(str(failure))
    for _ in range(3):
        np.testing.assert_array_equal(exe(X[:8]), data * 3 + 1)


@pytest.mark.parametrize(("mode", "seed"), MODES)
def test_a_failed_assertion_has_its_message(native, mode, seed):
    w = Writer(native)
    checked = w.kernel(1, 1, assertions=("x is not negative",))
    w.tensor(1), w.tensor(1), w.tensor(0)
    w.main.at("node 'Check'")
    w.invoke(w.copy, 0, 2, ints=False)
    w.invoke(checked, 2, 3, ints=True)
    w.invoke(w.copy, 3, 4, ints=False)
    w.main.emit("COPY", 4)
    exe = executable_of(w.finish(), threads=2, mode=mode, seed=seed)
    with pytest.raises(RunError, match="x is not negative") as failure:
        exe(X)
    assert failure.value.ids == ("run.check-failed",)
    assert "node 'Check'" in str(failure.value)
    np.testing.assert_array_equal(exe(X[60:]), X[60:])


@pytest.mark.parametrize(("mode", "seed"), MODES)
def test_a_device_that_fails(native, mode, seed):
    """The third request of the device fails: the second kernel."""
    program = chain(Writer(native, options="units=2 fail=3"))
    exe = executable_of(program, threads=2, mode=mode, seed=seed)
    with pytest.raises(RunError, match="device 'dev0': .* asked to fail .*'affine'") as failure:
        exe(X)
    assert failure.value.ids == ("run.device-failed",)
    np.testing.assert_array_equal(exe(X), expected(X))
    assert exe.live_objects() == 0


def test_memory_of_a_device_is_bounded(native):
    exe = executable_of(chain(Writer(native, options="units=2 memory=1000")))
    with pytest.raises(RunError, match="dev0") as failure:
        exe(np.arange(400, dtype=np.int32))
    assert failure.value.ids == ("run.out-of-memory",)
    np.testing.assert_array_equal(exe(X), expected(X))


def test_the_host_does_not_read_what_is_on_a_device(native):
    w = Writer(native)
    w.tensor(1)
    w.invoke(w.copy, 0, 2, ints=False)
    w.main.emit("COPY", 2)
    with pytest.raises(RunError, match="'dev0': the host needs") as failure:
        executable_of(w.finish())(X)
    assert failure.value.ids == ("run.kind-mismatch",)
    w = Writer(native)
    kernel = w.b.kernel(Kernel("h", (READ, WRITE), 0, HostBody("h")))
    w.tensor(1), w.tensor(0)
    w.invoke(kernel, 2, 3, ints=False)
    w.main.emit("COPY", 3)
    with pytest.raises(RunError, match="'dev0': the host needs"):
        executable_of(w.finish(), callbacks={"h": lambda tensors, ints: None})(X)


def test_a_device_does_not_read_the_host(native):
    w = Writer(native)
    w.tensor(1)
    w.invoke(w.kernel(1), 0, 2, ints=True)
    w.main.emit("COPY", 0)
    with pytest.raises(RunError, match="takes a tensor of the host"):
        executable_of(w.finish())(X)


def test_sizes_of_copies_agree(native):
    w = Writer(native)
    w.main.emit("INT", 7), w.main.emit("ALLOCATE", "far", "i32", 1)
    w.invoke(w.copy, 0, 2, ints=False)
    w.main.emit("COPY", 0)
    with pytest.raises(RunError, match="400 bytes are copied to a tensor of 28"):
        executable_of(w.finish())(X)


@pytest.mark.parametrize(
    ("driver", "options", "message"),
    [
        ("no-such", "", "device 'dev0': there is no driver 'no-such'"),
        ("host", "units=1", "it has fewer units than memories"),
        ("host", "speed=9", "options are"),
        ("opencl", "index=15 units=2", "needed 16|libOpenCL"),
    ],
)
def test_devices_that_cannot_be_opened(native, driver, options, message):
    with pytest.raises(RunError, match=message):
        executable_of(chain(Writer(native, driver, options)))


def test_files_and_listings_come_back(native):
    w = Writer(native, "opencl")
    w.b.constant(Constant("i32", (2,), np.arange(2, dtype=np.int32), memory=2))
    program = chain(w)
    data = writer.to_bytes(program)
    read = container.read(data)
    assert writer.to_bytes(read) == data
    text = disasm.listing(program)
    assert '.device "dev0" driver "opencl" options "units=2" memories 1 2' in text
    assert disasm.listing(assembler.parse(text, disasm.resources(program))) == text


def test_wrong_devices_are_found(native):
    from dataclasses import replace

    program = chain(Writer(native))
    [device] = program.devices
    wrong = {
        "memory 0 is the host's": (replace(device, memories=(0, 1)),),
        "memory 9 is the host's": (replace(device, memories=(9,)),),
        "no name": (replace(device, driver=""),),
        "their hardware are not as many": (replace(device, hardware=(1,)),),
        "hardware 9 is not below": (replace(device, hardware=(0, 9)),),
        "another's": (device, replace(device, name="dev1")),
        "belongs to no device": (replace(device, memories=(2,)),),
    }
    for message, devices in wrong.items():
        made = replace(program, devices=devices)
        assert any(message in str(x) for x in verify.findings(made)), message
        with pytest.raises(CompileError):
            container.read(writer.to_bytes(made))
        with pytest.raises(CompileError):
            executable_of(made)


def test_both_readers_agree_on_forged_devices(native):
    """Where the file is right, a device that cannot be opened so is another matter: `run.*`."""
    w = Writer(native)
    w.b.constant(Constant("i32", (4,), np.arange(4, dtype=np.int32), memory=1))
    data = writer.to_bytes(chain(w))
    sections = container.Container(data).sections
    random = Random(5)
    verdicts = {True: 0, False: 0}
    for _ in range(300):
        wrong = bytearray(data)
        section = sections[random.choice(["DEVS", "DEVS", "KERN", "CONS", "META"])]
        at = section.offset + 4 * random.randrange(section.size // 4)
        word = random.choice([0, 1, 2, 3, 4, 5, 7, 64, 0x7FFFFFFF, 0xFFFFFFFF])
        wrong[at : at + 4] = word.to_bytes(4, "little")
        forged = reseal(wrong)
        is_right = True
        try:
            container.read(forged)
        except CompileError:
            is_right = False
        memory = mmap.mmap(-1, len(forged))
        memory.write(forged)
        found = ""
        try:
            _runtime.load(None, memory, 1, 0, 0, 0, 0, 1, {}, {}, 0, 0, 0)
        except _runtime.Failure as failure:
            found = failure.args[0]
        assert found == "" or found.startswith("run.") if is_right else found.startswith("container.")
        verdicts[is_right] += 1
    assert min(verdicts.values()) > 30
