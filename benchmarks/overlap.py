"""How far independent parts of one program overlap on two threads.

    python benchmarks/overlap.py [--json]

`halves` is two chains of matrix products that meet at the end; `loops` is two loops over matrix
products, each of which ends when its data says so. One thread in sequential mode and two threads in
parallel mode take turns, each in a process of its own so that neither's idle threads disturb the
other; outputs are compared first. `best` is the ratio of the shortest times over the rounds, `median`
that of the middle ones. Two processors that share a clock or a core with others give less than 2.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import inlay
from measure import Report

ROUNDS = 20
INPUTS = """a: Tensor[{n}, {n}, f32], b: Tensor[{n}, {n}, f32],
        wa: Tensor[{n}, {n}, f32], wb: Tensor[{n}, {n}, f32], limit: Tensor[f32]"""
ENTRY = 'entry main("a", "b", "wa", "wb", "limit") -> ("y");\n'


def halves(n: int, depth: int) -> str:
    """Return two chains of `depth` products of n x n matrices."""
    names = [("a", "b"), *((f"a{i}", f"b{i}") for i in range(1, depth + 1))]
    lets = "\n".join(
        f"  let {y} = tanh(matmul({x}, {w}));"
        for xs, ys in itertools.pairwise(names)
        for x, y, w in zip(xs, ys, ("wa", "wb"), strict=True)
    )
    left, right = names[-1]
    return f"""
fn main({INPUTS.format(n=n)}) -> Tensor[{n}, {n}, f32] {{
{lets}
  add(add({left}, {right}), limit)
}}

{ENTRY}"""


def loops(n: int) -> str:
    """Return two loops over a product of n x n matrices, which end by a value of their data."""
    square = f"Tensor[{n}, {n}, f32]"
    return f"""
fn main({INPUTS.format(n=n)}) -> {square} {{
  let search = fn(x: {square}, w: {square}, turns: Tensor[f32]) -> {square} {{
    if (to_control(less(turns, limit))) {{
      let y = tanh(matmul(x, w));
      search(y, w, add(turns, ceil(abs(tanh(reduce_max{{axes=[0, 1], keepdims=false}}(y))))))
    }} else {{ x }}
  }};
  let left = search(a, wa, sub(limit, limit));
  let right = search(b, wb, sub(limit, limit));
  add(left, right)
}}

{ENTRY}"""


def serve(link: Connection, text: str, settings: dict[str, Any]) -> None:
    """Compile a program, answer with its output, then with the seconds of a call whenever asked."""
    from inlay.analysis.infer_types import infer_types
    from inlay.ir.parser import parse_module
    from inlay.ops.table import table

    executable = inlay.compile(infer_types(parse_module(text, table())), **settings)
    n = 0
    inputs = link.recv()
    link.send(executable(*inputs))
    while link.recv():
        start = time.perf_counter()
        executable(*inputs)
        n += 1
        link.send(time.perf_counter() - start)


def started(text: str, inputs: list[np.ndarray], **settings: Any) -> tuple[Connection, Any]:
    """Start a process that runs a program; return the link to it, and its output."""
    here, there = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(
        target=serve, args=(there, text, settings), daemon=True
    ).start()
    here.send(inputs)
    return here, here.recv()


def timed(link: Connection) -> float:
    """Return the seconds of one call."""
    link.send("time a call")
    return link.recv()


def main() -> None:
    """Print the table."""
    report = Report("overlap", ["program", "n", "1 thread us", "2 threads us", "best", "median"])
    programs: dict[str, Callable[[int], str]] = {"halves": lambda n: halves(n, 30), "loops": loops}
    rng = np.random.default_rng(0)
    for name, program in programs.items():
        for n in (64, 192, 384):
            states = [rng.standard_normal((n, n)).astype(np.float32) for _ in range(2)]
            weights = [x / np.float32(np.sqrt(n)) for x in states]
            inputs = [*states, *weights, np.float32(30)]
            one, expected = started(program(n), inputs, threads=1, mode="sequential")
            two, found = started(program(n), inputs, threads=2, mode="parallel")
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            times = [(timed(one), timed(two)) for _ in range(ROUNDS)]
            ones, twos = zip(*times, strict=True)
            best = min(ones) / min(twos)
            median = statistics.median(ones) / statistics.median(twos)
            report.row(name, n, min(ones) * 1e6, min(twos) * 1e6, best, median)
            one.send(""), two.send("")


if __name__ == "__main__":
    main()
