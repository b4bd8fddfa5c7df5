"""Traversal of statements and scalars: children, rebuilding, substitution, fresh copies.

Each node kind is taken apart and put together once, here. Passes and primitives use

* `stmts_below` / `scalars_below` to look at everything, outermost first;
* `map_children` to rebuild one level of statements;
* `Rewrite` to substitute integers, buffers and loads throughout;
* `fresh_copy` to duplicate a nest, so that no loop, block or buffer has the same name twice.

Scalars are graphs, not trees: an expression may be shared. `Rewrite` keeps sharing; `scalars_below`
visits a shared node once. Nodes are kept when nothing below them changed, so a rewrite that finds
nothing returns the object it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from inlay.arith.expr import Int, Sym, fresh, from_atom, rebuild, symbols
from inlay.loop.buffer import Buffer
from inlay.loop.scalar import (
    DIVISIONS,
    Binary,
    Bind,
    Cast,
    Dot,
    Index,
    Intrinsic,
    Lit,
    Load,
    Name,
    Reduce,
    Scalar,
    Select,
    Unary,
)
from inlay.loop.stmt import Alloc, Assert, Block, For, If, Let, Seq, Stmt, Store, While

# --------------------------------------------------------------------------- looking


def child_stmts(s: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly inside a statement, in order of execution."""
    match s:
        case For(body=body) | While(body=body) | Let(body=body) | Alloc(body=body):
            return (body,)
        case Seq(stmts=stmts):
            return stmts
        case If(then=then, otherwise=otherwise):
            return (then,) if otherwise is None else (then, otherwise)
        case Block(init=init, body=body):
            return (body,) if init is None else (init, body)
        case Store() | Assert():
            return ()
        case _:
            assert_never(s)


def symbols_of(x: Scalar) -> Iterator[Sym]:
    """Yield the symbols that a scalar depends on: those of indices, of what it loads, and of names."""
    for y in scalars_below(x):
        match y:
            case Load(indices=indices):
                yield from (sym for e in indices for sym in symbols(e))
            case Index(value=e):
                yield from symbols(e)
            case Name(sym=sym):
                yield sym
            case _:
                pass


def iters_along(block: Block, loops: Collection[Sym]) -> set[Sym]:
    """Return the iters of a block that some of the loops around it say."""
    pairs = zip(block.iters, block.bindings, strict=True)
    return {i.sym for i, e in pairs if any(x in loops for x in symbols(e))}


def own_scalars(s: Stmt) -> tuple[Scalar, ...]:
    """Return the scalars that belong to a statement itself, not to those inside it."""
    match s:
        case Store(value=value) | Let(value=value):
            return (value,)
        case If(condition=condition) | While(condition=condition) | Assert(condition=condition):
            return (condition,)
        case Block(predicate=predicate):
            return () if predicate is None else (predicate,)
        case For() | Seq() | Alloc():
            return ()
        case _:
            assert_never(s)


def own_ints(s: Stmt) -> tuple[Int, ...]:
    """Return the integers that belong to a statement itself; those of its scalars excluded."""
    match s:
        case Store(indices=indices):
            return indices
        case For(lo=lo, extent=extent):
            return (lo, extent)
        case Block(iters=iters, bindings=bindings):
            return (*(i.extent for i in iters), *bindings)
        case Alloc(buffer=buffer):
            return buffer.shape
        case While() | Let() | If() | Seq() | Assert():
            return ()
        case _:
            assert_never(s)


def stmts_below(s: Stmt) -> Iterator[Stmt]:
    """Yield a statement and all inside it, outermost first, in order of execution."""
    pending = [s]
    while pending:
        top = pending.pop()
        yield top
        pending.extend(reversed(child_stmts(top)))


