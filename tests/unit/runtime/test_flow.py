"""What is pending: random programs in every mode, overlap, bounds, and where failures surface."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode import container, writer
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.runtime.native import MODES, Settings
from inlay.runtime.pages import in_memory
from inlay.runtime.session import Executable, executable_of
from tests.unit.bytecode.disasm import listing
from tests.unit.runtime.generate_flow import CALLBACKS, BrokenError, FlowGenerator
from tests.unit.runtime.programs import spec

X = np.array([5, 11, 17])


def outcome(exe):
    """What a call gives: results as bytes, or the failure."""
    try:
        results = exe(X)
    except BrokenError as caught:
        return ("broken", *caught.args)
    return tuple(r.tobytes() for r in results)


def executable(file, settings: Settings, engine="native") -> Executable:
    """Return what a file in memory has, as an executable."""
    return Executable(file, settings=settings, engine=engine, verify=False, callbacks=CALLBACKS)


def compare(seed: int, calls: int = 2) -> str:
    """Hold a drawn program in all modes against the reference interpreter; say how it ended."""
    program = FlowGenerator(seed, cells=seed % 2 == 1, closures=seed % 4 > 1).program_of()
    file = in_memory(list(writer.pieces(program, seals=False)))  # once for all modes
    reference = outcome(executable(file, Settings(), engine="python"))
    modes = (
        Settings(),
        Settings(threads=2, mode="parallel", hand_off_ns=0),  # whole calls on other threads
        Settings(threads=2, mode="parallel", races=True),
        *(Settings(mode="replay", seed=seed + k, races=True) for k in range(calls)),
    )
    for mode in modes:
        exe = executable(file, mode)
        for _ in range(calls):
            assert outcome(exe) == reference, (seed, mode, listing(program))
            assert exe.live_objects() == 0, (seed, mode, listing(program))
    return reference[0] if isinstance(reference[0], str) else "ok"


@pytest.mark.sample(1)
@pytest.mark.parametrize("block", range(4))
def test_modes_agree_on_what_is_pending(block):
    seen = [compare(1000 * block + index) for index in range(50)]
    assert seen.count("ok") > 25
    assert seen.count("broken") > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(19))  # with those of test_task_laws, 100,000; 5,000 take 25 seconds
def test_modes_agree_on_what_is_pending_more(block):
    for seed in range(10_000 + 5000 * block, 15_000 + 5000 * block):
        compare(seed, calls=1)


def test_programs_survive_the_container():
    for seed in range(5):
        data = writer.to_bytes(FlowGenerator(seed).program_of())
        assert writer.to_bytes(container.read(data)) == data


def chain(length: int, fresh: bool):
    """x: i64[3] -> `length` times a kernel, each with a new tensor or the same two."""
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("step", (AccessCode.READ, AccessCode.WRITE), 0, HostBody("step")))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.emit("MOVE", 0), main.emit("OWN")
    for _ in range(length):
        main.emit("INT", 3), main.emit("ALLOCATE", 0, "i64", 1)
        main.emit("COPY", main.depth - 2), main.emit("COPY", main.depth - 2)
        main.emit("INVOKE", kernel)
        main.emit("SLIDE", 1, 1)
    main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "i64", "3", []),), (spec("y", "i64", "3", []),)))
    return b.finish()


def step(tensors, integers):
    tensors[1][...] = tensors[0] + 1


@pytest.mark.parametrize("mode", MODES)
def test_more_commands_than_may_be_in_flight(mode):
    exe = executable_of(chain(2000, True), callbacks={"step": step}, settings=Settings(mode=mode, threads=2))
    for _ in range(2):
        assert (exe(X) == X + 2000).all()
        assert exe.live_objects() == 0


def failing(where: str):
    """Two kernels, then a check; one of them fails."""
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("k", (AccessCode.READ, AccessCode.READ_WRITE), 1, HostBody("k")))
    inner = b.function("inner", [Kind.TENSOR], [Kind.TENSOR])
    inner.at("node 'late'")
    inner.emit("INT", 3), inner.emit("ALLOCATE", 0, "i64", 1)
    inner.emit("COPY", 0), inner.emit("COPY", 1), inner.emit("INT", 2 if where == "task" else 0)
    inner.emit("INVOKE", kernel)
    inner.emit("COPY", 1), inner.emit("INT", 0), inner.emit("ROW"), inner.emit("TO_INT")
    inner.emit("POP", 1), inner.emit("MOVE", 1), inner.emit("RETURN")
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    main.at("node 'early'")
    main.emit("COPY", 0), main.emit("SPAWN", inner)
    main.at("node 'middle'")
    main.emit("INT", 3), main.emit("ALLOCATE", 0, "i64", 1)
    main.emit("COPY", 0), main.emit("COPY", 2), main.emit("INT", 3), main.emit("INVOKE", kernel)
    main.at("node 'check'")
    main.emit("INT", 0), main.emit("CHECK", 0, "the check")
    main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "i64", "3", []),), (spec("y", "i64", "3", []),)))
    return b.finish()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(mode="parallel", threads=2),
        *(Settings(mode="replay", seed=seed) for seed in range(8)),
    ],
)
def test_the_earliest_failure_is_reported(settings):
    """Of a kernel in a task, a kernel behind it and a check behind both."""
    fails: set[int] = set()

    def k(tensors, integers):
        if integers[0] in fails:
            raise KernelError(integers[0])
        tensors[1][...] = tensors[0]

    class KernelError(Exception):
        pass

    exe = executable_of(failing("task"), callbacks={"k": k}, settings=settings)
    for chosen, expected in (({2, 3}, 2), ({3}, 3), ({2}, 2)):
        fails = chosen
        with pytest.raises(KernelError) as caught:
            exe(X)
        assert caught.value.args == (expected,)
        assert exe.live_objects() == 0
    fails = set()
    with pytest.raises(RunError) as caught:
        exe(X)
    (found,) = caught.value.diagnostics
    assert (found.id, found.message) == ("run.check-failed", "the check")
    assert found.notes == ("in 'main' at node 'check'",)
