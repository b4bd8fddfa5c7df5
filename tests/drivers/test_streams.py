"""Commands that a device has before those in front of them have ended.

The server plays its device: it does requests late and in an order that a seed picks, as far as queues
and tickets allow. So a ticket that is missing gives wrong values for some seed.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode import formula
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import (
    AccessCode,
    CopyBody,
    DeviceBody,
    DevicePhase,
    DeviceRecord,
    Entry,
    Kernel,
    Program,
)
from inlay.runtime.session import executable_of
from tests.drivers.build import NAME_OF_KERNELS, native_image, offers
from tests.drivers.serving import served
from tests.unit.runtime.programs import spec

pytestmark = [pytest.mark.cc, pytest.mark.llvm]

N = 16
MEMORIES = ("host", "first", "second")
TENSORS = 3
"""Of each memory; all are used again and again."""
X = np.arange(N, dtype=np.int32)


def program(device: DeviceRecord, seed: int, length: int) -> tuple[Program, np.ndarray]:
    """Return commands between tensors that chance picks, and what they compute from X."""
    random = Random(seed)
    b = ProgramBuilder(memories=MEMORIES, devices=(device,))
    ports = (AccessCode.READ, AccessCode.WRITE)
    copy = b.kernel(Kernel("to", ports, 0, CopyBody()))
    phases = (DevicePhase(formula.parse("n", ["n"])),)
    affine = {m: b.kernel(Kernel("affine", ports, 1, DeviceBody(m, "affine", phases))) for m in (1, 2)}
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR])
    values = {0: X}
    places = {0: 0}  # memory of each slot
    for memory, name in enumerate(MEMORIES):
        for _ in range(TENSORS):
            main.emit("INT", N), main.emit("ALLOCATE", name, "i32", 1)
            places[main.depth - 1] = memory
    result = main.depth - 1
    for step in range(length):
        source = random.choice(list(values))
        target = random.choice([s for s in places if s not in (0, source)])
        if step == length - 1:
            target = random.choice([s for s in places if s not in (0, source) and not places[s]])
            result = target
        is_kernel = places[source] and places[source] == places[target]
        main.emit("COPY", source), main.emit("COPY", target)
        if is_kernel:
            main.emit("INT", N)
        main.emit("INVOKE", affine[places[source]] if is_kernel else copy)
        values[target] = values[source] * 3 + 1 if is_kernel else values[source]
    main.emit("COPY", result), main.emit("RETURN")
    ends = (spec("x", "i32", str(N), []),), (spec("y", "i32", str(N), []),)
    b.entry(Entry("main", main.index, *ends))
    return b.finish(), values[result]


def check(device: DeviceRecord, seed: int, length: int) -> None:
    made, expected = program(device, seed, length)
    exe = executable_of(made, threads=2, mode="parallel")
    for _ in range(3):
        np.testing.assert_array_equal(exe(X), expected)
    assert exe.live_objects() == 0


@pytest.mark.parametrize("order", range(3))
def test_values_do_not_depend_on_the_order_of_a_device(suite, order):
    with served(suite, "host", f"units=2 seed={order}") as server:
        device = DeviceRecord("far", "remote", server.words, (1, 2), NAME_OF_KERNELS.encode())
        for seed in range(12):
            check(device, 100 * order + seed, 60)


def test_more_commands_than_a_device_may_have():
    device = DeviceRecord("near", "native", f"units=2 {offers()}", (1, 2), native_image())
    for seed in range(6):
        check(device, seed, 400)


@pytest.mark.parametrize("nth", [5, 20, 50])
def test_the_one_that_fails_is_named(suite, nth):
    """What was started behind it computes with what it left, and nobody sees that."""
    with served(suite, "host", f"units=2 seed=1 fail={nth}") as server:
        device = DeviceRecord("far", "remote", server.words, (1, 2), NAME_OF_KERNELS.encode())
        made, expected = program(device, nth, 120)
        exe = executable_of(made, threads=2, mode="parallel")
        with pytest.raises(RunError, match="device 'far': .* asked to fail") as failure:
            exe(X)
        assert failure.value.ids == ("run.device-failed",)
        np.testing.assert_array_equal(exe(X), expected)
        assert exe.live_objects() == 0
