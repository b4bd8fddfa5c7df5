from __future__ import annotations

import pytest

from inlay.analysis.blocks import operands, values
from inlay.arith.dtype import F32
from inlay.base.diagnostics import CompileError
from inlay.ir import make
from inlay.ir.expr import Call, ConstructorRef, Function, OpRef
from inlay.ir.module import Adt, Constructor, Module
from inlay.ir.types import FuncType
from tests.unit.transforms.programs import OPS, Program, noise, run, same

VECTOR = make.tensor_type((3,), F32)
BOX = Adt("Box", (), (Constructor("Wrap", 0, (VECTOR,)),))
RELU = OPS.definition("relu").op


def passed_refs(module: Module):
    """Operators and constructors that are read and not called."""
    found = []
    for function in module.functions.values():
        for value in values(function.body):
            read = value.args if isinstance(value, Call) else (value, *operands(value))
            found += [x for x in read if isinstance(x, OpRef | ConstructorRef)]
    return found


def higher_order(result, body) -> Function:
    """`fn(f, x)` that applies f."""
    p = Program()
    f = p.param("f", FuncType((VECTOR,), result))
    x = p.input("x", 3)
    return p.function(body(p, f, x))


def test_an_operator_that_is_passed_is_a_function_once_types_are_known():
    p = Program()
    apply = higher_order(VECTOR, lambda q, f, x: q.emit(f, (q.emit(f, (x,)),)))
    x = p.input("x", 3)
    y = p.emit(make.global_var("apply", apply.type), (make.op_ref(RELU), x))
    before = p.module(y)
    before = before.with_functions({**before.functions, "apply": apply})
    after = run("infer-types,to-anf,eta-expand", before)
    assert passed_refs(after) == []
    same(before, after, noise(3), exact=True)


def test_another_name_of_a_constructor_is_the_constructor():
    x, ref = make.var("x", VECTOR), make.constructor_ref(BOX, "Wrap")
    name = make.var("f", ref.type)
    module = Module({"main": make.function((x,), make.let(name, ref, make.call(name, (x,))))}, {"Box": BOX})
    after = run("to-anf,eta-expand", module)
    assert passed_refs(after) == []
    assert sum(isinstance(v, Function) for v in values(after.functions["main"].body)) == 0


def test_an_operator_where_nothing_says_what_it_takes_is_refused():
    p = Program()
    p.input("x", 3)
    module = Module({"main": p.function(p.tuple([make.op_ref(RELU)]))})
    with pytest.raises(CompileError, match="relu as a value") as caught:
        run("to-anf,eta-expand", module)
    assert caught.value.ids == ("type.undetermined",)
