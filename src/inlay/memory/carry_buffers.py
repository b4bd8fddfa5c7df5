"""Gives what a loop carries two buffers for all of its turns, where its size is the same in each.

    let loop = fn(i, h) {                       let s = alloc_storage(..); let a = tensor_at(s, ..);
      let s = alloc_storage(..);                let z = alloc_storage(..); let b = tensor_at(z, ..);
      let y = tensor_at(s, ..);        ->       let loop = fn(i, h, next, spare) {
      let _ = invoke(@step, h, y);                let _ = invoke(@step, h, next);
      loop(int(i + 1), y)                         loop(int(i + 1), next, spare, next)
    };                                          };
    loop(int(0), x)                             loop(int(0), x, a, b)

A turn reads `h` and writes what the next turn reads, so one buffer is not enough and two are: what is
written in a turn is `h` in the next one and overwritten in the one after. The first `h` comes from
outside and is not written, unless it has a storage of its own that nothing reads later: then that is the
second buffer, and `a` alone is made. A turn that hands `h` on leaves both as they are.

**When it is right.** Nothing but this loop may see `h` or what is written, or it would see them change:
they are read by kernels and by operators that do not hand their operand on, directly or through views,
are carried at this one position, and leave the loop when it ends. Closures, data, cells and calls might
keep them. Buffers that change place by `own` need no second one and are left alone.

The buffers are made when the loop is entered, so the loops inside a loop make their own in each turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inlay.analysis.blocks import definitions, nested, operands, relet, spine, values, with_blocks
from inlay.analysis.local_functions import find_loops
from inlay.arith.expr import Int, symbols
from inlay.ir import make
from inlay.ir.expr import Call, Const, Expr, Function, If, Let, Match, OpRef, Tuple, Var
from inlay.ir.module import Module
from inlay.ir.types import STORAGE, FuncType, TensorType
from inlay.ir.walk import bound_symbols
from inlay.ops.memory import ALLOC_STORAGE, TENSOR_AT
from inlay.passes.contract import Pass, PassContext, Property


def run(module: Module, context: PassContext) -> Module:
    """Rewrite the loops of every function. Cost: linear, for each loop of a nest."""
    del context
    return module.with_functions({n: _rewrite(f) for n, f in module.functions.items()})


@dataclass(frozen=True, slots=True)
class _Carry:
    """A parameter of a loop that gets buffers.

    Attributes:
        position: of the parameter.
        made: variables of the tensors that turns make for it.
        view: `tensor_at` of one of them.
        storage: `alloc_storage` of one of them.
        buffers: parameters for the buffer to write and the other one.
        takes_first: whether the first value may be overwritten, and is the other one.
    """

    position: int
    made: tuple[Var, ...]
    view: Call
    storage: Call
    buffers: tuple[Var, Var]
    takes_first: bool


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that is rewritten: what it is called now, and what it carries."""

    var: Var
    carries: tuple[_Carry, ...]


def _rewrite(function: Function) -> Function:
    loops = find_loops(function)
    if not loops:
        return function
    known = definitions(function.body)
    uses = _Uses(function, loops, known)
    found: dict[Var, _Loop] = {}
    for var in loops:
        node = known[var]
        assert isinstance(node, Function), "loops are functions"
        carries = tuple(_carries(var, node, known, uses))
        if carries:
            extra = tuple(b.type for c in carries for b in c.buffers)
            t = node.type
            type_ = FuncType((*t.params, *extra), t.result, t.dims, t.type_vars)
            found[var] = _Loop(Var(var.name, type_, var.span, var.place), carries)
    if not found:
        return function
    return replace(function, body=_Rewriter(found, known).block(function.body))


# ------------------------------------------------------------------------------- what is possible


