"""The mode of calls where nobody asks for one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlay.bytecode.program import BatchRecord, HostBody, ImageBody, Kernel
from inlay.runtime.modes import mode_of
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime.test_flow import X, chain, step

NATIVE = Kernel("n", (), 0, ImageBody(()))
BATCHED = replace(NATIVE, batch=BatchRecord(0))
CALLBACK = Kernel("c", (), 0, HostBody("c"))


@pytest.mark.parametrize(
    ("kernels", "devices", "threads", "mode"),
    [
        ((NATIVE,), False, 2, None),
        ((NATIVE,), False, 1, "sequential"),
        ((NATIVE,), True, 1, None),
        ((NATIVE, CALLBACK), True, 2, "sequential"),
        ((BATCHED, CALLBACK), False, 1, "parallel"),
    ],
)
def test_what_suits_a_program(kernels, devices, threads, mode):
    found = mode_of(None, kernels, devices=devices, threads=threads)
    assert found.mode == mode
    assert found.reason
    assert mode_of("replay", kernels, devices=devices, threads=threads).mode == "replay"


def test_an_executable_says_its_mode():
    program = chain(3, True)
    found = executable_of(program, callbacks={"step": step}, settings=Settings(threads=2))
    assert found.mode.mode == "sequential"
    assert "callbacks" in str(found.mode)
    asked = executable_of(program, callbacks={"step": step}, settings=Settings(threads=2, mode="parallel"))
    assert str(asked.mode) == "parallel: asked for"
    assert (np.asarray(asked(X)) == X + 3).all()
