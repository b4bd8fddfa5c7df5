"""Single operators beside onnxruntime, in turns: which of them are slow.

    python benchmarks/operators.py [--group NAME ...] [--only TEXT ...] [--below R] [--threads 1]
                                   [--rounds 5] [--seconds 0.01] [--json]

Cases are those of `operator_cases.py`, in groups; `--only` takes those whose name has one of the texts.
Outputs are compared before anything is timed. Engines take turns in rounds, an engine's time is the least of
all of them, and `ratio` is the peer's time over ours: above 1 is faster than it. A row is printed for each
case, with `--below` only for those under a ratio, and at the end the geometric mean of each group. A case
that the peer refuses says so.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx

import inlay
import peers
from measure import difference, least
from operator_cases import GROUPS, Call

TOLERANCE = 1e-3
"""Of outputs, relative to the largest: operators add in other orders, and in 16 bits."""


Times = tuple[float, float]
"""Least seconds, ours and the peer's."""


def times(case: Call, options: argparse.Namespace) -> Times | str:
    """Return least seconds of this compiler and of onnxruntime, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operator.onnx"
        onnx.save(case.model(), path)
        theirs = peers.onnxruntime(path, case.inputs, options.threads)
        if isinstance(theirs, str):
            return theirs
        try:
            compiled = inlay.compile(path, threads=options.threads, cache="none")
        except inlay.InlayError as problem:
            return f"refused: {problem}"
    inputs = dict(case.inputs)
    apart = difference(list(compiled.run(inputs).values()), theirs())
    if not apart <= TOLERANCE:
        return f"outputs differ by {apart:.2g}"
    ours_least = theirs_least = math.inf
    for _ in range(options.rounds):
        ours_least = min(ours_least, least(lambda: compiled.run(inputs), options.threads, options.seconds))
        theirs_least = min(theirs_least, least(theirs, options.threads, options.seconds))
    return ours_least, theirs_least


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, Call]]:
    """Give the cases that were asked for, with the names of their groups."""
    for group in options.group or GROUPS:
        for case in GROUPS[group]():
            if not options.only or any(text.lower() in case.name.lower() for text in options.only):
                yield group, case


def show(group: str, case: Call, found: Times | str, options: argparse.Namespace) -> float | None:
    """Print a case's row where it is asked for, and return its ratio where it has one."""
    if isinstance(found, str):
        shown = f"{case.name:64} {found}"
        print(json.dumps({"group": group, "case": case.name, "note": found}) if options.json else shown)
        return None
    ours, theirs = (x * 1e6 for x in found)
    ratio = theirs / ours
    if ratio < (options.below or math.inf):
        if options.json:
            row = {"group": group, "case": case.name, "us": ours, "onnxruntime_us": theirs, "ratio": ratio}
            print(json.dumps(row))
        else:
            print(f"{case.name:64} {ours:10.1f} {theirs:12.1f} {ratio:7.2f}")
    return ratio


def main() -> None:
    """Run the cases that were asked for, and print ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--group", nargs="+", choices=list(GROUPS), help="groups of cases (all)")
    parser.add_argument("--only", nargs="+", help="cases whose name has one of these texts")
    parser.add_argument("--below", type=float, help="print only cases under this ratio")
    parser.add_argument("--threads", type=int, default=1, help="of both engines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.01, help="of a turn")
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    options = parser.parse_args()
    cases = list(chosen(options))
    if not cases or options.rounds < 1:
        parser.error("found nothing to measure, needed a case whose name has one of the texts, and a round")
    if not options.json:
        print(f"{'operator':64} {'us':>10} {'onnxruntime':>12} {'ratio':>7}")
    ratios: dict[str, list[float]] = {}
    for done, (group, case) in enumerate(cases, 1):
        ratio = show(group, case, times(case, options), options)
        sys.stdout.flush()
        if ratio is not None:
            ratios.setdefault(group, []).append(ratio)
        if options.below and sys.stderr.isatty():
            print(f"{done} of {len(cases)}", end="\r", file=sys.stderr)
    for group, found in ratios.items():
        mean, low = statistics.geometric_mean(found), sum(x < (options.below or 1) for x in found)
        row = {"group": group, "cases": len(found), "mean": mean, "least": min(found), "below": low}
        text = f"{group}: {len(found)} cases, geometric mean {mean:.2f}, least {min(found):.2f}, {low} below"
        print(json.dumps(row) if options.json else f"{text} {options.below or 1:g}")


if __name__ == "__main__":
    main()
