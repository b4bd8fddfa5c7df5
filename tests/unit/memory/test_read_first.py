"""Reads of what a kernel updates come before the update; what cannot be moved is said."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.interp.tensor import evaluate
from inlay.ir.expr import Call, Let, OpRef
from inlay.ir.parser import parse_module
from inlay.ir.walk import postorder
from inlay.memory import read_first
from inlay.ops.memory import OWN
from inlay.ops.table import table
from inlay.runtime.session import executable_of

LOOP = """
  let limit: some int limit. int[limit] = to_control(n);
  let step = fn<i>(i: int[i], cache: Tensor[8, 4, f32], sum: Tensor[4, f32])
      -> (Tensor[8, 4, f32], Tensor[4, f32]) {
    if (int_less(int(i), int(limit))) {
      let next = scatter_nd(cache, reshape(to_tensor(int(i)), shape(1, 1)), reshape(sum, shape(1, 4)));
      BODY
    } else { (cache, sum) }
  };
  step(int(0), zeros{dtype=f32}(shape(8, 4)), x)
"""
READ = "let row = reduce_sum{axes=[0], keepdims=false}(cache); "
BODIES = {
    "behind": READ + "step(int(i + 1), next, add(sum, row))",
    "chain": "let twice = mul(cache, f32(2)); let row = reduce_sum{axes=[0], keepdims=false}(twice); "
             "step(int(i + 1), next, add(sum, row))",
    "both": "let row = reduce_sum{axes=[0], keepdims=false}(sub(next, cache)); "
            "step(int(i + 1), next, add(sum, row))",
}  # fmt: skip


def program(body: str):
    text = "fn main(n: Tensor[i64], x: Tensor[4, f32]) -> (Tensor[8, 4, f32], Tensor[4, f32]) {"
    return infer_types(parse_module(text + LOOP.replace("BODY", BODIES[body]) + "} entry main;", table()))


@pytest.mark.parametrize("body", BODIES)
def test_programs_compute_the_same(body):
    module = program(body)
    executable = executable_of(compilation(module, cache="none", verify=True).program, threads=1)
    args = [np.array(5), np.array([1, 2, 3, 4], np.float32)]
    for a, b in zip(executable(*args), evaluate(module, args), strict=True):
        np.testing.assert_array_equal(a, b)


def reads_behind(module) -> int:
    """Count what reads a tensor behind the place where it becomes the update's own."""
    found = 0
    for let in postorder(module.functions["main"]):
        if isinstance(let, Let) and isinstance(let.value, Call):
            callee = let.value.callee
            if isinstance(callee, OpRef) and callee.op is OWN:
                rest = (e for e in postorder(let.body) if isinstance(e, Call))
                found += sum(let.value.args[0] in e.args for e in rest)
    return found


@pytest.mark.parametrize(("body", "behind"), [("behind", 0), ("chain", 0), ("both", 1)])
def test_reads_come_before_the_update_or_are_said(monkeypatch, body, behind):
    said = []
    monkeypatch.setattr(read_first._Mover, "_say", lambda self, *what: said.append(what))
    module = compilation(program(body), cache="none").module
    assert reads_behind(module) == behind
    assert len(said) == behind


@pytest.mark.parametrize("body", ["both"])
def test_the_remark_names_both(monkeypatch, body):
    remarks = []
    run = read_first._Mover._say

    def say(self, *what):
        run(self, *what)
        remarks.extend(self._context.remarks.of("read-first"))

    monkeypatch.setattr(read_first._Mover, "_say", say)
    compilation(program(body), cache="none")
    (remark,) = remarks
    assert remark.message.startswith("'cache' is copied before its update 'next'")
    assert remark.decision == "copied"
