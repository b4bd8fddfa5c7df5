"""Draw calls of single ONNX operators and compare three executors.

    python tools/onnx_fuzz.py [--seed N] [--cases N] [--only OPERATOR] [--evaluate]

`tests/differential/onnx_calls.py` says what is drawn, `onnx_compare.py` there what the outcomes mean.
The number of a case is its seed: `--seed N --cases 1` repeats it (with the same `--only`).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.differential.onnx_calls import draw
from tests.differential.onnx_compare import run_case


def main() -> int:
    """Run cases and print those that are wrong; the exit status says whether there are any."""
    parser = argparse.ArgumentParser(description="Compare executors on drawn ONNX operators.")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--cases", type=int, default=200, help="how many")
    parser.add_argument("--only", default="", help="draw this operator only")
    parser.add_argument("--evaluate", action="store_true", help="leave compiled code out")
    parser.add_argument("--verbose", action="store_true", help="print refusals too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for seed in range(args.seed, args.seed + args.cases):
        case = draw(seed, args.only)
        outcome, detail = run_case(case, compiled=not args.evaluate)
        counts[outcome] += 1
        if outcome in ("wrong", "crash") or (args.verbose and outcome != "ok"):
            print(f"{outcome} {case}\n    {detail}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    return 1 if counts["wrong"] or counts["crash"] else 0


if __name__ == "__main__":
    sys.exit(main())
