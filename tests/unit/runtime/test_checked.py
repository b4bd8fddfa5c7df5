"""Launches that are held against what code may touch, by default for what comes from a file."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

import inlay
from inlay.analysis.infer_types import infer_types
from inlay.base.diagnostics import RunError
from inlay.bytecode.builder import ProgramBuilder
from inlay.bytecode.formula import Arg
from inlay.bytecode.isa import Kind
from inlay.bytecode.program import AccessCode, Entry, HostBody, Kernel
from inlay.bytecode.spec import Dim, TensorSpec
from inlay.ir.parser import parse_module
from inlay.ir.prelude import prelude, with_prelude
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import executable_of, load_executable
from tests.unit.bytecode import assembler, disasm

TEXT = """
fn step<n>(h: Tensor[n, 8, f32], w: Tensor[8, 8, f32]) { tanh(matmul(h, w)) }
fn main<n>(x: Tensor[n, 8, f32], w: Tensor[8, 8, f32]) {
  let go = fn<i>(i: int[i], h: Tensor[n, 8, f32]) -> Tensor[n, 8, f32] {
    if (int_less(int(i), int(4))) { go(int(i + 1), @step(h, w)) } else { h }
  };
  concat{axis=0}(go(int(0), x), reduce_sum{axes=[0], keepdims=true}(x))
}
"""


@functools.cache
def compiled():
    module = with_prelude(parse_module(TEXT, table(), name="checked", known=prelude()))
    return inlay.compile(infer_types(module), cache="none", threads=1)


def filling(size, given: int = 3):
    """A kernel that says what it needs of a tensor of `given` numbers, called with 5."""
    b = ProgramBuilder()
    kernel = b.kernel(Kernel("fill", (AccessCode.WRITE,), 1, HostBody("fill"), sizes=(size,)))
    main = b.function("main", [], [Kind.TENSOR])
    main.emit("INT", given), main.emit("ALLOCATE", 0, "i64", 1)
    main.emit("COPY", 0), main.emit("INT", 5), main.emit("INVOKE", kernel), main.emit("RETURN")
    b.entry(Entry("main", main.index, (), (TensorSpec("y", "i64", (Dim("k", None),)),)))
    return b.finish()


def fill(tensors, integers):
    tensors[0][...] = 7


@pytest.mark.parametrize("engine", ["native", "python"])
@pytest.mark.parametrize("mode", ["sequential", "parallel", "replay"])
def test_a_launch_with_too_little_is_refused(engine, mode, tmp_path):
    settings = Settings(checked=True, mode=mode)

    def run(size, given):
        return executable_of(
            filling(size, given), callbacks={"fill": fill}, settings=settings, engine=engine
        ).run({})["y"]

    assert run((8, Arg(0), "mul"), 5).tolist() == [7] * 5
    for size, needs in (
        ((8, Arg(0), "mul"), "40"),
        ((-1,), "impossible"),
        ((1, 0, "floordiv"), "impossible"),
        ((2**62, Arg(0), "mul"), "impossible"),
    ):
        with pytest.raises(RunError, match=f"kernel 'fill' is given 24 bytes as tensor 1.*{needs}") as caught:
            run(size, 3)
        assert caught.value.ids == ("run.bad-dims",)


def test_files_are_checked_and_what_was_compiled_here_is_not(tmp_path):
    program = filling((8, Arg(0), "mul"))
    exe = executable_of(program, callbacks={"fill": fill})
    assert exe.run({})["y"].tolist() == [7] * 3
    exe.save(tmp_path / "p.inlay")
    loaded = load_executable(tmp_path / "p.inlay", callbacks={"fill": fill})
    with pytest.raises(RunError, match="needs 40"):
        loaded.run({})
    trusted = load_executable(
        tmp_path / "p.inlay", callbacks={"fill": fill}, settings=Settings(checked=False)
    )
    assert trusted.run({})["y"].tolist() == [7] * 3


def test_compiled_kernels_say_what_they_touch(tmp_path):
    exe = compiled()
    assert all(len(k.sizes) == len(k.ports) for k in exe.program.kernels)
    again = assembler.parse(disasm.listing(exe.program), disasm.resources(exe.program))
    assert [k.sizes for k in again.kernels] == [k.sizes for k in exe.program.kernels]
    x, w = np.ones((3, 8), np.float32), np.full((8, 8), 0.1, np.float32)
    exe.save(tmp_path / "p.inlay")
    assert (load_executable(tmp_path / "p.inlay")(x, w) == exe(x, w)).all()


DAMAGED = """
import random, sys
from pathlib import Path
import numpy as np
from inlay.base.diagnostics import InlayError
from inlay.bytecode import container
from inlay.runtime.session import load_executable
from tests.unit.bytecode.test_container import reseal

data, folder, ends = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), {}
section = container.Container(data).sections["CODE"]
x, w = np.ones((3, 8), np.float32), np.full((8, 8), 0.1, np.float32)
for seed in range(int(sys.argv[3])):
    draw = random.Random(seed)
    wrong = bytearray(data)
    for _ in range(draw.choice([1, 1, 2])):
        at = section.offset + 4 * draw.randrange(section.size // 4)
        here = int.from_bytes(wrong[at : at + 4], "little")
        word = draw.choice([here + 1, max(here, 1) - 1, draw.randrange(12), 1 << 20, 0xFFFFFFFF])
        wrong[at : at + 4] = word.to_bytes(4, "little")
    path = folder / "wrong.inlay"
    path.write_bytes(reseal(wrong))
    try:
        load_executable(path, threads=1).run({"x": x, "w": w}, timeout=0.5)
        end = "ok"
    except InlayError as failure:
        end = failure.ids[0]
    ends[end] = ends.get(end, 0) + 1
print(sorted(ends))
"""


@pytest.mark.parametrize("tries", [60, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_code_with_the_right_digest_ends_in_words(tries, tmp_path):
    compiled().save(tmp_path / "p.inlay")
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED, str(tmp_path / "p.inlay"), str(tmp_path), str(tries)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "run.bad-dims" in done.stdout
    assert "container.bytecode" in done.stdout
