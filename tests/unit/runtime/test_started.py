"""Kernels that are started and end later: futures of callbacks, as devices of other threads give."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.runtime.native import MODES, Settings
from inlay.runtime.session import executable_of
from tests.unit.runtime import generate_flow
from tests.unit.runtime.programs import spec
from tests.unit.runtime.test_flow import outcome

X = np.array([5, 11, 17])


def program(count: int):
    """x -> `count` tensors, each by its own call of a device, then a sum of all on the host."""
    b = ProgramBuilder()
    device = b.kernel(Kernel("device", (AccessCode.READ, AccessCode.WRITE), 1, HostBody("device")))
    add = b.kernel(Kernel("add", (AccessCode.READ, AccessCode.READ_WRITE), 0, HostBody("add")))
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    for number in range(count):
        main.at(f"node {number}")
        main.emit("INT", 3), main.emit("ALLOCATE", 0, "i64", 1)
        main.emit("COPY", 0), main.emit("COPY", number + 1), main.emit("INT", number)
        main.emit("INVOKE", device)
    for number in range(1, count):
        main.emit("COPY", number + 1), main.emit("COPY", 1), main.emit("INVOKE", add)
    main.emit("COPY", 1), main.emit("RETURN")
    b.entry(Entry("main", main.index, (spec("x", "i64", "3", []),), (spec("y", "i64", "3", []),)))
    return b.finish()


def add(tensors, integers):
    tensors[1][...] += tensors[0]


class Device:
    """Ends what it was asked for when told, in any order."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[np.ndarray], Future]] = []
        self.lock = threading.Lock()

    def __call__(self, tensors, integers):
        future: Future = Future()
        with self.lock:
            self.asked.append((integers[0], tensors, future))
        return future

    def wait_for(self, count: int) -> None:
        end = time.monotonic() + 20
        while len(self.asked) < count and time.monotonic() < end:
            time.sleep(1e-3)
        assert len(self.asked) == count

    def finish(self, index: int) -> None:
        number, (source, out), future = self.asked[index]
        out[...] = source + number
        future.set_result(None)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
@pytest.mark.parametrize("threads", [1, 2])
def test_replies_out_of_order(order, threads):
    device = Device()
    exe = executable_of(
        program(4),
        callbacks={"device": device, "add": add},
        settings=Settings(mode="parallel", threads=threads),
    )
    request = exe.submit({"x": X})
    device.wait_for(4)  # all are in flight at once
    assert not request.done()
    for index in order:
        device.finish(index)
    assert (request.result(20)["y"] == 4 * X + 6).all()
    assert exe.live_objects() == 0


@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_takes_futures(engine, mode):
    with ThreadPoolExecutor(2) as pool:

        def device(tensors, integers):
            def work():
                time.sleep(0.001 * (4 - integers[0]))
                tensors[1][...] = tensors[0] + integers[0]

            return pool.submit(work)

        exe = executable_of(
            program(4), callbacks={"device": device, "add": add}, engine=engine, settings=Settings(mode=mode)
        )
        for _ in range(3):
            assert (exe(X) == 4 * X + 6).all()


def test_futures_that_are_done_at_once():
    def device(tensors, integers):
        tensors[1][...] = tensors[0] + integers[0]
        future: Future = Future()
        future.set_result(None)
        return future

    exe = executable_of(
        program(50), callbacks={"device": device, "add": add}, settings=Settings(mode="parallel")
    )
    assert (exe(X) == 50 * X + sum(range(50))).all()


class DeviceError(Exception):
    pass


def test_the_earliest_failure_is_the_callers():
    """The later one is told first."""
    device = Device()
    exe = executable_of(
        program(4), callbacks={"device": device, "add": add}, settings=Settings(mode="parallel", threads=2)
    )
    for _ in range(2):
        device.asked.clear()
        request = exe.submit({"x": X})
        device.wait_for(4)
        device.asked[3][2].set_exception(DeviceError("late"))
        time.sleep(0.01)
        device.finish(0)
        device.asked[1][2].set_exception(DeviceError("early"))
        device.finish(2)
        with pytest.raises(DeviceError, match="early"):
            request.result(20)
        assert exe.live_objects() == 0


def test_a_run_that_is_given_up_waits_for_what_was_started():
    device = Device()
    exe = executable_of(
        program(4), callbacks={"device": device, "add": add}, settings=Settings(mode="parallel")
    )
    request = exe.submit({"x": X})
    device.wait_for(4)
    assert not request.cancel()
    time.sleep(0.02)
    assert not request.done(), "the device still writes into its memory"
    for index in range(4):
        device.finish(index)
    with pytest.raises(RunError) as caught:
        request.result(20)
    assert caught.value.ids == ("run.cancelled",)
    assert exe.live_objects() == 0


def test_random_programs_on_a_slow_device():
    """Each kernel ends on another thread, after a while: results and failures are the same."""
    with ThreadPoolExecutor(4) as pool:

        def slow(name):
            def run(tensors, integers):
                def work():
                    if integers[0] % 3:
                        time.sleep(2e-4)
                    generate_flow.CALLBACKS[name](tensors, integers)

                return pool.submit(work)

            return run

        callbacks = {name: slow(name) for name in generate_flow.CALLBACKS}
        for seed in range(300, 325):
            made = generate_flow.FlowGenerator(seed).program_of()
            expected = outcome(executable_of(made, callbacks=generate_flow.CALLBACKS))
            exe = executable_of(made, callbacks=callbacks, settings=Settings(mode="parallel", threads=2))
            for _ in range(2):
                assert outcome(exe) == expected, seed
                assert exe.live_objects() == 0, seed
