"""Calls a million deep, loops without growth, and interruption."""

from __future__ import annotations

import resource
import signal
import threading
import time

import pytest

from inlay.base.diagnostics import DeadlineError, RunError
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import Entry
from inlay.runtime import _runtime
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable, executable_of
from tests.unit.runtime.programs import spec


def program_of(write, **settings) -> Executable:
    """An executable -> i64[] whose entry `write` leaves one integer on the stack."""
    b = ProgramBuilder()
    main = b.function("main", [], [Kind.TENSOR])
    write(b, main)
    main.emit("TO_TENSOR", "i64"), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (spec("y", "i64", "", []),)))
    return executable_of(b.finish(), settings=Settings(**settings))


def recursive(depth: int, frame: int = 0, call: str = "CALL"):
    """1 + 1 + .. + 0, with `frame` further slots in each frame."""

    def write(b: ProgramBuilder, main: FunctionBuilder) -> None:
        f = b.function("count", [Kind.INT], [Kind.INT])
        end = f.label()
        f.emit("COPY", 0), f.emit("JUMP_IF_FALSE", end)
        for _ in range(frame):
            f.emit("INT", 7)
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("SUB"), f.emit(call, f)
        f.emit("INT", 1), f.emit("ADD"), f.emit("RETURN")
        f.place(end)
        f.emit("INT", 0), f.emit("RETURN")
        main.emit("INT", depth), main.emit(call, f)

    return write


@pytest.mark.parametrize(
    ("call", "mode"), [("CALL", "sequential"), ("SPAWN", "parallel"), ("SPAWN", "replay")]
)
def test_a_million_calls_deep(call, mode):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    exe = program_of(recursive(1_000_000, call=call), mode=mode, seed=3)
    assert exe() == 1_000_000
    assert exe.live_objects() == 0
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert used < 256 << 20


@pytest.mark.parametrize("frame", [1, 50, 2500, 30_000])
def test_frames_of_all_sizes_cross_segments(frame):
    assert program_of(recursive(200 if frame > 1000 else 5000, frame))() in (200, 5000)


def test_objects_deep_down_are_released():
    """A list of 300,000 cells dies without recursion in C, and so does a cycle."""

    def write(b: ProgramBuilder, main: FunctionBuilder) -> None:
        f = b.function("build", [Kind.INT, Kind.ADT], [Kind.ADT])
        end = f.label()
        f.emit("COPY", 0), f.emit("JUMP_IF_FALSE", end)
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("SUB")
        f.emit("COPY", 0), f.emit("MOVE", 1), f.emit("CONSTRUCT", 1, 2)
        f.emit("TAIL_CALL", f)
        f.place(end)
        f.emit("MOVE", 1), f.emit("RETURN")
        main.emit("INT", 300_000), main.emit("CONSTRUCT", 0, 0), main.emit("CALL", f)
        main.emit("TAG")
        # A cell that holds itself: only the sweep at the end of the call can free it.
        main.emit("INT", 0), main.emit("CELL_NEW")
        main.emit("COPY", 1), main.emit("COPY", 1), main.emit("CELL_WRITE"), main.emit("POP", 1)

    exe = program_of(write)
    for _ in range(3):
        assert exe() == 1
        assert exe.live_objects() == 0


def test_tail_calls_do_not_grow():
    def write(b: ProgramBuilder, main: FunctionBuilder) -> None:
        f = b.function("even", [Kind.INT], [Kind.INT])
        # Frames of very different sizes call each other.
        g = b.function("odd", [Kind.INT], [Kind.INT])
        for this, other, answer, extra in ((f, g, 1, 0), (g, f, 0, 3000)):
            end = this.label()
            this.emit("COPY", 0), this.emit("JUMP_IF_FALSE", end)
            for _ in range(extra):
                this.emit("INT", 1)
            this.emit("COPY", 0), this.emit("INT", 1), this.emit("SUB")
            this.emit("TAIL_CALL", other)
            this.place(end)
            this.emit("INT", answer), this.emit("RETURN")
        main.emit("INT", 20_001), main.emit("CALL", f)

    exe = program_of(write)
    assert exe() == 0


def test_tail_calls_of_closures():
    def write(b: ProgramBuilder, main: FunctionBuilder) -> None:
        # loop(a, b, c, n) with three captures: the closure is made anew in each turn.
        f = b.function("loop", [Kind.INT] * 4, [Kind.INT])
        end = f.label()
        f.emit("COPY", 3), f.emit("JUMP_IF_FALSE", end)
        f.emit("COPY", 0), f.emit("INT", 1), f.emit("ADD"), f.emit("COPY", 1), f.emit("COPY", 2)
        f.emit("CLOSURE", f, 3)
        f.emit("COPY", 3), f.emit("INT", 1), f.emit("SUB"), f.emit("TAIL_CALL_CLOSURE", 1)
        f.place(end)
        f.emit("COPY", 0), f.emit("RETURN")
        for value in (0, 5, 6, 100_000):
            main.emit("INT", value)
        main.emit("CALL", f)

    exe = program_of(write)
    assert exe() == 100_000
    assert exe.live_objects() == 0


def forever(b: ProgramBuilder, main: FunctionBuilder) -> None:
    head, done = main.label(), main.label()
    main.emit("INT", 1)
    main.place(head)
    main.emit("COPY", 0), main.emit("JUMP_IF_FALSE", done), main.emit("JUMP", head)
    main.place(done)


def test_an_endless_loop_can_be_interrupted():
    exe = program_of(forever)

    def interrupt():
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    # A shell that runs tests in the background has them ignore this signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            exe()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert exe.live_objects() == 0


def test_a_thread_that_gets_no_signals_does_not_look_for_them():
    exe, seen = program_of(forever), []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic_ns()))
    _runtime.ignore_signals()
    try:
        threading.Timer(0.02, signal.raise_signal, [signal.SIGUSR1]).start()
        deadline = time.monotonic_ns() + 200_000_000
        with pytest.raises(DeadlineError):
            _runtime.limited(bytearray(1), deadline, exe)
    finally:
        _runtime.heed_signals()
        signal.signal(signal.SIGUSR1, before)
    assert seen[0] >= deadline


def test_the_limit_is_the_users():
    exe = program_of(recursive(1_000_000))
    small = executable_of(exe.program, settings=Settings(stack_bytes=10 << 20))
    with pytest.raises(RunError, match="10485760 bytes") as caught:
        small()
    assert caught.value.ids == ("run.stack-limit",)
