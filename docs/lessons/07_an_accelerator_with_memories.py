"""An accelerator with memories of its own: from an empty file to a quantized ResNet-8 on a device of yours.

The device of the lesson before worked in the memory of the host. This one has five memories of its own, three
queues that run beside each other, and copies between. Who brings up such a device writes tiles, double
buffers, copies and waits, as a rule. Here the file says what is there, and all of that follows.
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


# ---------------------------------------------------------------------- 1. an empty file, and its board

print(command("new", "accelerator", "own").stdout)

# ---------------------------------------------------------------------- 2. memories, queues, copies
# A `Memory` has a unit, the step of its addresses: here a vector of 16 bytes, a block of 16 x 16 weights,
# 16 sums. A `Copy` is a path between one and the memory of the board; `Pad` is what it can put around a
# tile. Each copy and instruction waits in a queue. `order` has every way in which queues can wait for each
# other: the names are bits of a command, which a compiler sets and nobody here.

MEMORIES = '''
"""own: a matrix engine of bytes with memories of its own, described before it was built."""

from inlay.accel.api import (
    Accelerator, Copy, Dim, Imm, In, InOut, KiB, Memory, MHz, Mock, Out, Pad, Param, Queue, Record, Shared,
    Stream, Token, Word, encodes, i8, i32, instruction, nest, pattern, requantize, rescale,
)


class Own(Accelerator):
    """Convolutions, products and sums of bytes, back to bytes."""

    lanes = Param(16, "lanes of the matrix engine", choices=(8, 16))
    clock = Param(100_000 * MHz, "cycles in a second: far more than a host has, for a small network")
    ram = Shared("commands say offsets from a base that is set when a stream is started")
    inp = Memory(32 * KiB, unit=lanes)
    wgt = Memory(64 * KiB, unit=lanes * lanes)
    acc = Memory(32 * KiB, unit=lanes * 4)
    out = Memory(16 * KiB, unit=lanes)
    par = Memory(4 * KiB, unit=lanes * 16)
    load, run, store = Queue(), Queue(), Queue()
    order = (
        Token(load, run, push="push_next", pop="pop_prev"),
        Token(run, load, push="push_prev", pop="pop_next"),
        Token(run, store, push="push_next", pop="pop_prev"),
        Token(store, run, push="push_prev", pop="pop_next"),
    )
    ld_inp = Copy(ram, inp, load, 2, Pad(15, Imm(-128, 127)), bytes_per_cycle=16, latency=20)
    ld_wgt = Copy(ram, wgt, load, 2, bytes_per_cycle=16, latency=20)
    ld_par = Copy(ram, par, run, 2, bytes_per_cycle=16, latency=20)
    st_out = Copy(out, ram, store, 2, bytes_per_cycle=16, latency=20)
'''

# ---------------------------------------------------------------------- 3. what it takes
# A pattern ends with `p.map(value)`: instructions compute it, whichever that are and in whatever tiles. The
# sum of two branches of a residual block has a scale for each, which takes eight operators: `p.scaled_sum`.

PATTERNS = """
    @pattern
    def conv(self, p):
        return p.map(p.requantize(p.conv2d(p.tensor("x", i8), p.const("w", i8)) + p.const("b", i32)))

    @pattern
    def dense(self, p):
        return p.map(p.requantize(p.dense(p.tensor("x", i8), p.const("w", i8)) + p.const("b", i32)))

    @pattern
    def residual(self, p):
        return p.map(p.requantize(p.scaled_sum(p.tensor("x", i8), p.tensor("z", i8))))
"""

# ---------------------------------------------------------------------- 4. what its commands mean
# Operands are in memories of the device: axes with a `Dim` have a stride, which the command says; what is
# behind them is one unit. The compiler finds `gemm` in a convolution and in a product by laying one loop
# nest over the other; nothing says that it is for either.

INSTRUCTIONS = """
    H, W = Dim(1, 4095), Dim(1, 4095)
    area, tile = H * W, (H, W, lanes)
    terms = Record(bias=i32, mul=i32, shift=i8)
    ends = {"zero": Imm(-128, 127), "low": Imm(-128, 127), "high": Imm(-128, 127)}

    @instruction(run, a=Out(acc, i32, tile), cycles=area + 4)
    def clear(self, a):
        for i, j, o in nest(a.shape):
            a[i, j, o] = 0

    @instruction(run, a=InOut(acc, i32, tile), x=In(inp, i8, tile), w=In(wgt, i8, (lanes, lanes)),
                 cycles=area + 8)
    def gemm(self, a, x, w):
        for i, j, o, k in nest(a.shape, self.lanes):
            a[i, j, o] += i32(x[i, j, k]) * i32(w[k, o])

    @instruction(run, y=Out(out, i8, tile), a=In(acc, i32, tile), t=In(par, terms, (lanes,)), **ends,
                 cycles=area + 8)
    def finish(self, y, a, t, zero, low, high):
        for i, j, o in nest(y.shape):
            s = a[i, j, o] + t.bias[o]
            y[i, j, o] = i8(requantize(s, t.mul[o], t.shift[o], zero, low, high, rounding="tflite"))

    @instruction(run, y=Out(out, i8, tile), x=In(inp, i8, tile), z=In(inp, i8, tile),
                 t=In(par, terms, (lanes,)), **ends, cycles=2 * area + 8)
    def add(self, y, x, z, t, zero, low, high):
        for i, j, o in nest(y.shape):
            a = rescale((i32(x[i, j, o]) + t.bias[0]) * 2**20, t.mul[0], t.shift[0], rounding="tflite")
            b = rescale((i32(z[i, j, o]) + t.bias[1]) * 2**20, t.mul[1], t.shift[1], rounding="tflite")
            y[i, j, o] = i8(requantize(a + b, t.mul[2], t.shift[2], zero, low, high, rounding="tflite"))
