"""Every operator against its own record: the type rule says what the reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from inlay.arith.dtype import from_numpy
from inlay.arith.expr import Int, Sym, evaluate, fresh, lit
from inlay.base.diagnostics import CompileError, error
from inlay.ir.types import TensorType, TupleType, Type
from inlay.ops._define import OpDef, Sample
from inlay.ops.table import op_ref, table
from tests.symbolic import symbolic_types

OPERATORS = pytest.mark.parametrize("d", list(table()), ids=lambda d: d.name)


class Context:
    """Relates dims under known values of the symbols: what is false there is an error."""

    def __init__(self, values: dict[Sym, int]) -> None:
        self.values = values

    def equal(self, a: Int, b: Int, why: str) -> Int:
        if evaluate(a, self.values) != evaluate(b, self.values):
            raise error("type.dim-mismatch", f"{a} and {b} for {why}")
        return a if a.value is not None else b

    def known_equal(self, a: Int, b: Int) -> bool:
        return a == b

    def at_least(self, a: Int, low: int, why: str) -> None:
        if evaluate(a, self.values) < low:
            raise error("type.dim-too-small", f"{a} < {low} for {why}")

    def fresh_dim(self, name: str) -> Sym:
        return fresh(name)

    def fail(self, message: str, *, id: str = "type.op-argument", hint: str = "") -> CompileError:
        return error(id, message, hint=hint)


def check(result: object, type_: Type, values: dict[Sym, int]) -> None:
    if isinstance(type_, TupleType):
        assert isinstance(result, tuple) and len(result) == len(type_.fields)
        for r, t in zip(result, type_.fields, strict=True):
            check(r, t, values)
    elif isinstance(type_, TensorType):
        assert isinstance(result, np.ndarray), type(result)
        assert from_numpy(result.dtype) is type_.dtype
        assert result.shape == tuple(evaluate(d, values) for d in type_.shape)


@OPERATORS
def test_reference_has_the_type_of_the_rule(d: OpDef) -> None:
    """One test for all samples of an operator, which are thousands and quick."""
    for s in d.samples():
        try:
            check_sample(d, s)
        except Exception as failure:
            failure.add_note(f"sample {s.name}")
            raise


def check_sample(d: OpDef, s: Sample) -> None:
    result = d.evaluate(s.attrs, *s.args)
    check(result, d.op.type_rule(Context({}), s.attrs, s.types()), {})
    if s.symbolic:
        types, values = symbolic_types(s)
        check(result, d.op.type_rule(Context(values), s.attrs, types), values)


def test_every_operator_says_what_it_is() -> None:
    for d in table():
        assert d.op.doc and d.op.attrs_type.__doc__
        assert d.name == d.name.lower()


def test_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(CompileError) as failure:
        op_ref("sofmax")
    assert "softmax" in str(failure.value)
    assert table().find("sofmax") is None
    assert op_ref("softmax", axis=1).op is table().find("softmax")


def test_unproved_dims_are_related_and_ones_broadcast() -> None:
    n, m = fresh("n"), fresh("m")
    add = table().definition("add").op
    a, b = (TensorType((lit(1), Int((((s,), 1),))), from_numpy(np.dtype("f4"))) for s in (n, m))
    with pytest.raises(CompileError):
        add.type_rule(Context({n: 2, m: 3}), op_ref("add").attrs, (a, b))
    assert add.type_rule(Context({n: 2, m: 2}), op_ref("add").attrs, (a, b)) == b
