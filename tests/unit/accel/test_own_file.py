"""A description of another package: found by an entry point, driven by a library of its own."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.codegen import backend_table
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from tests.unit.accel.test_match import conv

FILE = """
from inlay.accel.api import Accelerator, Dim, In, Library, Out, Queue, Shared, call, encodes, i32, instruction, nest, pattern

class Doubler(Accelerator):
    ram, run = Shared(), Queue()
    N = Dim(0)

    @pattern
    def twice(self, p):
        x = p.tensor("x", i32)
        return p.call(x + x, self.double, x=x)

    @instruction(run, y=Out(ram, i32, (N,)), x=In(ram, i32, (N,)), cycles=N)
    def double(self, y, x):
        for i, in nest(y.shape):
            y[i] = x[i] + x[i]

    @encodes(double)
    def doubling(self, c):
        return call("double_all", c.y, c.x, c.N)

    drivers = (Library("doubler.so"),)
"""
BOARD = """
[[arch]]
name = "doubler"
generator = "doubler"
loader = "doubler"
[[memory]]
name = "ram"
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "two0"
arch = "doubler"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "two0"]
"""
PROGRAM = "fn main<n>(x: Tensor[n, i32]) { let y = add(x, x); y } entry main;"
CALLS: list[int] = []
INTS = ctypes.POINTER(ctypes.c_int32)


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def double_all(y: int, x: int, n: int) -> int:
    CALLS.append(n)
    if n > 1000:
        return 7
    to, of = ctypes.cast(y, INTS), ctypes.cast(x, INTS)
    for i in range(n):
        to[i] = 2 * of[i]
    return 0


def doubled(*args: int | np.ndarray) -> int:
    return double_all(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in args))


@contextlib.contextmanager
def doubler():
    """Install the description; give a board with the device."""
    module = types.ModuleType("doubler")
    exec(FILE, module.__dict__)
    found = {"inlay.accelerators": [SimpleNamespace(name="doubler", value="doubler")]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "doubler", module)
        patch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
        patch.setattr("inlay.runtime.calls.starting", lambda *_: doubled)
        backend_table.accelerators.cache_clear()
        yield read_board("own", BOARD, place="own.toml")
    backend_table.accelerators.cache_clear()


@pytest.fixture
def board():
    with doubler() as found:
        yield found


@pytest.mark.llvm
def test_a_description_from_elsewhere_runs(board) -> None:
    exe = inlay.compile(parse_module(PROGRAM, table()), board=board, pins=("add=two0",), cache="none")
    x = np.arange(5, dtype=np.int32)
    CALLS.clear()
    np.testing.assert_array_equal(exe(x), 2 * x)
    assert CALLS == [5]


@pytest.mark.llvm
def test_a_fault_of_the_device_is_an_error_of_the_run(board) -> None:
    exe = inlay.compile(parse_module(PROGRAM, table()), board=board, pins=("add=two0",), cache="none")
    with pytest.raises(inlay.RunError, match="'two0' ended double_all with the fault 7"):
        exe(np.zeros(1001, np.int32))
    np.testing.assert_array_equal(exe(np.ones(3, np.int32)), [2, 2, 2])


def test_a_second_file_changes_nothing_of_the_first() -> None:
    module = parse_module(conv(), table())
    alone = inlay.explain(module, board="vanilla", threads=1).to_json()
    with doubler():
        assert inlay.explain(module, board="vanilla", threads=1).to_json() == alone
    reasons = [o["others"]["npu0"] for o in alone["operations"] if o["device"] != "npu0"]
    assert all("doubler" not in r and "two0" not in r for r in reasons)


def test_a_file_that_changed_within_a_second_is_read_again(tmp_path, monkeypatch):
    """Python tells bytecode that it kept from another text by length and second alone."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "again.py"
    for number in (3, 4):
        path.write_text(
            f"from inlay.accel.api import Accelerator\nclass A(Accelerator):\n    clock = {number}\n"
        )
        os.utime(path, (1e9, 1e9))
        architecture = backend_in_file(str(path)).patterns(()).arch
        assert architecture.number(type(architecture.device).clock) == number