"""

# ---------------------------------------------------------------------- 5. how commands are written
# A `Word` has its fields from the lowest bit on. The functions are given a command whose places and numbers
# are decided; `**c.flags` are the bits of `order`. The mock reads words by the same functions, so a field
# that is too narrow, or at the wrong place, is found before there is hardware.

ENCODING = """
    HEAD = "op:4 pop_prev:1 pop_next:1 push_prev:1 push_next:1"
    MOVE = Word(192, HEAD + " chip:16 base:32 y:16 x:16 stride:16 top:4 bottom:4 left:4 right:4 value:8s")
    RUN = Word(192, HEAD + " i:12 j:12 dst:12 di:12 dj:12 src:12 si:12 sj:12 aux:12 ai:12 aj:12 par:6"
                    " zero:8s low:8s high:8s")
    emit = Stream("own_run", end=RUN(op=15))

    @encodes(emit.nop)
    def wait(self, c):
        op = {"load": 8, "run": 9, "store": 10}[c.queue]
        return self.RUN(op=op, **c.flags) if c.queue == "run" else self.MOVE(op=op, **c.flags)

    @encodes(ld_inp, ld_wgt, ld_par, st_out)
    def move(self, c):
        op = {"ld_inp": 0, "ld_wgt": 1, "ld_par": 2, "st_out": 3}[c.name]
        return self.MOVE(op=op, **c.flags, chip=c.chip.at, base=c.dram.at, y=c.y, x=c.x, stride=c.stride,
                         top=c.top, bottom=c.bottom, left=c.left, right=c.right, value=c.value)

    @encodes(clear)
    def clearing(self, c):
        return self.RUN(op=4, **c.flags, i=c.H, j=c.W, dst=c.a.at, di=c.a.stride[0], dj=c.a.stride[1])

    @encodes(gemm)
    def multiply(self, c):
        return self.RUN(op=5, **c.flags, i=c.H, j=c.W, dst=c.a.at, di=c.a.stride[0], dj=c.a.stride[1],
                        src=c.x.at, si=c.x.stride[0], sj=c.x.stride[1], aux=c.w.at)

    @encodes(finish)
    def close(self, c):
        return self.RUN(op=6, **c.flags, i=c.H, j=c.W, dst=c.y.at, di=c.y.stride[0], dj=c.y.stride[1],
                        src=c.a.at, si=c.a.stride[0], sj=c.a.stride[1], par=c.t.at, zero=c.zero, low=c.low,
                        high=c.high)

    @encodes(add)
    def join(self, c):
        return self.RUN(op=7, **c.flags, i=c.H, j=c.W, dst=c.y.at, di=c.y.stride[0], dj=c.y.stride[1],
                        src=c.x.at, si=c.x.stride[0], sj=c.x.stride[1], aux=c.z.at, ai=c.z.stride[0],
                        aj=c.z.stride[1], par=c.t.at, zero=c.zero, low=c.low, high=c.high)

    drivers = (Mock(),)
