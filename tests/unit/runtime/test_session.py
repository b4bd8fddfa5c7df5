"""Executables: loading, inputs and outputs, errors, threads, files."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest

from inlay.base.diagnostics import CompileError, RunError
from inlay.bytecode import formula, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import (
    AccessCode,
    Constant,
    Entry,
    HostBody,
    ImageBody,
    ImageTarget,
    Kernel,
    Phase,
    SymbolBody,
)
from inlay.bytecode.spec import Symbol
from inlay.machine.target import host
from inlay.runtime import host_cpu
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of, load_executable
from tests.unit.runtime.programs import dbl, doubling, native_image, spec

ENGINES = ["native", "python"]
IS_X86 = platform.machine() in ("x86_64", "AMD64")
CODE = pytest.mark.skipif(not IS_X86, reason="the image of this test is x86-64 code")


@pytest.fixture(params=ENGINES)
def exe(request) -> Executable:
    return executable_of(doubling(), callbacks={"dbl": dbl}, engine=request.param)


def test_run_and_call(exe):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert (exe.run({"x": x})["y"] == 2 * x).all()
    assert (exe(x) == 2 * x).all()
    assert exe.inputs[0].shape_text == "[n, 4]"
    assert exe.live_objects() == 0


@pytest.mark.parametrize(
    ("inputs", "id", "message"),
    [
        ({}, "input.missing", "input 'x': expected f32 [n, 4]; found nothing"),
        ({"y": 1}, "input.unknown", "input 'y': expected one of 'x'; found this name"),
        ({"x": np.ones((2, 4))}, "input.dtype", "input 'x': expected f32; found f64"),
        ({"x": np.ones((2, 4), ">f4")}, "input.dtype", "input 'x': expected f32; found >f4"),
        ({"x": np.ones((2, 4), "c8")}, "input.dtype", "input 'x': expected f32; found complex64"),
        ({"x": np.array(["a"])}, "input.dtype", "input 'x': expected f32; found string"),
        ({"x": np.ones(4, "f4")}, "input.rank", "input 'x': expected rank 2, [n, 4]; found rank 1, [4]"),
        (
            {"x": np.ones((2, 5), "f4")},
            "input.dim",
            "input 'x': expected [n, 4] with n = 2 from input 'x' axis 0; found [2, 5]",
        ),
        (
            {"x": np.ones((9, 4), "f4")},
            "input.requirement",
            "the inputs must have n <= 8; found n = 9 from input 'x' axis 0",
        ),
    ],
)
def test_wrong_inputs(exe, inputs, id, message):
    with pytest.raises(RunError) as caught:
        exe.run(inputs)
    assert (id, message) in [(d.id, d.message) for d in caught.value.diagnostics]
    x = np.ones((1, 4), np.float32)
    assert (exe(x) == 2).all(), "the executable stays usable"


def test_all_independent_findings_at_once(exe):
    with pytest.raises(RunError) as caught:
        exe.run({"a": 1, "b": 2})
    assert caught.value.ids == ("input.missing", "input.unknown", "input.unknown")


def test_unusual_inputs(exe):
    wide = np.arange(24, dtype=np.float32).reshape(3, 8)
    assert (exe(wide[:, ::2]) == 2 * wide[:, ::2]).all()
    assert (exe(wide[::-1, :4]) == 2 * wide[::-1, :4]).all()
    assert exe(np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert np.isnan(exe(np.full((1, 4), np.nan, np.float32))).all()
    assert (exe([[1, 2, 3, 4]]) == [[2, 4, 6, 8]]).all()
    frozen = np.ones((1, 4), np.float32)
    frozen.flags.writeable = False
    assert (exe(frozen) == 2).all()
    odd = np.frombuffer(b"x" + np.ones(4, np.float32).tobytes(), np.float32, offset=1)
    assert (exe(odd.reshape(1, 4)) == 2).all(), "no alignment is needed"


def test_inputs_by_dlpack(exe):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert (exe(Foreign(np.ones((1, 4), np.float32))) == 2).all()


def test_outputs_are_fresh_and_offer_dlpack():
    exe = executable_of(doubling(), callbacks={"dbl": dbl})
    x = np.ones((1, 4), np.float32)
    first, second = exe(x), exe(x)
    first[...] = 7
    assert (second == 2).all()
    assert (np.from_dlpack(second) == 2).all()
    del exe
    assert (first == 7).all(), "a result outlives its executable"


def identity(count: int = 1):
    """x -> x, x, .., and a constant."""
    b = ProgramBuilder()
    constant = b.constant(Constant("f32", (2,), np.array([5, 6], np.float32)))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * (count + 1))
    for _ in range(count):
        main.emit("COPY", 0)
    main.emit("CONST", constant), main.emit("RETURN")
    outputs = [spec(f"y{i}", "f32", "n", ["n"]) for i in range(count)]
    symbol = Symbol("n", 0, 0, formula.parse("d", ["d"]))
    b.entry(
        Entry(
            "main",
            main.index,
            (spec("x", "f32", "n", ["n"]),),
            (*outputs, spec("c", "f32", "2", [])),
            (symbol,),
        )
    )
    return b.finish()


@pytest.mark.parametrize("engine", ENGINES)
def test_results_share_nothing(engine):
    exe = executable_of(identity(2), engine=engine)
    x = np.ones(3, np.float32)
    a, b, c = exe(x)
    a[...] = 2
    c[...] = 9
    assert (x == 1).all()
    assert (b == 1).all()
    assert (exe(x)[2] == [5, 6]).all()
    assert exe.live_objects() == 0


def test_many_inputs_and_results():
    exe = executable_of(identity(100))
    results = exe(np.ones(1, np.float32))
    assert len(results) == 101


def test_a_failing_callback_is_the_callers_exception():
    def broken(tensors, integers):
        raise ZeroDivisionError("mine")

    exe = executable_of(doubling(), callbacks={"dbl": broken})
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="mine"):
            exe(np.ones((1, 4), np.float32))
    assert exe.live_objects() == 0


def test_missing_functions_are_refused_when_loading():
    with pytest.raises(CompileError) as caught:
        executable_of(doubling())
    assert caught.value.ids == ("container.symbol",)


def test_calls_from_many_threads():
    exe = executable_of(doubling(), callbacks={"dbl": dbl}, settings=Settings(activations=3), threads=2)
    problems = []

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(50):
            x = generator.random((generator.integers(0, 9), 4), np.float32)
            if not (exe(x) == 2 * x).all():
                problems.append(seed)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert exe.live_objects() == 0


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    b = ProgramBuilder()
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.emit("MOVE", 0), main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "bf16", "2", []),), (spec("y", "bf16", "2", []),)))
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    for engine in ENGINES:
        exe = executable_of(b.finish(), engine=engine)
        assert exe(x).dtype == x.dtype
        assert (exe(x) == x).all()
        with pytest.raises(RunError) as caught:
            exe(x.view(np.uint16)) if engine == "python" else exe.run({"x": x.astype("f4")})
        assert caught.value.ids == ("input.dtype",)


ADD_ONE = """
int64_t first(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    const int64_t *x = b[0]; int64_t *scratch = b[2];
    for (int64_t i = n[0] * part / parts; i < n[0] * (part + 1) / parts; i++) {
        if (x[i] < 0) return x[i] < -1 ? 3 : 1;
        scratch[i] = x[i] + 1;
    }
    return 0;
}
int64_t second(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    int64_t *y = b[1]; const int64_t *scratch = b[2];
    for (int64_t i = n[0] * part / parts; i < n[0] * (part + 1) / parts; i++)
        y[i] = scratch[n[0] - 1 - i];
    return 0;
}
"""


def reversing(tmp_path, cost="1000000"):
    """x: i64[n] -> (x + 1) reversed, in two phases over a workspace."""
    image, (first, second) = native_image(ADD_ONE, tmp_path, ["first", "second"])
    b = ProgramBuilder(image=image, target=ImageTarget(host().triple, ()))
    n = ["n"]
    kernel = b.kernel(
        Kernel(
            "reverse",
            (AccessCode.READ, AccessCode.WRITE),
            1,
            ImageBody((Phase(first, parallel=True), Phase(second, parallel=True))),
            formula.parse("8*n", n),
            cost=formula.parse(cost, n),
            assertions=("x is not negative",),
        )
    )
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    (main.emit("COPY", 0), main.emit("DIM", 0), main.emit("COPY", 1), main.emit("ALLOCATE", 0, "i64", 1))
    main.emit("COPY", 0), main.emit("COPY", 2), main.emit("COPY", 1), main.emit("INVOKE", kernel)
    main.emit("RETURN")
    symbol = Symbol("n", 0, 0, formula.parse("d", ["d"]))
    b.entry(Entry("main", main.index, (spec("x", "i64", "n", n),), (spec("y", "i64", "n", n),), (symbol,)))
    return b.finish()


@CODE
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_native_kernels(tmp_path, engine, threads):
    exe = executable_of(reversing(tmp_path), engine=engine, threads=threads)
    for size in (0, 1, 2, 7, 1000):
        x = np.arange(size)
        assert (exe(x) == (x + 1)[::-1]).all()


@CODE
def test_native_kernels_from_a_file(tmp_path):
    path = tmp_path / "a.inlay"
    writer.save(reversing(tmp_path), path)
    exe = load_executable(path, threads=2)
    x = np.arange(100)
    assert (exe(x) == (x + 1)[::-1]).all()
    again = tmp_path / "b.inlay"
    exe.save(again)
    assert again.read_bytes() == path.read_bytes()
    exe.save(path)
    assert (load_executable(path)(x) == (x + 1)[::-1]).all()


@CODE
def test_concurrent_parallel_kernels(tmp_path):
    exe = executable_of(reversing(tmp_path), threads=2)
    expected = (np.arange(5000) + 1)[::-1]
    wrong = []

    def work():
        for _ in range(200):
            if not (exe(np.arange(5000)) == expected).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@CODE
@pytest.mark.parametrize("engine", ENGINES)
def test_kernels_assert(tmp_path, engine):
    exe = executable_of(reversing(tmp_path), engine=engine, threads=2)
    for value, message in ((-1, "x is not negative"), (-2, "kernel 'reverse' answers 3")):
        x = np.arange(10)
        x[7] = value
        with pytest.raises(RunError) as caught:
            exe(x)
        assert caught.value.diagnostics[0].id == "run.check-failed"
        assert caught.value.diagnostics[0].message == message
    assert (exe(np.arange(3)) == [3, 2, 1]).all()


@CODE
def test_symbol_kernels(tmp_path):
    # A function with the signature of a phase that is in every C library: it ignores what it gets.
    address = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("yield", (), 0, SymbolBody("sched_yield")))
    main = b.function("main", [], [])
    main.emit("INVOKE", kernel), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), ()))
    for engine in ENGINES:
        assert executable_of(b.finish(), symbols={"sched_yield": address}, engine=engine)() == ()
        with pytest.raises(CompileError) as caught:
            executable_of(b.finish(), engine=engine)
        assert caught.value.ids == ("container.symbol",)


@pytest.mark.parametrize(
    ("target", "word"),
    [
        (ImageTarget("riscv64-unknown-elf"), "riscv64"),
        (ImageTarget("x86_64-unknown-linux-gnu", ("no-such-feature",)), "no-such-feature|x86_64"),
    ],
)
def test_other_machines_are_refused(target, word):
    b = ProgramBuilder(target=target)
    main = b.function("main", [], [])
    main.emit("RETURN")
    b.entry(Entry("main", main.index, (), ()))
    with pytest.raises(CompileError, match=word) as caught:
        executable_of(b.finish())
    assert caught.value.ids == ("container.target",)


def test_what_the_system_does_not_hand_out_is_refused(monkeypatch):
    monkeypatch.setattr(host_cpu, "permitted", lambda feature: feature != "amx-int8")
    b = ProgramBuilder(target=ImageTarget(host_cpu.this_machine().triple, ("amx-int8",)))
    main = b.function("main", [], [])
    main.emit("RETURN")
    b.entry(Entry("main", main.index, (), ()))
    with pytest.raises(CompileError, match="uses amx-int8") as caught:
        executable_of(b.finish())
    assert caught.value.ids == ("container.permission",)


def test_wrong_files(tmp_path):
    path = tmp_path / "x.inlay"
    for data in (b"", b"PK\3\4", writer.to_bytes(doubling())[:500]):
        path.write_bytes(data)
        with pytest.raises(CompileError) as caught:
            load_executable(path)
        assert caught.value.ids[0].startswith("container.")
    with pytest.raises(FileNotFoundError):
        load_executable(tmp_path / "absent.inlay")


def test_writing_an_input_is_refused():
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("k", (AccessCode.READ_WRITE,), 0, HostBody("k")))
    main = b.function("main", [Kind.TENSOR], [])
    main.emit("COPY", 0), main.emit("INVOKE", kernel), main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "f32", "1", []),), ()))
    for engine in ENGINES:
        exe = executable_of(b.finish(), callbacks={"k": lambda *_: None}, engine=engine)
        with pytest.raises(RunError) as caught:
            exe(np.ones(1, np.float32))
        assert caught.value.ids == ("run.read-only",)


def test_runs_without_the_compiler(tmp_path):
    path = tmp_path / "x.inlay"
    writer.save(identity(), path)
    program = f"""
