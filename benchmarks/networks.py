"""Whole networks against onnxruntime, OpenVINO and PyTorch: the table of docs/performance.md.

    python benchmarks/networks.py [--only NAME ...] [--threads N ...] [--rounds R] [--seconds S]
                                  [--peers NAME ...] [--no-costs] [--json] [--write FILE]

Models are built from code with random weights; outputs are compared before anything is timed. Engines take
turns in rounds, so that other load on the machine meets all of them, and an engine's time in a round is its
least. A ratio is a peer's time over ours, the median over rounds; the column `ratio` is that of the best
peer, above 1 is faster than it. With one thread a long call is timed by the processor time of the process.

`% peak` is the share of the peak of multiply-adds, multiplied by the threads, at our least time: nominal
products, so that Winograd's form counts as the plain sum. The loop of the peak takes turns with the engines,
as clocks change by a tenth within a run.

`read` and `compile` are processor seconds in a process of their own with an empty cache, all threads and
children, `inductor s` for `torch.compile` with its first call; `MB` is what is resident at the peak of both
beyond the imported library, `ort MB` the same of onnxruntime's session. `pip install -e '.[peers]'` brings
all peers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx

import inlay
import peers
from gemm import Peak, peak_loop
from inlay.machine.target import host
from measure import difference, least
from network_cases import CASES, Arrays, Case, flops

TOLERANCE = 1e-4
"""Of outputs, relative to the largest."""
REST = 0.01
"""Seconds between turns: workers of the last engine have gone to sleep."""

CHILD = """
import os, resource, sys, time
engine, path, threads, *without = sys.argv[1:]
def spent():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
def megabytes(key):
    with open("/proc/self/status") as stream:
        return next(int(x.split()[1]) for x in stream if x.startswith(key)) / 1024
if engine == "inlay":
    import inlay, inlay.api, inlay.codegen.llvm_generator, inlay.importers.onnx.graph
    inlay.ops.table.table()
elif engine == "inductor":
    import onnx, torch, torch._inductor.config
    from onnx2torch import convert
    torch.set_num_threads(int(threads))
else:
    import onnxruntime
with open("/proc/self/clear_refs", "w") as stream:
    stream.write("5")
before, begun = megabytes("VmRSS"), spent()
if engine == "inlay":
    kept = inlay.compile(path, threads=int(threads), cache="none")
elif engine == "inductor":
    import numpy
    torch._inductor.config.force_disable_caches = True
    torch._inductor.config.pattern_matcher = not without
    model, arrays = onnx.load(path), numpy.load(path[:-4] + "npz")
    given = [torch.from_numpy(arrays[x.name]) for x in model.graph.input if x.name in arrays]
    kept = torch.compile(convert(model).eval(), dynamic=False)
    with torch.inference_mode():
        kept(*given)
else:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    kept = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
whole, most, read = spent() - begun, megabytes("VmHWM") - before, 0.0
if engine == "inlay":
    begun = spent()
    inlay.load(path)
    read = spent() - begun