def operands(x: Scalar) -> tuple[Scalar, ...]:
    """Return the scalars directly inside a scalar."""
    match x:
        case Lit() | Index() | Name() | Load():
            return ()
        case Binary(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case Unary(operand=operand) | Cast(operand=operand):
            return (operand,)
        case Select(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case Intrinsic(args=args):
            return args
        case Bind(value=value, body=body):
            return (value, body)
        case Dot(acc=acc, a=a, b=b):
            return (acc, a, b)
        case Reduce(body=body, init=init):
            return (body,) if init is None else (init, body)
        case _:
            assert_never(x)


def scalars_below(x: Scalar) -> Iterator[Scalar]:
    """Yield a scalar and all inside it, each node once."""
    seen: set[int] = set()
    pending = [x]
    while pending:
        top = pending.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        yield top
        pending.extend(reversed(operands(top)))


def may_fault(x: Scalar) -> bool:
    """Whether evaluating a scalar where it is not wanted could trap: it loads, or divides integers."""
    return any(
        isinstance(y, Load) or (isinstance(y, Binary) and y.op in DIVISIONS and not y.dtype.is_float)
        for y in scalars_below(x)
    )


def loads_of(s: Stmt) -> Iterator[Load]:
    """Yield every load in a statement and in those inside it."""
    for inner in stmts_below(s):
        for value in own_scalars(inner):
            for x in scalars_below(value):
                if isinstance(x, Load):
                    yield x


def stores_of(s: Stmt) -> Iterator[Store]:
    """Yield every store in a statement and in those inside it."""
    for inner in stmts_below(s):
        if isinstance(inner, Store):
            yield inner


def blocks_of(s: Stmt) -> Iterator[Block]:
    """Yield the blocks in a statement, in order of execution."""
    pending = [s]
    while pending:
        top = pending.pop()
        if isinstance(top, Block):
            yield top
        else:
            pending.extend(reversed(child_stmts(top)))


# --------------------------------------------------------------------------- rebuilding


def seq(*stmts: Stmt) -> Stmt:
    """Return statements in order, without sequences inside sequences or of one statement."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def map_children(s: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """Rebuild one level: replace the statements directly inside `s` by `f` of them."""
    match s:
        case For(body=body):
            new = f(body)
            return s if new is body else For(s.var, s.lo, s.extent, s.kind, new, s.note)
        case Seq(stmts=stmts):
            mapped = [f(x) for x in stmts]
            return s if all(a is b for a, b in zip(mapped, stmts)) else seq(*mapped)
        case Block(init=init, body=body):
            new, start = f(body), None if init is None else f(init)
            if new is body and start is init:
                return s
            return Block(s.name, s.iters, s.bindings, new, start, s.predicate)
        case If(then=then, otherwise=otherwise):
            new, other = f(then), None if otherwise is None else f(otherwise)
            return s if new is then and other is otherwise else If(s.condition, new, other)
        case Let(body=body):
            new = f(body)
            return s if new is body else Let(s.sym, s.value, new)
        case Alloc(body=body):
            new = f(body)
            return s if new is body else Alloc(s.buffer, new)
        case While(body=body):
            new = f(body)
            return s if new is body else While(s.condition, new)
        case Store() | Assert():
            return s
        case _:
            assert_never(s)


class Rewrite:
    """Replaces symbols, buffers and loads throughout statements and scalars.

    Binders (loop variables, iters, lets) are kept, and replacing a symbol that is bound inside is the
    caller's mistake; only the symbols of `Bind` scalars are renamed, to a symbol, when asked. One
    object remembers what it has rewritten, so use it for one substitution.

    Args:
        ints: replacement of symbols.
        buffers: replacement of buffers, of the same rank.
        load: called for each load with its new indices; None keeps the load.
        access: gives the buffer and indices that each load and store is to have instead.
    """

    __slots__ = ("_access", "_buffers", "_index_memo", "_ints", "_load", "_memo")

    def __init__(
        self,
        ints: Mapping[Sym, Int] | None = None,
        buffers: Mapping[Buffer, Buffer] | None = None,
        load: Callable[[Load, tuple[Int, ...]], Scalar | None] | None = None,
        access: Callable[[Buffer, tuple[Int, ...]], tuple[Buffer, tuple[Int, ...]]] | None = None,
    ) -> None:
        self._ints = ints or {}
        self._buffers = buffers or {}
        self._load = load
        self._access = access
        self._index_memo: dict[Int, Int] = {}
        self._memo: dict[int, tuple[Scalar, Scalar]] = {}  # keeps the key's node alive

    def int(self, e: Int) -> Int:
        """Rewrite an integer."""
        if not self._ints or e.value is not None:
            return e
        found = self._index_memo.get(e)
        if found is None:
            found = self._index_memo[e] = rebuild(e, self._ints.get)
        return found

    def ints(self, es: tuple[Int, ...]) -> tuple[Int, ...]:
        """Rewrite several integers; the same tuple when nothing changed."""
        if not self._ints:
            return es
        new = tuple([self.int(e) for e in es])
        return es if all(a is b for a, b in zip(new, es, strict=True)) else new

    def buffer(self, b: Buffer) -> Buffer:
        """Rewrite a buffer."""
        return self._buffers.get(b, b)

    def _accessed(self, buffer: Buffer, indices: tuple[Int, ...]) -> tuple[Buffer, tuple[Int, ...]]:
        if self._access is not None:
            return self._access(buffer, indices)
        return self._buffers.get(buffer, buffer), indices

    def scalar(self, x: Scalar) -> Scalar:
        """Rewrite a scalar, keeping what is shared shared."""
        if isinstance(x, (Lit, Name)):
            return self._name(x) if isinstance(x, Name) else x
        found = self._memo.get(id(x))
        if found is None:
            found = self._memo[id(x)] = (x, self._rebuilt(x))
        return found[1]

    def _name(self, x: Name) -> Name:
        new = self._ints.get(x.sym)
        if new is None:
            return x
        atom = new.atom
        assert isinstance(atom, Sym), "a let-bound scalar is renamed, never replaced"
        return Name(atom, x.dtype)

    def _rebuilt(self, x: Scalar) -> Scalar:
        match x:
            case Load(buffer=buffer, indices=indices):
                new = self.ints(indices)
                if self._load is not None:
                    replaced = self._load(x, new)
                    if replaced is not None:
                        return replaced
                target, new = self._accessed(buffer, new)
                return x if target is buffer and new is indices else Load(target, new)
            case Index(value=value):
                index = self.int(value)
                return x if index is value else Index(index, x.dtype)
            case Bind(sym=sym, value=value, body=body):
                new_sym = self._ints[sym].atom if sym in self._ints else sym
                assert isinstance(new_sym, Sym), "a bound scalar is renamed, never replaced"
                return Bind(new_sym, self.scalar(value), self.scalar(body))
            case _:
                return map_operands(x, self.scalar)

    def stmt(self, s: Stmt) -> Stmt:
        """Rewrite a statement and all inside it; the same object when nothing changed."""
        match s:
            case Store(buffer=buffer, indices=indices, value=value):
                target, at = self._accessed(buffer, self.ints(indices))
                new = self.scalar(value)
                if target is buffer and at is indices and new is value:
                    return s
                return Store(target, at, new)
            case For():
                return self._for(s)
            case Block():
                return self.block(s)
            case Let(value=value):
                let = map_children(s, self.stmt)
                new = self.scalar(value)
                assert isinstance(let, Let), "children are replaced"
                return let if new is value else Let(s.sym, new, let.body)
            case If(condition=condition):
                branch = map_children(s, self.stmt)
                new = self.scalar(condition)
                assert isinstance(branch, If), "children are replaced"
                return branch if new is condition else If(new, branch.then, branch.otherwise)
            case Seq():
                return map_children(s, self.stmt)
            case Alloc(buffer=buffer):
                alloc = map_children(s, self.stmt)
                target = self._buffers.get(buffer, buffer)
                assert isinstance(alloc, Alloc), "children are replaced"
                return alloc if target is buffer else Alloc(target, alloc.body)
            case While(condition=condition, body=body):
                return While(self.scalar(condition), self.stmt(body))
            case Assert(condition=condition):
                return Assert(self.scalar(condition), s.message)
            case _:
                assert_never(s)

    def _for(self, s: For) -> For:
        lo, extent, body = self.int(s.lo), self.int(s.extent), self.stmt(s.body)
        if lo is s.lo and extent is s.extent and body is s.body:
            return s
        return For(s.var, lo, extent, s.kind, body, s.note)

    def block(self, s: Block) -> Block:
        """Rewrite a block. Its body and init mention iters only, so integers stay as they are."""
        body, init = s.body, s.init
        if self._buffers or self._load is not None or self._access is not None:
            body = self.stmt(body)
            init = None if init is None else self.stmt(init)
        predicate = None if s.predicate is None else self.scalar(s.predicate)
        bindings = self.ints(s.bindings)
        if body is s.body and init is s.init and predicate is s.predicate and bindings is s.bindings:
            return s
        return Block(s.name, s.iters, bindings, body, init, predicate)


def map_operands(x: Scalar, f: Callable[[Scalar], Scalar]) -> Scalar:
    """Rebuild one level of a scalar; the same object when nothing changed."""
    match x:
        case Lit() | Index() | Name() | Load():
            return x
        case Binary(op=op, lhs=lhs, rhs=rhs):
            a, b = f(lhs), f(rhs)
            return x if a is lhs and b is rhs else Binary(op, a, b, x.dtype)
        case Unary(op=op, operand=operand):
            a = f(operand)
            return x if a is operand else Unary(op, a, x.dtype)
        case Cast(operand=operand):
            a = f(operand)
            return x if a is operand else Cast(a, x.dtype)
        case Select(condition=condition, then=then, otherwise=otherwise):
            c, a, b = f(condition), f(then), f(otherwise)
            if c is condition and a is then and b is otherwise:
                return x
            return Select(c, a, b, x.dtype)
        case Intrinsic(op=op, args=args):
            new = tuple(map(f, args))
            return x if all(a is b for a, b in zip(new, args)) else Intrinsic(op, new, x.dtype)
        case Bind(sym=sym, value=value, body=body):
            a, b = f(value), f(body)
            return x if a is value and b is body else Bind(sym, a, b)
        case Dot(acc=acc, a=first, b=second):
            total, a, b = f(acc), f(first), f(second)
            if total is acc and a is first and b is second:
                return x
            return Dot(x.sym, x.width, total, a, b, x.saturates)
        case Reduce(op=op, axes=axes, body=body, init=init):
            a, start = f(body), None if init is None else f(init)
            return x if a is body and start is init else Reduce(op, axes, a, x.dtype, start)
        case _:
            assert_never(x)


def fresh_copy(s: Stmt, rename: Callable[[str], str]) -> Stmt:
    """Copy a nest with new loop variables, block names and allocated buffers.

    Iters and let-bound symbols are scoped tightly and stay as they are.
    """
    ints: dict[Sym, Int] = {}
    buffers: dict[Buffer, Buffer] = {}
    for inner in stmts_below(s):
        if isinstance(inner, For):
            ints[inner.var] = from_atom(fresh(rename(inner.var.name)))
        elif isinstance(inner, Alloc):
            b = inner.buffer
            buffers[b] = replace(b, name=rename(b.name))
    copied = Rewrite(ints, buffers).stmt(s)

    def renamed(x: Stmt) -> Stmt:
        if isinstance(x, For):
            var = ints[x.var].atom
            assert isinstance(var, Sym)
            return For(var, x.lo, x.extent, x.kind, renamed(x.body), x.note)
        if isinstance(x, Block):
            return Block(rename(x.name), x.iters, x.bindings, x.body, x.init, x.predicate)
        return map_children(x, renamed)

    return renamed(copied)


def written_out(s: For) -> tuple[int, bool]:
    """Read the note `steps = "2"` of a loop: how many steps are written in one turn.

    `steps = "2 mixed"`: their instructions alternate.
    """
    count, *words = next((value for key, value in s.note if key == "steps"), "1").split()
    return int(count), words == ["mixed"]


def loads_anew(s: For) -> bool:
    """Read the note `loads = "anew"` of a loop that is written out: steps share nothing that they load."""
    return ("loads", "anew") in s.note


def is_transposed(s: For) -> bool:
    """Read the note `loads = "transposed"` of a loop that is written out.

    Steps load neighbors, in lanes that are far apart: rows are loaded for all of them, and transposed.
    """
    return ("loads", "transposed") in s.note
