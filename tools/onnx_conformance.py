"""Run the ONNX backend node tests and say what happened to each.

    python tools/onnx_conformance.py [--list LIST.csv] [--only SUBSTRING] [--evaluate] [--symbolic]

Each test is a model with inputs and expected outputs; they ship in the `onnx` package.
`--evaluate` runs the tensor evaluator instead of compiled code. A list (a CSV with a column
`name`) restricts the run to its tests. Outcomes:

* ok: outputs agree within the tolerance of the ONNX test runner;
* refused: a `CompileError` with a reason;
* wrong: outputs differ (the worst outcome);
* crash: any other exception.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.importers.onnx.graph import import_model
from inlay.interp.tensor import evaluate_entry
from inlay.ir.module import Module
from inlay.ir.op import Op
from inlay.ops.table import table

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""The suites that ship in the package; `real` models would have to be downloaded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one test."""

    name: str
    outcome: str
    detail: str
    seconds: float


def read_proto(path: Path, kind: onnx.TypeProto) -> object:
    """Return the value in a `.pb` file of a test; sequences and optionals become lists."""
    data = path.read_bytes()
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(data)
        return numpy_helper.to_list(sequence)
    if which == "optional_type":
        optional = onnx.OptionalProto()
        optional.ParseFromString(data)
        return numpy_helper.to_optional(optional)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(data)
    return numpy_helper.to_array(tensor)


def array_of(value: object) -> object:
    """Return a value of a test in memory; formats that NumPy lacks are kept as protos."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def model_of(test: TestCase) -> onnx.ModelProto:
    """Return the model of a test; some releases of onnx ship them as files, others make them."""
    return test.model or onnx.load(Path(test.model_dir) / "model.onnx")


def data_sets(test: TestCase, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield (inputs, outputs) of every data set of a test."""
    if test.data_sets:
        for inputs, outputs in test.data_sets:
            yield [array_of(v) for v in inputs], [array_of(v) for v in outputs]
        return
    for data in sorted(Path(test.model_dir).glob("test_data_set_*")):
        sides: list[list[Any]] = []
        for prefix, infos in (("input", model.graph.input), ("output", model.graph.output)):
            files = [data / f"{prefix}_{i}.pb" for i in range(len(infos))]
            pairs = zip(files, infos, strict=True)
            sides.append([read_proto(f, info.type) for f, info in pairs if f.exists()])
        yield sides[0], sides[1]


def compare(got: object, want: object, rtol: float, atol: float) -> str:
    """Return why an output is wrong, or nothing; sequences are compared one by one."""
    if want is None or got is None:
        return "" if want is got else f"{type(got).__name__} for {type(want).__name__}"
    if isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            return f"{len(got)} elements for {len(want)}"
        reasons = [compare(g, w, rtol, atol) for g, w in zip(got, want, strict=True)]
        return next((f"element {i}: {why}" for i, why in enumerate(reasons) if why), "")
    want = np.asarray(want) if isinstance(want, np.generic) else want
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return f"{type(got).__name__} for {type(want).__name__}"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "OUS":
        return "" if (got == want).all() else "strings differ"
    # Two units in the last place; the runner of ONNX does this for bfloat16.
    rtol = max(rtol, {"bfloat16": 2**-6, "float16": 2**-9}.get(want.dtype.name, 0.0))
    a, b = got.astype(np.float64), want.astype(np.float64)
    if np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    return f"differs by up to {np.nanmax(np.abs(a - b)):.3g}"


def caller(module: Module, *, use_evaluator: bool) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function from inputs to outputs, both by position."""
    names = module.entries["main"]
    if use_evaluator:

        def meaning(op: Op, attrs: object, args: tuple[Any, ...]) -> Any:
            return table().definition(op).evaluate(attrs, *args)

        return lambda inputs: tuple(
            evaluate_entry(module, dict(zip(names.inputs, inputs, strict=True)), meaning).values()
        )
    executable = inlay.compile(module)
    return lambda inputs: tuple(executable.run(dict(zip(names.inputs, inputs, strict=True))).values())


def with_symbolic_dims(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with a name in place of every size of its inputs.

    Equal sizes get one name, as an exporter would name them; 1 stays, for it may broadcast.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {t.name for t in copy.graph.initializer}
    for info in copy.graph.input:
        if info.name not in constants and info.type.HasField("tensor_type"):
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_value > 1:
                    dim.dim_param = f"n{dim.dim_value}"
    return copy


def run_one(test: TestCase, *, use_evaluator: bool, symbolic: bool = False) -> tuple[str, str]:
    """Return the outcome of a test and what there is to say about it."""
    try:
        model = model_of(test)
        if symbolic:
            model = with_symbolic_dims(model)
        call = caller(import_model(model, table()), use_evaluator=use_evaluator)
        for inputs, outputs in data_sets(test, model):
            for got, want in zip(call(inputs), outputs, strict=True):
                why = compare(got, want, test.rtol, test.atol)
                if why:
                    return "wrong", why
    except (CompileError, RunError) as refusal:
        return "refused", "; ".join(f"{d.id}: {d.message}" for d in refusal.diagnostics[:2])
    except Exception as failure:  # a crash of one test is a row, not the end
        last = traceback.extract_tb(failure.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return "crash", f"{type(failure).__name__}: {failure} ({where})"
    return "ok", ""


def chosen_tests(listing: Path | None) -> set[str] | None:
    """Return the names in the column `name` of a list."""
    if listing is None:
        return None
    with listing.open(newline="") as file:
        return {row["name"] for row in csv.DictReader(file)}


def main() -> int:
    """Run the tests and print a summary; the exit status says whether any value was wrong."""
    parser = argparse.ArgumentParser(description="Run the ONNX backend node tests.")
    parser.add_argument("--list", type=Path, help="CSV whose column `name` names the tests to run")
    parser.add_argument("--only", default="", help="run tests whose name contains this")
    parser.add_argument("--evaluate", action="store_true", help="use the evaluator")
    parser.add_argument("--symbolic", action="store_true", help="name every size of the inputs")
    parser.add_argument("--json", type=Path, help="write all outcomes to this file")
    parser.add_argument("--verbose", action="store_true", help="print every test that is not ok")
    args = parser.parse_args()
    names = chosen_tests(args.list)
    outcomes: list[Outcome] = []
    for test in (t for kind in KINDS for t in load_model_tests(kind=kind)):
        if (names is not None and test.name not in names) or args.only not in test.name:
            continue
        start = time.perf_counter()
        outcome, detail = run_one(test, use_evaluator=args.evaluate, symbolic=args.symbolic)
        outcomes.append(Outcome(test.name, outcome, detail, time.perf_counter() - start))
        if args.verbose and outcome != "ok":
            print(f"{outcome:8} {test.name}: {detail}", flush=True)
    counts = Counter(o.outcome for o in outcomes)
    print(", ".join(f"{counts[k]} {k}" for k in ("ok", "refused", "wrong", "crash")))
    if args.json:
        args.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    return 1 if counts["wrong"] or counts["crash"] else 0


if __name__ == "__main__":
    sys.exit(main())
