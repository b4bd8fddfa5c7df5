"""A pattern that becomes several commands, with values between them in scratch memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.accel.backend import backend_in_file
from inlay.accel.kit import Checked, checks
from inlay.api import compilation
from inlay.arith.expr import evaluate
from inlay.base.diagnostics import CompileError
from inlay.ir.parser import parse_module
from inlay.machine.board_file import board_text
from inlay.ops.table import table
from inlay.runtime.session import executable_of, load_executable

FILE = '''
"""A product, then its bias, then what is opposite: three commands."""
from inlay.accel.api import (
    Accelerator, Dim, In, Mock, Out, Queue, Shared, Temp, call, encodes, i8, i32, instruction, nest, pattern,
)

class Steps(Accelerator):
    ram, run = Shared(), Queue()
    M, K, N = Dim(0), Dim(1, 4096), Dim(1, 128)
    drivers = (Mock(),)

    @pattern
    def dense(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        a = p.dense(x, w)
        s = a + b
        return p.calls(
            p.call(a, self.multiply, x=x, w=w),
            p.call(s, self.bias, a=a, b=b),
            p.call(p.op("neg", s), self.negate, a=s),
        )

    @instruction(run, y=Out(ram, i32, (M, N)), x=In(ram, i8, (M, K)), w=In(ram, i8, (K, N)), cycles=M * N * K // 4096)
    def multiply(self, y, x, w):
        for m, n in nest(y.shape):
            y[m, n] = 0
            for k, in nest(w.shape[0]):
                y[m, n] += i32(x[m, k]) * i32(w[k, n])

    @instruction(run, y=Out(ram, i32, (M, N)), a=In(ram, i32, (M, N)), b=In(ram, i32, (N,)),
                 t=Temp(ram, i32, (N,)), cycles=M * N // 64)
    def bias(self, y, a, b, t):
        for n, in nest(b.shape):
            t[n] = b[n]
        for m, n in nest(y.shape):
            y[m, n] = a[m, n] + t[n]

    @instruction(run, y=Out(ram, i32, (M, N)), a=In(ram, i32, (M, N)), cycles=M * N // 64)
    def negate(self, y, a):
        for m, n in nest(y.shape):
            y[m, n] = -a[m, n]

    @encodes(multiply)
    def product(self, c):
        return call("multiply", c.y, c.x, c.w, c.M, c.K, c.N)

    @encodes(bias, negate)
    def rest(self, c):
        return call(c.name, c.y, c.a, c.M, c.N)
'''
RNG = np.random.default_rng(6)


def program(columns: int = 96, rows: str = "n") -> str:
    w, b = RNG.integers(-128, 128, (64, columns)), RNG.integers(-500, 500, columns)
    weights = f"i8[64, {columns}]({', '.join(map(str, w.ravel()))})"
    return f"""
fn main{"<n>" if rows == "n" else ""}(x: Tensor[{rows}, 64, i8]) {{
  let s = add(matmul_integer(x, {weights}), i32[{columns}]({", ".join(map(str, b))}));
  neg(s)
}}
entry main("x") -> ("y");
"""


@pytest.fixture
def board(tmp_path) -> str:
    (tmp_path / "steps.py").write_text(FILE, encoding="utf-8")
    text = board_text("vanilla").replace('loader = "vanilla"', 'loader = "steps.py"')
    (tmp_path / "steps.toml").write_text(text.replace('"vanilla"', '"steps"'), encoding="utf-8")
    return str(tmp_path / "steps.toml")


@pytest.mark.llvm
def test_three_commands_are_one_kernel(board, tmp_path) -> None:
    module = parse_module(program(), table())
    found = compilation(module, board=board, required=("npu0",), cache="none", verify=True)
    (kernel,) = found.module.kernels.values()
    (scratch,) = kernel.workspaces
    n = kernel.type.dims[0].sym
    # Two results that only the commands see, and the columns of the bias, each at the start of a line.
    assert evaluate(scratch.bytes, {n: 5}) == 2 * (5 * 96 * 4) + 96 * 4
    here = inlay.compile(module, cache="none")
    exe = executable_of(found.program)
    exe.save(tmp_path / "saved.inlay")
    for rows in (0, 1, 7):
        x = RNG.integers(-128, 128, (rows, 64)).astype(np.int8)
        np.testing.assert_array_equal(exe.run({"x": x})["y"], here(x))
        np.testing.assert_array_equal(load_executable(tmp_path / "saved.inlay")(x), here(x))


@pytest.mark.llvm
def test_the_kit_checks_them(board) -> None:
    path = Path(board).with_suffix(".py")
    found = [c for c in checks(backend_in_file(str(path)), 6, 0) if isinstance(c, Checked)]
    assert [c.failure for c in found] == ["", ""]
    path.write_text(FILE.replace("y[m, n] = a[m, n] + t[n]", "y[m, n] = a[m, n] - t[n]"), encoding="utf-8")
    *_, wrong = [c for c in checks(backend_in_file(str(path)), 6, 0) if isinstance(c, Checked)]
    assert wrong.section == "pattern dense"
    assert "means something else" in wrong.failure


@pytest.mark.llvm
def test_a_limit_of_any_command_is_a_reason(board) -> None:
    found = inlay.explain(parse_module(program(129), table()), board=board, threads=1)
    said = [o.others["npu0"] for o in found.operations if o.device != "npu0"]
    assert said
    assert all("N = 129: 1 to 128" in s for s in said)


@pytest.mark.llvm
def test_values_between_commands_need_room(board) -> None:
    module = parse_module(program(rows="128"), table())
    options = {"board": board, "cache": "none", "threads": 1}
    assert compilation(module, budget=("ram=300000",), **options).report.promise is not None
    with pytest.raises(CompileError, match="values between commands take .* bytes: .* are free") as refused:
        compilation(module, budget=("ram=120000",), **options)
    assert refused.value.ids == ("accel.no-room",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("            p.call(a, self.multiply, x=x, w=w),\n", "", "which no command computes before"),
        ("return p.calls(\n", "return p.calls()\n        return (\n", "found p.calls() without commands"),
    ],
)
def test_values_that_nobody_computes_are_refused(board, old, new, said) -> None:
    path = Path(board).with_suffix(".py")
    assert old in FILE
    path.write_text(FILE.replace(old, new), encoding="utf-8")
    with pytest.raises(CompileError) as refused:
        backend_in_file(str(path)).patterns(())
    assert refused.value.ids == ("accel.declaration",)
    assert said in str(refused.value)
