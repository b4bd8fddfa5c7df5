"""Which functions of a module mention which."""

from __future__ import annotations

from collections.abc import Mapping

from inlay.base.graph import strong_components
from inlay.ir.expr import Expr, GlobalVar
from inlay.ir.module import Module
from inlay.ir.walk import postorder


def mentioned_globals(root: Expr) -> tuple[str, ...]:
    """Return the names of functions and kernels that an expression mentions, in order."""
    return tuple(dict.fromkeys(n.name for n in postorder(root) if isinstance(n, GlobalVar)))


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
    return frozenset(
        name
        for group in bottom_up(graph)
        for name in group
        if len(group) > 1 or name in graph[name]
    )
