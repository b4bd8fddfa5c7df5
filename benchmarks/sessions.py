"""Sessions of a decoder whose keys and values stay where they are, against calls that give them back.

    python benchmarks/sessions.py [--layers N] [--steps N] [--threads N] [--rows R ..]

The decoder is that of `weights.py` with a cache of any length that each step gives back one longer, as
decoders are exported to ONNX; then with tables of a fixed size, R rows, of which each step replaces one
(`ScatterND`, as static caches are exported), and the tables alone, without the decoder. Both ways take
turns, step by step, in one process; outputs and state must be equal to the bit. For stretches of steps: the
median of a step in each way, of their ratio, and what the machine copied in a step of the session: the
median, and the most, which is a step that takes twice the room; and in a step that gives back, beside what
its kernels copy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

import inlay
from weights import HEADS, WIDTH, Decoder

OF_HEAD = WIDTH // HEADS


class GrowingDecoder(Decoder):
    """The decoder, with pairs `past_key_values.I.key` and `present.I.key`."""

    def attention(self, x: str, layer: int) -> str:
        """Add the attention of one token to all that were, and give those back with it."""
        each = self.product(x, WIDTH, 3 * WIDTH)
        ends = self.constant(np.array([WIDTH] * 3, np.int64))
        parts = [f"{part}{layer}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [each, ends], parts, axis=1))
        heads = self.constant(np.array([1, 1, HEADS, OF_HEAD], np.int64))
        q, k, v = (self.op("Transpose", self.op("Reshape", p, heads), perm=[0, 2, 1, 3]) for p in parts)
        for kind, new in (("key", k), ("value", v)):
            past, present = f"past_key_values.{layer}.{kind}", f"present.{layer}.{kind}"
            self.inputs.append(_value(past, (1, HEADS, "past", OF_HEAD)))
            self.nodes.append(helper.make_node("Concat", [past, new], [present], axis=2))
        keys, values = f"present.{layer}.key", f"present.{layer}.value"
        scores = self.op("MatMul", q, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.constant(np.float32(OF_HEAD**-0.5).reshape(())))
        mixed = self.op("MatMul", self.op("Softmax", scaled, axis=-1), values)
        row = self.constant(np.array([1, WIDTH], np.int64))
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), row)
        return self.product(joined, WIDTH, WIDTH)

    def model(self) -> onnx.ModelProto:
        """Return what was written."""
        model = super().model()
        presents = [n.output[0] for n in self.nodes if n.op_type == "Concat"]
        model.graph.output.extend(_value(p, (1, HEADS, "total", OF_HEAD)) for p in presents)
        return model


class FixedDecoder(Decoder):
    """The decoder, with tables of so many rows of which a step replaces the one at `position`."""

    def __init__(self, layers: int, rows: int) -> None:
        self.rows = rows
        self.presents: list[str] = []
        super().__init__(32, 32, layers)

    def table(self, name: str, new: str) -> str:
        """Add a table of which a row is replaced; return it as it is then."""
        past, present = f"past_{name}", f"present_{name}"
        self.inputs.append(_value(past, (self.rows, WIDTH)))
        at = self.op("Reshape", "position", self.constant(np.array([1, 1], np.int64)))
        self.nodes.append(helper.make_node("ScatterND", [past, at, new], [present]))
        self.presents.append(present)
        return present

    def attention(self, x: str, layer: int) -> str:
        """Add the attention of one token to the rows up to its own."""
        each = self.product(x, WIDTH, 3 * WIDTH)
        ends = self.constant(np.array([WIDTH] * 3, np.int64))
        q, k, v = (f"{part}{layer}" for part in ("query", "key", "value"))
        self.nodes.append(helper.make_node("Split", [each, ends], [q, k, v], axis=1))
        heads = self.constant(np.array([-1, HEADS, OF_HEAD], np.int64))
        tables = (self.table(f"{kind}{layer}", new) for kind, new in (("key", k), ("value", v)))
        q, k, v = (self.op("Transpose", self.op("Reshape", t, heads), perm=[1, 0, 2]) for t in (q, *tables))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 2, 1]))
        scaled = self.op("Mul", scores, self.constant(np.float32(OF_HEAD**-0.5).reshape(())))
        seen = self.op("LessOrEqual", self.constant(np.arange(self.rows)), "position")
        masked = self.op("Where", seen, scaled, self.constant(np.float32(-1e9).reshape(())))
        mixed = self.op("MatMul", self.op("Softmax", masked, axis=-1), v)
        row = self.constant(np.array([1, WIDTH], np.int64))
        return self.product(
            self.op("Reshape", self.op("Transpose", mixed, perm=[1, 0, 2]), row), WIDTH, WIDTH
        )

    def model(self) -> onnx.ModelProto:
        """Return what was written."""
        model = super().model()
        model.graph.input.append(helper.make_tensor_value_info("position", TensorProto.INT64, ()))
        model.graph.output.extend(_value(p, (self.rows, WIDTH)) for p in self.presents)
        return model


class Tables(FixedDecoder):
    """The tables of a decoder without it: each step replaces a row of each, and adds them up."""

    def attention(self, x: str, layer: int) -> str:
        """Add two tables and the sum of a row of each."""
        for kind in ("key", "value"):
            present = self.table(f"{kind}{layer}", x)
            row = self.op("Gather", present, "position", axis=0)
            x = self.op("Add", x, self.op("Reshape", row, self.constant(np.array([1, WIDTH], np.int64))))
        return x

    def product(self, x: str, k: int, n: int) -> str:
        """Leave products out."""
        del k, n
        return x


def _value(name: str, shape: tuple[int | str, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def measured(
    executable: inlay.Executable, steps: int, carry: Mapping[str, str], position: int | None
) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    """Return times of steps of both ways in seconds, and bytes that the machine copied in them."""
    first = {n: np.zeros(_shape(executable, n), np.float32) for n in carry.values()}
    session, output = executable.session(carry, first), executable.outputs[0].name
    state, random = dict(first), np.random.default_rng(0)
    times: list[tuple[float, float]] = []
    copied: list[tuple[int, int]] = []
    for i in range(steps):
        given = {"x": random.standard_normal((1, WIDTH)).astype(np.float32)}
        if position is not None:
            given["position"] = np.array(i % position)
        begun = time.perf_counter()
        found = session.run(given)[output]
        between = time.perf_counter()
        kept = executable.usage().copied_bytes
        middle = time.perf_counter()
        given_back = executable.run({**state, **given})
        times.append((between - begun, time.perf_counter() - middle))
        copied.append((kept, executable.usage().copied_bytes))
        state = {to: given_back[name] for name, to in carry.items()}
        if not np.array_equal(found, given_back[output]):
            raise SystemExit("an output differs from that of calls that give state back")
    if not all(np.array_equal(session.state[n], state[n]) for n in state):
        raise SystemExit("the state differs from that of calls that give it back")
    return times, copied


def _shape(executable: inlay.Executable, name: str) -> list[int]:
    """Return the shape of the first value of a state: without rows where their number is not known."""
    (spec,) = (s for s in executable.inputs if s.name == name)
    return [d if isinstance(d, int) else 0 for d in spec.shape]  # type: ignore[union-attr]


def row(title: str, times: Sequence[tuple[float, float]], copied: Sequence[tuple[int, int]]) -> None:
    """Print what a stretch of steps took."""
    mine, other = (statistics.median(t[k] for t in times) * 1e3 for k in (0, 1))
    ratio = statistics.median(b / a for a, b in times)
    kept, back = ([c[k] for c in copied] for k in (0, 1))
    text = f"{title:>18}{mine:12.3f}{other:12.3f}{ratio:8.2f}{statistics.median(kept):10.0f}{max(kept):12}"
    print(f"{text}{statistics.median(back):12.0f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="*", default=[1024, 4096])
    arguments = parser.parse_args()
    print(
        f"{'steps':>18}{'session ms':>12}{'given back':>12}{'ratio':>8}"
        f"{'copied':>10}{'at most':>12}{'given back':>12}"
    )
    model = GrowingDecoder(32, 32, arguments.layers).model()
    executable = inlay.compile(model, threads=arguments.threads, cache="none")
    pasts = [spec.name for spec in executable.inputs if spec.name.startswith("past")]
    carry = {n.replace("past_key_values", "present"): n for n in pasts}
    times, copied = measured(executable, arguments.steps, carry, None)
    end = 64
    while end <= arguments.steps:
        begin = end // 2 if end > 64 else 0
        row(f"{begin}-{end}", times[begin:end], copied[begin:end])
        end *= 2
    for rows in arguments.rows:
        for name, kind in (("decoder", FixedDecoder), ("tables", Tables)):
            fixed = kind(arguments.layers, rows)
            executable = inlay.compile(fixed.model(), threads=arguments.threads, cache="none")
            carry = {p: p.replace("present", "past") for p in fixed.presents}
            times, copied = measured(executable, min(arguments.steps, 200), carry, rows)
            row(f"{name}, {rows} rows", times[4:], copied[4:])


if __name__ == "__main__":
    main()
