"""Walks over expressions: children, rebuilding, rewriting, copying. No pass writes its own.

An expression is a graph: a node that is reached twice is one value. Everything here visits a node
once, remembers the result by identity, uses a stack of its own (a spine of 100,000 lets and a nest
of 100,000 calls are ordinary), and takes time linear in the number of nodes.

A rebuilt node keeps its span and place. It keeps its type too while the types of its children stay
the same, and is made again by `ir.make` when one changed.

Every variable is bound at most once in a module (the verifier checks), so no walk needs a scope to
know what a variable means; whoever duplicates code copies it with `copy`, which renames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from inlay.arith import expr as arith
from inlay.arith.bounds import Range
from inlay.arith.expr import Int, Sym, from_atom
from inlay.arith.solve import Facts
from inlay.ir import make
from inlay.ir.conform import dim_range
from inlay.ir.context import NOTHING_KNOWN, Known
from inlay.ir.dims import dim_params, free_symbols, substitute_type
from inlay.ir.existentials import opened_dims
from inlay.ir.expr import (
    Arm,
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
    pattern_vars,
)
from inlay.ir.types import DimParam, FuncType, Type

LEAVES: frozenset[type] = frozenset({Var, GlobalVar, Const, OpRef, ConstructorRef})

# Tables by exact type: the checker cannot see that a key fits its function, hence `Any`.
_CHILDREN: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Call: lambda e: (e.callee, *e.args),
    Let: lambda e: (e.value, e.body),
    Tuple: lambda e: e.fields,
    Project: lambda e: (e.value,),
    Function: lambda e: (e.body,),
    If: lambda e: (e.condition, e.then, e.otherwise),
    Match: lambda e: (e.scrutinee, *[a.body for a in e.arms]),
    RefCreate: lambda e: (e.value,),
    RefRead: lambda e: (e.ref,),
    RefWrite: lambda e: (e.ref, e.value),
    RefTake: lambda e: (e.ref,),
    RefPut: lambda e: (e.ref, e.value),
    **dict.fromkeys(LEAVES, lambda _: ()),
}


def children(e: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions in order of evaluation, a callee first; no binders."""
    return _CHILDREN[type(e)](e)


# One constructor call per kind, with the same type.
_REPLACE: dict[type, Callable[[Any, tuple[Expr, ...], Any], Expr]] = {
    Call: lambda e, c, t: Call(c[0], c[1:], t, e.span, e.place),
    Let: lambda e, c, t: Let(e.var, c[0], c[1], t, e.span, e.place),
    Tuple: lambda e, c, t: Tuple(c, t, e.span, e.place),
    Project: lambda e, c, t: Project(c[0], e.index, t, e.span, e.place),
    Function: lambda e, c, t: Function(e.params, c[0], t, e.span, e.place, e.primitive),
    If: lambda e, c, t: If(c[0], c[1], c[2], t, e.span, e.place),
    Match: lambda e, c, t: Match(c[0], _arms(e, c), t, e.span, e.place),
    RefCreate: lambda e, c, t: RefCreate(c[0], t, e.span, e.place),
    RefRead: lambda e, c, t: RefRead(c[0], t, e.span, e.place),
    RefWrite: lambda e, c, t: RefWrite(c[0], c[1], t, e.span, e.place),
    RefTake: lambda e, c, t: RefTake(c[0], t, e.span, e.place),
    RefPut: lambda e, c, t: RefPut(c[0], c[1], t, e.span, e.place),
}

_REMAKE: dict[type, Callable[[Any, tuple[Expr, ...], Known], Expr]] = {
    Call: lambda e, c, k: make.call(c[0], c[1:], span=e.span, place=e.place, known=k),
    Let: lambda e, c, _: make.let(e.var, c[0], c[1], span=e.span, place=e.place),
    Tuple: lambda e, c, _: make.tuple_(c, span=e.span, place=e.place),
    Project: lambda e, c, _: make.project(c[0], e.index, span=e.span, place=e.place),
    Function: lambda e, c, k: _remake_function(e, c[0], k),
    If: lambda e, c, k: make.if_(c[0], c[1], c[2], span=e.span, place=e.place, known=k),
    Match: lambda e, c, k: make.match(c[0], _arms(e, c), span=e.span, place=e.place, known=k),
    RefCreate: lambda e, c, _: make.ref_create(c[0], span=e.span, place=e.place),
    RefRead: lambda e, c, _: make.ref_read(c[0], span=e.span, place=e.place),
    RefWrite: lambda e, c, k: make.ref_write(c[0], c[1], span=e.span, place=e.place, known=k),
    RefTake: lambda e, c, _: make.ref_take(c[0], span=e.span, place=e.place),
    RefPut: lambda e, c, k: make.ref_put(c[0], c[1], span=e.span, place=e.place, known=k),
}


