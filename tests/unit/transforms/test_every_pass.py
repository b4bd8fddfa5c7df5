"""What holds of every pass: long programs take linear time, spans and places survive, nothing is
changed where nothing is to do, and the file has a record."""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from inlay.analysis.blocks import values
from inlay.arith.dtype import F32
from inlay.base.span import Span
from inlay.ir import make
from inlay.ir.builder import Builder
from inlay.ir.expr import Call, Const, OpRef
from inlay.ir.module import Module
from inlay.ir.place import Place
from inlay.ir.verify import check
from inlay.ir.walk import postorder
from inlay.pipeline.route import TENSOR
from tests.unit.transforms.programs import OPS, PASSES, context, dims, noise, same

ADD, EXP, MUL, MATMUL, RELU, RESHAPE = (
    OPS.definition(n).op for n in ("add", "exp", "mul", "matmul", "relu", "reshape")
)
NAMES = list(PASSES)


@functools.cache
def chain(length: int) -> Module:
    """A program of so many lets in which every pass finds something to look at."""
    b = Builder()
    x = b.param("x", make.tensor_type((dims("n"), 4), F32))
    w, one = make.const(noise(4, 4)), make.const(noise(4))
    y, old = x, x
    for i in range(length):
        match i % 5:
            case 0:
                y = b.emit(MATMUL, (y, w))
            case 1:
                y = b.emit(ADD, (y, one))
            case 2:
                y = b.emit(RELU, (y,))
            case 3:
                old, y = y, b.emit(MUL, (y, old))
            case _:
                y = b.emit(ADD, (old, y))
    return Module({"main": b.function(y)})


def ready(name: str, module: Module) -> Module:
    """The module with what a pass requires."""
    return PASSES["to-anf"].run(module, context()) if name != "to-anf" else module


def work(name: str, module: Module) -> int:
    """How many Python functions a pass calls: its time, without what else the machine does."""
    step, ctx, calls = PASSES[name], context(), 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        step.run(module, ctx)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.sample(8)
@pytest.mark.parametrize("length", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_a_long_program_goes_through(name, length):
    module = ready(name, chain(length))
    result = PASSES[name].run(module, context())
    assert sum(1 for _ in postorder(result.functions["main"])) > length // 2


@pytest.mark.slow
def test_a_very_long_program_goes_through_all():
    module, ctx = chain(100_000), context()
    for step in TENSOR:
        module = step.run(module, ctx)
    assert sum(f.primitive is not None for f in module.functions.values()) > 1


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", NAMES)
def test_work_is_linear(name):
    short, long = (work(name, ready(name, chain(n))) for n in (125, 1_000))
    assert long < 9 * short, f"{short} calls for 125 lets, {long} for 1,000"


@pytest.mark.parametrize("name", NAMES)
def test_spans_and_places_survive(name):
    b = Builder()
    place = Place("cpu")
    x = b.param("x", make.tensor_type((dims("n"), 4), F32))
    y = x
    for i, (op, args) in enumerate(
        [
            (MATMUL, (make.const(noise(4, 4)),)),
            (ADD, (make.const(noise(4)),)),
            (RELU, ()),
            (EXP, ()),
            (MUL, (make.const(noise(1)),)),
        ]
    ):
        y = b.emit(op, (y, *args), span=Span.named(f"node {i}"), place=place)
    module = ready(name, Module({"main": b.function(y)}))
    after = PASSES[name].run(module, context())
    check(after)
    for function in after.functions.values():
        for value in values(function.body):
            if isinstance(value, Call):
                assert value.span, f"{value.callee} has lost its span"
                is_packing = isinstance(value.callee, OpRef) and "pack" in value.callee.op.name
                assert value.place == place or is_packing, f"{value.callee} has lost its place"


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_module_and_one_without_operators_are_no_trouble(name):
    assert PASSES[name].run(Module(), context()).functions == {}
    x = make.var("x", make.tensor_type((dims("n"),), F32))
    module = Module({"main": make.function((x,), x)})
    after = PASSES[name].run(module, context())
    assert after.functions["main"].body is x


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_that_of_the_file(name):
    step = PASSES[name]
    assert step.name == name
    assert step.summary
    assert step.options()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "inline-lets"])
def test_meaning_is_kept(name):
    module = ready(name, chain(23))
    after = PASSES[name].run(module, context())
    same(module, after, noise(3, 4))


def test_every_pass_has_a_text_test_of_its_name():
    folder = Path(__file__).resolve().parents[2] / "text" / "transforms"
    missing = [n for n in NAMES if not (folder / f"{n.replace('-', '_')}.inl").exists()]
    assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_gone_when_nobody_needs_it(name):
    """No cycle holds what a pass was given: large constants would live on until they are collected."""
    module = ready(name, chain.__wrapped__(20))
    weights = {
        id(e.value): e.value
        for f in module.functions.values()
        for e in postorder(f)
        if isinstance(e, Const) and isinstance(e.value, np.ndarray)
    }
    watched = [weakref.ref(w) for w in weights.values()]
    assert watched
    gc.disable()
    try:
        result = PASSES[name].run(module, context())
        del module, weights, result
        assert not [w for w in watched if w() is not None]
    finally:
        gc.enable()
