"""Packages that call onnxruntime, once with onnxruntime and once with Inlay in its place.

Each package runs in a process of its own, twice, unchanged: its own code prepares the inputs and makes
text, labels and notes of the outputs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from packages import PACKAGES, Package

PEERS = ("onnxruntime", "inlay")
TOLERANCE = 2e-3
"""Scores of the two may differ by as much, in parts of 1 or of their size."""


def ask(package: Package, peer: str, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a package answers in this process, and how long it takes."""
    if peer == "inlay":
        from inlay.compat import onnxruntime

        place = onnxruntime.installed(**options)
    else:
        place = contextlib.nullcontext()
    with place:
        begun = time.perf_counter()
        question = package.prepare()
        prepared = time.perf_counter() - begun
        answer = question()
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            question()
            times.append(time.perf_counter() - begun)
    return {**answer, "prepare": prepared, "seconds": min(times), "native": has_onnxruntime()}


def has_onnxruntime() -> bool:
    """Whether the library of onnxruntime is in this process."""
    return "onnxruntime_pybind11_state" in Path("/proc/self/maps").read_text()


def in_a_process(package: Package, peer: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a package answers in a process of its own; `error` where it fails."""
    command = [sys.executable, __file__, "--one", package.name, "--peer", peer]
    command += ["--repeats", str(arguments.repeats), "--board", arguments.board]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "died"}
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["native"] != (peer == "onnxruntime"):
        return {"error": f"it did not run with {peer}"}
    return answer


def numbers(scores: Any) -> np.ndarray:
    """Return all numbers of nested lists, in order."""
    if not isinstance(scores, list):
        return np.array([scores], np.float64)
    return np.concatenate([np.zeros(0), *(numbers(part) for part in scores)])


def verdict(one: dict[str, Any], two: dict[str, Any]) -> tuple[bool, str]:
    """Return whether two answers are the same, and in what words."""
    for peer, answer in zip(PEERS, (one, two), strict=True):
        if "error" in answer:
            return False, f"{peer}: {answer['error'][:60]}"
    if one["found"] != two["found"]:
        return False, f"differs: {one['found']} and {two['found']}"
    a, b = numbers(one["scores"]), numbers(two["scores"])
    if a.size != b.size:
        return False, f"differs: {a.size} and {b.size} scores"
    error = float(np.max(np.abs(a - b) / np.maximum(1, np.abs(a)), initial=0))
    return error <= TOLERANCE, f"same, scores within {error:.0e}" if a.size else "same"


def table(arguments: argparse.Namespace) -> bool:
    """Run all packages and print what came of it; return whether all are the same."""
    chosen = [p for p in PACKAGES if not arguments.only or p.name in arguments.only]
    times = [f"{peer}: {what}" for what in ("made", "call") for peer in PEERS]
    heads = ["package", "kind", "models", "same?", *times]
    print("{:28}{:16}{:36}{:30}{:>18}{:>14}{:>18}{:>14}".format(*heads))
    all_same = True
    for package in chosen:
        one, two = (in_a_process(package, peer, arguments) for peer in PEERS)
        same, words = verdict(one, two)
        all_same &= same
        made = [f"{a['prepare']:.1f} s" if "prepare" in a else "-" for a in (one, two)]
        call = [f"{a['seconds'] * 1e3:.1f} ms" if "seconds" in a else "-" for a in (one, two)]
        name = f"{package.name} {importlib.metadata.version(package.name)}"
        print(
            f"{name:28}{package.kind:16}{package.model:36}{words:30}"
            f"{made[0]:>18}{made[1]:>14}{call[0]:>18}{call[1]:>14}"
        )
        print(f"    {json.dumps(two.get('found', one.get('found')))[:150]}", flush=True)
    return all_same


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [package.name for package in PACKAGES]
    parser.add_argument("only", nargs="*", help=f"packages: {', '.join(names)}; all by default")
    parser.add_argument("--board", default="host", help="the board of `inlay.compile`")
    parser.add_argument("--repeats", type=int, default=3, help="calls, of which the best is shown")
    parser.add_argument("--one", choices=names, help=argparse.SUPPRESS)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.only) - set(names))
    if unknown:
        parser.error(f"no package {', '.join(unknown)}; there are {', '.join(names)}")
    if arguments.one:
        package = next(p for p in PACKAGES if p.name == arguments.one)
        answer = ask(package, arguments.peer, arguments.repeats, {"board": arguments.board})
        print(json.dumps(answer, default=float))
        return 0
    return 0 if table(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
