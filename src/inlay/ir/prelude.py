"""The prelude: `Option`, `List`, `Tree`, and functions over them, written in the language itself.

The functions are ordinary global functions with dotted names (`list.map`). `with_prelude` adds to a
module those it uses and lacks, and what they use; a module's own definitions win.
"""

from __future__ import annotations

import functools
from importlib import resources

from inlay.ir import walk
from inlay.ir.core_ops import CoreTable
from inlay.ir.expr import Expr, Function, GlobalVar
from inlay.ir.module import Adt, Module
from inlay.ir.parser import parse_module


@functools.cache
def prelude() -> Module:
    """Return the prelude as a module of its own, without an entry."""
    text = resources.files("inlay.ir").joinpath("prelude.inl").read_text(encoding="utf-8")
    return parse_module(text, CoreTable(), name="prelude.inl")


def adt(name: str) -> Adt:
    """Return a data type of the prelude: `Option`, `List` or `Tree`."""
    return prelude().adts[name]


def with_prelude(module: Module) -> Module:
    """Return the module with all data types of the prelude and the functions it uses of it."""
    source = prelude()
    functions = dict(module.functions)
    waiting: list[Expr] = list(functions.values())
    while waiting:
        for e in walk.postorder(waiting.pop()):
            if not isinstance(e, GlobalVar) or e.name in functions or e.name in module.kernels:
                continue
            found = source.functions.get(e.name)
            if found is not None:
                copied = walk.copy(found)
                assert isinstance(copied, Function)
                functions[e.name] = copied
                waiting.append(copied)
    adts = {**source.adts, **module.adts}
    return Module(functions, adts, module.kernels, module.entries, module.entry)
