"""Run drawn calls with compiled code, the evaluator and onnxruntime, and compare.

Outcomes:

* ok: all agree;
* refused: a `CompileError` with a reason;
* invalid: onnxruntime refuses the case, so that nothing more can be said about the value;
* known: onnxruntime departs from the specification in a way that `departure` explains;
* wrong: compiled code differs from the evaluator, or the evaluator from onnxruntime;
* crash: any other exception.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper

import inlay
from inlay.base.diagnostics import CompileError, RunError
from inlay.importers.onnx.graph import import_model
from inlay.ops.table import table
from tests.differential.onnx_calls import Case
from tests.differential.onnx_draw import Array
from tests.models.ops_models import evaluator

_NAN = frozenset(
    {
        "MaxPool",
        "GlobalMaxPool",
        "ReduceMax",
        "ReduceMin",
        "ReduceLogSumExp",
        "Sign",
        "Softmax",
        "LogSoftmax",
        "Hardmax",
        "ArgMax",
        "ArgMin",
        "Min",
        "Max",
    }
)
_IN_FLOATS = frozenset(
    {"ReduceProd", "ReduceSumSquare", "ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "Mod", "Pow", "Mean"}
)


def departure(case: Case) -> str:
    """Return how onnxruntime may depart from the specification in a case, or nothing.

    Asked only where it differs from the evaluator; each answer was decided by reading the text.
    """
    values = list(case.inputs.values())
    attrs = {a.name: helper.get_attribute_value(a) for a in case.model.graph.node[0].attribute}
    hard = any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in values)
    if case.op in _NAN and hard:
        return "a comparison drops NaN, or not, by the place where it stands; here NaN wins"
    if case.op in _IN_FLOATS and all(x.dtype.kind in "iu" for x in values):
        return "integers are computed in floats, which round and saturate; here they wrap"
    if case.op == "NonZero" and any(x.ndim == 0 for x in values):
        return "the place of a scalar has 1 coordinate; the specification says 0"
    if case.op.startswith("Reduce") and any(0 in x.shape for x in values):
        return "an empty tensor keeps dims that are reduced"
    if case.op == "MeanVarianceNormalization":
        return "the variance of equal numbers may be negative; here it is 0"
    if case.op == "Squeeze" and any(t.dims == [0] for t in case.model.graph.initializer):
        return "no axes mean all; the specification says so of absent ones only"
    if case.op == "Clip" and hard:
        return "an absent bound is the greatest finite number; in the function body it is none"
    steps = zip(attrs.get("strides", ()), attrs.get("kernel_shape", ()), strict=False)
    if attrs.get("auto_pad", b"").startswith(b"SAME") and any(s > k for s, k in steps):
        return "SAME with strides beyond the kernel crops the front; here nothing is padded"
    return ""


def differs(got: Any, want: Any, *, strict: bool) -> str:
    """Return why two results differ, or nothing; strict is for two executors of our own."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        return "" if np.array_equal(got, want) else f"{got.ravel()[:8]} for {want.ravel()[:8]}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    unit = float(np.finfo(want.dtype).eps) * (64 if strict else 512)
    bad = ~np.isclose(a, b, rtol=unit, atol=unit * max(1.0, float(finite.max(initial=0))), equal_nan=True)
    if bad.any():
        at = np.argwhere(bad)[0].tolist()
        return f"{a[tuple(at)]} for {b[tuple(at)]} at {at}, {int(bad.sum())} of {bad.size}"
    return ""


def ours(case: Case, *, compiled: bool) -> list[Array]:
    """Run a case with compiled code or the evaluator."""
    module = import_model(case.model, table())
    if compiled:
        return list(inlay.compile(module, threads=1).run(case.inputs).values())
    return list(evaluator(module)(case.inputs).values())


def theirs(case: Case) -> list[Array]:
    """Run a case with onnxruntime, not optimized."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, case.inputs)


def run_case(case: Case, *, compiled: bool = True) -> tuple[str, str]:
    """Return the outcome of a case and what there is to say about it."""
    try:
        meaning = ours(case, compiled=False)
        for got, want in zip(ours(case, compiled=True) if compiled else (), meaning, strict=False):
            why = differs(got, want, strict=True)
            if why:
                return "wrong", f"compiled against the evaluator: {why}"
    except (CompileError, RunError) as refusal:
        return "refused", "; ".join(f"{d.id}: {d.message}" for d in refusal.diagnostics[:2])
    except Exception as failure:  # a crash of one case is a row, not the end
        last = traceback.extract_tb(failure.__traceback__)[-1]
        return ("crash", f"{type(failure).__name__}: {failure} ({Path(last.filename).name}:{last.lineno})")
    try:
        expected = theirs(case)
    except Exception as failure:  # whatever onnxruntime raises
        return "invalid", str(failure).splitlines()[0][:200]
    for got, want in zip(meaning, expected, strict=True):
        why = differs(got, want, strict=False)
        if why:
            known = departure(case)
            return ("known", known) if known else ("wrong", f"the evaluator against onnxruntime: {why}")
    return "ok", ""
