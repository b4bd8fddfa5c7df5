"""A server of decoders: sessions at the same time, against requests one by one and a batcher by hand.

    python benchmarks/serve.py [--sessions 8 32 128] [--layers N] [--threads N] [--program step|greedy]
    python benchmarks/serve.py --overload SECONDS

`step` is a step of a decoder like GPT-2 (`weights.py`): each token is a request, with a cache of its session.
`greedy` generates in the program: a request is a whole answer, until its length. Sessions begin at random
(Poisson), their lengths are random. All outputs are compared with those of running alone, bit by bit. The
peer is onnxruntime with a batch axis, driven by a batcher that takes what waits. Figures are tokens a
second of the wall clock, latencies of requests in milliseconds; on a loaded machine only ratios say
something.

`--overload` measures how many requests a second are served, offers twice as many with a deadline and a
bounded queue, and counts: done, refused, late, lost; how late deadlines were told; resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import inlay
from inlay.base.diagnostics import RunError
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable
from weights import HEADS, PAST, WIDTH, Decoder

_GREEDY = """
fn cell(x: Tensor[1, {d}, f32], h: Tensor[1, {d}, f32]) -> Tensor[1, {d}, f32] {{
  tanh(matmul(concat{{axis=1}}(x, h), f32[{d2}, {d}](#"cell")))
}}

fn go(h: Tensor[1, {d}, f32], token: some int t. int[t], n: some int n. int[n], last: Tensor[1, {v}, f32])
    -> Tensor[1, {v}, f32] {{
  if (int_less(int(n), int(1))) {{ last }} else {{
    let row = reshape(get_row(f32[{v}, {d}](#"words"), int(t)), shape(1, {d}));
    let state = @cell(row, h);
    let scores = matmul(state, f32[{d}, {v}](#"out"));
    let best: some int b. int[b] = to_control(reshape(argmax{{axis=1, keepdims=false}}(scores), shape()));
    @go(state, int(b), int(n - 1), scores)
  }}
}}

fn main(token: some int t. int[t], n: some int n. int[n]) -> Tensor[1, {v}, f32] {{
  @go(zeros(shape(1, {d})), int(t), int(n), zeros(shape(1, {v})))
}}

entry main("token", "n") -> ("scores");
"""

Inputs = dict[str, np.ndarray]

_ANSWERS = 128
"""Sessions fewer than this ask for several answers one after the other, so that they are at work together
for longer than they take to begin and to end."""


@dataclass
class Load:
    """Sessions: when each begins, and the inputs of its requests; and what a request makes of tokens."""

    begins: list[float]
    requests: list[list[Inputs]]
    tokens: int


class Batched(Decoder):
    """The same decoder with a batch axis, for the peer."""

    def attention(self, x: str, layer: int) -> str:
        """Add the attention of one token of each session to those of its cache."""
        each, of_head = self.product(x, WIDTH, 3 * WIDTH), WIDTH // HEADS
        ends = self.constant(np.array([WIDTH] * 3, np.int64))
        names = [f"{part}{layer}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [each, ends], names, axis=1))
        heads = self.constant(np.array([-1, HEADS, 1, of_head], np.int64))
        q, k, v = (self.op("Reshape", n, heads) for n in names)
        for kind in ("k", "v"):
            self.inputs.append(_value(f"past_{kind}{layer}", ("b", HEADS, PAST, of_head)))
        keys = self.op("Concat", f"past_k{layer}", k, axis=2)
        values = self.op("Concat", f"past_v{layer}", v, axis=2)
        scores = self.op("MatMul", q, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.constant(np.float32(of_head**-0.5).reshape(())))
        mixed = self.op("MatMul", self.op("Softmax", scaled, axis=-1), values)
        row = self.constant(np.array([-1, WIDTH], np.int64))
        return self.product(self.op("Reshape", mixed, row), WIDTH, WIDTH)


def _value(name: str, shape: tuple[int | str, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _step_load(n: int, random: np.random.Generator, executable: Executable) -> Load:
    specs = {s.name: s.shape for s in executable.inputs}
    requests: list[list[Inputs]] = []
    for _ in range(n):
        cache = {m: random.standard_normal(d).astype(np.float32) for m, d in specs.items() if m != "x"}
        length = sum(random.integers(10, 40, max(1, _ANSWERS // n)))
        steps = random.standard_normal((length, *specs["x"])).astype(np.float32)
        requests.append([{**cache, "x": x} for x in steps])
    return Load(_poisson(n, random), requests, 1)


def _greedy_load(n: int, random: np.random.Generator) -> Load:
    requests = [
        [
            {"token": np.array(random.integers(0, 1000)), "n": np.array(random.integers(10, 60))}
            for _ in range(max(1, 16 * _ANSWERS // n))
        ]
        for _ in range(n)
    ]
    return Load(_poisson(n, random), requests, 0)


def _poisson(n: int, random: np.random.Generator) -> list[float]:
    """Return when sessions begin: on average all within a tenth of a second."""
    return list(np.cumsum(random.exponential(0.1 / n, n)))


async def _drive(load: Load, ask: Callable[[Inputs], Awaitable[object]]) -> tuple[float, list[float], list]:
    """Run all sessions at once; return seconds, latencies in seconds, and outputs by session."""
    latencies: list[float] = []

    async def session(begin: float, inputs: Sequence[Inputs]) -> list[object]:
        await asyncio.sleep(begin)
        found: list[object] = []
        for given in inputs:
            asked = time.perf_counter()
            found.append(await ask(given))
            latencies.append(time.perf_counter() - asked)
        return found

    begun = time.perf_counter()
    pairs = zip(load.begins, load.requests, strict=True)
    found = await asyncio.gather(*(session(b, r) for b, r in pairs))
    return time.perf_counter() - begun, latencies, found


class HandBatcher:
    """What a person writes around a session with a batch axis: take what waits, stack, run, hand out."""

    def __init__(self, session: ort.InferenceSession, most: int) -> None:
        self._session, self._most = session, most
        self._waiting: collections.deque[tuple[Inputs, asyncio.Future]] = collections.deque()
        self._serving: asyncio.Task[None] | None = None

    async def ask(self, inputs: Inputs) -> np.ndarray:
        """Return the output for one request."""
        future: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._waiting.append((inputs, future))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
            first = taken[0][0]
            stacked = {m: np.stack([i[m] for i, _ in taken]) for m in first if m != "x"}
            stacked["x"] = np.concatenate([i["x"] for i, _ in taken])
            run = asyncio.get_running_loop().run_in_executor
            found = (await run(None, self._session.run, None, stacked))[0]
            for row, (_, future) in zip(found, taken, strict=True):
                future.set_result(row[None])
        self._serving = None


def _compiled(
    arguments: argparse.Namespace, folder: Path
) -> tuple[Path, ort.InferenceSession | None, Executable]:
    """Return the program for batches as a file, the peer, and the program for one request at a time."""
    file = folder / "batched.inlay"
    if arguments.program == "greedy":
        random = np.random.default_rng(0)
        d, v = 512, 4096
        given = {"cell": (2 * d, d), "words": (v, d), "out": (d, v)}
        weights = {m: random.normal(0, 1 / np.sqrt(d), s).astype(np.float32) for m, s in given.items()}
        text = _GREEDY.format(d=d, d2=2 * d, v=v)
        module = parse_module(text, table(), resources=weights)
        inlay.compile(module, cache="none", batch=True).save(file)
        return file, None, inlay.compile(module, threads=arguments.threads, cache="none")
    model = Decoder(32, 32, arguments.layers).model()
    inlay.compile(model, cache="none", batch=True).save(file)
    alone = inlay.compile(model, threads=arguments.threads, cache="none")
    batched = Batched(32, 32, arguments.layers)
    batched.inputs[0] = _value("x", ("b", WIDTH))
    options = ort.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    peer = batched.model().SerializeToString()
    return file, ort.InferenceSession(peer, options, providers=["CPUExecutionProvider"]), alone


def _count(load: Load) -> int:
    if load.tokens:
        return sum(len(r) for r in load.requests)
    return sum(int(i["n"]) for r in load.requests for i in r)


def _measure(arguments: argparse.Namespace, folder: Path) -> None:
    file, peer, alone = _compiled(arguments, folder)
    print(f"{'sessions':>9}{'one by one':>12}{'together':>12}{'gain':>7}{'p50 ms':>9}{'p99 ms':>9}{'ORT':>9}")
    for n in arguments.sessions:
        settings = Settings(threads=arguments.threads, activations=n)
        together = inlay.load_executable(file, settings=settings)
        random = np.random.default_rng(n)
        load = _step_load(n, random, alone) if peer else _greedy_load(n, random)
        tokens = _count(load)
        best = [float("inf")] * 3
        latencies: list[float] = []
        for _ in range(arguments.rounds):
            begun = time.perf_counter()
            expected = [[next(iter(alone.run(i).values())) for i in r] for r in load.requests]
            best[0] = min(best[0], time.perf_counter() - begun)
            took, late, found = asyncio.run(_drive(load, together.submit))
            if took < best[1]:
                best[1], latencies = took, late
            for a, b in zip(expected, found, strict=True):
                if not all(np.array_equal(x, next(iter(y.values()))) for x, y in zip(a, b, strict=True)):
                    raise SystemExit("an output differs from that of running alone")
            if peer:
                best[2] = min(best[2], asyncio.run(_drive(load, HandBatcher(peer, 64).ask))[0])
        rates = [tokens / b for b in best]
        p50, p99 = (float(np.percentile(latencies, p)) * 1e3 for p in (50, 99))
        row = f"{n:9}{rates[0]:12.0f}{rates[1]:12.0f}{rates[1] / rates[0]:7.2f}{p50:9.1f}{p99:9.1f}"
        print(row + (f"{rates[2]:9.0f}" if peer else ""))


def _overload(arguments: argparse.Namespace, folder: Path) -> None:
    file, _, alone = _compiled(arguments, folder)
    limit = arguments.limit
    settings = Settings(threads=arguments.threads, activations=32, waiting=64)
    executable = inlay.load_executable(file, settings=settings)
    load = _step_load(32, np.random.default_rng(1), alone)
    given = [i for r in load.requests for i in r]
    took, _, _ = asyncio.run(_drive(load, lambda i: executable.submit(i)))
    rate = len(given) / took
    counts: collections.Counter[str] = collections.Counter()
    lateness: list[float] = []

    async def one(i: int) -> None:
        asked = time.perf_counter()
        try:
            await executable.submit(given[i % len(given)], timeout=limit)
            counts["done"] += 1
        except RunError as problem:
            counts[problem.ids[0]] += 1
            if problem.ids == ("run.deadline",):
                lateness.append(time.perf_counter() - asked - limit)

    async def offer() -> int:
        random, tasks = np.random.default_rng(2), set()
        begun, due, made = time.perf_counter(), 0.0, 0
        while (now := time.perf_counter() - begun) < arguments.overload:
            while due <= now:
                task = asyncio.ensure_future(one(made))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                made += 1
                due += random.exponential(1 / (2 * rate))
            await asyncio.sleep(min(0.005, max(0.0, due - now)))
        while tasks:
            await asyncio.sleep(0.01)
        return made

    print(f"sustained {rate:.0f} requests a second; {2 * rate:.0f} offered, each within {limit} s")
    before = resident()
    made = asyncio.run(offer())
    lost = made - sum(counts.values())
    print(f"offered {made}: " + ", ".join(f"{k} {v}" for k, v in sorted(counts.items())) + f", lost {lost}")
    print(f"resident MB {before:.0f} before, {resident():.0f} behind")
    if lateness:
        p50, p99 = np.percentile(lateness, 50) * 1e3, np.percentile(lateness, 99) * 1e3
        print(f"deadlines told late by ms: median {p50:.1f}, p99 {p99:.1f}, most {max(lateness) * 1e3:.1f}")


def resident() -> float:
    """Return resident memory in MB."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--program", choices=("step", "greedy"), default="step")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overload", type=float, default=0.0, help="seconds")
    parser.add_argument("--limit", type=float, default=0.4, help="of a request under overload, seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (_overload if arguments.overload else _measure)(arguments, Path(folder))


if __name__ == "__main__":
    main()
