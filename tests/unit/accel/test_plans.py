"""Plans for several accelerators against every other choice, and against who takes the first that can."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

import inlay
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.machine.board import Board
from inlay.machine.board_file import find_board
from inlay.ops.table import table
from tests.data import model_case
from tests.plans import bound_of_all, choices_of, first_match, least_of_all
from tests.unit.accel.test_merge import Program

SHAPE = (16, 12, 12)


def towers(p: Program) -> str:
    """Two branches of two convolutions."""
    first, second = ("x", "x")
    for window in (3, 1):
        first, second = (p.convolution(v, SHAPE, 16, window) for v in (first, second))
    return f"({first}, {second})"


def joined(p: Program) -> str:
    """Two convolutions that meet in a sum."""
    return p.residual(*(p.convolution("x", SHAPE, 16, 3) for _ in range(2)))


def unequal(p: Program) -> str:
    """A long branch beside two short ones."""
    return f"({', '.join(p.convolution('x', SHAPE, k, w) for k, w in ((32, 3), (16, 3), (16, 1)))})"


def around(p: Program) -> str:
    """A sum with what was two convolutions before, and a branch that is read beside it."""
    a = p.convolution("x", SHAPE, 16, 3)
    return f"({p.residual(p.convolution(a, SHAPE, 16, 3), 'x')}, {p.convolution('x', SHAPE, 16, 3, 16)})"


GRAPHS: tuple[Callable[[Program], str], ...] = (towers, joined, unequal, around)


def drawn(seed: int) -> Callable[[Program], str]:
    """Convolutions and sums of values that are there; what nothing reads is a result."""

    def graph(p: Program) -> str:
        r, values, read = Random(seed), ["x"], set[str]()
        for _ in range(r.choice((3, 3, 4))):
            if len(values) > 2 and r.random() < 0.4:
                operands = r.sample(values[1:], 2)
                values.append(p.residual(*operands))
            else:
                operands = [r.choice(values)]
                groups = r.choice((1, 1, 16))
                values.append(p.convolution(operands[0], SHAPE, 16, r.choice((1, 3)), groups))
            read.update(operands)
        left = [v for v in values[1:] if v not in read]
        return left[0] if len(left) == 1 else f"({', '.join(left)})"

    return graph


def orders() -> list[Board]:
    """The board chocolate with its accelerators in every order of declaration; two of them are equal."""
    board = find_board("chocolate")
    host, *others = board.devices
    return [replace(board, devices=(host, *order)) for order in itertools.permutations(others)]


def module_of(graph: Callable[[Program], str]) -> Module:
    program = Program(7)
    program.first = SHAPE
    return parse_module(program.text(graph(program)), table())


@pytest.mark.sample(1)
@pytest.mark.parametrize("graph", GRAPHS)
def test_plans_are_as_good_as_the_best_in_every_order_of_declaration(graph: Callable[[Program], str]) -> None:
    module, times = module_of(graph), set[float]()
    for board in orders()[::2]:
        c = choices_of(module, board)
        least = least_of_all(c)
        assert bound_of_all(c) <= least <= c.outcome.time <= 1.05 * least
        assert c.outcome.time <= first_match(c)
        times.add(round(c.outcome.time))
    assert len(times) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(24))
def test_plans_of_drawn_graphs_are_as_good_as_the_best_of_all_choices(seed: int) -> None:
    c = choices_of(module_of(drawn(seed)), find_board("chocolate"))
    least = least_of_all(c)
    assert bound_of_all(c) <= least <= c.outcome.time <= 1.05 * least


@pytest.mark.parametrize("graph", [towers, unequal])
def test_branches_take_a_tenth_less_than_where_the_first_that_can_takes_them(
    graph: Callable[[Program], str],
) -> None:
    c = choices_of(module_of(graph), find_board("chocolate"))
    assert c.outcome.time <= 0.9 * first_match(c)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_ic_int8", "mlperf_kws_int8"])
def test_networks_that_are_chains_have_no_faster_plan(name: str) -> None:
    """One layer waits for the one before, so a second device is of no use: no choice saves a hundredth."""
    module = inlay.load(model_case(name).model)
    for board in orders()[::2]:
        c = choices_of(module, board)
        assert c.outcome.time <= 1.01 * bound_of_all(c)
        assert c.outcome.time <= first_match(c)
