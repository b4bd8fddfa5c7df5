"""A matrix engine of bytes with memories of its own, programmed by a stream of words of 192 bits.

Three queues take commands from one stream and run on their own: `load` brings tiles in, `compute` works on
them (and brings its parameters), `store` takes results out. What is computed stands in the memory that is
computed from, so it need not leave before it is read. Neighbors order themselves by tokens: four flags
of every command. Hardware loops walk two levels; a step multiplies `block` bytes by a block of weights.
Copies move rows of whole vectors, and can surround a tile with up to 15 vectors of any number. Results are
rounded as TFLite does (multipliers, shifts) or as ONNX does (floats). Groups: one, or one a channel.
"""

from inlay.accel.api import (
    Accelerator,
    Copy,
    Dim,
    Imm,
    In,
    InOut,
    KiB,
    Library,
    Memory,
    MHz,
    Out,
    Pad,
    Param,
    Queue,
    Record,
    Shared,
    Stream,
    Token,
    Word,
    encodes,
    f32,
    i8,
    i32,
    instruction,
    nest,
    pattern,
    requantize,
    requantize_float,
    rescale,
)


class Strawberry(Accelerator):
    """Convolutions, products and sums of bytes, back to bytes."""

    # ---- attributes
    block = Param(16, "lanes of the matrix engine", choices=(8, 16, 32))
    act_kib, wgt_kib, acc_kib = Param(64), Param(256), Param(128)
    dram_bytes = Param(8, "bytes in a cycle of the memory outside")
    clock = Param(100 * MHz, "cycles in a second")

    # ---- memories (a unit is one step of an address), queues, how queues wait for each other
    dram = Shared("commands say offsets from a base that is set when a stream is started")
    act = Memory(act_kib * KiB, unit=block)
    wgt = Memory(wgt_kib * KiB, unit=block * block)
    acc = Memory(acc_kib * KiB, unit=block * 4)
    par = Memory(4 * KiB, unit=block * 16)
    load, compute, store = Queue(), Queue(), Queue()
    order = (
        Token(load, compute, push="push_next", pop="pop_prev"),
        Token(compute, load, push="push_prev", pop="pop_next"),
        Token(compute, store, push="push_next", pop="pop_prev"),
        Token(store, compute, push="push_prev", pop="pop_next"),
    )
    ld_act = Copy(dram, act, load, 2, Pad(15, Imm(-128, 127)), bytes_per_cycle=dram_bytes, latency=40)
    ld_wgt = Copy(dram, wgt, load, 2, bytes_per_cycle=dram_bytes, latency=40)
    ld_par = Copy(dram, par, compute, 2, bytes_per_cycle=dram_bytes, latency=40)
    st_act = Copy(act, dram, store, 2, bytes_per_cycle=dram_bytes, latency=40)

    # ---- patterns
    @pattern
    def conv(self, p):
        a = p.conv2d(p.tensor("x", i8), p.const("w", i8))
        return p.map(p.requantize(a + p.const("b", i32)))

    @pattern
    def dense(self, p):
        a = p.dense(p.tensor("x", i8), p.const("w", i8))
        return p.map(p.requantize(a + p.const("b", i32)))

    @pattern
    def residual(self, p):
        return p.map(p.requantize(p.scaled_sum(p.tensor("x", i8), p.tensor("z", i8))))

    @pattern
    def residual_float(self, p):
        return p.map(p.requantize(p.weighted_sum(p.tensor("x", i8), p.tensor("z", i8))))

    # ---- instructions: operands in memories of the device have a stride for H and one for W
    H, W = Dim(1, 2**14 - 1), Dim(1, 2**14 - 1)
    area = H * W
    terms, scales = Record(bias=i32, mul=i32, shift=i8), Record(bias=i32, scale=f32)
    joints = Record(bias=i32, mul=i32, scale=f32)
    pixels, sums = (H, W, block), (H, W, block)
    ends = {"zero": Imm(-128, 127), "low": Imm(-128, 127), "high": Imm(-128, 127)}

    @instruction(compute, a=Out(acc, i32, sums), cycles=area + 6)
    def clear(self, a):
        for i, j, o in nest(a.shape):
            a[i, j, o] = 0

    @instruction(
        compute, a=InOut(acc, i32, sums), x=In(act, i8, pixels), w=In(wgt, i8, (block, block)),
        cycles=area + 12,
    )  # fmt: skip
    def gemm(self, a, x, w):
        for i, j, o, k in nest(a.shape, self.block):
            a[i, j, o] += i32(x[i, j, k]) * i32(w[k, o])

    @instruction(
        compute, a=InOut(acc, i32, sums), x=In(act, i8, pixels), w=In(act, i8, (block,)), cycles=area + 12
    )
    def mac(self, a, x, w):
        for i, j, o in nest(a.shape):
            a[i, j, o] += i32(x[i, j, o]) * i32(w[o])

    @instruction(
        compute, y=Out(act, i8, pixels), a=In(acc, i32, sums), t=In(par, terms, (block,)),
        **ends, cycles=area + 8,
    )  # fmt: skip
    def finish(self, y, a, t, zero, low, high):
        for i, j, o in nest(y.shape):
            s = a[i, j, o] + t.bias[o]
            y[i, j, o] = i8(requantize(s, t.mul[o], t.shift[o], zero, low, high, rounding="tflite"))

    @instruction(
        compute, y=Out(act, i8, pixels), a=In(acc, i32, sums), t=In(par, scales, (block,)),
        **ends, cycles=area + 8,
    )  # fmt: skip
    def finish_float(self, y, a, t, zero, low, high):
        for i, j, o in nest(y.shape):
            y[i, j, o] = i8(requantize_float(a[i, j, o] + t.bias[o], t.scale[o], zero, low, high))

    both = {"y": Out(act, i8, pixels), "x": In(act, i8, pixels), "z": In(act, i8, pixels), **ends}

    @instruction(compute, **both, t=In(par, terms, (block,)), cycles=2 * area + 8)
    def add(self, y, x, z, t, zero, low, high):
        for i, j, o in nest(y.shape):
            a = rescale((i32(x[i, j, o]) + t.bias[0]) * 2**20, t.mul[0], t.shift[0], rounding="tflite")
            b = rescale((i32(z[i, j, o]) + t.bias[1]) * 2**20, t.mul[1], t.shift[1], rounding="tflite")
            y[i, j, o] = i8(requantize(a + b, t.mul[2], t.shift[2], zero, low, high, rounding="tflite"))

    @instruction(compute, **both, t=In(par, joints, (block,)), cycles=2 * area + 8)
    def add_float(self, y, x, z, t, zero, low, high):
        for i, j, o in nest(y.shape):
            s = (i32(x[i, j, o]) + t.bias[0]) * t.mul[0] + (i32(z[i, j, o]) + t.bias[1]) * t.mul[1]
            y[i, j, o] = i8(requantize_float(s, t.scale[0], zero, low, high))

    # ---- encoding: flags and addresses are the compiler's
    HEAD = "op:3 pop_prev:1 pop_next:1 push_prev:1 push_next:1 kind:3"
    MOVE = Word(192, HEAD + " chip:16 dram:32 y:16 x:16 stride:16 top:4 bottom:4 left:4 right:4 value:8s")
    SIZES = " i:14 j:14 dst:13 di:13 dj:13 src:13 si:13 sj:13 aux:13 ai:13 aj:13"
    RUN = Word(192, HEAD + SIZES + " par:4 zero:8s low:8s high:8s")
    emit = Stream("strawberry_run", end=RUN(op=3))

    @encodes(emit.nop)
    def wait(self, c):
        op = {"compute": 0, "load": 1, "store": 2}[c.queue]
        return self.RUN(op=op, kind=7, **c.flags) if op == 0 else self.MOVE(op=op, kind=7, **c.flags)

    @encodes(ld_act, ld_wgt, ld_par, st_act)
    def move(self, c):
        kind = {"ld_act": 0, "ld_wgt": 1, "ld_par": 2, "st_act": 3}[c.name]
        return self.MOVE(
            op={"load": 1, "compute": 4, "store": 2}[c.queue], **c.flags, kind=kind, chip=c.chip.at,
            dram=c.dram.at, y=c.y, x=c.x, stride=c.stride, top=c.top, bottom=c.bottom, left=c.left,
            right=c.right, value=c.value,
        )  # fmt: skip

    @encodes(clear)
    def clearing(self, c):
        return self.RUN(**c.flags, i=c.H, j=c.W, dst=c.a.at, di=c.a.stride[0], dj=c.a.stride[1])

    @encodes(gemm, mac)
    def multiply(self, c):
        return self.RUN(
            **c.flags, kind=1 if c.name == "gemm" else 2, i=c.H, j=c.W, dst=c.a.at, di=c.a.stride[0],
            dj=c.a.stride[1], src=c.x.at, si=c.x.stride[0], sj=c.x.stride[1], aux=c.w.at,
        )  # fmt: skip

    @encodes(finish, finish_float)
    def close(self, c):
        return self.RUN(
            **c.flags, kind=3 if c.name == "finish" else 4, i=c.H, j=c.W, dst=c.y.at, di=c.y.stride[0],
            dj=c.y.stride[1], src=c.a.at, si=c.a.stride[0], sj=c.a.stride[1], par=c.t.at, zero=c.zero,
            low=c.low, high=c.high,
        )  # fmt: skip

    @encodes(add, add_float)
    def join(self, c):
        return self.RUN(
            **c.flags, kind=5 if c.name == "add" else 6, i=c.H, j=c.W, dst=c.y.at, di=c.y.stride[0],
            dj=c.y.stride[1], src=c.x.at, si=c.x.stride[0], sj=c.x.stride[1], aux=c.z.at, ai=c.z.stride[0],
            aj=c.z.stride[1], par=c.t.at, zero=c.zero, low=c.low, high=c.high,
        )  # fmt: skip

    # ---- drivers, cost
    drivers = (Library("inlay.accelerators._strawberry_model"),)
    launch_cycles = 200