class _Uses:
    """Where variables are mentioned in a function, and whether that lets them be overwritten."""

    def __init__(self, root: Function, loops: frozenset[Var], known: Mapping[Var, Expr]) -> None:
        self._mentions: dict[Var, list[Expr]] = {}
        self._values = known
        self._names: dict[Expr, Var] = {value: var for var, value in known.items()}
        self._kept: dict[Var, Function] = {}  # by a function that mentions it and may run later
        self._where: dict[Expr, tuple[Expr, int]] = {}  # the block of a value, and its number there
        in_place = {known[var] for var in loops}
        pending: list[tuple[Expr, Function | None]] = [(root.body, None)]
        while pending:
            block, keeper = pending.pop()
            lets, tail = spine(block)
            for number, value in enumerate((*(let.value for let in lets), tail)):
                self._where[value] = block, number
                inside = value if isinstance(value, Function) and value not in in_place else keeper
                pending.extend((x, inside) for x in nested(value))
                for operand in (value, *operands(value)):
                    if isinstance(operand, Var):
                        self._mentions.setdefault(operand, []).append(value)
                        if keeper is not None:
                            self._kept[operand] = keeper

    def of(self, var: Var) -> Sequence[Expr]:
        """Return the values that mention a variable."""
        return self._mentions.get(var, ())

    def ends_at(self, var: Var, call: Call) -> bool:
        """Whether a tensor is made in the block of a call, and nothing but that call has it from there on."""
        block, number = self._where[call]
        before = [value for value in self.of(var) if value is not call]
        where = [self._where[value] for value in (self._values[var], *before)]
        reads = all(self._shown_by(value, var) is var for value in before)
        return reads and call.args.count(var) == 1 and all(b is block and n < number for b, n in where)

    def others(self, var: Var) -> Iterator[Expr]:
        """Yield what may see a tensor beyond the moment in which it is mentioned."""
        pending, seen = [var], {var}
        while pending:
            now = pending.pop()
            if now in self._kept:
                yield self._kept[now]
            for value in self.of(now):
                shown = self._shown_by(value, now)
                if shown is None:
                    yield value
                elif shown is not now and shown not in seen:
                    seen.add(shown)
                    pending.append(shown)

    def _shown_by(self, value: Expr, var: Var) -> Var | None:
        """Return the variable of a view; `var` where its bytes are only read; None for others."""
        if not (isinstance(value, Call) and isinstance(value.callee, OpRef)):
            return None
        op = value.callee.op
        if any(value.args[i] is var for i in op.in_place):
            return None
        if op.alias is None or value.args[op.alias] is not var:
            return var
        return self._names.get(value)


def _carries(var: Var, node: Function, known: Mapping[Var, Expr], uses: _Uses) -> Iterator[_Carry]:
    again = [v for v in values(node.body) if isinstance(v, Call) and v.callee is var]
    inner = set(bound_symbols(node))
    own = definitions(node.body)
    leaves = _leaving(node.body)
    for position, param in enumerate(node.params):
        made = tuple(dict.fromkeys(a for c in again if (a := c.args[position]) is not param))
        # What is made before the loop is read by every turn: it has no place in a buffer of turns.
        views = [own.get(a) if isinstance(a, Var) else None for a in made]
        if not made or not isinstance(param.type, TensorType):
            continue
        storages = [_storage_of(view, known, uses) for view in views]
        view, storage = views[0], storages[0]
        if storage is None or not isinstance(view, Call) or not isinstance(view.type, TensorType):
            continue
        if any(s is None or not _alike(s, storage) for s in storages):
            continue
        if any(v is None or v.type != view.type for v in views):
            continue
        if any(s in inner for e in (*view.type.shape, _size(storage)) for s in symbols(e)):
            continue
        carried = {c: c.args[position] for c in again if c.args.count(c.args[position]) == 1}
        if any(carried.get(u) is not param and u not in leaves for u in uses.others(param)):  # type: ignore[call-overload]
            continue
        if any(carried.get(u) is not v for v in made for u in uses.others(v)):  # type: ignore[arg-type,call-overload]
            continue
        buffers = tuple(make.var(f"{param.name}.{n}", view.type) for n in ("next", "spare"))
        entries = [x for x in uses.of(var) if isinstance(x, Call) and x.callee is var and x not in again]
        takes = len(entries) == 1 and _may_take(entries[0], position, view, storage, known, uses)
        yield _Carry(position, made, view, storage, buffers, takes)  # type: ignore[arg-type]


def _may_take(
    entry: Call, position: int, view: Call, storage: Call, known: Mapping[Var, Expr], uses: _Uses
) -> bool:
    """Whether what a loop is entered with has a buffer of its own, which is free behind the first turn."""
    first = entry.args[position]
    own = known.get(first) if isinstance(first, Var) else None
    made = _storage_of(own, known, uses)
    if own is None or made is None or not isinstance(first, Var):
        return False
    return own.type == view.type and _alike(made, storage) and uses.ends_at(first, entry)


def _storage_of(view: Expr | None, known: Mapping[Var, Expr], uses: _Uses) -> Call | None:
    """Return the storage that a tensor has to itself, if it has one."""
    if not (isinstance(view, Call) and isinstance(view.callee, OpRef)):
        return None
    if view.callee.op is not TENSOR_AT or not isinstance(view.args[0], Var):
        return None
    storage = known.get(view.args[0])
    if not (isinstance(storage, Call) and isinstance(storage.callee, OpRef)):
        return None
    alone = storage.callee.op is ALLOC_STORAGE and len(uses.of(view.args[0])) == 1
    return storage if alone else None


