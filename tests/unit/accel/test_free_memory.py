"""Scratch memory of commands, the choices that follow what is free, and limits over several sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.api import compilation
from inlay.base.diagnostics import CompileError
from inlay.ir.kernel import Kernel
from inlay.ir.parser import parse_module
from inlay.machine.board_file import read_board
from inlay.ops.table import table
from inlay.pipeline.devices import lowering_order
from inlay.runtime.session import executable_of

FILE = """
from inlay.accel.api import (
    Accelerator, Choice, Dim, In, Mock, Out, Queue, Shared, Temp, at_most, call, encodes, i8, i32, instruction,
    nest, pattern,
)

class Blocky(Accelerator):
    ram, run = Shared(), Queue()
    rows = Choice({rows})
    M, K, N = Dim(0), Dim(1, 4096), Dim(1, 4096)
    drivers = (Mock(),)
    lower_after = {after}

    @pattern
    def dense(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        return p.call(p.dense(x, w) + b, self.multiply, x=x, w=w, b=b)

    @instruction(
        run, y=Out(ram, i32, (M, N)), x=In(ram, i8, (M, K)), w=In(ram, i8, (K, N)), b=In(ram, i32, (N,)),
        block=Temp(ram, i32, (rows, N)), needs=(at_most(K * N, {most}, "weights"),),
        cycles=M * K * N // 4096 + M * 1000 // rows,
    )
    def multiply(self, y, x, w, b, block):
        for m, n in nest(y.shape):
            row = m % block.shape[0]
            block[row, n] = b[n]
            for k, in nest(w.shape[0]):
                block[row, n] += i32(x[m, k]) * i32(w[k, n])
            y[m, n] = block[row, n]

    @encodes(multiply)
    def product(self, c):
        return call("blocky_multiply", c.y, c.x, c.w, c.b, c.block, c.rows, c.M, c.K, c.N)
"""
RNG = np.random.default_rng(4)
W, B = RNG.integers(-128, 128, (32, 64)), RNG.integers(-500, 500, 64)
V = RNG.integers(-128, 128, (64, 32))


def listed(dtype: str, values: np.ndarray) -> str:
    return f"{dtype}[{', '.join(map(str, values.shape))}]({', '.join(map(str, values.ravel()))})"


PROGRAM = f"""
fn main(x: Tensor[128, 32, i8]) {{
  let a = add(matmul_integer(x, {listed("i8", W)}), {listed("i32", B)});
  let h = requantize(a, f32(0.001));
  add(matmul_integer(h, {listed("i8", V)}), {listed("i32", B[:32])})
}}
entry main("x") -> ("y");
"""
X = RNG.integers(-128, 128, (128, 32)).astype(np.int8)


def board_of(
    folder: Path, *names: str, most: int = 1 << 20, rows: str = "4, 16, 64, 128", **after: tuple[str, ...]
):
    """Return a board with a device for each name, lowered after those that are said."""
    parts = ['[[memory]]\nname = "ram"\n[[device]]\nname = "cpu"\narch = "native"\nmemories = ["ram"]\n']
    for name in names or ("blocky",):
        path = folder / f"{name}.py"
        path.write_text(FILE.format(most=most, rows=rows, after=after.get(name, ())), encoding="utf-8")
        parts += [
            f'[[arch]]\nname = "{name}"\ngenerator = "{name}"\nloader = "{path}"\n',
            f'[[device]]\nname = "{name}0"\narch = "{name}"\nmemories = ["ram"]\n',
            f'[[coherent]]\nmemory = "ram"\nparties = ["cpu", "{name}0"]\n',
        ]
    return read_board("own", "".join(parts), place="own.toml")


def compiled(board, **options):
    found = compilation(
        parse_module(PROGRAM, table()), board=board, cache="none", threads=1, verify=True, **options
    )
    mine = [k for k in found.module.kernels.values() if k.workspaces and "matmul" in k.origin]
    return found, {"a" if k.ports[-1].type.shape[-1] == 64 else "y": k for k in mine}


def rows_of(kernel: Kernel) -> int:
    """Return the rows of the block of a command: its scratch memory has as many columns as its result."""
    (scratch,) = kernel.workspaces
    columns = kernel.ports[-1].type.shape[-1].value
    assert scratch.bytes.value is not None
    assert columns is not None
    return scratch.bytes.value // (4 * columns)


@pytest.mark.llvm
def test_the_block_follows_the_free_memory(tmp_path) -> None:
    """The larger the budget, the larger the block; what was promised holds, and the result stays."""
    here = inlay.compile(parse_module(PROGRAM, table()), cache="none")(X)
    seen: dict[int | None, int] = {}
    for budget in (61_850, 72_000, 90_000, None):
        options = {} if budget is None else {"budget": (f"ram={budget}",)}
        found, kernels = compiled(board_of(tmp_path), **options)
        exe = executable_of(found.program, threads=1)
        np.testing.assert_array_equal(exe.run({"x": X})["y"], here)
        if budget is not None:
            assert found.report.promise is not None
            assert found.report.promise.takes["ram"] <= budget
            exe.run({"x": X})
            assert exe.usage().peak_bytes <= budget
        seen[budget] = rows_of(kernels["a"])
    assert seen == {61_850: 16, 72_000: 64, 90_000: 128, None: 128}


@pytest.mark.llvm
def test_without_room_it_says_how_much_is_free(tmp_path) -> None:
    with pytest.raises(CompileError) as refused:
        compiled(board_of(tmp_path, rows="64"), budget=("ram=61850",))
    assert refused.value.ids == ("accel.no-room",)
    assert "scratch memory of 16384 bytes: 8218 are free (rows = 64)" in str(refused.value)


@pytest.mark.parametrize("later", ["first", "second"])
def test_the_order_of_lowering_is_what_descriptions_say(tmp_path, later) -> None:
    sooner = "second" if later == "first" else "first"
    board = board_of(tmp_path, "first", "second", **{later: (sooner,)})
    order = [units[0] for units in lowering_order(board, [("first0",), ("second0",)])]
    assert order == [f"{sooner}0", f"{later}0"]


def test_devices_that_wait_for_each_other_are_refused(tmp_path) -> None:
    board = board_of(tmp_path, "first", "second", first=("second",), second=("first",))
    with pytest.raises(CompileError) as refused:
        lowering_order(board, [("first0",), ("second0",)])
    assert refused.value.ids == ("accel.lower-order",)


@pytest.mark.llvm
def test_limits_over_several_sizes_are_reasons(tmp_path) -> None:
    board = board_of(tmp_path, most=32 * 64 - 1)
    found = inlay.explain(parse_module(PROGRAM, table()), board=board, threads=1)
    (said,) = {o.others["blocky0"] for o in found.operations if "matmul" in o.operator}
    assert "weights = 2048: at most 2047" in said
    taken, _ = compiled(board_of(tmp_path, most=32 * 64), required=("cpu", "blocky0"))
    assert sum("matmul" in k.origin for k in taken.report.kernels if k.device == "blocky0") == 2


@pytest.mark.llvm
def test_the_kit_gives_scratch_memory(tmp_path) -> None:
    board_of(tmp_path)
    found = [c for c in checks(backend_in_file(str(tmp_path / "blocky.py")), 5, 0) if isinstance(c, Checked)]
    assert [c.failure for c in found] == ["", ""]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rows = Choice(4, 16, 64, 128)", "rows = Choice()", "found the values none of 'rows'"),
        ("rows = Choice(4, 16, 64, 128)", "rows = Choice(0)", "found the values 0 of 'rows'"),
        (
            "block=Temp(ram, i32, (rows, N)),",
            "block=Temp(ram, i32, (rows, N)), more=Temp(ram, i32, (N,)),",
            "found several operands of 'multiply' declared Temp",
        ),
        ("at_most(K * N, 1048576", "at_most(Dim(1), 1048576", "found a size in the needs of 'multiply'"),
    ],
)
def test_declarations_that_cannot_be_are_refused(tmp_path, old, new, said) -> None:
    board_of(tmp_path)
    path = tmp_path / "blocky.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(CompileError) as refused:
        backend_in_file(str(path)).patterns(())
    assert said in str(refused.value)
