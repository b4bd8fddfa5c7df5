"""A vector unit: sums of two tensors of bytes with scales of their own, in a memory of its own.

Three queues as in `strawberry`: `load` brings vectors in, `run` adds them, `store` takes them out, or back to
where sums read. Results are rounded as TFLite does (multipliers, shifts) or as ONNX does (floats).
"""

from inlay.accel.api import (
    Accelerator,
    Copy,
    Dim,
    Imm,
    In,
    KiB,
    Library,
    Memory,
    MHz,
    Out,
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


class VectorUnit(Accelerator):
    """Sums of bytes."""

    # ---- attributes, memories, queues
    lanes = Param(64, "bytes of a vector", choices=(16, 32, 64))
    clock = Param(100 * MHz, "cycles in a second")
    dram = Shared("commands say offsets from a base that is set when a stream is started")
    vec = Memory(32 * KiB, unit=lanes)
    out = Memory(16 * KiB, unit=lanes)
    par = Memory(4 * KiB, unit=lanes * 16)
    load, run, store = Queue(), Queue(), Queue()
    order = (
        Token(load, run, push="push_next", pop="pop_prev"),
        Token(run, load, push="push_prev", pop="pop_next"),
        Token(run, store, push="push_next", pop="pop_prev"),
        Token(store, run, push="push_prev", pop="pop_next"),
    )
    ld_vec = Copy(dram, vec, load, 2, bytes_per_cycle=32, latency=20)
    ld_par = Copy(dram, par, run, 2, bytes_per_cycle=32, latency=20)
    st_out = Copy(out, dram, store, 2, bytes_per_cycle=32, latency=20)
    back = Copy(out, vec, store, 2, bytes_per_cycle=64, latency=4)

    # ---- patterns
    @pattern
    def residual(self, p):
        return p.map(p.requantize(p.scaled_sum(p.tensor("x", i8), p.tensor("z", i8))))

    @pattern
    def residual_float(self, p):
        return p.map(p.requantize(p.weighted_sum(p.tensor("x", i8), p.tensor("z", i8))))

    # ---- instructions
    N = Dim(1, 1023)
    terms, joints = Record(bias=i32, mul=i32, shift=i8), Record(bias=i32, mul=i32, scale=f32)
    ends = {"zero": Imm(-128, 127), "low": Imm(-128, 127), "high": Imm(-128, 127)}

    @instruction(
        run, y=Out(out, i8, (N, lanes)), x=In(vec, i8, (N, lanes)), z=In(vec, i8, (N, lanes)),
        t=In(par, terms, (lanes,)), **ends, cycles=N + 10,
    )  # fmt: skip
    def add(self, y, x, z, t, zero, low, high):
        for n, o in nest(y.shape):
            a = rescale((i32(x[n, o]) + t.bias[0]) * 2**20, t.mul[0], t.shift[0], rounding="tflite")
            b = rescale((i32(z[n, o]) + t.bias[1]) * 2**20, t.mul[1], t.shift[1], rounding="tflite")
            y[n, o] = i8(requantize(a + b, t.mul[2], t.shift[2], zero, low, high, rounding="tflite"))

    @instruction(
        run, y=Out(out, i8, (N, lanes)), x=In(vec, i8, (N, lanes)), z=In(vec, i8, (N, lanes)),
        t=In(par, joints, (lanes,)), **ends, cycles=N + 10,
    )  # fmt: skip
    def add_float(self, y, x, z, t, zero, low, high):
        for n, o in nest(y.shape):
            s = (i32(x[n, o]) + t.bias[0]) * t.mul[0] + (i32(z[n, o]) + t.bias[1]) * t.mul[1]
            y[n, o] = i8(requantize_float(s, t.scale[0], zero, low, high))

    # ---- encoding
    HEAD = "op:3 pop_prev:1 pop_next:1 push_prev:1 push_next:1"
    MOVE = Word(128, HEAD + " chip:12 dram:32 y:16 x:16 stride:16 inside:1")
    ADD = Word(128, HEAD + " n:10 y:9 dy:9 x:10 dx:10 z:10 dz:10 par:3 zero:8s low:8s high:8s floats:1")
    emit = Stream("vector_unit_run", end=ADD(op=7))

    @encodes(emit.nop)
    def wait(self, c):
        return self.ADD(op={"load": 4, "run": 5, "store": 6}[c.queue], **c.flags)

    @encodes(ld_vec, ld_par, st_out, back)
    def move(self, c):
        op = {"ld_vec": 1, "ld_par": 2, "st_out": 3, "back": 3}[c.name]
        inside = c.name == "back"
        other = c.to if inside else c.dram
        return self.MOVE(
            op=op, **c.flags, chip=c.chip.at, dram=other.at, y=c.y, x=c.x, stride=c.stride, inside=inside
        )

    @encodes(add, add_float)
    def adding(self, c):
        return self.ADD(
            **c.flags, n=c.N, y=c.y.at, dy=c.y.stride[0], x=c.x.at, dx=c.x.stride[0], z=c.z.at,
            dz=c.z.stride[0], par=c.t.at, zero=c.zero, low=c.low, high=c.high,
            floats=int(c.name == "add_float"),
        )  # fmt: skip

    # ---- drivers, cost
    drivers = (Library("inlay.accelerators._vector_unit_model"),)
    launch_cycles = 100
