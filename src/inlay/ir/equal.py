"""Equality of programs up to the names of what they bind, and a hash that agrees with it.

Compared are kinds of nodes, operators and attributes, constants by value, types of binders, and
*sharing*: a node used twice is not the same program as two equal nodes. Types of other nodes follow
from these, and spans are not compared.

Both walks visit a node once and use a stack of their own.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from inlay.arith import expr as arith
from inlay.arith.expr import Int, Sym, from_atom
from inlay.ir import walk
from inlay.ir.attrs import attrs_text
from inlay.ir.dims import free_symbols, same_type, substitute_type
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import (
    Call,
    Const,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.ir.type_printer import dim_text, type_text
from inlay.ir.types import AdtType, DimParam, ExistsType, FuncType, RefType, TupleType, Type


def equal(a: Expr, b: Expr, *, places: bool = True, primitive_names: bool = True) -> bool:
    """Whether two expressions are the same program up to renaming.

    Args:
        a: an expression; its free variables stand for themselves.
        b: the other.
        places: whether places must agree too.
        primitive_names: whether the names of primitive functions must agree too.
    """
    return _Comparison(places=places, primitive_names=primitive_names).run(a, b)


def modules_equal(a: Module, b: Module) -> bool:
    """Whether two modules are the same program: names of functions count, their order does not."""
    return (
        a.entry == b.entry
        and dict(a.entries) == dict(b.entries)
        and dict(a.adts) == dict(b.adts)
        and a.functions.keys() == b.functions.keys()
        and a.kernels.keys() == b.kernels.keys()
        and all(
            same_type(k.type, b.kernels[n].type) and k.body.digest() == b.kernels[n].body.digest()
            for n, k in a.kernels.items()
        )
        and all(equal(f, b.functions[n]) for n, f in a.functions.items())
    )


class _Comparison:
    def __init__(self, *, places: bool, primitive_names: bool) -> None:
        self._places = places
        self._primitive_names = primitive_names
        self._nodes: dict[int, Expr] = {}
        self._back: dict[int, Expr] = {}
        self._vars: dict[Var, Var] = {}
        self._vars_back: dict[Var, Var] = {}
        self._syms: dict[Sym, Int] = {}
        self._stack: list[tuple[Expr, Expr]] = []

    def run(self, a: Expr, b: Expr) -> bool:
        self._stack.append((a, b))
        while self._stack:
            x, y = self._stack.pop()
            if type(x) is not type(y):
                return False
            if type(x) in walk.LEAVES:
                if not self._leaf(x, y):
                    return False
                continue
            known = self._nodes.get(id(x))
            if known is not None or id(y) in self._back:
                if known is not y or self._back.get(id(y)) is not x:
                    return False
                continue
            self._nodes[id(x)] = y
            self._back[id(y)] = x
            if not self._head(x, y):
                return False
            kids_x, kids_y = walk.children(x), walk.children(y)
            if len(kids_x) != len(kids_y):
                return False
            self._stack.extend(zip(kids_x[::-1], kids_y[::-1], strict=True))
        return True

    def _leaf(self, x: Expr, y: Expr) -> bool:
        match x, y:
            case Var(), Var():
                mapped = self._vars.get(x)
                return self._vars_back.get(y) is x if mapped is y else (mapped is None and x is y)
            case Const(), Const():
                return self._place(x, y) and self._constant(x, y)
            case OpRef(), OpRef():
                return x.op is y.op and x.attrs == y.attrs
            case GlobalVar(), GlobalVar():
                return x.name == y.name
            case ConstructorRef(), ConstructorRef():
                same = (x.adt, x.name, x.tag) == (y.adt, y.name, y.tag)
                return same and same_type(x.type, y.type, self._syms)
            case _:
                return False

    def _constant(self, x: Const, y: Const) -> bool:
        if x.held is y.held:
            return x.type == y.type
        match x.value, y.value:
            case np.ndarray() as p, np.ndarray() as q:
                return x.type == y.type and p.tobytes() == q.tobytes()
            case Int() as p, Int() as q:
                return arith.substitute(p, self._syms) == q
            case tuple() as ps, tuple() as qs:
                return tuple(arith.substitute(p, self._syms) for p in ps) == qs
            case p, q:
                return type(p) is type(q) and p == q

    def _head(self, x: Expr, y: Expr) -> bool:
        """Compare what a node has besides its children, and pair what it binds."""
        if not self._place(x, y):
            return False
        match x, y:
            case Let(), Let():
                opened = _opened(x.value.type, x.var.type), _opened(y.value.type, y.var.type)
                return self._bind_syms(*opened) and self._bind(x.var, y.var)
            case Function(), Function():
                return self._function(x, y)
            case Match(), Match():
                outer_x, outer_y = free_symbols(x.scrutinee.type), free_symbols(y.scrutinee.type)
                return len(x.arms) == len(y.arms) and all(
                    self._pattern(p.pattern, q.pattern, outer_x, outer_y)
                    for p, q in zip(x.arms, y.arms, strict=True)
                )
            case Project(), Project():
                return x.index == y.index
            case _:
                return True

    def _function(self, x: Function, y: Function) -> bool:
        if len(x.params) != len(y.params) or len(x.dims) != len(y.dims):
            return False
        if (x.primitive is None) != (y.primitive is None):
            return False
        if self._primitive_names and x.primitive != y.primitive:
            return False
        if not same_type(x.type, y.type, self._syms):
            return False
        if not self._bind_syms([d.sym for d in x.dims], [d.sym for d in y.dims]):
            return False
        for p, q, s, t in zip(x.params, y.params, x.type.params, y.type.params, strict=True):
            if not self._bind_syms(_opened(s, p.type), _opened(t, q.type)):
                return False
            if not self._bind(p, q):
                return False
        return True

    def _pattern(self, p: Pattern, q: Pattern, outer_p: tuple[Sym, ...], outer_q: tuple[Sym, ...]) -> bool:
        match p, q:
            case PatternWildcard(), PatternWildcard():
                return True
            case PatternVar(var=x), PatternVar(var=y):
                new_x = [s for s in free_symbols(x.type) if s not in outer_p]
                new_y = [s for s in free_symbols(y.type) if s not in outer_q]
                return self._bind_syms(new_x, new_y) and self._bind(x, y)
            case PatternConstructor(), PatternConstructor():
                if (p.adt, p.name) != (q.adt, q.name):
                    return False
            case PatternTuple(), PatternTuple():
                pass
            case _:
                return False
        return len(p.fields) == len(q.fields) and all(
            self._pattern(s, t, outer_p, outer_q) for s, t in zip(p.fields, q.fields, strict=True)
        )

    def _bind_syms(self, xs: list[Sym], ys: list[Sym]) -> bool:
        if len(xs) != len(ys):
            return False
        self._syms.update((x, from_atom(y)) for x, y in zip(xs, ys, strict=True))
        return True

    def _bind(self, x: Var, y: Var) -> bool:
        self._vars[x] = y
        self._vars_back[y] = x
        return self._place(x, y) and same_type(x.type, y.type, self._syms)

    def _place(self, x: Expr, y: Expr) -> bool:
        return not self._places or x.place == y.place


def _opened(declared: Type, own: Type) -> list[Sym]:
    return [d.sym for d in opened_dims(declared, own)]


# ---------------------------------------------------------------------------------- hash


def structural_hash(e: Expr, *, places: bool = True, primitive_names: bool = True) -> str:
    """Return a digest that equal expressions share, the same in every run.

    Free variables and dims are numbered by first appearance, so expressions that differ in them
    only have one digest; it is a key for a table whose entries `equal` then compares.
    """
    return _Hash(places=places, primitive_names=primitive_names).run(e)


class _Hash:
    def __init__(self, *, places: bool, primitive_names: bool) -> None:
        self._places = places
        self._primitive_names = primitive_names
        self._vars: dict[Var, int] = {}
        self._syms: dict[Sym, Int] = {}
        self._types: dict[Type, str] = {}
        self._arrays: dict[int, str] = {}

    def run(self, root: Expr) -> str:
        self._number(root)
        digests: dict[int, str] = {}
        for e in walk.postorder(root):
            parts = [self._head(e), *[digests[id(c)] for c in walk.children(e)]]
            if self._places and e.place is not None:
                parts.append(repr(e.place))
            text = "\x00".join(parts).encode()
            digests[id(e)] = hashlib.blake2b(text, digest_size=16).hexdigest()
        return digests[id(root)]

    def _number(self, root: Expr) -> None:
        """Number variables and symbols in program order."""
        stack: list[Expr] = [root]
        seen: set[int] = set()
        while stack:
            e = stack.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            if isinstance(e, Function):
                for d in e.dims:
                    self._sym(d.sym)
            elif isinstance(e, Var):
                self._vars.setdefault(e, len(self._vars))
            for v in walk.bound_here(e):
                self._vars.setdefault(v, len(self._vars))
                for s in free_symbols(v.type):
                    self._sym(s)
            stack.extend(walk.children(e)[::-1])

    def _sym(self, s: Sym) -> Int:
        """Return a stand-in whose order among others is that of its number."""
        found = self._syms.get(s)
        if found is None:
            n = len(self._syms) + 1
            found = self._syms[s] = from_atom(Sym(f"s{n}", -(10**9) + n))
        return found

    def _int(self, e: Int) -> str:
        return str(arith.rebuild(e, self._sym))

    def _type(self, t: Type) -> str:
        found = self._types.get(t)
        if found is None:
            found = self._types[t] = type_text(_canonical(t), self._int)
        return found

    def _head(self, e: Expr) -> str:
        match e:
            case Var():
                return f"var {self._vars[e]}"
            case GlobalVar(name=name):
                return f"global {name}"
            case Const(held=Int() as value):
                return f"int {self._int(value)}"
            case Const(held=tuple() as values):
                return f"shape {[self._int(v) for v in values]}"
            case Const(held=bool() as value):
                return f"bool {value}"
            case Const(type=t):
                return f"tensor {self._type(t)} {self._array(e)}"
            case OpRef(op=op, attrs=attrs):
                return f"op {op.name}{attrs_text(attrs)}"
            case ConstructorRef(adt=adt, name=name, type=t):
                return f"constructor {adt}.{name} {self._type(t)}"
            case Function(params=params, type=t, primitive=primitive):
                name = primitive if self._primitive_names or primitive is None else "primitive"
                dims = ", ".join(dim_text(d, self._int) for d in t.dims)
                return f"fn {name} <{dims}> {self._binders(params)} {self._type(t)}"
            case Let(var=v):
                return f"let {self._binders((v,))}"
            case Match(arms=arms):
                return f"match {[self._pattern(a.pattern) for a in arms]}"
            case Project(index=index):
                return f"project {index}"
            case Call() | If() | Tuple() | RefCreate() | RefRead() | RefWrite() | RefTake() | RefPut():
                return type(e).__name__

    def _binders(self, variables: tuple[Var, ...]) -> list[str]:
        return [f"{self._vars[v]}:{self._type(v.type)}" for v in variables]

    def _array(self, e: Const) -> str:
        found = self._arrays.get(id(e.held))
        if found is None:
            assert isinstance(e.value, np.ndarray), "what is no array is no tensor"
            found = hashlib.blake2b(e.value.tobytes(), digest_size=16).hexdigest()
            self._arrays[id(e.held)] = found
        return found

    def _pattern(self, p: Pattern) -> str:
        match p:
            case PatternWildcard():
                return "_"
            case PatternVar(var=v):
                return self._binders((v,))[0]
            case PatternConstructor(adt=adt, name=name, fields=fields):
                return f"{adt}.{name}{[self._pattern(x) for x in fields]}"
            case PatternTuple(fields=fields):
                return str([self._pattern(x) for x in fields])


def _canonical(t: Type, level: int = 0) -> Type:
    """Rename the symbols a type itself binds to numbers that depend on nothing else."""
    match t:
        case TupleType(fields=fields):
            return TupleType(tuple(_canonical(f, level) for f in fields))
        case AdtType(name=name, args=args):
            return AdtType(name, tuple(_canonical(a, level) for a in args))
        case RefType(content=content):
            return RefType(_canonical(content, level))
        case FuncType(params=params, result=result, dims=dims, type_vars=type_vars):
            bound, ints = _numbered(dims, level)
            inner = level + len(dims)
            return FuncType(
                tuple(_canonical(substitute_type(p, ints), inner) for p in params),
                _canonical(substitute_type(result, ints), inner),
                bound,
                type_vars,
            )
        case ExistsType(dims=dims, body=body):
            bound, ints = _numbered(dims, level)
            return ExistsType(bound, _canonical(substitute_type(body, ints), level + len(dims)))
        case _:
            return t


def _numbered(dims: tuple[DimParam, ...], level: int) -> tuple[tuple[DimParam, ...], dict[Sym, Int]]:
    fresh = [Sym(f"b{level + i}", -(10**6) + level + i) for i in range(len(dims))]
    ints = {d.sym: from_atom(f) for d, f in zip(dims, fresh, strict=True)}
    bound = tuple(
        replace(d, sym=f, high=None if d.high is None else arith.substitute(d.high, ints))
        for d, f in zip(dims, fresh, strict=True)
    )
    return bound, ints