def _arms(e: Match, c: tuple[Expr, ...]) -> tuple[Arm, ...]:
    return tuple([Arm(a.pattern, b) for a, b in zip(e.arms, c[1:], strict=True)])


def _remake_function(e: Function, body: Expr, known: Known) -> Function:
    """The declared type stays: variables that stand for the function have it."""
    body = make.coerce(body, e.type.result, "result of the function", known=known)
    return Function(e.params, body, e.type, e.span, e.place, e.primitive)


def rebuild(e: Expr, new: tuple[Expr, ...], known: Callable[[], Known] = lambda: NOTHING_KNOWN) -> Expr:
    """Return the node with other children (as many as `children(e)`), itself if they are the same.

    Args:
        e: the node.
        new: its new children.
        known: gives what is known of the dims in scope, should the node have to be made again.

    Cost: about a microsecond, and a type rule where the type of a child changed.
    """
    old = _CHILDREN[type(e)](e)
    changed = False
    retype = False
    for a, b in zip(old, new, strict=True):
        if a is not b:
            changed = True
            if (a.type is not b.type and a.type != b.type) or type(b) is OpRef:
                retype = True
    if not changed:
        return e
    if retype:
        return _REMAKE[type(e)](e, new, known())
    return _REPLACE[type(e)](e, new, e.type)


def known_in(root: Expr) -> Known:
    """Return what binders inside say of dims, and what lets inside give variables.

    Symbols and variables have one meaning each, so it holds wherever they are visible.
    """
    ranges: dict[Sym, Range] = {}
    facts = Facts(MappingProxyType(ranges))
    definitions: dict[object, object] = {}

    def note(dims: Iterable[DimParam]) -> None:
        for d in dims:
            ranges[d.sym] = dim_range(d, facts)

    for e in postorder(root):
        match e:
            case Let(var=v, value=value):
                definitions[v] = value
                note(opened_dims(value.type, v.type))
            case Function(params=params, type=FuncType(params=declared, dims=dims)):
                note(dims)
                for v, t in zip(params, declared, strict=True):
                    note(opened_dims(t, v.type))
            case Match(scrutinee=scrutinee):
                outer = set(free_symbols(scrutinee.type))
                types = [v.type for v in bound_here(e)]
                note(dim_params(types, outer.__contains__))
            case _:
                pass
    return Known(facts, definitions.get)


def retyped(e: Expr, type_: Type) -> Expr:
    """Return the node with another type."""
    return e if e.type is type_ else replace(e, type=type_)


# ---------------------------------------------------------------------------------- visiting


def postorder(root: Expr | Iterable[Expr]) -> Iterator[Expr]:
    """Yield every distinct node, children first, in order of evaluation; functions included.

    A let comes after its value and its body.
    """
    stack: list[Expr] = [root] if not isinstance(root, Iterable) else list(root)[::-1]
    open_: set[int] = set()
    done: set[int] = set()
    while stack:
        e = stack[-1]
        key = id(e)
        if key in done:
            stack.pop()
        elif key in open_ or type(e) in LEAVES:
            stack.pop()
            done.add(key)
            yield e
        else:
            open_.add(key)
            stack.extend([c for c in _CHILDREN[type(e)](e)[::-1] if id(c) not in done])


def use_counts(root: Expr) -> dict[int, int]:
    """Return, by `id`, how many times each node is an operand of another (the root: 0)."""
    count = {id(root): 0}
    for e in postorder(root):
        for c in _CHILDREN[type(e)](e):
            count[id(c)] = count.get(id(c), 0) + 1
    return count


