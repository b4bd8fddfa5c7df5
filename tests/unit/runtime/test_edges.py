"""Requests at their edges: ends of processes, forks, limits that nothing frees, many executables."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from inlay.base.diagnostics import Cancelled, DeadlineError, RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.runtime import _runtime
from inlay.runtime.crew import PROCESS, Clock, Crew
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime.programs import dbl, doubling, spec
from tests.unit.runtime.test_request import gated, x

ENGINES = ["native", "python"]


def run_python(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )


# ----------------------------------------------------------------------------------- processes

ENDLESS = """
from tests.unit.runtime.test_request import spinning
exe = spinning("{mode}")
request = exe.submit({{}})
while not request.running():
    pass
print("ends", flush=True)
"""


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_process_ends_although_a_request_runs(mode):
    done = run_python(ENDLESS.format(mode=mode))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def in_child(work) -> str:
    """What work gives in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(work()).encode())
        except BaseException as problem:
            os.write(writer, repr(problem).encode())
        finally:
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(1e-3)
    with os.fdopen(reader) as stream:
        return stream.read()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_has_requests_of_its_own(engine, threads):
    exe = executable_of(doubling(), callbacks={"dbl": dbl}, engine=engine, threads=threads)
    assert (exe.submit({"x": x()}, timeout=60).result()["y"] == 2 * x()).all()
    assert in_child(lambda: (exe.submit({"x": x()}, timeout=60).result()["y"] == 2 * x()).all()) == "True"
    assert in_child(lambda: (exe.run({"x": x()})["y"] == 2 * x()).all()) == "True"
    assert (exe.submit({"x": x()}).result()["y"] == 2 * x()).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_the_parent_runs_does_not_run_in_a_child():
    exe, begun, gate = gated()
    running = exe.submit({"x": x()})
    assert begun.wait(30)
    waiting = exe.submit({"x": x()})
    for request in (running, waiting):
        assert "run.forked" in in_child(request.result)
    # The parent's call holds the only activation; the child's engine is its own.
    gate.set()
    assert in_child(lambda: (exe.run({"x": x()})["y"] == 2 * x()).all()) == "True"
    assert running.result(30) and waiting.result(30)


FORKING = """
import multiprocessing, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from inlay.runtime.session import executable_of
from tests.unit.runtime.programs import dbl, doubling, spec

exe = executable_of(doubling(), callbacks={"dbl": dbl}, threads=2)

def work(k):
    x = np.full((2, 4), k, np.float32)
    return [float(exe.submit({"x": x}).result()["y"].sum()) for _ in range(3)]

if __name__ == "__main__":
    work(1)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4)))
"""


def test_a_pool_of_forked_processes():
    done = run_python(FORKING)
    assert done.stdout.strip() == str([[16.0 * k] * 3 for k in range(4)]), done.stderr


# -------------------------------------------------------------------------------------- limits


def test_a_time_limit_ends_what_waits_behind_a_long_request():
    exe, begun, gate = gated()
    first = exe.submit({"x": x()})
    assert begun.wait(30)
    second = exe.submit({"x": x()}, timeout=0.02)
    with pytest.raises(DeadlineError) as caught:
        second.result(30)
    assert caught.value.ids == ("run.deadline",)
    assert not first.done()
    gate.set()
    assert (first.result(30)["y"] == 2 * x()).all()


def never(mode: str):
    futures = []

    def callback(tensors, integers):
        futures.append(Future())
        return futures[-1]

    settings = Settings(mode=mode, threads=2)
    return executable_of(doubling(), callbacks={"dbl": callback}, settings=settings), futures


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_future_that_is_never_done_ends_with_the_time(mode):
    exe, futures = never(mode)
    with pytest.raises(DeadlineError):
        exe.run({"x": x()}, timeout=0.02)
    with pytest.raises(DeadlineError):
        exe.submit({"x": x()}, timeout=0.02).result(30)
    begun = len(futures)  # of the calls above, those that came to the callback before their time was over
    request = exe.submit({"x": x()})
    while len(futures) == begun:
        time.sleep(1e-3)
    assert not request.cancel()
    with pytest.raises(Cancelled):
        request.result(30)
    for future in futures:
        future.set_result(None)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", -float("inf")])
def test_time_limits_that_are_none(timeout):
    exe = executable_of(doubling(), callbacks={"dbl": dbl})
    for call in (exe.run, exe.submit):
        with pytest.raises(RunError) as caught:
            call({"x": x()}, timeout=timeout)
        assert caught.value.ids == ("input.time-limit",)


def test_limits_beyond_any_clock_are_none():
    exe = executable_of(doubling(), callbacks={"dbl": dbl})
    for timeout in (float("inf"), 1e300, 10**400):
        assert (exe.run({"x": x()}, timeout=timeout)["y"] == 2 * x()).all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("submits", [False, True])
