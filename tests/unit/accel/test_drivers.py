"""Drivers in this process, in one of their own and behind a connection; devices that hang, crash or are late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text
from inlay.ops.table import table
from inlay.runtime.driver_places import Awaited, Child, Place, Server, place_of, place_record, starting
from inlay.runtime.session import load_executable
from tests.system import needs

LIBRARY = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static const int32_t *from;
static int32_t *to;
static int64_t left, count;
int dev_begin(int32_t *y, const int32_t *x, int64_t n) {
    printf("this is no answer\n"), fflush(stdout);
    from = x, to = y, count = n, left = n == 9 ? -1 : 3000;
    return n == 8 ? -4 : 0;
}
int dev_step(int64_t cycles) {
    if (left < 0) { return count == 9 ? 0 : -7; }
    left -= cycles;
    for (int64_t i = 0; left <= 0 && i < count; ++i) { to[i] = 2 * from[i]; }
    return left <= 0;
}
int dev_done(void) { return dev_step(1000); }
int dev_wait(int64_t most) { return most > 0 ? dev_step(1000) : -9; }
int64_t dev_double(int32_t *y, const int32_t *x, int64_t n) {
    if (n == 7) { abort(); }
    if (n == 6) { sleep(60); }
    for (int64_t i = 0; i < n; ++i) { y[i] = 2 * x[i]; }
    return n == 5 ? -3 : 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "dev.c").write_text(LIBRARY, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "dev.so", folder / "dev.c"], check=True)
    return str(folder / "dev.so")


def doubled(place: Place, n: int, name: str = "dev_double") -> int:
    x, y = np.arange(n, dtype=np.int32), np.full(n, -1, np.int32)
    x.flags.writeable = False
    status = starting(place, name, "npu0", "i32")(y, x, n)
    if not status:
        np.testing.assert_array_equal(y, 2 * x)
    return status


@pytest.mark.cc
@needs("cc")
@pytest.mark.parametrize(
    ("how", "function"), [("poll", "dev_done"), ("event", "dev_wait"), ("step", "dev_step")]
)
def test_a_library_says_when_it_is_done(library, how, function) -> None:
    place = Awaited(library, how, function, 0.2, 1000)
    assert doubled(place, 4, "dev_begin") == 0
    assert doubled(place, 8, "dev_begin") == -4
    with pytest.raises(RunError, match="'npu0' is not done with dev_begin after 0.2 seconds") as lost:
        doubled(place, 9, "dev_begin")
    assert lost.value.ids == ("run.device-lost",)


@pytest.mark.cc
@pytest.mark.slow
@needs("cc")
def test_a_process_of_its_own_may_crash_and_hang(library) -> None:
    place = Child((), library, 5.0)
    assert doubled(place, 4) == 0
    assert doubled(place, 5) == -3
    with pytest.raises(RunError, match="'npu0' ended during dev_double: it ended with -6") as lost:
        doubled(place, 7)
    assert lost.value.ids == ("run.device-lost",)
    assert doubled(place, 3) == 0
    with pytest.raises(RunError, match="'npu0' did not answer dev_double within 5 seconds"):
        doubled(place, 6)
    assert doubled(place, 1) == 0
    assert starting(place, "dev_none", "npu0")() == -(2**31)


@pytest.mark.cc
@needs("cc")
def test_a_server_answers_one_client_after_the_other(library) -> None:
    command = [sys.executable, "-m", "inlay.runtime.driver_server", library, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert doubled(Server("127.0.0.1", port, 5.0), 100_000) == 0
        assert doubled(Server("127.0.0.1", port, 5.0), 5) == -3
        process.kill()
    with pytest.raises(RunError, match="'npu0' ended during dev_double"):
        doubled(Server("127.0.0.1", port, 5.0), 4)
    with pytest.raises(RunError, match="the driver of 'npu0' cannot be reached") as absent:
        doubled(Server("127.0.0.1", port, 5.0), 4)
    assert absent.value.ids == ("run.device-absent",)


def test_a_command_that_is_not_there_is_absent() -> None:
    with pytest.raises(RunError, match="the driver of 'npu0' cannot be reached: .*no-such-driver"):
        doubled(Child(("no-such-driver",), "", 1.0), 4)


@pytest.mark.parametrize(
    "place",
    ["lib.so", Awaited("lib.so", "step", "s", 1.5, 7), Child(("a", "b"), "", 2.0), Server("host", 7000, 3.0)],
)
def test_places_are_read_as_they_are_written(place) -> None:
    assert place_of(place_record(place)) == place


@pytest.mark.parametrize("said", [{"library": "x", "waits": ["never", "f", 1, 0]}, {"waits": []}, {}])
def test_records_of_no_place_are_refused(said) -> None:
    with pytest.raises((ValueError, KeyError)):
        place_of(said)


PROGRAM = """
fn main(x: Tensor[2, 16, i8]) {{ requantize{{rounding="tflite"}}(add(matmul_integer(x, i8[16, 16]({w})), i32[16]({b})), i32(1518500250), i32(-9)) }}
entry main("x") -> ("y");
"""


def own_board(folder: Path, name: str, driver: str) -> str:
    """Write a board whose device has a description of the package with another driver."""
    path = Path(inlay.__file__).parent / "accelerators" / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    library = f'Library("inlay.accelerators._{name}_model")'
    assert library in text
    text = (
        text.replace("500 * MHz", "10**12")
        .replace("100 * MHz", "10**12")
        .replace(library, driver.replace("MODEL", f"inlay.accelerators._{name}_model"))
    )
    (folder / "own.py").write_text(
        text.replace("Library,", "Library, Process, Socket, Poll,", 1), encoding="utf-8"
    )
    board = board_text(name).replace(f'loader = "{name}"', 'loader = "own.py"')
    (folder / "own.toml").write_text(board.replace(f'"{name}"', '"own"'), encoding="utf-8")
    return str(folder / "own.toml")


@pytest.mark.llvm
@pytest.mark.parametrize("name", ["vanilla", "strawberry"])
def test_a_saved_program_starts_the_process_again(tmp_path, name) -> None:
    w = ", ".join(str((7 * i) % 100 - 50) for i in range(256))
    module = parse_module(PROGRAM.format(w=w, b=", ".join(map(str, range(16)))), table())
    x = np.arange(32, dtype=np.int8).reshape(2, 16)
    want = inlay.compile(module, cache="none")(x)
    board = own_board(tmp_path, name, 'Process(library="MODEL", seconds=20)')
    exe = inlay.compile(module, board=board, cache="none")
    exe.save(tmp_path / "saved.inlay")
    assert '"process"' in " ".join(exe.program.properties.values())
    for one in (exe, load_executable(tmp_path / "saved.inlay")):
        np.testing.assert_array_equal(one(x), want)


def test_a_process_is_a_command_or_a_library(tmp_path) -> None:
    board = own_board(tmp_path, "vanilla", "Process()")
    with pytest.raises(CompileError, match="needed the words of a command or a library"):
        inlay.explain(parse_module("fn main(x: Tensor[2, i8]) { x } entry main;", table()), board=board)