print(read, whole - read, most)
"""


@dataclass
class Row:
    """What was measured.

    Attributes:
        network, threads: what.
        ours: least milliseconds.
        ratios: for each peer, the median over rounds of its time over ours; a reason where it has none.
        peak: multiply-adds of one thread, FLOP/s, in the same rounds.
        share: of the peak of multiply-adds.
        read, compile: processor seconds.
        inductor: those of `torch.compile` and the first call.
        megabytes, ort_megabytes: resident at the peak of compiling, and of making onnxruntime's session.
    """

    network: str
    threads: int
    is_in_set: bool
    ours: float = 0.0
    ratios: dict[str, float | str] = field(default_factory=dict[str, float | str])
    peak: float = 0.0
    share: float = 0.0
    read: float = 0.0
    compile: float = 0.0
    inductor: float = 0.0
    megabytes: float = 0.0
    ort_megabytes: float = 0.0

    @property
    def best(self) -> tuple[str, float] | None:
        """The fastest peer, and its ratio."""
        found = [(name, r) for name, r in self.ratios.items() if isinstance(r, float)]
        return min(found, key=lambda x: x[1]) if found else None


def compared(name: str, ours: peers.Call, theirs: peers.Call) -> str:
    """Return how outputs differ, empty where they do not."""
    apart = difference([np.asarray(x) for x in ours()], [np.asarray(x) for x in theirs()])
    return "" if apart <= TOLERANCE else f"{name}: an output differs by {apart:.2g}"


def turns(calls: dict[str, peers.Call], threads: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the seconds of each engine in each round."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(REST)
            found[name].append(least(call, threads, seconds, processor=time.process_time))
    return found


def costs(engine: str, path: Path, threads: int) -> tuple[float, float, float]:
    """Return processor seconds of reading and of compiling, and MB at the peak, in a process of its own."""
    command = [sys.executable, "-c", CHILD, engine, str(path), str(threads)]
    environment = {**os.environ, "PYTHONPATH": str(Path(inlay.__file__).parent.parent)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode and engine == "inductor":
        command.append("patterns")  # as `peers.inductor`
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    done.check_returncode()
    read, compiling, most = map(float, done.stdout.split())
    return read, compiling, most


def measured(case: Case, threads: int, peak: Peak, given: argparse.Namespace) -> Row:
    """Compare outputs, then time all engines."""
    row, model, inputs = Row(case.name, threads, case.is_in_set), case.make(), case.inputs()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        np.savez(path.with_suffix(".npz"), **inputs)
        work = flops(model, inputs) if case.flops is None else case.flops
        del model
        calls = _calls(row, path, inputs, given)
        if not given.no_costs:
            row.read, row.compile, row.megabytes = costs("inlay", path, threads)
            if "onnxruntime" in calls:
                row.ort_megabytes = costs("onnxruntime", path, threads)[2]
            if "inductor" in calls:
                row.inductor = costs("inductor", path, threads)[1]
    times = turns({"peak": peak.call, **calls}, threads, given.rounds, given.seconds)
    row.peak = peak.work / min(times.pop("peak"))
    ours = times.pop("inlay")
    row.ours, row.share = 1e3 * min(ours), work / min(ours) / (row.peak * threads)
    for name, theirs in times.items():
        row.ratios[name] = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    row.ratios = {name: row.ratios[name] for name in given.peers}
    return row


def _calls(row: Row, path: Path, inputs: Arrays, given: argparse.Namespace) -> dict[str, peers.Call]:
    """Return a call of each engine; those that refuse or differ are noted in the row."""
    executable = inlay.compile(path, threads=row.threads, cache="none", accuracy=given.accuracy)
    ordered = [inputs[spec.name] for spec in executable.inputs]

    def ours() -> Sequence[np.ndarray]:
        found = executable(*ordered)
        return found if isinstance(found, tuple) else (found,)

    calls: dict[str, peers.Call] = {"inlay": ours}
    for name in given.peers:
        call = getattr(peers, name)(path, inputs, row.threads)
        if isinstance(call, str):
            row.ratios[name] = call
        elif wrong := compared(row.network, ours, call):
            row.ratios[name] = wrong
            if name == "onnxruntime":
                raise SystemExit(wrong)
        else:
            calls[name] = call
    return calls


def refusals(rows: Sequence[Row]) -> Iterator[str]:
    """Yield why peers have no ratio."""
    for row in rows:
        for name, reason in row.ratios.items():
            if isinstance(reason, str):
                yield f"{row.network}, {row.threads} thread(s): {name}: {reason}"


def line(row: Row) -> str:
    """Return a row of the table."""
    name, ratio = row.best or ("-", float("nan"))
    cells = [
        row.network,
        str(row.threads),
        f"{row.ours:.3f}" if row.ours < 1 else f"{row.ours:.2f}",
        *(f"{r:.2f}" if isinstance(r, float) else "-" for r in row.ratios.values()),
        f"**{ratio:.2f}**" if ratio < 0.98 else f"{ratio:.2f}",
        name,
        f"{100 * row.share:.0f}" if row.share else "-",
        f"{row.read:.2f}",
        f"{row.compile:.2f}",
        f"{row.inductor:.2f}" if row.inductor else "-",
        f"{row.megabytes:.0f}",
        f"{row.ort_megabytes:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def heading(names: Sequence[str]) -> str:
    """Return the first lines of the table."""
    cells = ["network", "threads", "ms", *(f"{n} / inlay" for n in names), "ratio", "best peer", "% peak"]
    cells += ["read s", "compile s", "inductor s", "MB", "ort MB"]
    return "| " + " | ".join(cells) + " |\n|" + "---|" * len(cells)


def means(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the geometric mean over the set, for each number of threads."""
    for threads in sorted({row.threads for row in rows}):
        found = [
            (row.best[1], row.network)
            for row in rows
            if row.threads == threads and row.best and row.is_in_set
        ]
        if found:
            mean = math.exp(statistics.fmean(math.log(r) for r, _ in found))
            yield (
                f"{threads} thread(s): geometric mean {mean:.3f} over {len(found)}, "
                f"least {min(found)[0]:.2f} ({min(found)[1]})"
            )


