"""Networks on a matrix engine whose queues wait in other ways: bit for bit, and about as fast as with tokens."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accelerators import strawberry
from inlay.machine.board_file import read_board
from tests.data import model_case

SOURCE = Path(strawberry.__file__).read_text(encoding="utf-8")
TOKENS = SOURCE[SOURCE.index("    order = (") : SOURCE.index("    ld_act = Copy")]
NOP = SOURCE[SOURCE.index("    @encodes(emit.nop)") : SOURCE.index("    @encodes(ld_act, ld_wgt")]
WAYS = {
    "tokens": (TOKENS, NOP),
    "counts": (
        """    loads, runs, stores = AtMost(load, 7), AtMost(compute, 3), AtMost(store, 3)
    order = (loads, runs, stores)
""",
        """    @encodes(loads, runs, stores)
    def wait(self, c):
        return self.RUN(op=5, kind={"loads": 0, "runs": 1, "stores": 2}[c.name], i=c.count)

""",
    ),
    "events": (
        """    flags = Events(8)
    order = (flags,)
""",
        """    @encodes(flags.signal, flags.wait)
    def wait(self, c):
        queue = {"load": 0, "compute": 1, "store": 2}[c.queue]
        return self.RUN(op=5, kind=queue, i=c.event, j=c.name == "flags.wait")

""",
    ),
}
BOARD = """
[[memory]]
name = "ram"
bytes_per_ns = 12
[[device]]
name = "cpu"
arch = "native"
memories = ["ram"]
[[arch]]
name = "own"
generator = "own"
loader = "{path}"
parameters = {{ clock = 100000000000 }}
[[device]]
name = "npu0"
arch = "own"
memories = ["ram"]
[[coherent]]
memory = "ram"
parties = ["cpu", "npu0"]
"""


def board_of(folder: Path, way: str):
    order, encoding = WAYS[way]
    text = SOURCE.replace(TOKENS, order).replace(NOP, encoding)
    text = text.replace('Library("inlay.accelerators._strawberry_model")', "Mock()")
    text = text.replace("    Token,\n", "    AtMost,\n    Events,\n    Mock,\n    Token,\n")
    text = text if way == "tokens" else text.replace("**c.flags, ", "")
    path = folder / "own.py"
    path.write_text(text, encoding="utf-8")
    return read_board("own", BOARD.format(path=path), place="own.toml")


@pytest.mark.llvm
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_kws_int8", "mlperf_ad_int8"])
def test_networks_on_a_device_that_waits_in_another_way(name, tmp_path) -> None:
    case = model_case(name)
    module = inlay.load(case.model)
    shape = [e.value or 1 for e in module.functions["main"].params[0].type.shape]
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    want = inlay.compile(module, cache="none")(x)
    cycles: dict[str, int] = {}
    for way in WAYS:
        board = board_of(tmp_path, way)
        np.testing.assert_array_equal(inlay.compile(module, board=board, cache="none")(x), want)
        told = inlay.explain(module, board=board, threads=1)
        streams = [re.search(r"commands in (\d+) cycles", o.reason) for o in told.operations]
        cycles[way] = sum(int(found[1]) for found in streams if found is not None)
    assert cycles["tokens"] > 0
    assert cycles["counts"] < cycles["tokens"] * 1.1, cycles
    assert cycles["events"] < cycles["tokens"] * 1.1, cycles
