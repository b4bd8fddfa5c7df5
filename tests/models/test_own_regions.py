"""A device of another package in one file: it takes patterns, has layouts of its own, and runs by Python.

It takes convolutions with what follows element by element, and products; wants weights with the outputs
last; works in the memory of the host. Whole models run split between it and the processor.
"""

from __future__ import annotations

from collections import Counter

import pytest

import inlay
from inlay.analysis.candidates import chains
from inlay.api import compilation
from inlay.codegen.interface import Backend, in_process
from inlay.ir.expr import Const
from inlay.ir.walk import spine
from inlay.machine.board_file import read_board
from inlay.runtime.session import executable_of
from tests.backends import installed
from tests.data import model_case

RAN: Counter[str] = Counter()
"""How often which operations ran on the device as one."""
LAST = {"conv": (2, 3, 1, 0), "matmul": (1, 0)}
"""How weights are wanted; those of products columns first, which is not how the processor packs them."""


class Fake(Backend):
    generators = ("fake",)
    in_host_memory = True

    def candidates(self, module, board, device):
        return [*chains(module, device, self.begins, lambda call: operator(call) in ("relu", "add"))]

    def begins(self, call) -> bool:
        return operator(call) in LAST and isinstance(call.args[1], Const)

    def constant_layouts(self, region):
        first = spine(region.body)[0][0].value
        perm = LAST[operator(first)]
        return {1: perm} if len(first.args[1].type.shape) == len(perm) else {}

    def emit(self, job):
        return in_process(job, compute)


def operator(call) -> str:
    return call.callee.op.name


def compute(kernel, operands, dims):
    assert not {"conv_nhwc", "conv_nhwc_packed", "matmul_packed"} & set(kernel.origin.split("+"))
    assert kernel.origin.startswith("transpose"), "weights are packed"
    RAN[kernel.origin] += 1
    return kernel.body.evaluate(operands, dims)


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
@pytest.mark.parametrize(
    "name", ["micro_kws_fp32", "mnist8", pytest.param("ultraface_rfb320", marks=pytest.mark.slow)]
)
def test_models_run_split(name: str) -> None:
    with installed("fake", __name__):
        case, board = model_case(name), read_board("own", BOARD, place="own.toml")
        made = compilation(inlay.load(case.model), board=board, threads=1, cache="none", verify=True)
        RAN.clear()
        exe = executable_of(made.program, callbacks=made.functions)
        for stored in case.runs()[:2]:
            case.check(exe.run(stored.inputs), stored.outputs)
        plan = inlay.explain(case.model, board=board, threads=1)
    taken = {o.operator for o in plan.operations if o.device == "fake0"}
    assert taken == {origin.replace("transpose+", "") for origin in RAN}, "explained as it runs"
    assert any("+" in origin for origin in taken)
    assert any(k.device == "cpu" for k in made.report.kernels)


@pytest.mark.data
def test_every_view_shows_what_the_device_takes_as_one() -> None:
    case, board = model_case("mnist8"), read_board("own", BOARD, place="own.toml")
    with installed("fake", __name__):
        fusion = inlay.explain(case.model, board=board, threads=1, view="fusion")
        loops = inlay.explain(case.model, board=board, threads=1, view="loops")
        found = inlay.explain(case.model, board=board, threads=1, at="Conv")
    regions = {c.kernel for c in fusion.calls if c.is_region}
    assert regions == {c.kernel for c in fusion.calls if c.device == "fake0"}
    without = {k.kernel: k.why_none for k in loops.kernels if k.decision is None}
    assert without == dict.fromkeys(regions, "'fake0' takes it as it is, without loops")
    for told in found.told:
        assert told.placed[0].device == "fake0"
        assert [p.call.kernel for p in told.parts if p.call.is_region] != []
