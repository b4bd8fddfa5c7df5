"""Typical sizes of dims, as people say them for predictions: `NAME=SIZE`."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.arith.expr import Sym
from inlay.base.diagnostics import Collector
from inlay.base.registry import suggestion
from inlay.ir.module import Module
from inlay.ir.types import FuncType
from inlay.ir.walk import bound_symbols


def symbols_of(module: Module) -> list[Sym]:
    """Return the symbols that the functions of a program bind."""
    found: list[Sym] = []
    for function in module.functions.values():
        assert isinstance(function.type, FuncType), "functions have their types"
        found += [d.sym for d in function.type.dims]
        found += bound_symbols(function.body)
    return found


def check_sizes(module: Module, sizes: Mapping[str, int]) -> None:
    """Refuse sizes of dims that a program does not have.

    Raises:
        CompileError: all `option.bad-value` at once.
    """
    if not sizes:
        return
    known = dict.fromkeys(s.name for s in symbols_of(module))
    findings = Collector()
    for name in sizes:
        if name not in known:
            findings.error(
                "option.bad-value",
                f"found --typical {name}, which is no dim of the program",
                hint=suggestion(name, known, f"there are {', '.join(known) or 'none'}"),
            )
    findings.raise_if_fatal()