def bound_here(e: Expr) -> tuple[Var, ...]:
    """Return the variables that this very node binds."""
    match e:
        case Let(var=v):
            return (v,)
        case Function(params=params):
            return params
        case Match(arms=arms):
            return tuple(v for a in arms for v in pattern_vars(a.pattern))
        case _:
            return ()


def free_vars(root: Expr) -> tuple[Var, ...]:
    """Return the variables used and not bound inside, in order of first use."""
    used: dict[Var, None] = {}
    bound: set[Var] = set()
    for e in postorder(root):
        if isinstance(e, Var):
            used[e] = None
        else:
            bound.update(bound_here(e))
    return tuple(v for v in used if v not in bound)


def all_vars(root: Expr) -> tuple[Var, ...]:
    """Return the variables bound inside, in order of their binders' evaluation end."""
    return tuple(v for e in postorder(root) for v in bound_here(e))


def bound_symbols(root: Expr) -> tuple[Sym, ...]:
    """Return the dims bound inside: by functions, and opened by lets, parameters and patterns."""
    found: dict[Sym, None] = {}
    for e in postorder(root):
        match e:
            case Let(var=v, value=value):
                found.update((d.sym, None) for d in opened_dims(value.type, v.type))
            case Function(params=params, type=FuncType(params=declared, dims=dims)):
                found.update((d.sym, None) for d in dims)
                for v, t in zip(params, declared, strict=True):
                    found.update((d.sym, None) for d in opened_dims(t, v.type))
            case Match(scrutinee=scrutinee):
                outer = set(free_symbols(scrutinee.type))
                for v in bound_here(e):
                    found.update((s, None) for s in free_symbols(v.type) if s not in outer)
            case _:
                pass
    return tuple(found)


def spine(e: Expr) -> tuple[list[Let], Expr]:
    """Return the lets of a spine, outermost first, and what stands after them."""
    found: list[Let] = []
    while isinstance(e, Let):
        found.append(e)
        e = e.body
    return found, e


# ---------------------------------------------------------------------------------- rewriting


def rewrite(root: Expr, f: Callable[[Expr], Expr], memo: dict[int, Expr] | None = None) -> Expr:
    """Rebuild bottom-up: `f` gets each node with its new children and returns what replaces it.

    `f` sees a node once, operands before users, in order of evaluation. What it returns is not
    visited again. A replacement without span or place inherits those of the node. Binders
    (let variables, parameters, pattern variables) are not visited.

    Args:
        root: where to start.
        f: the rewrite; returns its argument for nodes it leaves alone.
        memo: results by `id` of old nodes, to share over several roots that are all kept alive.
    """
    memo = {} if memo is None else memo
    known = functools.cache(lambda: known_in(root))
    stack: list[Expr] = [root]
    while stack:
        e = stack[-1]
        if id(e) in memo:
            stack.pop()
            continue
        kids = _CHILDREN[type(e)](e)
        waiting = [c for c in kids[::-1] if id(c) not in memo]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        current = rebuild(e, tuple([memo[id(c)] for c in kids]), known) if kids else e
        result = f(current)
        memo[id(e)] = result if result is current else inherit(result, e)
    return memo[id(root)]


def inherit(new: Expr, old: Expr) -> Expr:
    """Return a replacement with the span and place of what it replaces, where it has none.

    Variables, constants and nodes that stood elsewhere before keep what they are.
    """
    if type(new) in LEAVES:
        return new
    if not new.span and old.span:
        if new.place is None and old.place is not None:
            return replace(new, span=old.span, place=old.place)
        return replace(new, span=old.span)
    if new.place is None and old.place is not None:
        return replace(new, place=old.place)
    return new


