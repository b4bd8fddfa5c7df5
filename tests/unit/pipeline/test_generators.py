"""What a code generator refuses is known when places are planned: nothing fails behind that."""

from __future__ import annotations

import pytest

import inlay
from inlay.base.diagnostics import CompileError
from inlay.codegen.opencl import DeviceFacts
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.pipeline import generators
from inlay.pipeline.explain import explanation

PROGRAM = """
fn main(x: Tensor[8, 64, f32], y: Tensor[8, f64]) {
  (softmax(matmul(x, transpose{perm=[1, 0]}(x))), exp(y)) }
"""


def test_element_types_that_a_device_lacks():
    found = explanation(parse_module(PROGRAM, table()), "remote_opencl")
    (exp,) = [o for o in found.operations if o.operator == "exp"]
    assert exp.device == "cpu"
    assert exp.others == {"far0": "opencl-remote does not handle f64"}
    with pytest.raises(CompileError) as failure:
        inlay.compile(parse_module(PROGRAM, table()), board="remote_opencl", pins=("exp=far0",))
    assert failure.value.ids == ("placement.unsupported-op",)
    assert "opencl-remote does not handle f64" in str(failure.value)


def test_what_the_generator_says_of_lowered_code_keeps_operations_off_the_device(monkeypatch):
    """A device that has no room for temporaries gets nothing that needs one, even where it is fast."""
    monkeypatch.setattr(generators, "facts_of", lambda arch: DeviceFacts(private_bytes=1))
    program = parse_module("fn main(x: Tensor[64, 512, f32]) { softmax(x) }", table())
    found = explanation(program, "opencl")
    (softmax,) = found.operations
    assert softmax.device == "cpu"
    assert softmax.others["cl0"].startswith("a temporary of ")
    with pytest.raises(CompileError) as failure:
        explanation(program, "opencl", pins=("softmax=cl0",))
    assert failure.value.ids == ("placement.unsupported-op",)
    assert "a temporary of " in str(failure.value)