"""
Path("own.py").write_text(MEMORIES + PATTERNS + INSTRUCTIONS + ENCODING)

# ---------------------------------------------------------------------- 6. is it right?
# Drawn programs of each pattern run on the mock: words are decoded, queues run in any order that tokens
# permit, and it refuses reads of what nobody wrote, addresses beyond a memory, and conflicts that nothing
# orders.

checked = command("check", "own.py", "--trials", "3")
print(checked.stdout)
assert checked.returncode == 0

# ---------------------------------------------------------------------- 7. ResNet-8
# Stem, three blocks of two convolutions with a sum around them (two of them half the size and double the
# channels), a mean, a product. Weights are drawn: what is shown is where it runs, and that it is exact.

RNG = np.random.default_rng(8)
lines: list[str] = []


def constant(dtype: str, shape: tuple[int, ...], low: int, high: int) -> str:
    """Return drawn integers as text."""
    values = RNG.integers(low, high, shape, endpoint=True)
    return f"{dtype}[{', '.join(map(str, shape))}]({', '.join(map(str, values.ravel()))})"


def let(value: str) -> str:
    """Write a statement and return its name."""
    lines.append(f"  let v{len(lines)} = {value};")
    return f"v{len(lines) - 1}"


def conv(x: str, channels: int, result: int, window: int, stride: int = 1, low: int = -128) -> str:
    """Write a convolution with its bias, back to bytes; `low` at the zero point is a ReLU."""
    attrs = f"pads=[{', '.join(str(window // 2) for _ in range(4))}], strides=[{stride}, {stride}]"
    a = let(f"conv_integer{{{attrs}}}({x}, {constant('i8', (result, channels, window, window), -127, 127)})")
    b = let(f"add({a}, {constant('i32', (result, 1, 1), -2000, 2000)})")
    scale = (
        f"i32[{result}]({', '.join(['1500000000'] * result)}), i32[{result}]({', '.join(['-8'] * result)})"
    )
    return let(f'requantize{{zero=0, low={low}, high=127, rounding="tflite"}}({b}, {scale})')


def scaled(x: str) -> str:
    """Write a branch of a sum: an integer in steps that both branches share."""
    whole = let(f"mul(add(cast{{dtype=i32}}({x}), i32(7)), i32(1048576))")
    return let(f'requantize{{dtype=i32, rounding="tflite"}}({whole}, i32(1500000000), i32(0))')


def block(x: str, channels: int, result: int, stride: int) -> str:
    """Write a residual block."""
    inner = conv(conv(x, channels, result, 3, stride, low=0), result, result, 3)
    around = x if channels == result else conv(x, channels, result, 1, stride)
    both = let(f"add({scaled(around)}, {scaled(inner)})")
    return let(f'requantize{{low=0, high=127, rounding="tflite"}}({both}, i32(1500000000), i32(-19))')


y = conv("x", 3, 16, 3, low=0)
y = block(y, 16, 16, 1)
y = block(y, 16, 32, 2)
y = block(y, 32, 64, 2)
sums = let(f"reduce_sum{{axes=[2, 3], keepdims=false}}(cast{{dtype=i32}}({y}))")
mean = let(f'requantize{{rounding="tflite"}}({sums}, i32(1073741824), i32(-3))')
product = let(f"matmul_integer({mean}, {constant('i8', (64, 10), -127, 127)})")
biased = let(f"add({product}, {constant('i32', (10,), -2000, 2000)})")
scores = let(f'requantize{{zero=-5, rounding="tflite"}}({biased}, i32(1500000000), i32(-7))')
body = "\n".join(lines)
Path("resnet8.inl").write_text(
    f'fn main(x: Tensor[1, 3, 16, 16, i8]) {{\n{body}\n  {scores}\n}}\nentry main("x") -> ("scores");\n'
)
module = inlay.load("resnet8.inl")

# ---------------------------------------------------------------------- 8. where it runs, and why
# `inlay explain resnet8.inl --board own.toml --op conv_integer` says for each convolution how many commands
# its stream has, its tiles, and how many cycles of copies pass while something is computed.

found = inlay.explain(module, board="own.toml")
for operation in found.operations:
    print(f"{operation.device:5} {operation.operator[:50]:52} {operation.others}")
taken = [o.operator for o in found.operations if o.device == "npu0"]
# Neighbors that the device takes are one stream of commands, so that weights of the next are copied early.
assert " ".join(taken).count("conv_integer") == 9
assert " ".join(taken).count("matmul_integer") == 1
assert not any("conv" in o.operator or "matmul" in o.operator for o in found.operations if o.device == "cpu")

# ---------------------------------------------------------------------- 9. run it
# Bit for bit what the processor gives, on a device that nobody has built. Who builds it replaces `Mock()`
# by `Library("own_driver.so")`, a shared library with the function `own_run`; then `inlay check own.py`
# holds that against the words' meaning, and `inlay compile resnet8.inl --board own.toml -o resnet8.inlay`
# makes a file that runs where the library is.

x = np.random.default_rng(0).integers(-128, 128, (1, 3, 16, 16)).astype(np.int8)
split = inlay.compile(module, board="own.toml")
assert np.array_equal(split(x), inlay.compile(module)(x))

# What the clock says of each region beside what was predicted: `inlay run --compare`.
compared = command("run", "resnet8.inl", "--board", "own.toml", "--compare", "cpu,npu0")
print(compared.stdout)
assert compared.returncode == 0

os.chdir(before)
temporary.cleanup()
