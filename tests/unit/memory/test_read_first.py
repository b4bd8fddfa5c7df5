"""Reads of what a kernel updates come before the update; what cannot be moved is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from inlay.analysis.infer_types import infer_types
from inlay.api import compilation
from inlay.cli.main import main
from inlay.interp.tensor import evaluate
from inlay.ir.expr import Call, Let, OpRef
from inlay.ir.parser import parse_module
from inlay.ir.walk import postorder
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
    "row": "let row = get_row(cache, int(i)); step(int(i + 1), next, add(sum, row))",
    "view": "let v = reshape(cache, shape(8, 1, 4)); let at = reshape(to_tensor(int(i)), shape(1)); "
    "let row = reduce_sum{axes=[0, 1], keepdims=false}(gather(v, at)); "
    "step(int(i + 1), next, add(sum, row))",
    "both": "let row = reduce_sum{axes=[0], keepdims=false}(sub(next, cache)); "
    "step(int(i + 1), next, add(sum, row))",
}


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


@pytest.mark.parametrize(
    ("body", "behind"), [("behind", 0), ("chain", 0), ("row", 0), ("view", 0), ("both", 1)]
)
def test_reads_come_before_the_update_or_are_said(body, behind):
    compiled = compilation(program(body), cache="none")
    assert reads_behind(compiled.module) == behind
    assert len(compiled.report.copies) == behind


def test_the_remark_names_both():
    (remark,) = compilation(program("both"), cache="none").report.copies
    assert remark.message.startswith("'cache' is copied before its update 'next'")
    assert (remark.decision, remark.reason) == ("copied", "read-behind")


CONSTANT = """
fn main(n: Tensor[i64], x: Tensor[1, 4, f32]) -> Tensor[1, 4, f32] {
  let limit: some int limit. int[limit] = to_control(n);
  let again = fn<i>(i: int[i], sum: Tensor[1, 4, f32]) -> Tensor[1, 4, f32] {
    if (int_less(int(i), int(limit))) {
      let fresh = scatter_nd(f32[2, 4](1, 2, 3, 4, 5, 6, 7, 8), reshape(to_tensor(int(0)), shape(1, 1)), sum);
      again(int(i + 1), gather(fresh, reshape(to_tensor(int(1)), shape(1))))
    } else { sum }
  };
  again(int(0), x)
}
entry main;
"""


def test_the_report_and_the_command_say_what_is_copied(tmp_path, capsys):
    path = tmp_path / "constant.inl"
    path.write_text(CONSTANT)
    command = ["compile", str(path), "-o", str(tmp_path / "constant.inlay")]
    assert main([*command, "--json"]) == 0
    (copy,) = json.loads(capsys.readouterr().out)["report"]["copies"]
    assert copy["reason"] == "constant"
    assert copy["at"].startswith("6:")
    assert main(command) == 0
    assert copy["message"] in capsys.readouterr().out
    assert "in every turn of 'again': it is a constant" in copy["message"]
