"""Gemmini: a systolic array of bytes with a scratchpad and an accumulator, a coprocessor of a RISC-V core.

What is said here is from the README of its generator (github.com/ucb-bar/gemmini, "Memory Addressing Scheme"
and "ISA") and from the macros of its header, for the default configuration: 16 x 16 units, weights
stationary, a scratchpad of 256 KiB in rows of 16 bytes, an accumulator of 64 KiB in rows of 16 sums.

A stream is a trace of the custom instructions of the core: `funct`, and the registers `rs1` and `rs2`.
Strides are registers that a `config` sets before each command that needs them. Loads, execution and stores
run side by side, and the reservation station orders them by the local addresses that they touch. Those count
rows; bit 31 is the accumulator, with bit 30 what arrives is added, with bit 29 sums are read in full.
Rows 0 to 8191 of the scratchpad are for activations here, the others for weights, 16 rows a block.
Addresses of main memory are offsets; who runs the trace adds the base to `rs1` of `mvin` and `mvout`.
Not used: scaling and activation on the way out (it has no zero points: sums go out in full, what brings
them back to bytes stays with the host), pooling, transposition, the loops in hardware. Not there: groups, and
numbers around an image. Cycles are about: what a load, a product and a store take once they are issued.
"""

from inlay.accel.api import (  # isort: skip
    Accelerator, Copy, Dim, In, InOut, Interlock, KiB, Library, Memory, MHz, Out, Param, Queue, Shared,
    Stream, Word, encodes, i8, i32, instruction, nest, pattern,
)  # fmt: skip


class Gemmini(Accelerator):
    """Convolutions and products of bytes, in sums of 32 bits."""

    # ---- attributes
    clock = Param(1000 * MHz, "cycles in a second")
    bus = Param(16, "bytes in a cycle of the memory bus")

    # ---- memories, queues, copies
    dram = Shared("main memory", align=64)
    act = Memory(128 * KiB, unit=16)
    wgt = Memory(128 * KiB, unit=16 * 16)
    acc = Memory(64 * KiB, unit=16 * 4)
    load, execute, store = Queue(), Queue(), Queue()
    order = (Interlock(load, execute, store),)
    mvin = Copy(dram, act, load, 1, bytes_per_cycle=bus, latency=8, most=16)
    mvin2 = Copy(dram, wgt, load, 1, bytes_per_cycle=bus, latency=8, most=1)
    mvout = Copy(acc, dram, store, 1, bytes_per_cycle=bus, latency=8, most=16)

    # ---- patterns
    @pattern
    def conv(self, p):
        return p.map(p.conv2d(p.tensor("x", i8), p.const("w", i8)))

    @pattern
    def dense(self, p):
        return p.map(p.dense(p.tensor("x", i8), p.const("w", i8)))

    # ---- instructions
    N = Dim(1, 16)

    @instruction(execute, c=Out(acc, i32, (N, 16)), cycles=N + 16)
    def zero(self, c):
        for i, j in nest(c.shape):
            c[i, j] = 0

    @instruction(
        execute, c=InOut(acc, i32, (N, 16)), a=In(act, i8, (N, 16)), b=In(wgt, i8, (16, 16)), cycles=N + 16
    )
    def matmul(self, c, a, b):
        for i, j, k in nest(c.shape, 16):
            c[i, j] += i32(a[i, k]) * i32(b[k, j])

    # ---- encoding: fields from the lowest bit on; an address in units leaves the bits of bytes or rows 0
    SIZE = " cols:16 rows:16"
    INTO = " c:29 full:1 add:1 acc:1" + SIZE
    CONFIG_MOVE = Word(136, "funct:8 what:2 narrow:1 which:2 free:27 scale:32 stride:64")
    CONFIG_EX = Word(
        136, "funct:8 what:2 stationary:1 free:13 a_stride:16 scale:32 shift:32 more:16 c_stride:16"
    )
    MVIN = Word(136, "funct:8 byte:4 dram:60 row:13 wgt:19" + SIZE)
    MVIN_BLOCK = Word(136, "funct:8 byte:8 dram:56 row:4 block:9 wgt:19 cols:16 row_of_block:4 blocks:12")
    MVOUT = Word(136, "funct:8 byte:6 dram:58 row:29 full:1 add:1 acc:1" + SIZE)
    PRELOAD = Word(136, "funct:8 row:4 block:9 wgt:19 b_cols:16 b_rows:16" + INTO)
    PRELOAD_ZERO = Word(136, "funct:8 b:32 b_cols:16 b_rows:16" + INTO)
    COMPUTE = Word(136, "funct:8 a:32 a_cols:16 a_rows:16 d:32 d_cols:16 d_rows:16")
    NONE = 2**32 - 1  # instead of a local address
    emit = Stream("gemmini_run", end=Word(136, "funct:8")(funct=127), align=64)

    @encodes(mvin)
    def move_in(self, c):
        stride = self.CONFIG_MOVE(funct=0, what=1, which=0, stride=16)
        return stride, self.MVIN(funct=2, dram=c.dram.at, row=c.chip.at, cols=16, rows=c.x)

    @encodes(mvin2)
    def move_weights_in(self, c):
        stride = self.CONFIG_MOVE(funct=0, what=1, which=1, stride=16)
        return stride, self.MVIN_BLOCK(funct=1, dram=c.dram.at, block=c.chip.at, wgt=1, cols=16, blocks=c.x)

    @encodes(mvout)
    def move_out(self, c):
        stride = self.CONFIG_MOVE(funct=0, what=2, stride=64)
        return stride, self.MVOUT(funct=3, dram=c.dram.at, row=c.chip.at, full=1, acc=1, cols=16, rows=c.x)

    @encodes(zero)
    def clearing(self, c):
        strides = self.CONFIG_EX(funct=0, what=0, stationary=1, a_stride=1, c_stride=c.c.stride[0])
        into = {"c": c.c.at, "acc": 1, "cols": 16, "rows": c.N}
        weights = self.PRELOAD_ZERO(funct=6, b=self.NONE, b_cols=16, b_rows=16, **into)
        return strides, weights, self.COMPUTE(funct=4, a=self.NONE, a_cols=16, a_rows=c.N, d=self.NONE)

    @encodes(matmul)
    def multiplying(self, c):
        a_stride, c_stride = c.a.stride[0], c.c.stride[0]
        strides = self.CONFIG_EX(funct=0, what=0, stationary=1, a_stride=a_stride, c_stride=c_stride)
        into = {"c": c.c.at, "add": 1, "acc": 1, "cols": 16, "rows": c.N}
        weights = self.PRELOAD(funct=6, block=c.b.at, wgt=1, b_cols=16, b_rows=16, **into)
        return strides, weights, self.COMPUTE(funct=4, a=c.a.at, a_cols=16, a_rows=c.N, d=self.NONE)

    # ---- drivers, cost
    drivers = (Library("inlay.accelerators._gemmini_model"),)
    launch_cycles = 100
