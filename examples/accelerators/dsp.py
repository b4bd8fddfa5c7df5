"""A vector DSP that reads the memory of the host: convolutions of each channel by itself, a C call each.

A command is a whole layer, as in libraries of kernels for such processors: products in 32 bits, their bias,
and what brings them back to bytes as TFLite does. `Mock()` stands for the DSP; who has one writes
`Library("libdsp.so")`, with the function that `filtering` names.
Not there: sums over channels, dilation, other roundings.
"""

from inlay.accel.api import (
    Accelerator,
    Dim,
    Imm,
    In,
    Local,
    MHz,
    Mock,
    Out,
    Param,
    Queue,
    Shared,
    call,
    encodes,
    i8,
    i32,
    instruction,
    nest,
    pattern,
    requantize,
)


class Dsp(Accelerator):
    """Filters with 128 lanes."""

    # ---- attributes, memories, queues
    ram, run, clock = Shared(), Queue(), Param(800 * MHz)

    # ---- patterns
    @pattern
    def depthwise(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        mul, shift = p.const("mul", i32), p.const("shift", i32)
        a = p.conv2d(x, w, name="a")
        y = p.requantize(a + b, mul, shift, rounding="tflite", name="y")
        p.need(lambda m: set(m.a.dilations) <= {1}, "dilations {m.a.dilations}: there are none")
        p.need(lambda m: m.a.groups == m.x.shape[1], "groups {m.a.groups}: one for each channel")
        return p.call(
            y, self.filter, x=x, w=w, b=b, mul=mul, shift=shift, outside=lambda m: m.a.outside,
            down=lambda m: m.a.strides[0], right=lambda m: m.a.strides[1],
            top=lambda m: m.a.pads[0], left=lambda m: m.a.pads[1],
            zero=lambda m: m.y.zero, low=lambda m: m.y.low, high=lambda m: m.y.high,
        )  # fmt: skip

    # ---- instructions
    N, C, H, W, P, Q, R, S = Dim(0), *(Dim(1, 4096) for _ in range(7))

    @instruction(
        run, y=Out(ram, i8, (N, C, P, Q)), x=In(ram, i8, (N, C, H, W)), w=In(ram, i8, (C, 1, R, S)),
        b=In(ram, i32, (C,)), mul=In(ram, i32, (C,)), shift=In(ram, i32, (C,)), down=Imm(1, 7),
        right=Imm(1, 7), top=Imm(0, 15), left=Imm(0, 15), outside=Imm(-128, 127), zero=Imm(-128, 127),
        low=Imm(-128, 127), high=Imm(-128, 127), cycles=N * C * P * Q * R * S // 128 + 100,
    )  # fmt: skip
    def filter(self, y, x, w, b, mul, shift, down, right, top, left, outside, zero, low, high):
        for n, c, p, q in nest(y.shape):
            a = Local(i32, b[c])
            for r, s in nest(w.shape[2:]):
                pixel = x.at(n, c, p * down + r - top, q * right + s - left, outside=outside)
                a.value += i32(pixel) * i32(w[c, 0, r, s])
            y[n, c, p, q] = i8(requantize(a.value, mul[c], shift[c], zero, low, high, rounding="tflite"))

    # ---- encoding
    @encodes(filter)
    def filtering(self, c):
        sizes, window = (c.N, c.C, c.H, c.W, c.P, c.Q, c.R, c.S), (c.down, c.right, c.top, c.left)
        ends = (c.outside, c.zero, c.low, c.high)
        return call("dsp_filter", c.y, c.x, c.w, c.b, c.mul, c.shift, *sizes, *window, *ends)

    # ---- drivers
    drivers = (Mock(),)
