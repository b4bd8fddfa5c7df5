"""Dims of a function that its checks say are equal become one, from its beginning on.

    fn main<n, past, total>(s: Tensor[n, n + past], mask: Tensor[n, total])
      let t = check_shape(s, shape(n, total));            let m = check_shape(mask, shape(n, n + past));
      let y = add(t, mask);                         ->    let y = add(s, m);
      softmax(y)                                          softmax(y)

A model has a name for each size of its inputs, and two of these are known to be equal only where they meet:
a mask has `total` columns, the keys are `n + past`, and their sum demands that both are one. Behind the check
the program goes on with one of two names, and what reads keys and scores does not see that they are of one
length: attention is not found, caches are not read as they lie.

A check that every run gets to, of dims of the function alone, is as good in front. So the parameter that has
the dim is checked there, and the body has the other size in its place, in types and where it is a number. The
function has the dims that it had: who calls it, and what people are told of its inputs, does not change. So
results have their own dims too: behind all else they are said to be of them again, which costs nothing.

Exporters that name each input apart give each layer of a decoder a cache of its own length, so this comes
behind the passes that make sessions, which look for what is joined to a parameter and returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlay.arith.expr import Int, Sym, substitute, symbols
from inlay.arith.solve import solve_for
from inlay.ir import core_ops, make, walk
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.types import TensorType, TupleType, Type
from inlay.passes.contract import Pass, PassContext, Property

Known = dict[Sym, tuple[Int, str]]
"""What stands for dims, and what demanded it."""


def run(module: Module, context: PassContext) -> Module:
    """Unify dims of each function. Cost: linear."""
    del context
    functions = {name: f if f.primitive is not None else _unified(f) for name, f in module.functions.items()}
    if all(functions[name] is f for name, f in module.functions.items()):
        return module
    return module.with_functions(functions)


def _unified(f: Function) -> Function:
    of_tensors = {s for p in f.params if isinstance(p.type, TensorType) for s in free_symbols(p.type)}
    of_others = {s for p in f.params if not isinstance(p.type, TensorType) for s in free_symbols(p.type)}
    order = [d.sym for d in f.dims]
    changeable = of_tensors - of_others - _kept(f.body)
    # Of two names one that results do not say goes, and of two such the later.
    said = free_symbols(f.type.result)
    order.sort(key=lambda sym: sym not in said)
    known = _equal(f.body, order, changeable) if changeable else {}
    if not known:
        return f
    sizes = {sym: size for sym, (size, _) in known.items()}
    checked: list[tuple[Var, Expr]] = []
    given: dict[Var, Expr] = {}
    for p in f.params:
        why = next((w for sym, (_, w) in known.items() if sym in free_symbols(p.type)), None)
        if why is None:
            continue
        narrow = substitute_type(p.type, sizes)
        assert isinstance(narrow, TensorType), "dims of others were left out"
        value = make.assume_shape(p, narrow.shape, why)
        narrowed = make.var(p.name, value.type, p.span)
        given[p] = narrowed
        checked.append((narrowed, value))
    body = _without_checks(walk.copy(f.body, given, sizes))
    return replace(f, body=make.lets(checked, _of_type(body, f.type.result)))


def _ended(body: Expr) -> tuple[list[tuple[Var, Expr]], Expr]:
    """Return what a body binds and what it ends in: the tuple itself, where it ends in one."""
    lets, tail = walk.spine(body)
    bound: list[tuple[Var, Expr]] = [(let.var, let.value) for let in lets]
    if lets and lets[-1].var is tail and isinstance(lets[-1].value, Tuple):
        return bound[:-1], lets[-1].value
    return bound, tail


def _kept(body: Expr) -> set[Sym]:
    """Return the dims of results that are neither tensors nor a tuple with tensors in it."""
    end = _ended(body)[1]
    results = end.fields if isinstance(end, Tuple) else (end,)
    return {s for r in results if not isinstance(r.type, TensorType) for s in free_symbols(r.type)}


def _of_type(body: Expr, wanted: Type) -> Expr:
    """Return a body whose results are of that type, which they are by what was checked."""
    bound, end = _ended(body)
    if end.type == wanted:
        return body

    def of(value: Expr, type: Type) -> Expr:
        if value.type == type or not isinstance(type, TensorType):
            return value
        known = make.assume_shape(value, type.shape, "its own dims")
        bound.append((make.var("result", known.type, value.span), known))
        return bound[-1][0]

    if not isinstance(end, Tuple) or not isinstance(wanted, TupleType):
        result = of(end, wanted)
        return make.lets(bound, result)
    fields = [of(x, t) for x, t in zip(end.fields, wanted.fields, strict=True)]
    whole = make.tuple_(fields, span=end.span, place=end.place)
    result = make.var("results", whole.type, end.span)
    return make.lets([*bound, (result, whole)], result)


def _equal(body: Expr, order: list[Sym], changeable: set[Sym]) -> Known:
    """Return what stands for dims, some of which may change, by the checks that every run gets to.

    Of two names the one that is first in the order remains.
    """
    known: Known = {}
    for value in (let.value for let in walk.spine(body)[0]):
        for a, b, why in _demanded(value):
            sizes = {sym: size for sym, (size, _) in known.items()}
            a, b = substitute(a, sizes), substitute(b, sizes)
            if a == b or not {*symbols(a), *symbols(b)} <= set(order):
                continue
            found = [(sym, size) for sym, size in _solutions(a, b) if sym in changeable - {*symbols(size)}]
            if found:
                sym, size = max(found, key=lambda pair: order.index(pair[0]))
                known = {s: (substitute(x, {sym: size}), w) for s, (x, w) in known.items()}
                known[sym] = (size, why)
    return known


def _solutions(a: Int, b: Int) -> list[tuple[Sym, Int]]:
    """Return dims that are sizes where a is b: one that is a side, or one for another in sums."""
    sides = [(x.atom, y) for x, y in ((a, b), (b, a)) if isinstance(x.atom, Sym)]
    if sides:
        return sides
    apart = a - b
    solved = [(s, solve_for(apart, s)) for s in symbols(apart)]
    return [(s, size) for s, size in solved if size is not None and isinstance(size.atom, Sym)]


def _demanded(value: Expr) -> Iterator[tuple[Int, Int, str]]:
    """Yield sizes that a check says are equal, and what demands it."""
    match value:
        case Call(callee=OpRef(op=core_ops.CHECK_SHAPE, attrs=core_ops.CheckAttrs(why=why)), args=(x, *_)):
            if isinstance(x.type, TensorType) and isinstance(value.type, TensorType):
                for a, b in zip(x.type.shape, value.type.shape, strict=True):
                    yield a, b, why
        case _:
            pass


def _without_checks(body: Expr) -> Expr:
    """Return a body without the checks that hold by the types of what they check."""
    same: dict[Var, Expr] = {}
    for let in walk.spine(body)[0]:
        if next(_demanded(let.value), None) is not None:
            checked = let.value.args[0] if isinstance(let.value, Call) else let.value
            if checked.type == let.value.type:
                same[let.var] = same.get(checked, checked) if isinstance(checked, Var) else checked

    def dropped(e: Expr) -> Expr:
        if isinstance(e, Let) and e.var in same:
            return e.body
        return same.get(e, e) if isinstance(e, Var) else e

    return walk.rewrite(body, dropped)


PASS = Pass(__name__, run, "one dim for those that checks say are equal", requires=(Property.ANF,))
