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
function has the dims that it had: who calls it, and what people are told of its inputs, does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from inlay.arith.expr import Int, Sym, substitute, symbols
from inlay.ir import core_ops, make, walk
from inlay.ir.dims import free_symbols, substitute_type
from inlay.ir.expr import Call, Expr, Function, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import TensorType
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
    changeable = of_tensors - of_others - set(free_symbols(f.type.result))
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
    return replace(f, body=make.lets(checked, body))


def _equal(body: Expr, order: list[Sym], changeable: set[Sym]) -> Known:
    """Return what stands for dims, some of which may change, by the checks that every run gets to."""
    known: Known = {}
    for value in (let.value for let in walk.spine(body)[0]):
        for a, b, why in _demanded(value):
            sizes = {sym: size for sym, (size, _) in known.items()}
            a, b = substitute(a, sizes), substitute(b, sizes)
            if a == b or not {*symbols(a), *symbols(b)} <= set(order):
                continue
            # Of two names the one that the function has first remains.
            found = [(x.atom, y) for x, y in ((a, b), (b, a)) if isinstance(x.atom, Sym)]
            found = [(sym, size) for sym, size in found if sym in changeable - {*symbols(size)}]
            if found:
                sym, size = max(found, key=lambda pair: order.index(pair[0]))
                known = {s: (substitute(x, {sym: size}), w) for s, (x, w) in known.items()}
                known[sym] = (size, why)
    return known


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
