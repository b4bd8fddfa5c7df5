"""Many requests of many threads on one executable: random sizes, failures, cancellations, limits.

Every request ends as it should: with its own result, its own failure, or given up; nothing hangs,
and memory does not grow.
"""

from __future__ import annotations

import ctypes
import gc
import random
import resource
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode import formula
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, Kernel, Program, Symbol, SymbolBody
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.system import needs
from tests.unit.runtime.programs import spec

pytestmark = [pytest.mark.cc, needs("gcc")]

SOURCE = """
#include <stdint.h>
int64_t step(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    const int64_t *x = b[0];
    int64_t *y = b[1], *w = b[2];
    int64_t first = n[0] * part / parts, end = n[0] * (part + 1) / parts;
    for (int64_t i = first; i < end; i++) w[i] = x[i];
    for (int64_t i = first; i < end; i++) {
        if (w[i] % 1000 == 777) return 1;
        y[i] = w[i] + 1;
    }
    return 0;
}
"""
SLOPE = (3, 6)
"""Turns of the two loops."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("step")
    (folder / "step.c").write_text(SOURCE)
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", folder / "step.c", "-o", folder / "step.so"], check=True
    )
    library = ctypes.CDLL(str(folder / "step.so"))
    yield ctypes.cast(library.step, ctypes.c_void_p).value
    del library


def program() -> Program:
    """x: i64[n], limits: i64[2] -> two loops that add 1 until the first element reaches a limit."""
    b = ProgramBuilder()
    n = ["n"]
    kernel = b.kernel(
        Kernel(
            "step",
            (AccessCode.READ, AccessCode.WRITE),
            1,
            SymbolBody("step", parallel=True),
            formula.parse("8*n", n),
            cost=formula.parse("20*n", n),
            assertions=("a 777",),
        )
    )
    loop = b.function("loop", [Kind.TENSOR, Kind.INT], [Kind.TENSOR])
    _turn(loop, kernel)
    main = b.function("main", [Kind.TENSOR, Kind.TENSOR], [Kind.TENSOR] * 2)
    main.emit("COPY", 1), main.emit("READ_INTS", 2)
    for limit in (2, 3):
        main.emit("COPY", 0), main.emit("COPY", limit), main.emit("SPAWN", loop)
    main.emit("RETURN")
    symbol = Symbol("n", 0, 0, formula.parse("d", ["d"]))
    inputs = (spec("x", "i64", "n", n), spec("limits", "i64", "2", []))
    outputs = (spec("y", "i64", "n", n), spec("z", "i64", "n", n))
    b.entry(Entry("main", main.index, inputs, outputs, (symbol,)))
    return b.finish()


def _turn(loop: FunctionBuilder, kernel: int) -> None:
    end = loop.label()
    loop.at("the loop")
    loop.emit("COPY", 0), loop.emit("DIM", 0), loop.emit("ALLOCATE", 0, "i64", 1)
    loop.emit("COPY", 0), loop.emit("COPY", 2), loop.emit("COPY", 0), loop.emit("DIM", 0)
    loop.emit("INVOKE", kernel)
    loop.emit("COPY", 2), loop.emit("INT", 0), loop.emit("ROW"), loop.emit("TO_INT")
    loop.emit("COPY", 1), loop.emit("LT"), loop.emit("JUMP_IF_FALSE", end)
    loop.emit("MOVE", 2), loop.emit("COPY", 1), loop.emit("TAIL_CALL", loop)
    loop.place(end)
    loop.emit("MOVE", 2), loop.emit("RETURN")


def soak(address: int, count: int, callers: int, **settings) -> dict[str, int]:
    """Make requests; return how they ended."""
    exe = executable_of(program(), symbols={"step": address}, settings=Settings(activations=4, **settings))
    ended: dict[str, int] = {}
    wrong: list[object] = []
    lock = threading.Lock()

    def one(generator: random.Random) -> str:
        size = generator.choice([1, 2, 7, 100, 1000, 5000])
        start = generator.randrange(600)
        fails = generator.random() < 0.2
        x = np.full(size, start)
        if fails:
            x[generator.randrange(1, size + 1) - 1] = 777 - generator.randrange(3)
        x[0] = start
        fails = bool((x >= 775).any())
        limits = np.array([start + turns for turns in SLOPE])
        given_up = generator.random()
        timeout = 1e-4 if given_up < 0.05 else None
        try:
            request = exe.submit({"x": x, "limits": limits}, timeout=timeout)
        except RunError as problem:
            if problem.ids != ("run.would-be-late",) or timeout is None:
                raise
            return "given up"
        if given_up > 0.9:
            request.cancel()
        try:
            outputs = request.result(60)
        except CancelledError:
            return "cancelled"
        except RunError as problem:
            (found,) = problem.diagnostics
            if found.id == "run.check-failed" and fails and found.message == "a 777":
                assert found.notes[0] == "in 'loop' at the loop"
                return "failed"
            assert found.id in ("run.cancelled", "run.deadline", "run.would-be-late"), found
            assert timeout is not None or given_up > 0.9
            return "given up"
        assert not fails
        for name, turns in zip(("y", "z"), SLOPE, strict=True):
            assert (outputs[name] == x + turns).all()
        return "ok"

    def work(seed: int) -> None:
        generator = random.Random(seed)
        for _ in range(count // callers):
            try:
                how = one(generator)
            except Exception as problem:
                wrong.append(problem)
                return
            with lock:
                ended[how] = ended.get(how, 0) + 1

    workers = [threading.Thread(target=work, args=[seed]) for seed in range(callers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
        assert not worker.is_alive(), "a request hangs"
    if wrong:
        raise wrong[0]
    assert exe.live_objects() == 0
    return ended


@pytest.mark.parametrize("mode", ["sequential", "parallel", "replay"])
def test_soak(address, mode):
    ended = soak(address, 400, 8, mode=mode, threads=2, hand_off_ns=1000)
    assert sum(ended.values()) == 400
    assert ended["ok"] > 150
    assert ended["failed"] > 20


@pytest.fixture
def usual_collector() -> Iterator[None]:
    """Collect garbage as programs do: a caller that keeps a request which failed is a cycle with its frame."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.slow
def test_ten_thousand_requests(address, usual_collector):
    soak(address, 2000, 8, mode="parallel", threads=2, hand_off_ns=1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = soak(address, 10_000, 8, mode="parallel", threads=2, hand_off_ns=1000)
    assert sum(ended.values()) == 10_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10, f"{grown} KiB more at the end"
