"""How far independent parts of one program overlap on two threads.

    python benchmarks/overlap.py [--json]

`halves` is two chains of matrix products that meet at the end; `loops` is two loops over matrix
products, each of which ends when its data says so. One thread in sequential mode and two threads in
parallel mode take turns, each in a process of its own so that neither's idle threads disturb the
other; outputs are compared first. `best` is the ratio of the shortest times over the rounds, `median`
that of the middle ones. A turn is calls in a row for 20 ms, at least ten, behind one that is not
counted: a processor that slept through the turn of the other process is slow at first.

Two processors that share a clock or a core with others give less than 2. What the machine can give is
measured in the same rounds: `ceiling` is as `best`, for two processes of one thread that begin at once
and run one part each. `beside` is from traces, the middle one: the share of the time of kernels in
which another one ran as well (`inlay.runtime.trace.time_beside`).
"""

from __future__ import annotations

import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from measure import Report

ROUNDS = 20
CALLS, TURN_S = 10, 0.02
TIME, TRACE = "time a call", "trace a call"
INPUTS = """a: Tensor[{n}, {n}, f32], b: Tensor[{n}, {n}, f32],
        wa: Tensor[{n}, {n}, f32], wb: Tensor[{n}, {n}, f32], limit: Tensor[f32]"""
ENTRY = 'entry main("a", "b", "wa", "wb", "limit") -> ("y");\n'


def halves(n: int, parts: str, depth: int = 30) -> str:
    """Return chains of `depth` products of n x n matrices, one for each part."""
    lets = "\n".join(
        f"  let {p}{i + 1} = tanh(matmul({p}{i or ''}, w{p}));" for i in range(depth) for p in parts
    )
    return f"""
fn main({INPUTS.format(n=n)}) -> Tensor[{n}, {n}, f32] {{
{lets}
  {total([f"{p}{depth}" for p in parts])}
}}

{ENTRY}"""


def loops(n: int, parts: str) -> str:
    """Return loops over a product of n x n matrices, which end by a value of their data."""
    lets = "\n".join(f"  let {p}1 = search({p}, w{p}, sub(limit, limit));" for p in parts)
    square = f"Tensor[{n}, {n}, f32]"
    return f"""
fn main({INPUTS.format(n=n)}) -> {square} {{
  let search = fn(x: {square}, w: {square}, turns: Tensor[f32]) -> {square} {{
    if (to_control(less(turns, limit))) {{
      let y = tanh(matmul(x, w));
      search(y, w, add(turns, ceil(abs(tanh(reduce_max{{axes=[0, 1], keepdims=false}}(y))))))
    }} else {{ x }}
  }};
{lets}
  {total([f"{p}1" for p in parts])}
}}

{ENTRY}"""


def total(values: list[str]) -> str:
    """Return the sum of all, and of what every program reads."""
    return functools.reduce(lambda x, y: f"add({x}, {y})", [*values, "limit"])


def serve(link: Connection, text: str, settings: dict[str, Any]) -> None:
    """Compile a program, answer with its output, then with the seconds of a call whenever asked: the mean of
    a turn. Asked for a trace, answer with the share of the kernels' time that they ran beside others.
    """
    from inlay.analysis.infer_types import infer_types
    from inlay.api import compilation
    from inlay.ir.parser import parse_module
    from inlay.ir.prelude import prelude, with_prelude
    from inlay.ops.table import table
    from inlay.runtime.native import Settings
    from inlay.runtime.session import executable_of
    from inlay.runtime.trace import time_beside

    module = infer_types(with_prelude(parse_module(text, table(), known=prelude())))
    program = compilation(module, plan="parallel").program
    executable = executable_of(program, settings=Settings(**settings))
    traced = executable_of(program, settings=Settings(trace=True, **settings))
    inputs = link.recv()
    link.send(executable(*inputs))
    while asked := link.recv():
        chosen = traced if asked == TRACE else executable
        start = time.perf_counter()
        chosen(*inputs)
        calls = max(CALLS, int(TURN_S / (time.perf_counter() - start)))
        start = time.perf_counter()
        for _ in range(calls):
            chosen(*inputs)
        seconds = (time.perf_counter() - start) / calls
        link.send(time_beside(traced.events()) if asked == TRACE else seconds)


def started(text: str, inputs: list[Any], **settings: Any) -> tuple[Connection, Any]:
    """Start a process that runs a program; return the link to it, and its output."""
    here, there = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(
        target=serve, args=(there, text, settings), daemon=True
    ).start()
    here.send(inputs)
    return here, here.recv()


def asked(what: str, *links: Connection) -> float:
    """Return what was asked for; of several that run at once, the largest."""
    for link in links:
        link.send(what)
    return max(link.recv() for link in links)


def main() -> None:
    """Print the table."""
    columns = ["program", "n", "1 thread us", "2 threads us", "best", "median", "ceiling", "beside"]
    report = Report("overlap", columns)
    programs: dict[str, Callable[[int, str], str]] = {"halves": halves, "loops": loops}
    rng = np.random.default_rng(0)
    for name, program in programs.items():
        for n in (64, 192, 384):
            states = [rng.standard_normal((n, n)).astype(np.float32) for _ in range(2)]
            weights = [x / np.float32(np.sqrt(n)) for x in states]
            inputs = [*states, *weights, np.float32(30)]
            alone = {"threads": 1, "mode": "sequential"}
            one, expected = started(program(n, "ab"), inputs, **alone)
            two, found = started(program(n, "ab"), inputs, threads=2, mode="parallel")
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            parts = [started(program(n, p), inputs, **alone)[0] for p in "ab"]
            times = [(asked(TIME, one), asked(TIME, two), asked(TIME, *parts)) for _ in range(ROUNDS)]
            ones, twos, apart = zip(*times, strict=True)
            best = min(ones) / min(twos)
            median = statistics.median(ones) / statistics.median(twos)
            ceiling = min(ones) / min(apart)
            beside = statistics.median(asked(TRACE, two) for _ in range(ROUNDS))
            report.row(name, n, min(ones) * 1e6, min(twos) * 1e6, best, median, ceiling, beside)
            for link in (one, two, *parts):
                link.send("")


if __name__ == "__main__":
    main()
