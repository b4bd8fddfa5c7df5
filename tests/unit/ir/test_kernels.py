"""Kernels in a module: called like functions, evaluated by their bodies, named in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from inlay.arith.dtype import F32
from inlay.arith.expr import Sym, fresh, from_atom
from inlay.base.diagnostics import CompileError
from inlay.interp.tensor import evaluate
from inlay.ir import make
from inlay.ir.equal import modules_equal
from inlay.ir.kernel import Access, Kernel, Port
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.ir.types import DimParam, FuncType
from inlay.ir.verify import verify
from tests.unit.ir.ops import TABLE, meaning


@dataclass(frozen=True)
class Repeat:
    """Two copies of the input, one after the other."""

    kind: str = "python"

    def text(self) -> str:
        return "repeat"

    def digest(self) -> str:
        return "repeat-1"

    def evaluate(self, inputs: Sequence[np.ndarray], dims: Mapping[Sym, int]) -> tuple[np.ndarray, ...]:
        (x,) = inputs
        assert dict(dims) == {next(iter(dims)): x.shape[0]}
        return (np.concatenate([x, x]),)


def kernel() -> Kernel:
    n = fresh("n")
    x = make.tensor_type((n,), F32)
    y = make.tensor_type((2 * from_atom(n),), F32)
    ports = (Port("x", x, Access.READ), Port("y", y, Access.WRITE))
    return Kernel("repeat", FuncType((x,), y, (DimParam(n),)), ports, Repeat())


def module() -> Module:
    k = kernel()
    x = make.var("x", make.tensor_type((3,), F32))
    call = make.call(make.global_var("repeat", k.type), (x,))
    return Module({"main": make.function((x,), call)}, kernels={"repeat": k})


def test_a_call_is_typed_verified_and_evaluated():
    m = module()
    assert verify(m) == ()
    got = evaluate(m, [np.arange(3, dtype=np.float32)], meaning)
    assert got.tolist() == [0, 1, 2, 0, 1, 2]


def test_text_names_the_body_that_is_given_beside_it():
    m = module()
    text = print_module(m)
    again = parse_module(text, TABLE, kernels={"repeat-1": kernel()})
    assert modules_equal(m, again)
    with pytest.raises(CompileError, match="was not given"):
        parse_module(text, TABLE)
