"""Operators of integers give what the reference kernels give, to the last step.

`kernels.json` has a checksum of what the kernels of TFLite Micro gave for each case (`tflm`), or those of
LiteRT (`litert`) where the others do not have the operator.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.interp.tensor import evaluate_entry
from inlay.ops.table import table
from inlay.runtime.sessions import Session

pytest.importorskip("tflite", reason="the package 'tflite' is not installed")

from inlay.importers.tflite.graph import import_bytes
from tests.unit.importers.tflite.kernel_cases import Case, case, names

NAMES = tuple(names())
RECORDED = json.loads(Path(__file__).with_name("kernels.json").read_text())


def checksum(results: list[list[np.ndarray]]) -> int:
    return zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for run in results for a in run))


def replayed(one: Case, session: Session, inputs: list[str]) -> list[list[np.ndarray]]:
    results = []
    for run in one.runs:
        found = session.run(dict(zip(inputs, run, strict=True)))
        results.append([np.asarray(v) for v in found.values()])
    return results


def evaluated(one: Case) -> list[list[np.ndarray]]:
    module = import_bytes(one.content, table())
    entry = module.entries["main"]
    first = evaluate_entry(replace(module, entry=entry.first), {}) if entry.first else {}
    types = dict(zip(entry.inputs, module.functions["main"].type.params, strict=True))
    state = {
        given: first.get(given, np.zeros([d.value for d in types[given].shape], types[given].dtype.numpy))
        for given, _ in entry.state
    }

    def run(inputs, timeout):
        return evaluate_entry(module, inputs)

    session = Session(run, {made: given for given, made in entry.state}, state)
    return replayed(one, session, [n for n in entry.inputs if n not in state])


def test_every_case_is_recorded():
    assert list(RECORDED) == list(NAMES)


@pytest.mark.sample(60)
@pytest.mark.parametrize("name", NAMES)
def test_the_evaluator_gives_what_kernels_give(name):
    assert checksum(evaluated(case(name))) == RECORDED[name][1]


@pytest.mark.llvm
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_code_gives_what_kernels_give(name):
    one = case(name)
    executable = inlay.compile(one.content, threads=1)
    inputs = [s.name for s in executable.inputs if s.name not in executable.state]
    assert checksum(replayed(one, executable.session(), inputs)) == RECORDED[name][1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in NAMES if RECORDED[n][0] == "litert"])
def test_the_interpreter_gives_what_is_recorded(name):
    package = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="the package 'ai-edge-litert' is missing"
    )
    one = case(name)
    interpreter = package.Interpreter(
        model_content=one.content, experimental_op_resolver_type=package.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    results = []
    for run in one.runs:
        for detail, x in zip(interpreter.get_input_details(), run, strict=True):
            interpreter.set_tensor(detail["index"], x)
        interpreter.invoke()
        results.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    assert checksum(results) == RECORDED[name][1]
