"""Tensor expressions to a schedulable loop function.

Each root of the group (see `te_inline`) becomes a nest of serial loops around one block:

    for mm_i0 in 0..m { for mm_i1 in 0..n { for mm_k in 0..k {
      block mm(i0: spatial m = mm_i0, i1: spatial n = mm_i1, k: reduce k = mm_k) {
        init { C[i0, i1] = 0.0:f32 }
        C[i0, i1] = C[i0, i1] + A[i0, k] * B[k, i1]
      } } } }

The block is named after the tensor's tag, or else its buffer; loops after the block and the axis.
Names are unique in the function and depend only on the order of the tensors, so that a schedule
written down for one function replays on another made in the same way. Tensors that are neither
inputs nor outputs live in WORKSPACE buffers, allocated around everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inlay.arith.expr import Int, Sym, fresh, lit, symbols, to_int
from inlay.loop.buffer import Buffer, Scope
from inlay.loop.func import LoopFunction
from inlay.loop.lets import bind_lets, linearize
from inlay.loop.reduction import combine, identity
from inlay.loop.scalar import Dot, Index, Load, Reduce
from inlay.loop.stmt import Alloc, Block, BlockIter, For, IterKind, Let, LoopKind, Stmt, Store
from inlay.loop.te import Tensor
from inlay.loop.te_inline import Root, inline
from inlay.loop.walk import Rewrite, own_ints, own_scalars, scalars_below, seq, stmts_below


def from_te(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], dims: Sequence[Sym] | None = None
) -> LoopFunction:
    """Return the function that computes `outputs` from `inputs`.

    Args:
        name: a C identifier.
        inputs: the placeholders, in the order of parameters.
        outputs: computes, each once; a placeholder must be copied by a compute first.
        dims: the integer arguments; None = every free symbol, in order of first appearance.
    """
    assert all(t.body is not None for t in outputs), "an output is a compute"
    assert len(set(outputs)) == len(outputs), "an output is written once"
    names = _Names()
    buffers = {t.buffer: _param(t, names) for t in inputs}
    buffers |= {t.buffer: _param(t, names) for t in outputs}
    roots = inline(outputs)
    temporaries: list[Buffer] = []
    for root in roots:
        b = root.tensor.buffer
        if b not in buffers:
            made = Buffer(names.unique(b.name), b.shape, b.dtype, Scope.WORKSPACE)
            buffers[b] = made
            temporaries.append(made)
    body = seq(*(_nest(root, buffers, names) for root in roots))
    for b in reversed(temporaries):
        body = Alloc(b, body)
    params = tuple(buffers[t.buffer] for t in (*inputs, *outputs))
    found = tuple(free_symbols(params, body)) if dims is None else tuple(dims)
    return LoopFunction(name, params, len(inputs), found, body)


class _Names:
    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, base: str) -> str:
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in base)
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def _param(t: Tensor, names: _Names) -> Buffer:
    b = t.buffer
    return replace(b, name=names.unique(b.name), scope=Scope.PARAM)


def _nest(root: Root, buffers: dict[Buffer, Buffer], names: _Names) -> Stmt:
    t = root.tensor
    block = names.unique(t.tag or f"c_{t.buffer.name}")
    iters = [BlockIter(a, n, IterKind.SPATIAL) for a, n in zip(t.axes, t.shape, strict=True)]
    target, at = buffers[t.buffer], tuple(map(to_int, t.axes))
    init: Stmt | None = None
    body = Rewrite(buffers=buffers).scalar(root.body)
    if isinstance(body, Reduce):
        iters += [BlockIter(a.sym, a.extent, IterKind.REDUCE) for a in body.axes]
        start = identity(body.op, body.dtype) if body.init is None else body.init
        first_lets, first = linearize(start)
        init = bind_lets(first_lets, Store(target, at, first))
        lets, value = linearize(body.body)
        value = combine(body.op, Load(target, at), value)
    else:
        lets, value = linearize(body)
    loops = [fresh(names.unique(f"{block}_{i.sym.name}")) for i in iters]
    result: Stmt = Block(
        block, tuple(iters), tuple(map(to_int, loops)), bind_lets(lets, Store(target, at, value)), init
    )
    for var, i in zip(reversed(loops), reversed(iters), strict=True):
        result = For(var, lit(0), i.extent, LoopKind.SERIAL, result)
    return result


def free_symbols(params: Sequence[Buffer], body: Stmt) -> Iterator[Sym]:
    """Yield the symbols that nothing in `body` binds, those of the parameters' shapes first."""
    bound: set[Sym] = set()
    seen: dict[Sym, None] = {}
    for b in params:
        _note((*b.shape, *(b.strides or ()), b.first), seen)
    for s in stmts_below(body):
        match s:
            case For(var=var):
                bound.add(var)
            case Block(iters=iters):
                bound.update(i.sym for i in iters)
            case Let(sym=sym):
                bound.add(sym)
            case _:
                pass
        _note(own_ints(s), seen)
        for value in own_scalars(s):
            for x in scalars_below(value):
                if isinstance(x, Load):
                    _note(x.indices, seen)
                elif isinstance(x, Index):
                    _note((x.value,), seen)
                elif isinstance(x, Dot):
                    bound.add(x.sym)
    return (s for s in seen if s not in bound)


def _note(es: Sequence[Int], seen: dict[Sym, None]) -> None:
    for e in es:
        if e.value is None:
            seen.update(dict.fromkeys(symbols(e)))
