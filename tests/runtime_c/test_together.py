"""Calls of several threads that run kernels together: the thread sanitizer is silent, and loud on faults."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from inlay.bytecode import writer
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, BatchRecord, Constant, Entry, ImageBody, Kernel, Phase
from tests.runtime_c.build import NoSanitizerError, together
from tests.system import needs
from tests.unit.runtime.programs import spec

pytestmark = [pytest.mark.cc, needs("gcc")]

WIDTH = 4


def program() -> bytes:
    """x: i64[4], n: i64[] -> x behind n turns, each of which picks its weights by what the last one made."""
    b = ProgramBuilder()
    read, write = AccessCode.READ, AccessCode.WRITE
    ports = (read, read, write)
    code = ImageBody((Phase(0, parallel=True),))
    b.image = b"\0"
    b.kernel(Kernel("rows", ports, 1, code))
    row = b.kernel(Kernel("row", ports, 0, code, batch=BatchRecord(0, (1,))))
    mix = b.kernel(Kernel("mix", (read, write), 0, code))
    weights = np.arange(2 * WIDTH * WIDTH).reshape(2, WIDTH, WIDTH)
    constants = [b.constant(Constant("i64", (WIDTH, WIDTH), w)) for w in weights]
    turn = b.function("turn", [Kind.TENSOR, Kind.INT], [Kind.TENSOR])
    more, other, behind = turn.label(), turn.label(), turn.label()
    turn.emit("COPY", 1), turn.emit("INT", 1), turn.emit("LT"), turn.emit("JUMP_IF_FALSE", more)
    turn.emit("MOVE", 0), turn.emit("RETURN")
    turn.place(more)
    y, z = (allocated(turn) for _ in range(2))
    turn.emit("COPY", 0), turn.emit("INT", 0), turn.emit("ROW"), turn.emit("TO_INT")
    turn.emit("INT", 2), turn.emit("MOD"), turn.emit("JUMP_IF_FALSE", other)
    for label, constant in ((behind, constants[0]), (None, constants[1])):
        turn.emit("COPY", 0), turn.emit("CONST", constant), turn.emit("COPY", y), turn.emit("INVOKE", row)
        if label is not None:
            turn.emit("JUMP", label)
            turn.place(other)
    turn.place(behind)
    turn.emit("MOVE", y), turn.emit("COPY", z), turn.emit("INVOKE", mix)
    turn.emit("MOVE", z), turn.emit("COPY", 1), turn.emit("INT", 1), turn.emit("SUB")
    turn.emit("TAIL_CALL", turn)
    main = b.function("main", [Kind.TENSOR, Kind.TENSOR], [Kind.TENSOR])
    main.emit("COPY", 0), main.emit("COPY", 1), main.emit("TO_INT"), main.emit("CALL", turn)
    main.emit("OWN"), main.emit("RETURN")
    inputs = (spec("x", "i64", str(WIDTH), []), spec("n", "i64", "", []))
    b.entry(Entry("main", main.index, inputs, (spec("y", "i64", str(WIDTH), []),)))
    return writer.to_bytes(b.finish())


def allocated(f: FunctionBuilder) -> int:
    """Return the slot of a new tensor."""
    f.emit("INT", WIDTH)
    return f.emit("ALLOCATE", "host", "i64", 1) - 1


def run(folder: Path, fault: int, threads: int = 3, own: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program with a planted fault, 0 for none, and so many threads for all calls."""
    try:
        made = together()
    except NoSanitizerError as failure:
        pytest.skip(str(failure))
    file = folder / "turns.inlay"
    file.write_bytes(program())
    environment = {"TSAN_OPTIONS": "halt_on_error=1"}
    command = [made, file, str(fault), str(threads), str(own)]
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, env=environment, errors="replace"
    )
    if "unexpected memory mapping" in ran.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    return ran


@pytest.mark.parametrize(
    ("threads", "own", "largest"),
    [(1, 0, "most calls"), (3, 0, "most calls"), (3, 1, "a share"), (1, 1, "most calls")],
)
def test_calls_that_meet(tmp_path: Path, threads: int, own: int, largest: str) -> None:
    """Of five calls and three threads, no thread takes more than two where each has batches of its own."""
    ran = run(tmp_path, 0, threads, own)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    assert ran.stdout == f"wrong 0, given up some, batches some, largest of {largest}\n"


@pytest.mark.parametrize("fault", [1, 2])
def test_a_lock_that_locks_nothing_is_found(tmp_path: Path, fault: int) -> None:
    ran = run(tmp_path, fault)
    assert ran.returncode != 0
    assert "WARNING: ThreadSanitizer: data race" in ran.stderr
