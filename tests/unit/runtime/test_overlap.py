"""What may go on at the same time does: kernels that end only if they meet.

A kernel `meet` says that it has come and waits until as many as it was told have come to the same
place; after two seconds it gives up, and its assertion fails. So a test that passes has seen them
run at once, and no time is measured.
"""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import FunctionBuilder, ProgramBuilder
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, Kernel, Program, SymbolBody
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from tests.system import needs
from tests.unit.runtime.programs import spec

pytestmark = [pytest.mark.cc, needs("gcc")]

SOURCE = """
#include <stdint.h>
#include <time.h>
static int come[4096];
void begin(void) { for (int i = 0; i < 4096; i++) come[i] = 0; }
int64_t meet(void *const *b, const int64_t *n, int64_t part, int64_t parts) {
    const int64_t *x = b[0];
    int64_t *y = b[1];
    int *here = &come[n[0] % 4096];
    struct timespec pause = {0, 100000};
    __atomic_add_fetch(here, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; __atomic_load_n(here, __ATOMIC_SEQ_CST) < n[1]; i++) {
        if (i > 10000 / n[2]) return 1;
        nanosleep(&pause, 0);
    }
    *y = *x + 1;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meet")
    (folder / "meet.c").write_text(SOURCE)
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", folder / "meet.c", "-o", folder / "meet.so"], check=True
    )
    return ctypes.CDLL(str(folder / "meet.so"))


def load(program: Program, library, **settings):
    address = ctypes.cast(library.meet, ctypes.c_void_p).value
    library.begin()
    return executable_of(program, symbols={"meet": address}, settings=Settings(**settings))


def start() -> tuple[ProgramBuilder, int]:
    b = ProgramBuilder()
    ports = (AccessCode.READ, AccessCode.WRITE)
    return b, b.kernel(Kernel("meet", ports, 3, SymbolBody("meet"), assertions=("nobody came",)))


def meet(f: FunctionBuilder, kernel: int, source: int, place: int, count: int, speed: int = 1) -> int:
    """Invoke `meet` with a new tensor; return its slot."""
    f.emit("ALLOCATE", 0, "i64", 0)
    made = f.depth - 1
    f.emit("COPY", source), f.emit("COPY", made)
    f.emit("INT", place), f.emit("INT", count), f.emit("INT", speed), f.emit("INVOKE", kernel)
    return made


def finish(b: ProgramBuilder, main: FunctionBuilder, results: int) -> Program:
    outputs = tuple(spec(f"y{i}", "i64", "", []) for i in range(results))
    b.entry(Entry("main", main.index, (spec("x", "i64", "", []),), outputs))
    return b.finish()


def halves(length: int, speed: int = 1) -> Program:
    """Two chains of kernels over one input."""
    b, kernel = start()
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * 2)
    ends = [0, 0]
    for place in range(length):
        ends = [meet(main, kernel, end, place, 2, speed) for end in ends]
    main.emit("COPY", ends[0]), main.emit("COPY", ends[1]), main.emit("RETURN")
    return finish(b, main, 2)


def test_independent_kernels(library):
    exe = load(halves(50), library, mode="parallel", threads=2)
    assert exe(np.array(7)) == (57, 57)
    assert exe.live_objects() == 0


@pytest.mark.parametrize("mode", ["sequential", "replay"])
def test_one_thread_does_not_overlap(library, mode):
    exe = load(halves(1, speed=100), library, mode=mode, threads=2)
    with pytest.raises(RunError, match="nobody came"):
        exe(np.array(7))
    assert exe.live_objects() == 0


def test_four_threads(library):
    b, kernel = start()
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * 4)
    ends = [0] * 4
    for place in range(10):
        ends = [meet(main, kernel, end, place, 4) for end in ends]
    for end in ends:
        main.emit("COPY", end)
    main.emit("RETURN")
    exe = load(finish(b, main, 4), library, mode="parallel", threads=4)
    assert exe(np.array(0)) == (10,) * 4


def test_idle_threads_of_others_are_no_reason_to_get_fewer(library):
    """A process has a limit of threads; what earlier executables left idle counts."""
    held = [load(halves(1), library, mode="parallel", threads=t) for t in (2, 3, 3)]
    for exe in held:
        library.begin()
        assert exe(np.array(7)) == (8, 8)
    test_four_threads(library)


def loops(name: str, turns: int, count: int = 2) -> Program:
    """Two calls of a loop that reads what its kernel wrote to know whether to go on. Its kernels wait
    for `count` of a turn.
    """
    b, kernel = start()
    loop = b.function("loop", [Kind.TENSOR, Kind.INT], [Kind.TENSOR])
    end = loop.label()
    loop.emit("ALLOCATE", 0, "i64", 0)
    loop.emit("COPY", 0), loop.emit("COPY", 2)
    loop.emit("COPY", 1), loop.emit("INT", count), loop.emit("INT", 1 if name == "SPAWN" else 100)
    loop.emit("INVOKE", kernel)
    loop.emit("COPY", 2), loop.emit("TO_INT"), loop.emit("INT", turns), loop.emit("LT")
    loop.emit("JUMP_IF_FALSE", end)
    loop.emit("MOVE", 2), loop.emit("COPY", 1), loop.emit("INT", 1), loop.emit("ADD")
    loop.emit("TAIL_CALL", loop)
    loop.place(end)
    loop.emit("MOVE", 2), loop.emit("RETURN")
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * 2)
    for _ in range(2):
        main.emit("COPY", 0), main.emit("INT", 0), main.emit(name, loop)
    main.emit("RETURN")
    return finish(b, main, 2)


def test_loops_with_exits_that_data_decides(library):
    exe = load(loops("SPAWN", 60), library, mode="parallel", threads=2)
    assert exe(np.array(0)) == (60, 60)
    assert exe.live_objects() == 0


def test_more_loops_than_threads(library):
    """Whoever ends a kernel issues on, so that no loop waits for a thread that is busy elsewhere."""
    b, kernel = start()
    loop = b.function("loop", [Kind.TENSOR, Kind.INT], [Kind.TENSOR])
    head, end = loop.label(), loop.label()
    loop.place(head)
    loop.emit("COPY", 0), loop.emit("TO_INT"), loop.emit("COPY", 1), loop.emit("LT")
    loop.emit("JUMP_IF_FALSE", end)
    made = meet(loop, kernel, 0, 0, 0)
    loop.emit("MOVE", made), loop.emit("COPY", 1), loop.emit("TAIL_CALL", loop)
    loop.place(end)
    loop.emit("MOVE", 0), loop.emit("RETURN")
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * 9)
    for turns in range(9):
        main.emit("COPY", 0), main.emit("INT", 50 * turns), main.emit("SPAWN", loop)
    main.emit("RETURN")
    program = finish(b, main, 9)
    for threads in (1, 2, 4):
        exe = load(program, library, mode="parallel", threads=threads)
        assert exe(np.array(0)) == tuple(50 * turns for turns in range(9))
        assert exe.live_objects() == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_time_limit_of_loops_that_workers_issue(library, threads):
    exe = load(loops("SPAWN", 1 << 30, count=0), library, mode="parallel", threads=threads)
    for _ in range(3):
        with pytest.raises(RunError) as caught:
            exe.run({"x": np.array(0)}, timeout=0.05)
        assert caught.value.ids == ("run.deadline",)
        assert exe.live_objects() == 0


def test_calls_that_are_no_tasks_do_not_overlap(library):
    exe = load(loops("CALL", 2), library, mode="parallel", threads=2)
    with pytest.raises(RunError, match="nobody came") as caught:
        exe(np.array(0))
    assert caught.value.diagnostics[0].notes == ("in 'loop'", "in 'main'")


def test_a_reader_does_not_hold_up_what_is_written_elsewhere(library):
    """One block: the second kernel writes beside what the first reads, the third into it."""
    b, kernel = start()
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * 2)
    main.emit("INT", 24), main.emit("STORAGE", 0, 64)
    for offset in (0, 8, 16):
        main.emit("COPY", 1), main.emit("INT", offset), main.emit("TENSOR", "i64", 0)
    main.emit("COPY", 2), main.emit("COPY", 0), main.emit("ASSIGN")

    def invoke(source: int, target: int, place: int, count: int) -> None:
        main.emit("COPY", source), main.emit("COPY", target)
        main.emit("INT", place), main.emit("INT", count), main.emit("INT", 1)
        main.emit("INVOKE", kernel)

    invoke(2, 3, 0, 2)
    invoke(0, 4, 0, 2)
    invoke(4, 2, 1, 1)  # write after read: comes when the first has ended
    main.emit("COPY", 3), main.emit("OWN"), main.emit("COPY", 2), main.emit("OWN")
    main.emit("RETURN")
    exe = load(finish(b, main, 2), library, mode="parallel", threads=2)
    assert exe(np.array(5)) == (6, 7)
    assert exe.live_objects() == 0


def test_an_old_row_is_read_while_a_new_one_is_written(library):
    """A cache grows in place while a kernel reads its old rows."""
    b, kernel = start()
    main = b.function("main", [Kind.TENSOR], [Kind.TENSOR] * 2)
    main.emit("INT", 0), main.emit("ALLOCATE", 0, "i64", 1)
    for _ in range(2):  # room for more
        main.emit("COPY", 0), main.emit("APPEND")
    main.emit("COPY", 1), main.emit("INT", 0), main.emit("ROW")
    main.emit("ALLOCATE", 0, "i64", 0)
    main.emit("MOVE", 2), main.emit("COPY", 3)
    main.emit("INT", 0), main.emit("INT", 2), main.emit("INT", 1), main.emit("INVOKE", kernel)
    row = meet(main, kernel, 0, 0, 2)
    main.emit("MOVE", 1), main.emit("MOVE", row), main.emit("APPEND"), main.emit("INT", 2)
    main.emit("ROW"), main.emit("COPY", 3)
    main.emit("RETURN")
    exe = load(finish(b, main, 2), library, mode="parallel", threads=2)
    assert exe(np.array(5)) == (6, 6)
    assert exe.live_objects() == 0
