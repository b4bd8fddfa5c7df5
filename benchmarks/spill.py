"""A network that needs twice the memory of its device, with copies that overlap and with copies that do not.

    python benchmarks/spill.py [--json]

`small_memory.toml` is a device with 8 MiB behind a link that takes as long as the board says. The network
makes one value after the other and reads them in reverse, so about half of it has to leave the memory and
come back. Sequential mode waits for each kernel and each copy; in parallel mode the copies of the engine run
beside the kernels of the device. `predicted` is what the plan says of the same two. `whole` is the network
with a memory that suffices, whose bits have to be the same. The ways take turns.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline.compile import Compilation
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of
from measure import Report, measure

BOARD = Path(__file__).with_name("small_memory.toml")
ROUNDS = 15


def network(n: int, depth: int) -> str:
    """Return products of n x n matrices, `depth` down and `depth` up again."""
    down = "\n".join(f"  let d{i + 1} = tanh(matmul(d{i}, w));" for i in range(depth))
    up = "\n".join(f"  let u{i} = tanh(add(matmul(u{i + 1}, w), d{i}));" for i in reversed(range(depth)))
    square = f"Tensor[{n}, {n}, f32]"
    return f"""
fn main(d0: {square}, w: {square}) -> {square} {{
{down}
  let u{depth} = tanh(d{depth});
{up}
  u0
}}
entry main("d0", "w") -> ("y");
"""


def compiled(text: str, board: Path) -> Compilation:
    """Compile a network for a board; everything runs on its device."""
    made = infer_types(parse_module(text, table()))
    return compilation(made, board=str(board), pins=("*=npu",), plan="parallel")


def main() -> None:
    """Print the table."""
    columns = ["n", "needed", "room", "moved", "serial ms", "overlap ms", "ratio", "whole ms", "predicted"]
    report = Report("spill", columns)
    for n, depth in ((512, 13), (512, 26)):
        text = network(n, depth)
        small = compiled(text, BOARD)
        with tempfile.TemporaryDirectory() as folder:
            large = Path(folder) / "large.toml"
            large.write_text(BOARD.read_text().replace('"8MiB"', '"1GiB"'))
            whole = compiled(text, large)
        x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
        inputs = {"d0": x, "w": x / np.float32(np.sqrt(n))}
        run = {
            "serial": executable_of(small.program, settings=Settings(threads=1, mode="sequential")),
            "overlap": executable_of(small.program, settings=Settings(threads=1, mode="parallel")),
            "whole": executable_of(whole.program, settings=Settings(threads=1, mode="parallel")),
        }
        bits = {name: exe.run(inputs)["y"].view(np.uint32) for name, exe in run.items()}
        assert all((b == bits["whole"]).all() for b in bits.values())
        times = dict.fromkeys(run, float("inf"))
        for _ in range(ROUNDS):
            for name, exe in run.items():
                times[name] = min(times[name], measure(partial(exe.run, inputs), repeat=1).least)
        (plan,) = small.run.spills
        serial, overlap = times["serial"], times["overlap"]
        ratio, predicted = serial / overlap, plan.time.serial_ns / plan.time.ns
        sizes = n, plan.needed, plan.room, len(plan.moved)
        report.row(*sizes, serial * 1e3, overlap * 1e3, ratio, times["whole"] * 1e3, predicted)


if __name__ == "__main__":
    main()
