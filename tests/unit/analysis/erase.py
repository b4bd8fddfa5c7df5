"""Programs without the types that inference finds."""

from __future__ import annotations

from dataclasses import replace

from inlay.ir import walk
from inlay.ir.dims import free_symbols
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import Const, Expr, Function, GlobalVar, Let, Match, Var
from inlay.ir.module import Module
from inlay.ir.types import UNKNOWN, FuncType


def erase(module: Module, *, params: bool = False) -> Module:
    """Return the module without the types of lets, patterns and results, and of operations.

    Kept are annotations that name what the data decide, and the signatures of functions that call
    themselves. With `params`, the parameters of functions that no one else names types for go too.
    """
    functions: dict[str, Function] = {}
    for name, f in module.functions.items():
        eraser = _Eraser(params=params)
        keep = not _is_called(module, name) or _names_dims(f)
        made = eraser.function(f, keep=keep, recursive=_mentions(f.body, name))
        functions[name] = made
    return module.with_functions(functions)


def _mentions(body: Expr, name: str) -> bool:
    return any(isinstance(e, GlobalVar) and e.name == name for e in walk.postorder(body))


def _is_called(module: Module, name: str) -> bool:
    return any(_mentions(f.body, name) for n, f in module.functions.items() if n != name)


def _names_dims(f: Function) -> bool:
    """Whether a constant mentions dims that the function binds: then they need their names."""
    own = {d.sym for d in f.type.dims}
    found = (e.type for e in walk.postorder(f.body) if isinstance(e, Const))
    return any(s in own for t in found for s in free_symbols(t))


class _Eraser:
    def __init__(self, *, params: bool) -> None:
        self.params = params
        self.vars: dict[Var, Var] = {}

    def bare(self, v: Var) -> Var:
        return self.vars.setdefault(v, Var(v.name, UNKNOWN, v.span))

    def var(self, v: Var) -> Var:
        return self.vars.get(v, v)

    def function(self, f: Function, *, keep: bool, recursive: bool) -> Function:
        t = f.type
        if self.params and not keep and not recursive:
            for v in f.params:
                self.bare(v)
            t = FuncType(tuple(UNKNOWN for _ in f.params), UNKNOWN)
        elif not recursive:
            t = replace(t, result=UNKNOWN)
        body = self.expr(f.body)
        return Function(tuple(self.vars.get(v, v) for v in f.params), body, t, f.span)

    def expr(self, e: Expr) -> Expr:
        match e:
            case Var():
                return self.vars.get(e, e)
            case Const():
                return e
            case Function():
                return self.function(e, keep=_names_dims(e), recursive=False)
            case Let():
                return self.lets(e)
            case Match():
                outer = set(free_symbols(e.scrutinee.type))
                for v in walk.bound_here(e):
                    if outer.issuperset(free_symbols(v.type)):
                        self.bare(v)
                arms = tuple(
                    replace(a, pattern=walk.map_pattern(a.pattern, self.var), body=self.expr(a.body))
                    for a in e.arms
                )
                return Match(self.expr(e.scrutinee), arms, UNKNOWN, e.span)
            case _:
                kids = walk.children(e)
                if not kids:
                    return self.leaf(e)
                return self.unknown(e, tuple(map(self.expr, kids)))

    def lets(self, e: Let) -> Expr:
        lets, tail = walk.spine(e)
        values = [self.value(let) for let in lets]
        body = self.expr(tail)
        for let, value in zip(reversed(lets), reversed(values), strict=True):
            body = Let(self.var(let.var), value, body, UNKNOWN, let.span)
        return body

    def value(self, let: Let) -> Expr:
        v, value = let.var, let.value
        if isinstance(value, Function):
            recursive = v in walk.free_vars(value)
            if not recursive:
                self.bare(v)
            return self.function(value, keep=_names_dims(value), recursive=recursive)
        if not opened_dims(value.type, v.type):
            self.bare(v)
        return self.expr(value)

    def leaf(self, e: Expr) -> Expr:
        if isinstance(e, GlobalVar):
            return replace(e, type=UNKNOWN)
        return e

    def unknown(self, e: Expr, kids: tuple[Expr, ...]) -> Expr:
        return walk._REPLACE[type(e)](e, kids, UNKNOWN)
