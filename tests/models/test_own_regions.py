"""A device of another package in one file: it takes patterns, has layouts of its own, and runs by Python.

It takes convolutions with what follows element by element, and products; wants weights with the outputs
last; works in the memory of the host. Whole models run split between it and the processor.
"""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from types import SimpleNamespace

import pytest

import inlay
from inlay.analysis.blocks import count_uses, nested
from inlay.analysis.candidates import Candidate
from inlay.api import compilation
from inlay.codegen import backend_table
from inlay.codegen.interface import Backend, DeviceCode
from inlay.ir.expr import Call, Const, OpRef
from inlay.ir.walk import spine
from inlay.machine.board_file import read_board
from inlay.runtime.session import executable_of
from tests.data import model_case

RAN: Counter[str] = Counter()
"""How often which operations ran on the device as one."""
LAST = {"conv": (2, 3, 1, 0), "matmul": (1, 0)}
"""How weights are wanted; those of products columns first, which is not how the processor packs them."""


class Fake(Backend):
    generators = ("fake",)

    def unavailable(self, board, device) -> str:
        return ""  # also in the memory of the host

    def works_in(self, board, device) -> tuple[str, ...]:
        return board.host.memories[:1]

    def candidates(self, module, board, device):
        found = []
        for function in module.functions.values():
            uses, pending = count_uses(function.body), [function.body]
            while pending:
                lets, result = spine(pending.pop())
                for at, let in enumerate(lets):
                    pending += nested(let.value)
                    if operator(let.value) in LAST and isinstance(let.value.args[1], Const):
                        found += chains(lets[at:], uses, device)
                pending += nested(result)
        return found

    def constant_layouts(self, region):
        first = spine(region.body)[0][0].value
        perm = LAST[operator(first)]
        return {1: perm} if len(first.args[1].type.shape) == len(perm) else {}

    def emit(self, job) -> DeviceCode:
        return DeviceCode("", functions={r.name: run(job.kernels[r.name]) for r in job.requests})


def operator(value) -> str:
    return value.callee.op.name if isinstance(value, Call) and isinstance(value.callee, OpRef) else ""


def chains(lets, uses, device):
    """A product or convolution alone, and with the element-wise operators behind it."""
    calls, last = [lets[0].value], lets[0].var
    yield Candidate(tuple(calls), device, "one")
    for let in lets[1:]:
        if last in getattr(let.value, "args", ()):
            if uses[last] > 1 or operator(let.value) not in ("relu", "add"):
                return
            if not all(a is last or isinstance(a, Const) for a in let.value.args):
                return
            calls, last = [*calls, let.value], let.var
            yield Candidate(tuple(calls), device, "chain")


def run(kernel):
    assert not {"conv_nhwc", "conv_nhwc_packed", "matmul_packed"} & set(kernel.origin.split("+"))
    assert operator(spine(kernel.body.function.body)[0][0].value) == "transpose", "weights are packed"
    reads = len(kernel.type.params)

    def called(arrays, ints) -> None:
        RAN[kernel.origin] += 1
        dims = {d.sym: n for d, n in zip(kernel.type.dims, ints, strict=True)}
        arrays[reads][...] = kernel.body.evaluate(arrays[:reads], dims)[0]

    return called


BACKEND = Fake()
BOARD = """
memory = [{name = "ram"}]
device = [{name = "cpu", arch = "native", memories = ["ram"]},
          {name = "fake0", arch = "fake", memories = ["ram"]}]
coherent = [{memory = "ram", parties = ["cpu", "fake0"]}]
[[arch]]
name = "fake"
generator = "fake"
loader = "fake"
operators = ["conv", "matmul", "relu", "add"]
macs_per_ns = 1e5
elements_per_ns = 1e5
launch_ns = 1
"""


@pytest.mark.llvm
@pytest.mark.data
@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["micro_kws_fp32", "mnist8", "ultraface_rfb320"])
def test_models_run_split(name: str, monkeypatch) -> None:
    found = {"inlay.backends": [SimpleNamespace(name="fake", value=__name__)]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
    backend_table.backends.cache_clear()
    try:
        case, board = model_case(name), read_board("own", BOARD, place="own.toml")
        made = compilation(inlay.load(case.model), board=board, threads=1, cache="none", verify=True)
        RAN.clear()
        exe = executable_of(made.program, callbacks=made.functions)
        for stored in case.runs()[:2]:
            case.check(exe.run(stored.inputs), stored.outputs)
    finally:
        backend_table.backends.cache_clear()
    assert any("+" in origin for origin in RAN)
    assert any(k.device == "cpu" for k in made.report.kernels)