import sys
for name in ("llvmlite", "onnx"):
    sys.modules[name] = None
import numpy as np
from inlay.runtime.session import load_executable
assert (load_executable({str(path)!r})(np.ones(3, np.float32))[0] == 1).all()
loaded = [name for name in sys.modules if name.startswith("inlay.")]
allowed = ("base", "arith", "machine", "bytecode", "packing", "runtime")
assert all(name.split(".")[1] in allowed for name in loaded), loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_stack_limit_and_recovery():
    b = ProgramBuilder()
    f = b.function("forever", [Kind.INT], [Kind.INT])
    f.at("node 'loop'")
    f.emit("COPY", 0), f.emit("CALL", f), f.emit("RETURN")
    main = b.function("main", [], [Kind.TENSOR])
    main.emit("INT", 1), main.emit("CALL", f), main.emit("TO_TENSOR", "i64"), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (spec("y", "i64", "", []),)))
    exe = executable_of(b.finish(), settings=Settings(stack_bytes=1 << 20))
    for _ in range(2):
        with pytest.raises(RunError) as caught:
            exe()
        (found,) = caught.value.diagnostics
        assert found.id == "run.stack-limit"
        assert found.notes[0] == "in 'forever' at node 'loop'"
        assert exe.live_objects() == 0
