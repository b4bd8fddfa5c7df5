from __future__ import annotations

from dataclasses import replace

from inlay.arith.dtype import F32
from inlay.ir import make
from inlay.ir.module import Adt, Constructor, Module
from inlay.ir.types import AdtType
from tests.unit.transforms.programs import OPS, Program, dims, run

EXP = OPS.definition("exp").op


def test_a_module_without_dead_code_stays_as_it_is():
    p, n = Program(), dims("n")
    x = p.input("x", n)
    before = run("to-anf", p.module(p.op("relu", x)))
    after = run("eliminate-dead", before)
    assert after.functions["main"] is before.functions["main"]


def test_functions_and_data_types_that_nothing_reaches_go():
    box = Adt("Box", (), (Constructor("Wrap", 0, (AdtType("Inner"),)),))
    inner = Adt("Inner", (), (Constructor("Leaf", 0, ()),))
    unused = Adt("Unused", (), (Constructor("None", 0, ()),))
    n = dims("n")
    x = make.var("x", make.tensor_type((n,), F32))
    y = make.var("y", make.tensor_type((dims("n"),), F32))
    z = make.var("z", AdtType("Box"))
    module = Module(
        {"main": make.function((x, z), x), "helper": make.function((y,), y)},
        adts={a.name: a for a in (box, inner, unused)},
    )
    after = run("eliminate-dead", module)
    assert list(after.functions) == ["main"]
    assert list(after.adts) == ["Box", "Inner"]
    library = replace(module, entry="other")
    assert list(run("eliminate-dead", library).functions) == ["main", "helper"]
