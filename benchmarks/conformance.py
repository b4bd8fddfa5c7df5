"""How long it takes to import and compile models: the ONNX backend tests, and the shared models.

    python benchmarks/conformance.py [--json] [--only SUBSTRING] [--listed] [--slowest N]

Every case goes from a model in memory, or a file, to a program, without the object cache; nothing is
run. Refusals count too: to refuse has to be quick. At the end stand the sums and the slowest cases,
so that a compile-time cliff has a name. `--listed` takes only the tests that must pass
(`tests/models/onnx_conformance.txt`). All of it is to take less than five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from onnx.backend.test.loader import load_model_tests

from inlay.api import compilation, load
from inlay.base.diagnostics import CompileError
from inlay.importers.onnx.graph import import_model
from inlay.ir.module import Module
from inlay.ops.table import table

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
LISTED = ROOT / "tests" / "models" / "onnx_conformance.txt"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one case.

    Attributes:
        name: of the case.
        outcome: `ok`, `refused`, or `crash` with the name of the exception.
        load_seconds: until there is a module.
        compile_seconds: from there to a program; 0 where it did not come to that.
    """

    name: str
    outcome: str
    load_seconds: float
    compile_seconds: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.load_seconds + self.compile_seconds


def cases() -> Iterator[tuple[str, Callable[[], Module]]]:
    """Yield names and ways to import."""
    for kind in KINDS:
        for test in load_model_tests(kind=kind):
            model = test.model or onnx.load(Path(test.model_dir) / "model.onnx")
            yield test.name, lambda model=model: import_model(model, table())
    for path in sorted(DATA.glob("cases/*/*.onnx")):
        yield f"models/{path.parent.name}", lambda path=path: load(path)


def measure(name: str, read: Callable[[], Module]) -> Row:
    """Import and compile one case."""
    start = time.perf_counter()
    loaded = start
    try:
        module = read()
        loaded = time.perf_counter()
        compilation(module, cache="none")
        outcome = "ok"
    except CompileError:
        outcome = "refused"
    except Exception as problem:
        outcome = f"crash ({type(problem).__name__})"
    end = time.perf_counter()
    if loaded == start:
        return Row(name, outcome, end - start, 0.0)
    return Row(name, outcome, loaded - start, end - loaded)


def main() -> int:
    """Measure, print, and return 1 if something crashed."""
    parser = argparse.ArgumentParser(description="time to import and compile models")
    parser.add_argument("--json", action="store_true", help="one JSON record")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="cases with it in the name")
    parser.add_argument("--listed", action="store_true", help="only the tests that must pass")
    parser.add_argument("--slowest", type=int, default=10, metavar="N", help="how many to print")
    arguments = parser.parse_args()
    listed = frozenset(LISTED.read_text().split()) if arguments.listed else None
    warnings.simplefilter("ignore", RuntimeWarning)  # some tests divide by zero when they are made
    compilation(import_model(_first_model(), table()), cache="none")  # what only the first one pays
    rows = [
        measure(name, read)
        for name, read in cases()
        if arguments.only in name and (listed is None or name in listed)
    ]
    slowest = sorted(rows, key=lambda r: -r.seconds)[: arguments.slowest]
    outcomes = Counter(r.outcome for r in rows)
    totals = {
        "cases": len(rows),
        "seconds": sum(r.seconds for r in rows),
        "load_seconds": sum(r.load_seconds for r in rows),
        "compile_seconds": sum(r.compile_seconds for r in rows),
        "median_seconds": statistics.median(r.seconds for r in rows) if rows else 0.0,
        "outcomes": dict(sorted(outcomes.items())),
    }
    if arguments.json:
        print(
            json.dumps({**totals, "slowest": [asdict(r) for r in slowest], "rows": [asdict(r) for r in rows]})
        )
    else:
        print(
            f"{totals['cases']} cases in {totals['seconds']:.1f} s "
            f"(load {totals['load_seconds']:.1f}, compile {totals['compile_seconds']:.1f}), "
            f"median {totals['median_seconds'] * 1e3:.0f} ms"
        )
        print("  ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items())))
        for r in slowest:
            print(
                f"{r.seconds:8.2f} s  load {r.load_seconds:6.2f}  compile "
                f"{r.compile_seconds:6.2f}  {r.outcome:8} {r.name}"
            )
    return int(any(r.outcome.startswith("crash") for r in rows))


def _first_model() -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info
    x, y = (value(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


if __name__ == "__main__":
    sys.exit(main())
