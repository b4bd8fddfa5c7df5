"""The back ends that are here: targets from boards, and why no code is made."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import inlay
from inlay.analysis.register_tiles import panel_width
from inlay.base.diagnostics import CompileError
from inlay.codegen import backend_table
from inlay.codegen.backend_table import backend_of, backends, target_of, unavailable
from inlay.codegen.interface import Backend
from inlay.codegen.llvm_generator import LlvmGenerator
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text, find_board, read_board
from inlay.machine.target import host
from inlay.ops.table import table
from inlay.pipeline.devices import runnable
from inlay.pipeline.options import PlaceOptions
from inlay.pipeline.planning import setting_of
from inlay.transforms._packings import PackOptions

NATIVE = '\n[[arch]]\nname = "native"\n'


def board(name: str, lines: str):
    return read_board("b", board_text(name) + NATIVE + lines, place="b.toml")


def test_they_are_found_by_name():
    assert set(backends()) == {"native", "opencl", "remote"}
    used = {d: type(backend_of(find_board("opencl"), d)).__name__ for d in ("cpu", "cl0")}
    assert used == {"cpu": "Native", "cl0": "OpenCl"}
    assert backend_of(find_board("soc_npus"), "npu0") is None


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (None, "no BACKEND"),
        (SimpleNamespace(), "a BACKEND without generators, in_host_memory, takes, unavailable, "),
        (SimpleNamespace(**{x: 0 for x in vars(Backend) if x != "emit"}), "a BACKEND without emit in "),
    ],
)
def test_a_module_that_is_no_back_end(made, what, monkeypatch):
    monkeypatch.setitem(sys.modules, "wrong_backend", SimpleNamespace(BACKEND=made, __name__="wrong_backend"))
    point = SimpleNamespace(name="wrong", value="wrong_backend")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    backend_table.backends.cache_clear()
    with pytest.raises(CompileError, match=what) as failure:
        unavailable(board("host", 'loader = "wrong"\n'), "cpu")
    assert failure.value.ids == ("target.bad-backend",)
    backend_table.backends.cache_clear()


def test_targets_are_made_from_architectures():
    assert target_of(find_board("host"), "cpu") == host()
    mcu = target_of(find_board("mcu_dma"), "cpu")
    assert (mcu.lanes(4), mcu.stack_bytes, mcu.index_bits, mcu.l2_bytes) == (1, 2048, 32, 0)
    big = target_of(find_board("soc_npus"), "cpu")
    assert (big.lanes(4), big.vector_registers, big.dot) == (4, 32, ("i8", "u8"))
    cl = target_of(find_board("opencl"), "cl0")
    assert (cl.dialect, cl.doubles) == ("OpenCL C", False)
    said = target_of(board("host", "vector_bytes = 16\nfma = false\n"), "cpu")
    assert (said.vector_bytes, said.has_fma, said.arch) == (16, False, host().arch)
    assert said.key != host().key


@pytest.mark.parametrize(("pool", "stack"), [("1KiB", 1024), ("1MiB", 32 << 10)])
def test_a_kernel_takes_no_more_than_the_stack_of_its_device(pool, stack):
    text = board_text("mcu_dma").replace('bytes = "8KiB"', f'bytes = "{pool}"')
    text = text.replace('stack_bytes = "2KiB"', "")
    assert target_of(read_board("b", text, place="b.toml"), "cpu").stack_bytes == stack


def test_constants_are_packed_for_the_host_of_the_board():
    target = setting_of(PlaceOptions(board="mcu_dma")).context.options_for(PackOptions).targets("cpu")
    assert (target.lanes(4), target.vector_registers, target.l2_bytes) == (1, 32, 0)
    assert panel_width(target, columns=64, terms=64, rows=1) > 1  # no second cache is no limit
    here = setting_of(PlaceOptions(board="host")).context.options_for(PackOptions).targets("")
    assert (here.lanes(4), here.l2_bytes) == (host().lanes(4), host().l2_bytes)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("index_bits = 32", "indices of 64 bits, found index_bits = 32"),
        ('generator = "lvm"', "no code generator here makes code for native"),
        ('loader = "nativ"', "has the loader 'nativ', needed native or remote; did you mean native"),
    ],
)
def test_why_no_code_is_made(lines, reason):
    wrong = board("host", f"{lines}\n")
    assert reason in unavailable(runnable(wrong), "cpu")
    program = parse_module("fn main(x: Tensor[4, f32]) { exp(x) }", table())
    with pytest.raises(inlay.InlayError, match="for the host: ") as failure:
        inlay.compile(program, board=wrong, cache="none")
    assert failure.value.ids == ("target.no-generator",)
    assert reason in str(failure.value)


def test_opencl_is_no_host():
    text = board_text("opencl").replace('arch = "native"', 'arch = "opencl"', 1)
    program = parse_module("fn main(x: Tensor[4, f32]) { exp(x) }", table())
    for ask in (inlay.compile, inlay.explain):
        with pytest.raises(
            inlay.InlayError, match="'opencl' is the code of devices beside a host"
        ) as failure:
            ask(program, board=read_board("b", text, place="b.toml"))
        assert failure.value.ids == ("board.invalid",)


@pytest.mark.llvm
@pytest.mark.parametrize(
    "lines", ["stack_bytes = 0", "vector_bytes = 16\nvector_registers = 8", "fma = false"]
)
def test_what_a_board_says_is_what_code_is_made_for(lines, monkeypatch):
    program = parse_module(
        "fn main(x: Tensor[9, 33, f32], w: Tensor[33, 21, f32]) { reduce_sum{axes=[1]}(softmax(matmul(x, w))) }",
        table(),
    )
    made: list[LlvmGenerator] = []
    real = LlvmGenerator.compile

    def seen(self, requests):
        made.append(self)
        stack = [r.lower().workspaces for r in requests]
        assert any(stack) or self.target.stack_bytes
        return real(self, requests)

    monkeypatch.setattr(LlvmGenerator, "compile", seen)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((9, 33), (33, 21)))
    told = board("host", f"{lines}\n")
    found = inlay.compile(program, board=told, cache="none")(x, w)
    np.testing.assert_allclose(found, inlay.compile(program, cache="none")(x, w), rtol=1e-5)
    assert made[0].target == host().with_facts(told.arch_of("cpu").facts) != made[1].target
    assert replace(made[0].target, stack_bytes=1).key != made[0].target.key
