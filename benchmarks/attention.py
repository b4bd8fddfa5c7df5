"""Attention as one kernel beside products and softmax as kernels of their own, and onnxruntime.

    python benchmarks/attention.py [--threads N] [--rounds R] [--cases HEADSxTOKENS ...] [--networks NAME ...]
                                   [--open] [--avx2]

A case is two layers of attention of a sequence to itself, 64 channels a head, with a mask and with heads
that transposes put outside, as exporters write it; a network is one of `network_cases.py`. All take turns
in one process, and results of our two forms must be equal to the bit. For each: least microseconds of a
call, medians over rounds of the other times over that of one kernel, and the bytes that a call takes for
tensors as kernels and as one. With `--open` calls choose batch and tokens, `--avx2` makes code without
AVX-512.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

import inlay
import peers
from inlay.codegen.backends import native
from inlay.machine.target import baseline, host
from inlay.transforms import _groups as groups
from network_cases import CASES
from transformer_models import Shape, Transformer

LAYERS = 2
OF_HEAD = 64
CASES_OF_HEADS = ("12x16", "12x128", "6x197", "12x512", "12x1024")


def attention(heads: int, tokens: int, *, is_open: bool) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Return layers of attention beside each other, and inputs."""
    shape = Shape(LAYERS, heads * OF_HEAD, heads, 0)
    batch, length = ("b", "t") if is_open else (1, tokens)
    net = Transformer("attention", 0)
    names = [f"{part}{i}" for i in range(LAYERS) for part in "qkv"]
    for name in names:
        net.input(name, [batch, length, shape.width])
    mask = net.input("mask", [batch, 1, 1, length])
    results = {}
    for i in range(LAYERS):
        q, k, v = (net.heads(x, shape) for x in names[3 * i : 3 * i + 3])
        results[net.named(f"y{i}", net.attended(q, k, v, shape, mask))] = [batch, length, shape.width]
    rng = np.random.default_rng(1)
    inputs = {name: rng.standard_normal((1, tokens, shape.width)).astype(np.float32) for name in names}
    hidden = np.where(rng.random((1, 1, 1, tokens)) < 0.1, -10000, 0)
    return net.built(results), inputs | {"mask": hidden.astype(np.float32)}


@contextmanager
def apart() -> Iterator[None]:
    """Let products and softmax be kernels of their own: no option of a user asks for what is slower."""
    whole = groups.makers_of_scores
    groups.makers_of_scores = lambda *_: ()
    try:
        yield
    finally:
        groups.makers_of_scores = whole


def compiled(path: Path, inputs: Mapping[str, np.ndarray], threads: int) -> tuple[peers.Call, int]:
    """Return a call, and the bytes that it takes for tensors."""
    executable = inlay.compile(str(path), cache="none", threads=threads)
    order = [inputs[x.name] for x in executable.inputs]

    def call() -> list[np.ndarray]:
        found = executable(*order)
        return list(found) if isinstance(found, tuple) else [found]

    call()
    return call, executable.usage().peak_bytes


def rounds_of(calls: Mapping[str, peers.Call], rounds: int) -> dict[str, list[float]]:
    """Return the least seconds of each call in each round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times = []
            for _ in range(3):
                begun = time.perf_counter()
                call()
                times.append(time.perf_counter() - begun)
            found[name].append(min(times))
    return found


def row(
    name: str, model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], threads: int, rounds: int
) -> str:
    """Measure one model; return its line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        whole, bytes_whole = compiled(path, inputs, threads)
        with apart():
            kernels, bytes_kernels = compiled(path, inputs, threads)
        theirs = peers.onnxruntime(path, inputs, threads)
    same = all(np.array_equal(a, b) for a, b in zip(whole(), kernels(), strict=True))
    calls = {"one": whole, "kernels": kernels}
    if not isinstance(theirs, str):
        calls["onnxruntime"] = theirs
    times = rounds_of(calls, rounds)
    least = "  ".join(f"{n} {min(t) * 1e6:.0f}" for n, t in times.items())
    ratios = [
        f"{n} / one {statistics.median(a / b for a, b in zip(t, times['one'], strict=True)):.2f}"
        for n, t in times.items()
        if n != "one"
    ]
    bits = "same bits" if same else "OTHER BITS"
    return f"{name:16} {least}  {'  '.join(ratios)}  {bits}  {bytes_kernels:,} -> {bytes_whole:,} bytes"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cases", nargs="*", default=CASES_OF_HEADS)
    parser.add_argument("--networks", nargs="*", default=())
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--avx2", action="store_true")
    arguments = parser.parse_args()
    if arguments.avx2:
        here = host()
        caches = {"l1_bytes": here.l1_bytes, "l2_bytes": here.l2_bytes, "l3_bytes": here.l3_bytes}
        plain = replace(baseline("x86_64", "v3"), **caches)
        native.host = lambda: plain
    for case in arguments.cases:
        heads, tokens = map(int, case.split("x"))
        model, inputs = attention(heads, tokens, is_open=arguments.open)
        print(row(case, model, inputs, arguments.threads, arguments.rounds), flush=True)
    for case in CASES:
        if case.name in arguments.networks:
            print(row(case.name, case.make(), case.inputs(), arguments.threads, arguments.rounds), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
