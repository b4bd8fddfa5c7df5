"""Your own accelerator: from an empty file to a quantized network on a device that nobody has built yet.

A device is one Python file. It says what the hardware is: its memories, what a command computes, which
operations it takes and how a command is written. What to offload, and what for, follows from that.
The device here multiplies a matrix of bytes by constant weights and adds a bias, with at most 64 columns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import inlay

# What this lesson writes goes to a folder that it throws away.
temporary = tempfile.TemporaryDirectory()
before = Path.cwd()
os.chdir(temporary.name)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `inlay` with some words."""
    return subprocess.run(
        [sys.executable, "-m", "inlay", *words], capture_output=True, text=True, check=False
    )


# ---------------------------------------------------------------------- 1. an empty file
# `inlay new accelerator tiny` writes `tiny.py`, every section empty, and `tiny.toml`: a board with the
# processor of this machine and the device, whose `loader` is the file.

print(command("new", "accelerator", "tiny").stdout)
assert "class Tiny(Accelerator)" in Path("tiny.py").read_text()

# ---------------------------------------------------------------------- 2. what the hardware is
# An instruction has operands with shapes over dims, and the limits of the dims are limits of the hardware.
# The function under it is its meaning: it runs once, with symbols, and leaves a loop nest. A pattern says
# what is taken, in the operators that quantized models become (`inlay opt MODEL --passes
# infer-types,to-anf,fold-quantization` shows them), and which operand is which. An encoding writes
# the command. `Mock()` is a driver that nobody has to write: it computes what the loop nest says.

DESCRIPTION = '''
"""tiny: products of a matrix of bytes and constant weights, with a bias, a C call each."""

from inlay.accel.api import (
    Accelerator, Dim, In, MHz, Mock, Out, Param, Queue, Shared,
    call, encodes, i8, i32, instruction, nest, pattern,
)


class Tiny(Accelerator):
    """Eight rows of multiply-accumulate units."""

    # ---- attributes, memories, queues
    lanes = Param(2048, "multiply-accumulate units")
    clock = Param(1000 * MHz)
    ram = Shared("the memory of the host")
    run = Queue()

    # ---- patterns
    @pattern
    def dense(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        return p.call(p.dense(x, w) + b, self.multiply, x=x, w=w, b=b)

    # ---- instructions
    M, K, N = Dim(0), Dim(1, 4096), Dim(1, 64)

    @instruction(run, y=Out(ram, i32, (M, N)), x=In(ram, i8, (M, K)), w=In(ram, i8, (K, N)),
                 b=In(ram, i32, (N,)), cycles=M * K * N // lanes + 20)
    def multiply(self, y, x, w, b):
        for m, n in nest(y.shape):
            y[m, n] = b[n]
            for k, in nest(w.shape[0]):
                y[m, n] += i32(x[m, k]) * i32(w[k, n])

    # ---- encoding
    @encodes(multiply)
    def product(self, c):
        return call("tiny_multiply", c.y, c.x, c.w, c.b, c.M, c.K, c.N)

    # ---- drivers
    drivers = (Mock(),)
'''
Path("tiny.py").write_text(DESCRIPTION)

# ---------------------------------------------------------------------- 3. is it right?
# `inlay check` draws programs that each pattern takes and computes them by what they mean, by the loop nest,
# and by the driver. Say something wrong, and it shows the smallest program where they part.

checked = command("check", "tiny.py", "--trials", "10")
print(checked.stdout)
assert checked.returncode == 0

Path("wrong.py").write_text(DESCRIPTION.replace("y[m, n] = b[n]", "y[m, n] = b[n] + b[n]"))
wrong = command("check", "wrong.py", "--trials", "10")
print(wrong.stdout)
assert wrong.returncode == 1
assert "pattern dense" in wrong.stdout
assert "matmul_integer" in wrong.stdout

# ---------------------------------------------------------------------- 4. a network
# Two layers of a quantized classifier: bytes times bytes, a bias, back to bytes. The first has 64 columns,
# the second 100, which is more than the device can.


def weights(shape: tuple[int, ...], seed: int, low: int = -128, high: int = 127) -> str:
    """Return a constant."""
    values = np.random.default_rng(seed).integers(low, high + 1, shape)
    dtype = "i8" if low == -128 else "i32"
    return f"{dtype}[{', '.join(map(str, shape))}]({', '.join(map(str, values.ravel()))})"


Path("classifier.inl").write_text(f"""
fn main(x: Tensor[32, 256, i8]) {{
  let a = add(matmul_integer(x, {weights((256, 64), 1)}), {weights((64,), 2, -5000, 5000)});
  let h = requantize{{zero=3, low=3}}(a, f32(0.0005));
  let c = add(matmul_integer(h, {weights((64, 100), 3)}), {weights((100,), 4, -5000, 5000)});
  requantize{{zero=-1}}(c, f32(0.002))
}}
entry main("x") -> ("y");
""")
module = inlay.load("classifier.inl")

# ---------------------------------------------------------------------- 5. what is taken, and why
# From the command line: `inlay explain classifier.inl --board tiny.toml --all`.

found = inlay.explain(module, board="tiny.toml")
for operation in found.operations:
    print(f"{operation.device:5} {operation.operator:20} {operation.others}")
products = [o for o in found.operations if o.operator.startswith("matmul_integer")]
assert [o.device for o in products] == ["npu0", "cpu"]
assert "N = 100: 1 to 64" in products[1].others["npu0"]

# ---------------------------------------------------------------------- 6. run it
# Bit for bit what the processor gives. `required` turns what falls back into an error.

x = np.random.default_rng(0).integers(-128, 128, (32, 256)).astype(np.int8)
split = inlay.compile(module, board="tiny.toml")
assert np.array_equal(split(x), inlay.compile(module)(x))
ids: tuple[str, ...] = ()
try:
    inlay.compile(module, board="tiny.toml", required=("npu0",))
except inlay.CompileError as refusal:
    ids = refusal.ids
    print(refusal)
assert ids == ("placement.fallback",)

# A device that is there has `Library("mydriver.so")` in the place of `Mock()`: a shared library with the
# functions that encodings call. docs/reference/accelerators.md has all that a description can say.

os.chdir(before)
temporary.cleanup()
