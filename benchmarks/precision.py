"""Products in bf16 (`--precision bf16`) against f32: time, error and bytes of the networks of `networks.py`.

    python benchmarks/precision.py [--only NAME ...] [--threads N ...] [--rounds R] [--seconds S]

Both take turns in one process, and so does OpenVINO with the same hint, where it is installed. `f32 / bf16`
is how much faster bf16 is, the median over rounds; `ov / inlay` is OpenVINO's time in bf16 over ours. Errors
are the largest of an output over its largest element, against our f32 with the same inputs. `MB` are
executables.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

import inlay
import peers
from measure import difference
from network_cases import CASES, Case
from networks import turns

USUAL = (
    "resnet50 mobilenet_v2 unet vit_small bert_128 minilm_128 bert_dyn@1x16 gpt2_step greedy_32 lstm mlp "
    "gemm_512 gemm_1024 gemm_2048 gemmw_512 gemmw_1024 gemmw_2048"
).split()


def error(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Return the largest error of the outputs in floats: words that are chosen may be others."""
    floats = [(a, b) for a, b in zip(found, expected, strict=True) if b.dtype.kind == "f"]
    return difference([a for a, _ in floats], [b for _, b in floats])


def row(case: Case, threads: int, given: argparse.Namespace) -> str:
    """Return a row of the table."""
    inputs, sizes = case.inputs(), list[float]()
    calls: dict[str, peers.Call] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(case.make(), path)
        for precision in ("f32", "bf16"):
            executable = inlay.compile(path, threads=threads, precision=precision)
            executable.save(Path(folder) / f"{precision}.inlay")
            sizes.append((Path(folder) / f"{precision}.inlay").stat().st_size / 1e6)
            calls[precision] = lambda e=executable: list(e.run(inputs).values())
        theirs = peers.openvino(path, inputs, threads, "bf16")
        results = {name: [np.array(y) for y in call()] for name, call in calls.items()}
        note = theirs if isinstance(theirs, str) else ""
        far = ""
        if not isinstance(theirs, str):
            calls["openvino"] = theirs
            far = f"{error([np.array(y) for y in theirs()], results['f32']):.1e}"
        times = turns(calls, threads, given.rounds, given.seconds)
    gain = statistics.median(a / b for a, b in zip(times["f32"], times["bf16"], strict=True))
    ratio = note or "-"
    if "openvino" in times:
        ratio = (
            f"{statistics.median(b / a for a, b in zip(times['bf16'], times['openvino'], strict=True)):.2f}"
        )
    cells = (
        case.name,
        str(threads),
        f"{1e3 * min(times['f32']):.3f}",
        f"{1e3 * min(times['bf16']):.3f}",
        f"{gain:.2f}",
        f"{error(results['bf16'], results['f32']):.1e}",
        ratio,
        far or "-",
        f"{sizes[0]:.1f}",
        f"{sizes[1]:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=known, metavar="NAME", default=USUAL)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1)
    given = parser.parse_args()
    names = "network, threads, f32 ms, bf16 ms, f32 / bf16, error, ov / inlay, ov error, f32 MB, bf16 MB"
    print("| " + names.replace(", ", " | ") + " |\n|" + "---|" * len(names.split(",")))
    for threads in given.threads:
        for case in CASES:
            if case.name in given.only:
                print(row(case, threads, given), flush=True)


if __name__ == "__main__":
    main()
