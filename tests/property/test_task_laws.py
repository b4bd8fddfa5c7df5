"""Drawn programs with closures, cells, lists and checks mean in all modes what the evaluator says.

Each is compiled without native code, and its kernels are put off as the mode says: not at all, as far as
there are threads, or as long as a seed wants. Which check stops a program must not depend on that; and the
race detector has nothing to say.
"""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.base.diagnostics import InlayError
from inlay.bytecode.program import Program
from inlay.bytecode.verify import instructions
from inlay.interp.tensor import evaluate
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.prelude import prelude, with_prelude
from inlay.memory.plan import Sharing
from inlay.ops.table import table
from inlay.pipeline import batches
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.property.as_tasks import with_all_tasks
from tests.property.draw_tasks import TaskProgram
from tests.python_kernels import callbacks_of, compile_with_python_kernels

INPUTS = (np.array([3, -1, 4]), np.array([-2, 7, 1]))
MODES = (
    Settings(races=True),
    Settings(threads=2, mode="parallel", hand_off_ns=0, races=True),
    *(Settings(mode="replay", seed=seed, races=True) for seed in range(2)),
)


# Without the race detector, whole calls run on other threads.
NATIVE_MODES = (*MODES, Settings(threads=2, mode="parallel", hand_off_ns=0))


def module_of(text: str) -> Module:
    return infer_types(with_prelude(parse_module(text, table(), known=prelude())))


def outcome(call) -> tuple:
    """Return the results as bytes, or what stopped the program."""
    try:
        return tuple(np.asarray(r).tobytes() for r in call())
    except InlayError as failure:
        (found,) = failure.diagnostics
        return (found.id, found.message.split(":")[0])


def compare(seed: int) -> tuple[bool, bool]:
    """Return whether the program ran to its end, and whether a call of a closure may be a task."""
    text = TaskProgram(seed, is_wrong=seed % 2 == 1).text
    module = module_of(text)
    wanted = outcome(lambda: evaluate(module, INPUTS))
    sharing = Sharing.PARALLEL if seed % 4 > 1 else Sharing.SERIAL
    program, lowered = compile_with_python_kernels(module, sharing=sharing)
    used = {kernel.name for kernel in program.kernels}
    callbacks = {name: f for name, f in callbacks_of(lowered).items() if name in used}
    check_modes(text, program, wanted, callbacks=callbacks)
    return isinstance(wanted[0], bytes), spawns(program)


def check_modes(
    text: str, program: Program, wanted: tuple, modes: tuple[Settings, ...] = MODES, **given: object
) -> None:
    for settings in modes:
        exe = executable_of(program, settings=settings, **given)
        assert outcome(lambda exe=exe: exe(*INPUTS)) == wanted, f"{settings}\n{text}"
        assert exe.live_objects() == 0, f"{settings}\n{text}"


def spawns(program: Program) -> bool:
    return any(row.name == "SPAWN_CLOSURE" for f in program.functions for _, row, _ in instructions(f.code))


@pytest.mark.sample(1)
@pytest.mark.parametrize("block", range(10))
def test_modes_agree_with_the_evaluator(block):
    seen = [compare(100 * block + index) for index in range(30)]
    ended, spawned = (sum(column) for column in zip(*seen, strict=True))
    assert 10 < ended < 30
    assert spawned > 2


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))  # 1,000 programs take 50 processor seconds
def test_modes_agree_with_the_evaluator_more(block):
    for seed in range(1000 * (block + 1), 1000 * (block + 2)):
        compare(seed)


@pytest.mark.slow
@pytest.mark.llvm
@pytest.mark.parametrize("batch", [False, True], ids=["one by one", "batches"])
@pytest.mark.parametrize("block", range(3))  # 100 programs take 7 processor seconds
def test_native_kernels_agree_with_the_evaluator(
    monkeypatch: pytest.MonkeyPatch, kernels: str, block: int, batch: bool
) -> None:
    """The whole route, and the same program once more with every call as a task."""
    monkeypatch.setattr(batches, "LEAST_SHARED", 1)
    gathered = 0
    for seed in range(500_000 + 1000 * block, 500_100 + 1000 * block):
        text = TaskProgram(seed, is_wrong=seed % 2 == 1).text
        module = module_of(text)
        plan = "parallel" if seed % 4 > 1 else "serial"
        program = compilation(module, cache=kernels, plan=plan, batch=batch).program
        wanted = outcome(lambda module=module: evaluate(module, INPUTS))
        check_modes(text, program, wanted, NATIVE_MODES)
        check_modes(text, with_all_tasks(program), wanted, NATIVE_MODES)
        gathered += any(kernel.batch is not None for kernel in program.kernels)
    assert (gathered > 30) == batch
