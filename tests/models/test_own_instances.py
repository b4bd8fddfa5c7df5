"""Small accelerators of one kind that are programmed differently, and a second processor beside the host.

One is programmed for convolutions and one for products: the architecture says which, the back end reads
it, and each instance gets code of its own. The second processor works in the memory of the host.
"""

from __future__ import annotations

from collections import Counter

import pytest

import inlay
from inlay.analysis.candidates import chains
from inlay.api import compilation
from inlay.codegen.interface import Backend, in_process
from inlay.machine.board_file import read_board
from inlay.runtime.session import executable_of
from tests.backends import installed
from tests.data import model_case

RAN: Counter[tuple[str, str]] = Counter()
"""How often which instance ran an operation as the first of what it takes as one."""


class Programmed(Backend):
    generators = ("fabric",)
    in_host_memory = True

    def candidates(self, module, board, device):
        own = board.arch_of(device).parameter("program")
        return [*chains(module, device, lambda c: c.callee.op.name == own, lambda _: False)]

    def emit(self, job):
        def compute(kernel, operands, dims):
            assert kernel.origin == job.arch.parameter("program")
            RAN[job.devices[0], kernel.origin] += 1
            return kernel.body.evaluate(operands, dims)

        return in_process(job, compute)


BACKEND = Programmed()
INSTANCE = """
[[arch]]
name = "fabric-{program}"
generator = "fabric"
loader = "fabric"
parameters = {{ program = "{program}" }}
macs_per_ns = 1e5
launch_ns = 1
[[device]]
name = "{name}"
arch = "fabric-{program}"
memories = ["ram"]
"""
BOARD = """
memory = [{name = "ram"}]
coherent = [{memory = "ram", parties = ["cpu", "dsp", "fpga0", "fpga1"]}]
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[device]]
name = "dsp"
arch = "native"
memories = ["ram"]
"""


@pytest.mark.llvm
@pytest.mark.data
def test_instances_are_programmed_differently() -> None:
    text = (
        BOARD
        + INSTANCE.format(name="fpga0", program="conv")
        + INSTANCE.format(name="fpga1", program="matmul")
    )
    with installed("fabric", __name__):
        case, board = model_case("mnist8"), read_board("own", text, place="own.toml")
        module = inlay.load(case.model)
        pins = ("conv=fpga0", "matmul=fpga1", "max_pool=dsp", "relu=cpu")
        made = compilation(module, board=board, pins=pins, threads=1, cache="none", verify=True)
        exe = executable_of(made.program, callbacks=made.functions)
        stored = case.runs()[0]
        case.check(exe.run(stored.inputs), stored.outputs)
    assert set(RAN) == {("fpga0", "conv"), ("fpga1", "matmul")}
    assert {"cpu", "dsp"} <= {k.device for k in made.report.kernels}
