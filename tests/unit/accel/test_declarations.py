"""Descriptions that contradict themselves are refused, with all that is wrong and where."""

from __future__ import annotations

import pytest

import inlay
from inlay.accel.accelerator import describe
from inlay.accel.api import (
    Accelerator,
    CCalls,
    Dim,
    Imm,
    In,
    Out,
    Param,
    Queue,
    Shared,
    call,
    encodes,
    i8,
    i32,
    instruction,
    nest,
    pattern,
)
from inlay.accel.match import Patterns
from inlay.accelerators.vanilla import Vanilla

OTHER = Dim(1, 8)


class Wrong(Accelerator):
    ram, run = Shared(), Queue()
    lanes = Param(3, choices=(4, 8))
    N, M = Dim(5, 2), Dim(1, 9)
    emit = CCalls()

    @instruction(run, y=Out(ram, i8, (M,)), x=In(ram, i8, (M,)), cycles=M)
    def not_written(self, y, x):
        for (i,) in nest(y.shape):
            y[i] = x[i]

    @instruction(run, y=Out(ram, i8, (M,)), x=In(ram, i8, (M,)), cycles=M)
    def writes_what_it_reads(self, y, x):
        for (i,) in nest(y.shape):
            x[i] = y[i]

    @instruction(run, y=Out(ram, i8, (M,)), z=Out(ram, i8, (M,)), cycles=M)
    def forgets_one(self, y, z):
        for (i,) in nest(y.shape):
            y[i] = 1

    @instruction(run, y=Out(ram, i8, (OTHER,)), cycles=OTHER)
    def of_another(self, y):
        for (i,) in nest(y.shape):
            y[i] = 0

    @instruction(run, y=Out(Shared(), i8, (M,)), k=Imm(0, 3), cycles=M)
    def other_arguments(self, y, x):
        pass

    @encodes(writes_what_it_reads, forgets_one, of_another, other_arguments)
    def all_of_them(self, c):
        return call("f", c.y)


FOUND = [
    "found 3 as the default of 'lanes', which is not among its values",
    "found the limits 5 and 2 of 'N', needed 0 <= low <= high",
    "found no encoding of the instruction 'not_written'",
    "found a store to 'x', which is declared In",
    "found 'z' of 'forgets_one' declared Out, and its meaning stores nothing to it",
    "found a size in the shape of 'y' of 'of_another' that is no parameter and no dim",
    "found a size in the cycles of 'of_another'",
    "found 'y' of 'other_arguments' in a memory that is no attribute of this class",
    "found the arguments y, x of 'other_arguments', needed y, k",
]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(inlay.CompileError) as caught:
        describe(Wrong)
    messages = [d.message for d in caught.value.diagnostics]
    assert {d.id for d in caught.value.diagnostics} == {"accel.declaration"}
    assert all(any(part in m for m in messages) for part in FOUND), messages
    assert len(messages) == len(FOUND)
    at = next(d.span for d in caught.value.diagnostics if "a store to 'x'" in d.message)
    assert at.source.name.endswith("test_declarations.py")
    assert "instruction" in at.source.line(at.source.position(at.start)[0])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"mac": "4"}, "found a parameter 'mac', which Vanilla does not have"),
        ({"macs": "0"}, "found macs = 0, needed a number above 0"),
        ({"macs": "many"}, "found macs = many, needed a number above 0"),
    ],
)
def test_parameters_that_there_are_not(said, message) -> None:
    with pytest.raises(inlay.CompileError, match=message):
        describe(Vanilla).architecture(said)


def test_parameters_are_numbers_on_an_instance() -> None:
    found = describe(Vanilla).architecture({"macs": "16"})
    assert found.device.macs == 16
    assert found.number(Vanilla.macs * 2).value == 32


class Lost(Accelerator):
    ram, run, N = Shared(), Queue(), Dim(1, 9)

    @instruction(run, y=Out(ram, i32, (N,)), x=In(ram, i32, (N,)), cycles=N)
    def move(self, y, x):
        for (i,) in nest(y.shape):
            y[i] = x[i]

    @encodes(move)
    def moving(self, c):
        return call("f", c.y, c.x)


def test_patterns_name_all_operands() -> None:
    class Short(Lost):
        @pattern
        def nothing_given(self, p):
            return p.call(p.op("relu", p.tensor("x", i32)), Lost.move)

    with pytest.raises(inlay.CompileError, match="none of 'move' in the pattern 'nothing_given', needed x"):
        Patterns.of(describe(Short).architecture({}))


def test_one_immediate_that_is_said_for_two_numbers_is_two() -> None:
    class Ends(Accelerator):
        ram, run, byte, N = Shared(), Queue(), Imm(-128, 127), Dim(1, 9)

        @instruction(run, y=Out(ram, i8, (N,)), low=byte, high=byte, cycles=N)
        def fill(self, y, low, high):
            for (i,) in nest(y.shape):
                y[i] = low + high

    low, high = Ends.fill.immediates.values()
    assert (low.low, low.high) == (high.low, high.high)
    assert low.sym is not high.sym


def test_patterns_return_a_call() -> None:
    class Silent(Lost):
        @pattern
        def empty(self, p):
            p.tensor("x", i32)

    with pytest.raises(inlay.CompileError, match="found the pattern 'empty' to return NoneType"):
        Patterns.of(describe(Silent).architecture({}))
