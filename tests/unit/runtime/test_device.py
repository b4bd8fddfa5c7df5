"""Devices from Python: the face alone; what drivers do is tested in tests/drivers."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from inlay.base import garbage
from inlay.base.diagnostics import CompileError, RunError
from inlay.runtime.device import RUN, OpenDevice


def failed(*ids: str):
    return pytest.raises((CompileError, RunError), match="|".join(ids))


def test_copies_there_and_back():
    data = np.arange(100, dtype=np.float32)
    found = np.zeros(50, np.float32)
    with OpenDevice("host", "units=2 seed=3") as device:
        assert device.facts.units == 2
        memory = device.allocate(data.nbytes)
        there = device.copy(memory, data)
        device.copy(found, memory.at(100), queue=RUN, after=[there]).wait()
        memory.release()
    np.testing.assert_array_equal(found, data[25:75])


def test_closing_waits_and_tells():
    data = np.zeros(10)
    device = OpenDevice("host")
    pending = [device.copy(device.allocate(80), data) for _ in range(5)]
    device.close()
    device.close()
    for p in pending:
        p.wait(seconds=1)


def test_a_device_that_fails_is_a_status():
    data = np.zeros(10)
    with OpenDevice("host", "fail=2") as device:
        memory = device.allocate(80)
        first, second, third = (device.copy(memory, data) for _ in range(3))
        first.wait()
        with failed("run.device-failed"):
            second.wait()
        third.wait()


def test_a_request_that_failed_is_let_go_without_the_collector():
    data = np.zeros(10)
    with garbage.paused(), OpenDevice("host", "fail=1") as device:
        pending = device.copy(device.allocate(80), data)
        with failed("run.device-failed"):
            pending.wait()
        gone = weakref.ref(pending)
        del pending
        assert gone() is None


def test_what_is_wrong_is_said():
    with failed("name.unknown"):
        OpenDevice("no-such-driver")
    with failed("run.bad-argument"):
        OpenDevice("host", "speed=11")
    with OpenDevice("host", "memory=1000") as device:
        with failed("run.out-of-memory"):
            device.allocate(1001)
        memory = device.allocate(1000)
        with failed("run.bad-argument"):
            device.copy(memory.at(990), np.zeros(10))
        with failed("run.bad-argument"):
            device.copy(memory, np.zeros((4, 4))[:, ::2])
        with failed("run.build-failed"):
            device.load("no table of kernels")


def test_the_null_device_takes_everything():
    with OpenDevice("null") as device:
        program = device.load(b"")
        memory = device.allocate(1 << 40)
        device.launch(program, "anything", [memory], [1, 2], [100]).wait()
        program.unload()
