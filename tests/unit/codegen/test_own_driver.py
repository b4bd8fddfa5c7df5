"""A back end and a driver of another package: native code under other names, from a pin to the result."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import inlay
from inlay.codegen import backend_table
from inlay.codegen.backends.native import Native
from inlay.codegen.interface import DeviceCode, DeviceJob
from inlay.ir.parser import parse_module
from inlay.lower.lower import Hook
from inlay.machine.board_file import board_text, read_board
from inlay.ops.table import table
from inlay.runtime.drivers import Driver
from tests.unit.runtime.test_drivers import renamed

SEEN: list[str] = []
DRIVER = Driver(table=lambda: renamed("coprocessor", "native"))
ARCH = '[[arch]]\nname = "co"\ngenerator = "llvm"\nloader = "coprocessor"\nvector_bytes = 16\n'


class Coprocessor(Native):
    def hooks(self, arch):
        def see(s, target):
            SEEN.append(f"{arch.name}, {target.vector_bytes} bytes")
            return s

        return (Hook("simplify", see),)

    def emit(self, job: DeviceJob) -> DeviceCode:
        return replace(super().emit(job), driver="coprocessor")


BACKEND = Coprocessor()


@pytest.fixture
def board(monkeypatch):
    def entry_points(group: str, name: str = "coprocessor"):
        assert group in ("inlay.backends", "inlay.drivers")
        here = SimpleNamespace(DRIVER=DRIVER)
        point = SimpleNamespace(name="coprocessor", value=__name__, load=lambda: here)
        return [point] if name == point.name else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    backend_table.backends.cache_clear()
    text = board_text("host_two").replace('name = "cpu1"\narch = "native"', 'name = "cpu1"\narch = "co"')
    yield read_board("own", text + ARCH, place="own.toml")
    backend_table.backends.cache_clear()


@pytest.mark.llvm
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_program_runs_by_a_driver_of_another_package(board, mode):
    module = parse_module("fn main(x: Tensor[40, 24, f32]) { softmax(exp(x)) }", table())
    x = np.random.default_rng(0).standard_normal((40, 24)).astype(np.float32)
    exe = inlay.compile(module, board=board, pins=("softmax=cpu1",), cache="none", mode=mode)
    assert [(d.name, d.driver) for d in exe.program.devices] == [("cpu1", "coprocessor")]
    np.testing.assert_allclose(exe(x), inlay.compile(module, cache="none")(x), rtol=1e-6)
    assert set(SEEN) == {"co, 16 bytes"}
