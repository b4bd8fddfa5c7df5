"""How far calls look ahead in parallel mode, and which mode they choose: never what they compute."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import time
import weakref

import numpy as np
import pytest

from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, Kernel, Program, SymbolBody
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from inlay.runtime.trace import EventKind
from tests.garbage import only_new_objects
from tests.unit.runtime.programs import dbl, doubling, spec

LENGTH = 300
"""Kernels of a chain: many times what a call may put off at its begin."""


X = np.array([1, 2, 3])

WORDS = ctypes.POINTER(ctypes.c_int64)


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(WORDS), WORDS, ctypes.c_int64, ctypes.c_int64)
def _next(buffers, integers, part, parts):
    for i in range(3):
        buffers[1][i] = buffers[0][i] + 1
    return 0


ADDRESS = {"next": ctypes.cast(_next, ctypes.c_void_p).value}


def chain(cost: int, *, branches: int = 1) -> Program:
    """x -> chains of kernels side by side, in turns, and the end of the first one."""
    b = ProgramBuilder()
    kernel = b.kernel(
        Kernel("next", (AccessCode.READ, AccessCode.WRITE), 0, SymbolBody("next"), cost=(cost,))
    )
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    newest = [0] * branches
    for _ in range(LENGTH):
        for branch in range(branches):
            slot = main.depth
            main.emit("INT", 3), main.emit("ALLOCATE", 0, "i64", 1)
            main.emit("COPY", newest[branch]), main.emit("COPY", slot), main.emit("INVOKE", kernel)
            newest[branch] = slot
    main.emit("COPY", newest[0]), main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "i64", "3", []),), (spec("y", "i64", "3", []),)))
    return b.finish()


def waits(program: Program) -> int:
    """Return how many edges between commands a call in parallel mode makes."""
    settings = Settings(threads=2, mode="parallel", trace=True)
    exe = executable_of(program, symbols=ADDRESS, settings=settings)
    assert (exe(X) == X + LENGTH).all()
    return sum(event.kind is EventKind.NEEDS for event in exe.events())


def test_a_chain_is_hardly_put_off():
    """Its kernels are long enough to be handed over, and there is nothing to hand over beside them."""
    assert 10 < waits(chain(12_000)) < LENGTH / 2


def test_short_kernels_are_not_put_off():
    assert waits(chain(100)) == 0


@pytest.mark.parametrize("cost", [100, 12_000, 1_000_000])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_calls_that_choose_compute_the_same(cost, threads):
    exe = executable_of(chain(cost, branches=2), symbols=ADDRESS, threads=threads)
    for turn in range(12):
        assert (exe(X + turn) == X + turn + LENGTH).all()
    assert exe.live_objects() == 0


def test_callbacks_keep_their_order_where_no_mode_is_asked_for():
    order: list[float] = []

    def noted(tensors, integers):
        order.append(float(tensors[0][0, 0]))
        dbl(tensors, integers)

    exe = executable_of(doubling(), callbacks={"dbl": noted}, threads=2)
    for number in range(10):
        exe(np.full((2, 4), number, np.float32))
    assert order == list(range(10))


def test_an_executable_that_its_callback_holds_is_collected():
    def used() -> weakref.ref:
        held: list[object] = []

        def callback(tensors, integers):
            assert held
            dbl(tensors, integers)

        exe = executable_of(doubling(), callbacks={"dbl": callback})
        held.append(exe)
        assert exe.submit({"x": np.ones((2, 4), np.float32)}).result()["y"].sum() == 16
        return weakref.ref(exe)

    with only_new_objects():
        gone = used()
        gc.collect()
        assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_leaves_the_threads_to_its_parent():
    """It has a copy of the executable, and none of the threads that closing it would wait for."""
    with only_new_objects():
        exe = executable_of(chain(1_000_000, branches=2), symbols=ADDRESS, threads=2)
        assert (exe(X) == X + LENGTH).all()
        child = os.fork()
        if child == 0:
            exe = None
            gc.collect()
            os._exit(0)
    found, end = (0, 0), time.monotonic() + 30
    while found[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
        found = os.waitpid(child, os.WNOHANG)
    if found[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert found == (child, 0)
    assert (exe(X) == X + LENGTH).all()
