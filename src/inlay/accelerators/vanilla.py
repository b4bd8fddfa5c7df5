"""An array of multiply-accumulate units in the memory of the host.

A command computes a whole convolution or product of bytes with its bias, in 32 bits; what brings the sums
back to bytes stays with the host. Weights are used where they are: there is no memory of its own and no copy.
Not there: dilation, floats.
"""

from inlay.accel.api import (  # isort: skip
    Accelerator, Dim, Imm, In, Library, MHz, Out, Param, Queue, Shared,
    call, encodes, i8, i32, instruction, nest, pattern,
)  # fmt: skip


class Vanilla(Accelerator):
    """Sums of products of bytes, a C call each."""

    # ---- attributes
    macs = Param(256, "multiply-accumulate units")
    clock = Param(500 * MHz, "cycles in a second")

    # ---- memories, queues
    ram, run = Shared("the memory of the host"), Queue()

    # ---- patterns
    @pattern
    def conv(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        a = p.conv2d(x, w, name="a")
        p.need(lambda m: set(m.a.dilations) <= {1}, "dilations {m.a.dilations}: there are none")
        return p.call(
            a + b, self.convolve, x=x, w=w, b=b, groups=lambda m: m.a.groups, outside=lambda m: m.a.outside,
            down=lambda m: m.a.strides[0], right=lambda m: m.a.strides[1],
            top=lambda m: m.a.pads[0], left=lambda m: m.a.pads[1],
        )  # fmt: skip

    @pattern
    def dense(self, p):
        x, w, b = p.tensor("x", i8), p.const("w", i8), p.const("b", i32)
        return p.call(p.dense(x, w) + b, self.multiply, x=x, w=w, b=b)

    # ---- instructions
    N, C, H, W, K, D = Dim(0), *(Dim(1, 65535) for _ in range(5))  # D: channels that one result reads
    P, Q, R, S = Dim(1, 65535), Dim(1, 65535), Dim(1, 255), Dim(1, 255)

    @instruction(
        run, y=Out(ram, i32, (N, K, P, Q)), x=In(ram, i8, (N, C, H, W)), w=In(ram, i8, (K, D, R, S)),
        b=In(ram, i32, (K,)), groups=Imm(1, 65535), down=Imm(1, 255), right=Imm(1, 255), top=Imm(0, 255),
        left=Imm(0, 255), outside=Imm(-128, 127), cycles=N * K * P * Q * D * R * S // macs + 100,
    )  # fmt: skip
    def convolve(self, y, x, w, b, groups, down, right, top, left, outside):
        channels, of_group = w.shape[0] // groups, w.shape[1]
        for n, k, p, q in nest(y.shape):
            y[n, k, p, q] = b[k]
            for c, r, s in nest(w.shape[1:]):
                at = (k // channels) * of_group + c
                pixel = x.at(n, at, p * down + r - top, q * right + s - left, outside=outside)
                y[n, k, p, q] += i32(pixel) * i32(w[k, c, r, s])

    @instruction(
        run, y=Out(ram, i32, (N, K)), x=In(ram, i8, (N, C)), w=In(ram, i8, (C, K)), b=In(ram, i32, (K,)),
        cycles=N * K * C // macs + 100,
    )  # fmt: skip
    def multiply(self, y, x, w, b):
        for n, k in nest(y.shape):
            y[n, k] = b[k]
            for (c,) in nest(w.shape[0]):
                y[n, k] += i32(x[n, c]) * i32(w[c, k])

    # ---- encoding
    @encodes(convolve)
    def convolution(self, c):
        sizes, window = (c.N, c.C, c.H, c.W, c.K, c.D, c.P, c.Q, c.R, c.S), (c.down, c.right, c.top, c.left)
        return call("vanilla_convolve", c.y, c.x, c.w, c.b, *sizes, c.groups, *window, c.outside)

    @encodes(multiply)
    def product(self, c):
        return call("vanilla_multiply", c.y, c.x, c.w, c.b, c.N, c.C, c.K)

    # ---- drivers
    drivers = (Library("inlay.accelerators._vanilla_model"),)