def machine(rows: Sequence[Row]) -> Iterator[str]:
    """Yield facts about the machine and the versions of all engines."""
    target = host()
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((x.split(":", 1)[1].strip() for x in info if x.startswith("model name")), "unknown")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    yield f"* Processor: {model}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}."
    yield f"* Vectors of {target.vector_bytes} bytes; caches {', '.join(map(str, _caches()))}."
    peaks = [row.peak / 1e9 for row in rows]
    yield (
        "* Measured peak of multiply-adds in f32, one thread, in the rounds of each row: "
        f"{min(peaks):.0f} to {max(peaks):.0f} GFLOP/s."
    )
    yield f"* Load while it ran (1, 5, 15 minutes, at the end): {load}."
    found = {"Python": platform.python_version(), "NumPy": np.__version__}
    for name in ("onnxruntime", "openvino", "torch"):
        try:
            found[name] = __import__(name).__version__.split("-")[0]
        except ImportError:
            found[name] = "absent"
    yield "* Versions: " + ", ".join(f"{k} {v}" for k, v in found.items()) + "."


def _caches() -> Iterator[str]:
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = ((folder / n).read_text().strip() for n in ("type", "level", "size"))
        if kind != "Instruction":
            yield f"L{level} {size}"


def document(rows: Sequence[Row], facts: Sequence[str], given: argparse.Namespace) -> str:
    """Return the page of results."""
    command = " ".join(["python benchmarks/networks.py", *sys.argv[1:]])
    return "\n".join(
        [
            "# Performance",
            "",
            f"Written by `{command}`; that file says what columns mean.",
            "A ratio is the time of the best peer over ours: above 1 is faster than all of them.",
            "",
            *facts,
            "",
            *(f"* {x}." for x in means(rows)),
            "",
            heading(given.peers),
            *map(line, rows),
            "",
            *(f"* {x}" for x in refusals(rows)),
            "",
        ]
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="networks whose names contain one of these")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.15, help="of each engine in each round")
    parser.add_argument("--peers", nargs="*", default=["onnxruntime", "openvino", "torch", "inductor"])
    parser.add_argument("--accuracy", type=float, default=1e-4, help="error that our products may have")
    parser.add_argument("--no-costs", action="store_true", help="do not measure compiling")
    parser.add_argument("--json", action="store_true", help="print rows as JSON lines")
    parser.add_argument("--write", type=Path, help="write the page of results to this file")
    given = parser.parse_args()
    if not any(_is_asked(case, given) for case in CASES):
        parser.error(f"--only: no network has {' or '.join(given.only) or 'nothing'} in its name")
    return given


def _is_asked(case: Case, given: argparse.Namespace) -> bool:
    return any(part in case.name for part in given.only)


def main() -> None:
    """Print a row for each network and number of threads."""
    given = _arguments()
    peak = peak_loop(host())
    if not given.json:
        print(heading(given.peers), flush=True)
    rows: list[Row] = []
    for case in CASES:
        if not _is_asked(case, given):
            continue
        for threads in given.threads:
            row = measured(case, threads, peak, given)
            rows.append(row)
            print(
                json.dumps({"benchmark": "networks", **asdict(row)}) if given.json else line(row), flush=True
            )
    if not given.json:
        print("", *means(rows), *machine(rows), *refusals(rows), sep="\n")
    if given.write is not None:
        given.write.write_text(document(rows, list(machine(rows)), given), encoding="utf-8")


if __name__ == "__main__":
    main()
