"""A fixed-function unit for recurrent layers: one command computes a whole LSTM layer of floats.

A command has a sequence of rows, the weights of four gates beside each other in any order, and the states;
it leaves the state after each row, and both states after the last. It can begin with the last row, and
limits the cell to a range. Its order of sums is its meaning: a bias, products of the row from the first to
the last, those of the state, a second bias. The tanh is a quotient of polynomials, off by less than 1e-6.
Not there: peepholes, projections, sequences of different lengths.
"""

from inlay.accel.api import (  # isort: skip
    Accelerator, Dim, Imm, In, KiB, Library, MHz, Out, Param, Queue, Shared, Temp,
    at_most, call, encodes, f32, instruction, maximum, minimum, nest, pattern,
)  # fmt: skip

ODD = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
       1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
EVEN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
INFINITY = float("inf")


def tanh(x):
    """Return an odd polynomial over an even one, where neither is constant."""
    x = minimum(maximum(x, -7.90531110763549805), 7.90531110763549805)
    square, over, under = x * x, ODD[0], EVEN[0]
    for c in ODD[1:]:
        over = square * over + c
    for c in EVEN[1:]:
        under = square * under + c
    return x * over / under


def sigmoid(x):
    """Return half of the tanh of half of it, about one half."""
    return tanh(x * 0.5) * 0.5 + 0.5


class LstmEngine(Accelerator):
    """LSTM layers, a C call each."""

    # ---- attributes
    macs = Param(64, "multiply-accumulate units")
    weight_kib = Param(512, "KiB for the weights of the state, which every row reads")
    clock = Param(400 * MHz, "cycles in a second")

    # ---- memories, queues
    ram, run = Shared("the memory of the host"), Queue()

    # ---- patterns: products of the rows before the loop, or in each of its turns
    @pattern
    def layer(self, p):
        return self.of_form(p, inside=False)

    @pattern
    def cell(self, p):
        return self.of_form(p, inside=True)

    def of_form(self, p, inside):
        x, h0, c0 = p.tensor("x", f32), p.tensor("h0"), p.tensor("c0")
        w, b, r, br, low, high = (p.const(name, f32) for name in ("w", "b", "r", "br", "low", "high"))

        def product(rows):
            return p.maybe("add", p.op("matmul", rows, w), b, otherwise=0.0)

        def step(row, h, c):
            sums = (product(row) if inside else row) + p.op("matmul", h, r)
            gates = p.maybe("add", sums, br, otherwise=0.0)
            into, forget, new, out = (p.part(gates, of=4, name=g) for g in ("into", "forget", "new", "out"))
            kept = p.op("mul", p.op("sigmoid", forget), c)
            made = p.op("mul", p.op("sigmoid", into), p.op("tanh", new))
            cell = p.maybe("maximum", kept + made, low, otherwise=-INFINITY)
            cell = p.maybe("minimum", cell, high, otherwise=INFINITY)
            return p.op("mul", p.op("sigmoid", out), p.op("tanh", cell)), cell

        over = x if inside else product(x)
        y, h, c = p.repeat(step, over, (h0, c0), times=(1, 256), name="rows")
        return p.call(
            (y, h, c), self.lstm, x=x, w=w, b=b, r=r, br=br, h0=h0, c0=c0, low=low, high=high,
            backward=lambda m: m.rows.backward, into=lambda m: m.into.index, forget=lambda m: m.forget.index,
            new=lambda m: m.new.index, out=lambda m: m.out.index,
        )  # fmt: skip

    # ---- instructions
    T, B, D, H = Dim(1, 256), Dim(0), Dim(1, 4096), Dim(1, 1024)  # rows, sequences, features, state
    G, state = 4 * H, (B, H)

    @instruction(
        run, y=Out(ram, f32, (T, B, H)), h=Out(ram, f32, state), c=Out(ram, f32, state),
        gates=Temp(ram, f32, (B, G)), x=In(ram, f32, (T, B, D)), w=In(ram, f32, (D, G)), b=In(ram, f32, (G,)),
        r=In(ram, f32, (H, G)), br=In(ram, f32, (G,)), h0=In(ram, f32, state), c0=In(ram, f32, state),
        low=In(ram, f32, ()), high=In(ram, f32, ()), backward=Imm(0, 1), into=Imm(0, 3), forget=Imm(0, 3),
        new=Imm(0, 3), out=Imm(0, 3), cycles=T * B * (G * (D + H) // macs + 4 * H) + 200,
        needs=(at_most(H * G * 4, weight_kib * KiB, "bytes of the weights of the state"),),
    )  # fmt: skip
    def lstm(self, y, h, c, gates, x, w, b, r, br, h0, c0, low, high, backward, into, forget, new, out):
        steps, batch, size = y.shape
        for n, j in nest(batch, size):
            h[n, j] = h0[n, j]
            c[n, j] = c0[n, j]
        for (t,) in nest(steps):
            at = t + backward * (steps - 1 - 2 * t)
            for n, g in nest(gates.shape):
                gates[n, g] = b[g]
                for (i,) in nest(w.shape[0]):
                    gates[n, g] += x[at, n, i] * w[i, g]
                for (k,) in nest(size):
                    gates[n, g] += h[n, k] * r[k, g]
                gates[n, g] += br[g]
            for n, j in nest(batch, size):
                kept = sigmoid(gates[n, forget * size + j]) * c[n, j]
                made = sigmoid(gates[n, into * size + j]) * tanh(gates[n, new * size + j])
                c[n, j] = minimum(maximum(kept + made, low[()]), high[()])
                h[n, j] = sigmoid(gates[n, out * size + j]) * tanh(c[n, j])
                y[at, n, j] = h[n, j]

    # ---- encoding
    @encodes(lstm)
    def layers(self, c):
        read = (c.x, c.w, c.b, c.r, c.br, c.h0, c.c0, c.low, c.high)
        how = (c.backward, c.into, c.forget, c.new, c.out)
        return call("lstm_engine_layer", c.y, c.h, c.c, c.gates, *read, c.T, c.B, c.D, c.H, *how)

    # ---- drivers
    drivers = (Library("inlay.accelerators._lstm_engine_model"),)
