"""The prelude: `Option`, `List`, `Tree`, and functions over them, written in the language itself.

The functions are ordinary global functions with dotted names (`list.map`). `with_prelude` adds to a
module those it uses and lacks, and what they use; a module's own definitions win.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import resources

from inlay.ir import walk
from inlay.ir.core_ops import CoreTable
from inlay.ir.dims import parts
from inlay.ir.expr import Expr, Function, GlobalVar, Match, pattern_vars
from inlay.ir.module import Adt, Module
from inlay.ir.parser import parse_module
from inlay.ir.types import AdtType, Type


@functools.cache
def prelude() -> Module:
    """Return the prelude as a module of its own, without an entry."""
    text = resources.files("inlay.ir").joinpath("prelude.inl").read_text(encoding="utf-8")
    return parse_module(text, CoreTable(), name="prelude.inl")


def adt(name: str) -> Adt:
    """Return a data type of the prelude: `Option`, `List` or `Tree`."""
    return prelude().adts[name]


def with_prelude(module: Module) -> Module:
    """Return the module with the data types and the functions of the prelude that it uses."""
    source = prelude()
    functions = dict(module.functions)
    waiting: list[Expr] = list(functions.values())
    types: dict[Type, None] = {}
    while waiting:
        for e in walk.postorder(waiting.pop()):
            types[e.type] = None
            if isinstance(e, Match):
                types.update((v.type, None) for arm in e.arms for v in pattern_vars(arm.pattern))
            if not isinstance(e, GlobalVar) or e.name in functions or e.name in module.kernels:
                continue
            found = source.functions.get(e.name)
            if found is not None:
                copied = walk.copy(found)
                assert isinstance(copied, Function)
                functions[e.name] = copied
                waiting.append(copied)
    for adt in module.adts.values():
        types.update((t, None) for c in adt.constructors for t in c.fields)
    adts = {**_mentioned(source.adts, types), **module.adts}
    return replace(module, functions=functions, adts=adts)


def _mentioned(adts: Mapping[str, Adt], types: Iterable[Type]) -> dict[str, Adt]:
    """Return the data types that types mention, and those in their fields; in order."""
    names: set[str] = set()
    pending = list(types)
    while pending:
        t = pending.pop()
        if isinstance(t, AdtType) and t.name not in names:
            names.add(t.name)
            if t.name in adts:
                pending.extend(f for c in adts[t.name].constructors for f in c.fields)
        pending.extend(parts(t))
    return {name: adt for name, adt in adts.items() if name in names}
