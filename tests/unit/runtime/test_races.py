"""The race detector in the ordinary build: what it finds, what it must not, and that its cost is low."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime.generate_flow import CALLBACKS, FlowGenerator
from tests.unit.runtime.programs import doubling, spec
from tests.unit.runtime.test_flow import outcome

X = np.ones((2, 4), np.float32)


@pytest.mark.parametrize("mode", ["sequential", "parallel", "replay"])
def test_a_kernel_that_writes_what_it_is_said_to_read(mode):
    def spoil(tensors, integers):
        tensors[1][...] = 2 * tensors[0]
        tensors[0].flat[5] = 9

    exe = executable_of(doubling(), callbacks={"dbl": spoil}, settings=Settings(mode=mode, races=True))
    with pytest.raises(RunError, match="kernel 'dbl' writes to a tensor that it is said to read") as caught:
        exe.run({"x": X.copy()})
    assert caught.value.ids == ("run.race",)
    off = executable_of(doubling(), callbacks={"dbl": spoil}, settings=Settings(mode=mode))
    assert (off.run({"x": X.copy()})["y"] == 2).all()


@pytest.mark.parametrize("mode", ["sequential", "parallel", "replay"])
def test_right_programs_have_no_races(mode):
    for seed in range(25):
        program = FlowGenerator(seed, cells=seed % 2 == 1).program_of()
        plain = outcome(executable_of(program, engine="python", callbacks=CALLBACKS))
        settings = Settings(mode=mode, seed=seed, threads=2, races=True)
        exe = executable_of(program, callbacks=CALLBACKS, settings=settings)
        for _ in range(2):
            assert outcome(exe) == plain, seed


def chain(count: int, spread: int):
    """Kernels that update one of several tensors in turn."""
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("add", (AccessCode.READ_WRITE,), 0, HostBody("add")))
    main = b.function("main", [], [Kind.TENSOR])
    for _ in range(spread):
        main.emit("INT", 4), main.emit("ALLOCATE", 0, "i64", 1)
    for number in range(spread):
        main.emit("COPY", number), main.emit("INT", 0), main.emit("ROW")
        main.emit("INT", 0), main.emit("TO_TENSOR", "i64"), main.emit("ASSIGN")
    for number in range(count):
        main.emit("COPY", number % spread), main.emit("INVOKE", kernel)
    main.emit("MOVE", 0), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (spec("y", "i64", "4", []),)))
    return b.finish()


@pytest.mark.parametrize("spread", [1, 40])
def test_thousands_of_operations(spread):
    def add(tensors, integers):
        tensors[0][0] += 1

    count = 4000
    settings = Settings(mode="replay", seed=1, races=True)
    exe = executable_of(chain(count, spread), callbacks={"add": add}, settings=settings)
    assert exe.run({})["y"][0] == count // spread
