"""Sessions of a decoder whose keys and values grow: where they are, against calls that give them back.

    python benchmarks/sessions.py [--layers N] [--steps N] [--threads N]

The decoder is that of `weights.py` with a cache of any length that each step gives back one longer, as
decoders are exported to ONNX. Both ways take turns, step by step, in one process; outputs and state must be
equal to the bit. For stretches of steps: the median of a step in each way, of their ratio, and what the
machine copied in a step of the session: the median, and the most, which is a step that takes twice the room.
"""

from __future__ import annotations

import argparse
import statistics
import time

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


def _value(name: str, shape: tuple[int | str, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    model = GrowingDecoder(32, 32, arguments.layers).model()
    executable = inlay.compile(model, threads=arguments.threads, cache="none")
    session, output = executable.session(), executable.outputs[0].name
    state, random = session.state, np.random.default_rng(0)
    times: list[tuple[float, float]] = []
    copied: list[int] = []
    for _ in range(arguments.steps):
        x = random.standard_normal((1, WIDTH)).astype(np.float32)
        begun = time.perf_counter()
        found = session.run({"x": x})[output]
        between = time.perf_counter()
        copied.append(executable.usage().copied_bytes)
        middle = time.perf_counter()
        given_back = executable.run({**state, "x": x})
        times.append((between - begun, time.perf_counter() - middle))
        state = {n: given_back[n.replace("past_key_values", "present")] for n in state}
        if not np.array_equal(found, given_back[output]):
            raise SystemExit("an output differs from that of calls that give state back")
    if not all(np.array_equal(session.state[n], state[n]) for n in state):
        raise SystemExit("the state differs from that of calls that give it back")
    print(f"{'steps':>12}{'session ms':>12}{'given back':>12}{'ratio':>8}{'copied':>10}{'at most':>12}")
    end = 64
    while end <= arguments.steps:
        begin = end // 2 if end > 64 else 0
        mine, other = (statistics.median(t[k] for t in times[begin:end]) * 1e3 for k in (0, 1))
        ratio = statistics.median(b / a for a, b in times[begin:end])
        row = f"{begin:6}-{end:<6}{mine:11.3f}{other:12.3f}{ratio:8.2f}"
        print(row + f"{statistics.median(copied[begin:end]):10.0f}{max(copied[begin:end]):12}")
        end *= 2


if __name__ == "__main__":
    main()