def _alike(a: Call, b: Call) -> bool:
    assert isinstance(a.callee, OpRef), "storage is made by an operator"
    assert isinstance(b.callee, OpRef), "storage is made by an operator"
    return a.callee.attrs == b.callee.attrs and _size(a) == _size(b)


def _size(storage: Call) -> Int:
    size = storage.args[0]
    assert isinstance(size, Const), "explicit-alloc gives storage a number"
    assert isinstance(size.value, Int), "explicit-alloc gives storage a number"
    return size.value


def _leaving(body: Expr) -> set[Expr]:
    """Return the values that are results of the loop when it ends: variables and tuples."""
    found: set[Expr] = set()
    pending = [body]
    while pending:
        lets, tail = spine(pending.pop())
        if isinstance(tail, (If, Match)):
            pending.extend(nested(tail))
        elif isinstance(tail, Var):
            found.add(tail)
            found.update(let.value for let in lets if let.var is tail and isinstance(let.value, Tuple))
    return found


# ----------------------------------------------------------------------------------- rewriting


class _Rewriter:
    """Writes buffers into loops: parameters, arguments, and what they replace."""

    def __init__(self, loops: Mapping[Var, _Loop], known: Mapping[Var, Expr]) -> None:
        self.loops = loops
        self.inside: list[Var] = []
        self.replaced: dict[Var, Var] = {}
        self.gone: set[Var] = set()
        for loop in loops.values():
            for carry in loop.carries:
                for made in carry.made:
                    view = known[made]
                    assert isinstance(view, Call), "what is carried is a tensor in storage"
                    assert isinstance(view.args[0], Var), "storage has a name"
                    self.replaced[made] = carry.buffers[0]
                    self.gone.update((made, view.args[0]))

    def block(self, block: Expr) -> Expr:
        """Rewrite a block."""
        lets, tail = spine(block)
        written: list[tuple[Var, Expr, Let | None]] = []
        for let in lets:
            if let.var in self.gone:
                continue
            loop = self.loops.get(let.var)
            if loop is not None:
                assert isinstance(let.value, Function), "loops are functions"
                written.append((loop.var, self._loop(let.var, let.value, loop), let))
            else:
                value = self._value(let.value, written)
                written.append((let.var, value, let))
        result = self._value(tail, written)
        for var, value, old in reversed(written):
            if old is None:
                result = make.let(var, value, result)
            else:
                result = relet(replace(old, var=var), value, result)
        return result

    def _loop(self, var: Var, node: Function, loop: _Loop) -> Function:
        self.inside.append(var)
        body = self.block(node.body)
        self.inside.pop()
        assert isinstance(loop.var.type, FuncType), "loops are functions"
        params = (*node.params, *(b for c in loop.carries for b in c.buffers))
        return replace(node, params=params, body=body, type=loop.var.type)

    def _value(self, value: Expr, before: list[tuple[Var, Expr, Let | None]]) -> Expr:
        match value:
            case Var():
                return self.replaced.get(value, value)
            case Call(callee=Var() as callee) if callee in self.loops:
                loop = self.loops[callee]
                extra = self._again(value, loop) if callee in self.inside else _made(loop, value, before)
                return replace(value, callee=loop.var, args=(*self._args(value), *extra))
            case Call():
                args = self._args(value)
                return value if args == value.args else replace(value, args=args)
            case _:
                return with_blocks(value, self.block)

    def _args(self, call: Call) -> tuple[Expr, ...]:
        return tuple([self.replaced.get(a, a) if isinstance(a, Var) else a for a in call.args])

    def _again(self, call: Call, loop: _Loop) -> list[Expr]:
        """Return the buffers of the next turn: the other way round, if one was written."""
        extra: list[Expr] = []
        for carry in loop.carries:
            was_written = call.args[carry.position] in carry.made
            extra += reversed(carry.buffers) if was_written else carry.buffers
        return extra


def _made(loop: _Loop, entry: Call, before: list[tuple[Var, Expr, Let | None]]) -> list[Expr]:
    """Make the buffers where a loop is entered."""
    extra: list[Expr] = []
    for carry in loop.carries:
        for buffer in carry.buffers:
            if carry.takes_first and buffer is carry.buffers[1]:
                extra.append(entry.args[carry.position])
                continue
            storage = make.var(f"{buffer.name}.s", STORAGE, carry.storage.span)
            tensor = Var(buffer.name, carry.view.type, carry.view.span, carry.view.place)
            before.append((storage, replace(carry.storage), None))
            view = replace(carry.view, args=(storage, *carry.view.args[1:]))
            before.append((tensor, view, None))
            extra.append(tensor)
    return extra


PASS = Pass(
    __name__,
    run,
    "give what loops carry two buffers for all turns",
    requires=(Property.ANF, Property.EXPLICIT_STORAGE),
)
