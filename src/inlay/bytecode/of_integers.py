"""Integers over symbols as formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from inlay.arith.expr import Atom, FloorDiv, Int, Max, Min, Mod, Sym, symbols
from inlay.bytecode.formula import Arg, Formula


def formula(e: Int, positions: Mapping[Sym, int]) -> Formula | None:
    """Return an integer as a formula over numbered symbols; None if it mentions another one."""
    if any(s not in positions for s in symbols(e)):
        return None
    steps: list[int | Arg | str] = []
    _write(e, positions, steps)
    return tuple(steps)


def _write(e: Int, positions: Mapping[Sym, int], steps: list[int | Arg | str]) -> None:
    if not e.terms:
        steps.append(0)
    for index, (monomial, c) in enumerate(e.terms):
        if c != 1 or not monomial:
            steps.append(c)
        for k, atom in enumerate(monomial):
            _write_atom(atom, positions, steps)
            if k or c != 1:
                steps.append("mul")
        if index:
            steps.append("add")


def _write_atom(atom: Atom, positions: Mapping[Sym, int], steps: list[int | Arg | str]) -> None:
    match atom:
        case Sym():
            steps.append(Arg(positions[atom]))
        case FloorDiv(numerator=a, denominator=b):
            _write(a, positions, steps)
            _write(b, positions, steps)
            steps.append("floordiv")
        case Mod(numerator=a, denominator=b):
            _write(a, positions, steps)
            _write(b, positions, steps)
            steps.append("mod")
        case Min(args=args) | Max(args=args):
            for index, arg in enumerate(args):
                _write(arg, positions, steps)
                if index:
                    steps.append("min" if isinstance(atom, Min) else "max")
        case _:
            assert_never(atom)
