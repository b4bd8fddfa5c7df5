"""Which functions of a module in A-normal form mention which."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.analysis.blocks import operands, values
from inlay.base.graph import on_cycles, strong_components
from inlay.ir.expr import Expr, GlobalVar
from inlay.ir.module import Module


def mentioned_globals(root: Expr) -> tuple[str, ...]:
    """Return the names of functions and kernels that a block mentions, in order."""
    found: dict[str, None] = {}
    for value in values(root):
        for atom in (value, *operands(value)):
            if isinstance(atom, GlobalVar):
                found[atom.name] = None
    return tuple(found)


def call_graph(module: Module) -> dict[str, tuple[str, ...]]:
    """Return for each function the functions of the module that it mentions; kernels left out.

    A mention counts whether it is called or passed on: both keep the function alive.
    """
    return {
        name: tuple(g for g in mentioned_globals(function) if g in module.functions)
        for name, function in module.functions.items()
    }


def bottom_up(graph: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Return groups of mutually recursive functions, callees before callers."""
    return strong_components(graph, lambda name: graph[name])


def recursive_functions(graph: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return the functions that may call themselves, directly or through others."""
    return frozenset(on_cycles(graph, lambda name: graph[name]))
