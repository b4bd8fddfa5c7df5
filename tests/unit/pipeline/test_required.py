"""`--require DEVICE`: what falls back is an error that lists it."""

from __future__ import annotations

import pytest

import inlay
from inlay.ir.parser import parse_module
from inlay.ops.table import table

PROGRAM = """
fn main<n>(x: Tensor[n, 8, f32]) {
  let a = relu(x);
  let b = reshape(a, shape(8, n));
  softmax(exp(b))
}
entry main;
"""


def compiled(**options):
    return inlay.compile(parse_module(PROGRAM, table()), board="host_two", threads=1, cache="none", **options)


@pytest.mark.llvm
def test_what_is_all_on_a_device_compiles() -> None:
    compiled(required=("cpu0",))
    compiled(required=("cpu1",), pins=("*=cpu1",))
    compiled(required=("cpu0", "cpu1"), pins=("exp=cpu1",))


def test_what_falls_back_is_listed() -> None:
    with pytest.raises(inlay.UnsupportedError) as caught:
        compiled(required=("cpu1",), pins=("exp=cpu1", "softmax=cpu0"))
    assert caught.value.ids == ("placement.fallback",)
    message = caught.value.diagnostics[0].message
    assert "(cpu1 alone): on cpu0 1 " in message
    assert "softmax" in message
    assert "exp" not in message
    assert "reshape" not in message


def test_devices_that_there_are_not() -> None:
    with pytest.raises(inlay.CompileError, match="found no device named 'cpu2'") as caught:
        compiled(required=("cpu2",))
    assert "did you mean" in str(caught.value)
