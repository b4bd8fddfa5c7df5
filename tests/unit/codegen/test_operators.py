"""Operators compiled for this machine, against their references.

A few samples of each operator: the first with symbolic dims, the largest, and one of each dtype
would be thousands of kernels; `test_ops_to_loops` tries every sample with the evaluator.
"""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.expr import evaluate
from inlay.codegen.image import link
from inlay.codegen.llvm_generator import compile_function
from inlay.loop.func import LoopFunction
from inlay.lower.lower import lower
from inlay.lower.ops_to_loops import ops_to_loops
from inlay.machine.target import host
from inlay.ops._define import OpDef, Sample
from inlay.ops.table import table
from inlay.schedule.choose import decide
from tests.mapped_image import MappedImage
from tests.unit.lower.op_functions import function_of
from tests.unit.lower.test_ops_to_loops import agree
from tests.unit.schedule.programs import gave_up


def run_all(d: OpDef, s: Sample, *, symbolic: bool) -> None:
    made = function_of(d, s, symbolic=symbolic)
    if made is None:
        pytest.skip("an operand or result that kernels do not have")
    function, inputs, values = made
    loops = ops_to_loops(function, table().definition)
    expected = d.evaluate(s.attrs, *s.args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    decision = decide(loops, host())
    assert decision.rule or not gave_up(decision), gave_up(decision)
    lowered = lower(decision.function, host())
    for parts in (1, 3):
        found = execute(lowered, inputs, values, parts)
        for got, want in zip(found, expected, strict=True):
            agree(got.reshape(want.shape), want, d, s)


def execute(f: LoopFunction, inputs: list, values: dict, parts: int) -> list[np.ndarray]:
    unit = compile_function(f, host())
    mapped = MappedImage(link([("f", unit.data)]))
    env = {d: values[d] for d in f.dims}
    outputs = []
    for b in f.params[f.n_reads :]:
        shape = tuple(evaluate(e, env) for e in b.shape)
        raw = np.full(int(np.prod(shape)) * b.dtype.itemsize, 0xAB, np.uint8)
        outputs.append(raw.view(b.dtype.numpy).reshape(shape))
    scratch = np.full(
        (evaluate(unit.workspace.bytes, env) if unit.workspace else 0) * parts + 64, 0xCD, np.uint8
    )
    buffers = [*(np.ascontiguousarray(x) for x in inputs), *outputs, scratch]
    for symbol, parallel in unit.phases:
        count = parts if parallel else 1
        for part in range(count):
            assert mapped.call(f"f.{symbol}", buffers, list(env.values()), part, count) == 0
    return outputs


def chosen(d: OpDef) -> list[Sample]:
    samples = list(d.samples())
    largest = max(samples, key=lambda s: sum(a.size for a in s.args if isinstance(a, np.ndarray)))
    first = next((s for s in samples if s.symbolic), samples[0])
    return [first] if first is largest else [first, largest]


CASES = [
    pytest.param(d, s, bool(s.symbolic), id=f"{d.name}-{s.name}{'-symbolic' * bool(s.symbolic)}")
    for d in table()
    if d.compute is not None or d.loops is not None
    for s in chosen(d)
]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("d", "s", "symbolic"), CASES)
def test_operator(d: OpDef, s: Sample, symbolic: bool) -> None:
    run_all(d, s, symbolic=symbolic)
