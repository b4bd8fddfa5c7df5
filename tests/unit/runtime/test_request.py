"""Requests and sessions: many runs in flight, each with its own end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError, as_completed

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.runtime.native import MODES, Settings
from inlay.runtime.session import executable_of
from tests.garbage import only_new_objects
from tests.unit.runtime.programs import dbl, doubling, spec


class MineError(Exception):
    """A failure of a callback."""


def x(rows: int = 2) -> np.ndarray:
    return np.arange(4.0 * rows, dtype=np.float32).reshape(rows, 4)


@pytest.mark.parametrize("engine", ["native", "python"])
def test_submit(engine):
    exe = executable_of(doubling(), callbacks={"dbl": dbl}, engine=engine)
    requests = [exe.submit({"x": x(rows)}) for rows in range(8)]
    for rows, request in enumerate(requests):
        assert (request.result()["y"] == 2 * x(rows)).all()
    assert len(list(as_completed(requests))) == 8
    with pytest.raises(RunError) as caught:
        exe.submit({"x": np.ones((2, 5), np.float32)}).result()
    assert caught.value.ids == ("input.dim",)
    with pytest.raises(RunError) as caught:
        exe.submit({}, entry="other")
    assert caught.value.ids == ("input.entry",)


def gated():
    """An executable whose kernel waits for a gate, and says when it has begun."""
    begun, gate = threading.Event(), threading.Event()

    def wait(tensors, integers):
        begun.set()
        assert gate.wait(30)
        dbl(tensors, integers)

    exe = executable_of(doubling(), callbacks={"dbl": wait}, settings=Settings(activations=1))
    return exe, begun, gate


def test_cancel_before_it_begins():
    exe, begun, gate = gated()
    first = exe.submit({"x": x()})
    assert begun.wait(30)
    second = exe.submit({"x": x()})
    assert second.cancel()
    gate.set()
    assert (first.result()["y"] == 2 * x()).all()
    with pytest.raises(CancelledError):
        second.result()


def turning(mode: str = "sequential"):
    """A program that runs a callback again and again, without an end."""
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("turn", (AccessCode.WRITE,), 0, HostBody("turn")))
    main = b.function("main", [], [Kind.TENSOR])
    main.at("the endless loop")
    main.emit("ALLOCATE", 0, "i64", 0), main.emit("INT", 1)
    head, done = main.label(), main.label()
    main.place(head)
    main.emit("COPY", 1), main.emit("JUMP_IF_FALSE", done)
    main.emit("COPY", 0), main.emit("INVOKE", kernel), main.emit("JUMP", head)
    main.place(done)
    main.emit("POP", 1), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (spec("y", "i64", "", []),)))
    turns = []

    def turn(tensors, integers):
        turns.append(1)
        time.sleep(1e-4)

    settings = Settings(mode=mode, threads=2)
    return executable_of(b.finish(), callbacks={"turn": turn}, settings=settings), turns


def spinning(mode: str):
    """A loop without kernels and without an end."""
    b = ProgramBuilder()
    main = b.function("main", [], [])
    head = main.label()
    main.place(head)
    main.emit("JUMP", head)
    b.entry(Entry("main", main.index, (), ()))
    return executable_of(b.finish(), settings=Settings(mode=mode, threads=2))


@pytest.mark.parametrize("mode", MODES)
def test_cancel_while_it_runs(mode):
    exe = spinning(mode)
    request = exe.submit({})
    while not request.running():
        time.sleep(1e-3)
    assert not request.cancel()
    with pytest.raises(RunError) as caught:
        request.result(30)
    assert caught.value.ids == ("run.cancelled",)
    assert exe.live_objects() == 0


@pytest.mark.parametrize("jump", ["JUMP", "JUMP_IF_FALSE", "SWITCH"])
def test_every_jump_that_goes_back_can_be_ended(jump):
    b = ProgramBuilder()
    main = b.function("main", [], [])
    label = main.label()
    main.place(label)
    if jump != "JUMP":
        main.emit("INT", 0)
    main.emit(jump, [label] if jump == "SWITCH" else label)
    if jump == "JUMP_IF_FALSE":
        main.emit("RETURN")
    b.entry(Entry("main", main.index, (), ()))
    exe = executable_of(b.finish(), settings=Settings(mode="sequential"))
    with pytest.raises(RunError) as caught:
        exe.run({}, timeout=0.02)
    assert caught.value.ids == ("run.deadline",)


@pytest.mark.parametrize("mode", MODES)
def test_time_limits(mode):
    exe, turns = turning(mode)
    for call in (lambda: exe.run({}, timeout=0.05), lambda: exe.submit({}, timeout=0.05).result()):
        with pytest.raises(RunError) as caught:
            call()
        assert caught.value.ids == ("run.deadline",)
        assert exe.live_objects() == 0
    assert turns
    with pytest.raises(RunError) as caught:
        exe.run({}, timeout=-1)
    assert caught.value.ids == ("input.time-limit",)


def test_waiting_for_an_activation_ends_too():
    exe, begun, gate = gated()
    thread = threading.Thread(target=lambda: exe.run({"x": x()}))
    thread.start()
    assert begun.wait(30)
    with pytest.raises(RunError) as caught:
        exe.run({"x": x()}, timeout=0.05)
    assert caught.value.ids == ("run.deadline",)
    gate.set()
    thread.join()
    assert (exe.run({"x": x()}, timeout=30)["y"] == 2 * x()).all()


@pytest.mark.parametrize("mode", MODES)
def test_each_failure_goes_to_its_own_caller(mode):
    def picky(tensors, integers):
        if tensors[0][0, 0] % 5 == 3:
            raise MineError(int(tensors[0][0, 0]))
        dbl(tensors, integers)

    settings = Settings(mode=mode, threads=2, activations=4)
    exe = executable_of(doubling(), callbacks={"dbl": picky}, settings=settings)
    inputs = [np.full((1 + number % 8, 4), number, np.float32) for number in range(200)]
    requests = [exe.submit({"x": array}) for array in inputs]
    for number, request in enumerate(requests):
        if number % 5 == 3:
            with pytest.raises(MineError) as caught:
                request.result(30)
            assert caught.value.args == (number,)
        else:
            assert (request.result(30)["y"] == 2 * inputs[number]).all()
    assert exe.live_objects() == 0


def test_an_executable_that_nobody_holds_goes():
    with only_new_objects():
        exe = executable_of(doubling(), callbacks={"dbl": dbl})
        assert (exe.submit({"x": x()}, timeout=100).result()["y"] == 2 * x()).all()
        held = weakref.ref(exe)
        del exe
        end = time.monotonic() + 10
        while held() is not None and time.monotonic() < end:
            gc.collect()
            time.sleep(0.01)
        assert held() is None


def test_a_failed_request_that_nobody_holds_goes_without_the_garbage_collector():
    """It holds its failure, which holds frames: these must not hold it."""

    def picky(tensors, integers):
        raise MineError(1)

    exe = executable_of(doubling(), callbacks={"dbl": picky})
    gc.disable()
    try:
        request = exe.submit({"x": x()})
        held = weakref.ref(request)
        with pytest.raises(MineError):
            request.result(30)
        del request
        end = time.monotonic() + 10
        while held() is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert held() is None
    finally:
        gc.enable()


def test_session():
    exe = executable_of(doubling(), callbacks={"dbl": dbl})
    session = exe.session({"y": "x"}, {"x": x()})
    for _ in range(3):
        assert session.run() == {}
    assert (session.state["x"] == 8 * x()).all()
    with pytest.raises(RunError) as caught:
        session.run({"z": x()})
    assert caught.value.ids == ("input.unknown",)
    assert (session.state["x"] == 8 * x()).all(), "a failure leaves the state"
    for carry, state, id in (
        ({"y": "z"}, {}, "input.session"),
        ({"z": "x"}, {}, "input.session"),
        ({"y": "x"}, {}, "input.missing"),
    ):
        with pytest.raises(RunError) as caught:
            exe.session(carry, state)
        assert caught.value.ids == (id,)
