"""What is compiled gives what the program means, over generated programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from inlay.api import compilation
from inlay.bytecode.writer import to_bytes
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.examples import examples
from tests.property.gen_ir import Program, programs, run
from tests.python_kernels import compile_with_python_kernels, run_program


def outputs_of(p: Program) -> list[np.ndarray]:
    """Return what the program means, one array for each output."""
    found = run(p)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def assert_equal(found, expected, p: Program) -> None:
    assert len(found) == len(expected), p
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (p, a, b)
        assert np.array_equal(a, b, equal_nan=True), (p, a, b)


@settings(max_examples=examples(10))
@given(programs())
def test_bytecode_means_what_the_program_means(p: Program):
    """Storage, plan and virtual machine; kernels are evaluated."""
    program, lowered = compile_with_python_kernels(p.module)
    assert_equal(run_program(program, lowered, p.args), outputs_of(p), p)


@pytest.mark.llvm
@settings(max_examples=examples(6))
@given(programs(max_statements=6))
def test_native_code_means_what_the_program_means(p: Program):
    """The whole route: passes, schedules, native code, the C runtime, in all its modes."""
    program = compilation(p.module, cache="none", verify=True).program
    for mode in (
        Settings(threads=1),
        Settings(threads=2),
        Settings(threads=2, mode="parallel", hand_off_ns=0),
        Settings(mode="replay", seed=5),
    ):
        executable = executable_of(program, settings=mode)
        for _ in range(2):
            found = executable(*p.args)
            assert_equal(found if isinstance(found, tuple) else (found,), outputs_of(p), p)
        assert executable.live_objects() == 0


@settings(max_examples=examples(6))
@given(programs())
def test_compiling_twice_gives_equal_bytes(p: Program):
    first, second = (to_bytes(compile_with_python_kernels(p.module)[0]) for _ in range(2))
    assert first == second