def substitute_vars(root: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """Replace uses of variables; the replacements are shared, not copied."""
    if not mapping:
        return root
    return rewrite(root, lambda e: mapping.get(e, e) if type(e) is Var else e)


def map_parts(
    root: Expr, on_type: Callable[[Type], Type], on_int: Callable[[Int], Int], vars: Mapping[Var, Expr]
) -> Expr:
    """Rebuild every node with mapped types, integer constants, binders and variables.

    Args:
        root: where to start.
        on_type: maps the type of each node.
        on_int: maps the integers of control constants.
        vars: what stands for each variable; for binders it must be a `Var`.
    """
    memo: dict[int, Expr] = {}
    stack: list[Expr] = [root]
    while stack:
        e = stack[-1]
        if id(e) in memo:
            stack.pop()
            continue
        kids = _CHILDREN[type(e)](e)
        waiting = [c for c in kids[::-1] if id(c) not in memo]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        memo[id(e)] = _mapped(e, tuple([memo[id(c)] for c in kids]), on_type, on_int, vars)
    return memo[id(root)]


def _mapped(
    e: Expr,
    kids: tuple[Expr, ...],
    on_type: Callable[[Type], Type],
    on_int: Callable[[Int], Int],
    vars: Mapping[Var, Expr],
) -> Expr:
    t = on_type(e.type)
    match e:
        case Var():
            return vars.get(e, e)
        case Const(held=Int() as value):
            return Const(on_int(value), t, e.span, e.place)
        case Const(held=tuple() as values):
            return Const(tuple(map(on_int, values)), t, e.span, e.place)
        case GlobalVar() | OpRef() | ConstructorRef() | Const():
            return retyped(e, t)
        case Let(var=v):
            return Let(_binder(v, vars), kids[0], kids[1], t, e.span, e.place)
        case Function(params=params):
            assert isinstance(t, FuncType)
            bound = tuple(_binder(p, vars) for p in params)
            return Function(bound, kids[0], t, e.span, e.place, e.primitive)
        case Match(arms=arms):
            made = tuple(
                Arm(map_pattern(a.pattern, lambda v: _binder(v, vars)), body)
                for a, body in zip(arms, kids[1:], strict=True)
            )
            return Match(kids[0], made, t, e.span, e.place)
        case _:
            return _REPLACE[type(e)](e, kids, t)


def _binder(v: Var, vars: Mapping[Var, Expr]) -> Var:
    found = vars.get(v, v)
    assert isinstance(found, Var), "a binder is replaced by a variable"
    return found


def map_pattern(p: Pattern, f: Callable[[Var], Var]) -> Pattern:
    """Return the pattern with other variables."""
    match p:
        case PatternVar(var=v):
            return PatternVar(f(v))
        case PatternConstructor(fields=fields):
            return replace(p, fields=tuple(map_pattern(x, f) for x in fields))
        case PatternTuple(fields=fields):
            return PatternTuple(tuple(map_pattern(x, f) for x in fields))
        case PatternWildcard():
            return p


def copy(
    root: Expr,
    vars: Mapping[Var, Expr] | None = None,
    ints: Mapping[Sym, Int] | None = None,
    types: Mapping[str, Type] | None = None,
) -> Expr:
    """Return a copy whose bound variables and bound dims are fresh.

    Args:
        root: what to copy.
        vars: what stands for free variables.
        ints: what stands for free dims, in types and control constants.
        types: what stands for free type variables.

    Inlining `f = fn<n>(x: Tensor[n]) { body }` at a call is
    `copy(body, {x: argument}, {n: its dim})`. Types are substituted, not computed anew.
    """
    own = {s: arith.fresh(s.name) for s in bound_symbols(root)}
    syms = {**{s: from_atom(f) for s, f in own.items()}, **(ints or {})}
    known: dict[Type, Type] = {}

    def on_type(t: Type) -> Type:
        if not syms and not types:
            return t
        found = known.get(t)
        if found is None:
            found = known[t] = _rename(t, own, syms, types or {})
        return found

    mapping: dict[Var, Expr] = dict(vars or {})
    for v in all_vars(root):
        if v not in mapping:
            mapping[v] = Var(v.name, on_type(v.type), v.span, v.place)
    return map_parts(root, on_type, lambda e: arith.substitute(e, syms), mapping)


def _rename(t: Type, own: Mapping[Sym, Sym], ints: Mapping[Sym, Int], types: Mapping[str, Type]) -> Type:
    """Substitute, also in the binder of the type of a function literal, whose dims are `own`."""
    if not isinstance(t, FuncType) or not any(d.sym in own for d in t.dims):
        return substitute_type(t, ints, types)
    dims = tuple(
        replace(d, sym=own.get(d.sym, d.sym), high=None if d.high is None else arith.substitute(d.high, ints))
        for d in t.dims
    )
    params = tuple(_rename(p, own, ints, types) for p in t.params)
    return FuncType(params, _rename(t.result, own, ints, types), dims, t.type_vars)