def test_a_callback_may_call_its_executable_deeper_than_there_are_activations(engine, submits):
    def callback(tensors, integers):
        left = int(tensors[0].flat[0])
        if left:
            given = {"x": np.full((2, 4), left - 1, np.float32)}
            (exe.submit(given).result() if submits else exe.run(given))
        depths.append(left)
        dbl(tensors, integers)

    depths: list[int] = []
    exe = executable_of(
        doubling(), callbacks={"dbl": callback}, engine=engine, settings=Settings(activations=2)
    )
    for call in (exe.run, lambda given: exe.submit(given).result(30)):
        depths.clear()
        assert (call({"x": np.full((2, 4), 7, np.float32)})["y"] == 14).all()
        assert depths == list(range(8))
    assert exe.live_objects() == 0


def test_threads_of_calls_that_all_call_again():
    barrier = threading.Barrier(2)

    def callback(tensors, integers):
        if tensors[0].flat[0] == 1:
            barrier.wait(30)
            exe.run({"x": np.zeros((2, 4), np.float32)})
        dbl(tensors, integers)

    exe = executable_of(doubling(), callbacks={"dbl": callback}, settings=Settings(activations=2))
    ones = np.ones((2, 4), np.float32)
    requests = [exe.submit({"x": ones}) for _ in range(2)]
    assert all((r.result(30)["y"] == 2).all() for r in requests)


# ----------------------------------------------------------------------------- many executables


def test_many_executables_have_the_threads_of_few():
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before, workers = threads(), _runtime.workers()
    made = [executable_of(doubling(), callbacks={"dbl": dbl}, threads=3, mode="parallel") for _ in range(60)]
    for exe in made:
        assert (exe.submit({"x": x()}).result()["y"] == 2 * x()).all()
    assert _runtime.workers() <= max(workers, 2) + 2
    assert threads() <= before + 8


def large(calls: int):
    """A program whose calls each take 8 MiB for a while, all at the same time."""
    barrier = threading.Barrier(calls)
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("meet", (AccessCode.WRITE,), 0, HostBody("meet")))
    main = b.function("main", [], [Kind.TENSOR])
    main.emit("INT", 1 << 20), main.emit("ALLOCATE", 0, "i64", 1)
    main.emit("COPY", 0), main.emit("INVOKE", kernel), main.emit("POP", 1)
    main.emit("ALLOCATE", 0, "i64", 0), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (spec("y", "i64", "", []),)))

    def meet(tensors, integers):
        barrier.wait(30)

    settings = Settings(activations=calls)
    return executable_of(b.finish(), callbacks={"meet": meet}, settings=settings)


def test_memory_of_large_calls_is_given_back_beyond_a_limit():
    exe = large(6)
    before = _runtime.kept_memory()

    def kept(limit: int) -> int:
        _runtime.kept_memory(limit)
        for request in [exe.submit({}) for _ in range(6)]:
            request.result(60)
        return _runtime.kept_memory() - before

    try:
        assert kept(before + (512 << 20)) >= 48 << 20
        assert kept(before + (20 << 20)) <= 20 << 20
        assert kept(before + (20 << 20)) <= 20 << 20
    finally:
        _runtime.kept_memory(256 << 20)
    assert exe.live_objects() == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_an_executable_without_entries_says_so(engine):
    exe = executable_of(ProgramBuilder().finish(), engine=engine)
    assert (exe.inputs, exe.outputs) == ((), ())
    for call in (
        exe,
        lambda: exe.run({}),
        lambda: exe.submit({}),
        lambda: exe.session({}, {}),
        lambda: exe.run({}, entry="main"),
    ):
        with pytest.raises(RunError) as caught:
            call()
        assert caught.value.ids == ("input.entry",)


# ----------------------------------------------------------------------------------- the crew


class Gate:
    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()

    def perform(self) -> None:
        self.begun.set()
        self.end.wait(30)

    def stop(self) -> None:
        self.end.set()


def test_threads_of_a_crew_are_used_again_and_stopped():
    crew = Crew()
    gates = [Gate() for _ in range(3)]
    for gate in gates:
        crew.begin(gate)
    assert all(gate.begun.wait(30) for gate in gates)
    assert crew.size == 3
    crew.close()
    assert all(gate.end.is_set() for gate in gates)
    crew.begin(Gate())
    assert crew.size == 3
    crew.close()


def test_a_clock_does_things_in_their_order_and_forgets_what_is_off():
    clock, done, end = Clock(), [], threading.Event()
    now = time.monotonic_ns()
    offs = [clock.at(now + 10**15, lambda: done.append("never")) for _ in range(1000)]
    clock.at(now + 20_000_000, end.set)
    clock.at(now + 10_000_000, lambda: done.append("first"))
    for alarm in offs:
        alarm.call_off()
    assert end.wait(30)
    assert done == ["first"]
    assert len(clock._alarms) < 100
    assert PROCESS.crew.size >= 0
