"""Which local functions are loops: written in place, with jumps instead of calls.

A let-bound function needs no code, frame or closure of its own when

* every call of it from its own body is in tail position, and
* it is called exactly once from elsewhere in the activation that defines it, and not from an arm that
  is written several times (`matches.is_flat`), and
* it is mentioned in no other way.

Then its body is written where it is called, its own calls jump back, and the values it captured are
simply in scope. A function that never calls itself and is called once is such a loop, of one turn.

One kind of loop is left out: one that reads an integer from a tensor, where a call that may do the same
follows before anybody uses its result. As a function with storage of its own it can become a task (see
`vm/tasks.py`), so that both go on together.

"In its own body" sees through inner loops: if `g` is a loop written in tail position of `f`, a tail
call of `f` in `g` is a tail call of `f`. Inner functions are therefore decided before outer ones.

Cost: linear in the program times the depth of nested functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from inlay.analysis.blocks import nested, operands
from inlay.analysis.matches import is_flat
from inlay.ir.core_ops import TO_CONTROL
from inlay.ir.expr import Call, Expr, Function, GlobalVar, Let, Match, OpRef, Project, Tuple, Var
from inlay.ir.walk import free_vars


@dataclass(frozen=True, slots=True)
class _Mention:
    """One occurrence of a local function.

    Attributes:
        home: the function whose body it directly stands in.
        is_call: whether it is called there.
        is_tail: whether it is in tail position of `home`.
    """

    home: Function
    is_call: bool
    is_tail: bool


@dataclass(slots=True, eq=False)
class _Local:
    """A let-bound function, where it is bound, how many were before, and its mentions in order."""

    var: Var
    node: Function
    home: Function
    position: int
    mentions: list[_Mention] = field(default_factory=list[_Mention])


def find_loops(root: Function) -> frozenset[Var]:
    """Return the let-bound variables under a function whose functions are loops."""
    found = _collect(root)
    by_node = {local.node: local for local in found.values()}
    loops: dict[Var, _Mention] = {}
    # A function is found before those bound in its body or behind it: decide in reverse.
    for local in reversed(found.values()):
        call = _outer_call(local, by_node, loops)
        if call is not None:
            loops[local.var] = call
    return frozenset(loops.keys() - _overlapping(root, loops.keys()))


def _overlapping(root: Function, loops: Collection[Var]) -> set[Var]:
    """Return the loops that wait and are called before another call that may wait."""
    waiting: dict[Var, bool] = {}
    found: set[Var] = set()
    pending: list[Expr] = [root.body]
    while pending:
        block = pending.pop()
        # The call of a loop, and what carries its results.
        called: Var | None = None
        carriers: set[Var] = set()
        for value, var in _bindings(block):
            if isinstance(value, Function) and var is not None and var in loops:
                waiting[var] = _waits(value.body)
            callee = value.callee if isinstance(value, Call) else None
            is_waiting = isinstance(callee, GlobalVar) or (
                isinstance(callee, Var) and waiting.get(callee, callee not in loops)
            )
            uses = [x for x in operands(value) if x in carriers]
            if uses and isinstance(value, (Project, Tuple)) and var is not None:
                carriers.add(var)
            elif called is not None and (uses or any(_mentions(x, carriers) for x in nested(value))):
                called = None
            elif called is not None and is_waiting:
                found.add(called)
                called = None
            if var is not None and isinstance(callee, Var) and waiting.get(callee):
                called, carriers = callee, {var}
            pending.extend(nested(value))
    return found


def _mentions(block: Expr, variables: set[Var]) -> bool:
    return any(var in variables for var in free_vars(block))


def _bindings(block: Expr) -> Iterator[tuple[Expr, Var | None]]:
    while isinstance(block, Let):
        yield block.value, block.var
        block = block.body
    yield block, None


def _waits(body: Expr) -> bool:
    """Whether an integer is read from a tensor in a block or in those that it holds."""
    pending = [body]
    while pending:
        for value, _ in _bindings(pending.pop()):
            callee = value.callee if isinstance(value, Call) else None
            if isinstance(callee, OpRef) and callee.op is TO_CONTROL:
                return True
            pending.extend(nested(value))
    return False


def _collect(root: Function) -> dict[Var, _Local]:
    found: dict[Var, _Local] = {}
    # (block, function it is in, whether its tail is that of the function, how many of the functions
    # found so far are around a match of which this block may be written several times)
    pending: list[tuple[Expr, Function, bool, int]] = [(root.body, root, True, 0)]
    while pending:
        block, home, is_tail, around = pending.pop()
        inner: list[tuple[Expr, Function, bool, int]] = []
        while True:
            value = block.value if isinstance(block, Let) else block
            ends = is_tail and block is value
            for operand in (value,) if isinstance(value, Var) else operands(value):
                if isinstance(operand, Var) and operand in found:
                    called = isinstance(value, Call) and operand is value.callee
                    passed = isinstance(value, Call) and operand in value.args
                    mention = _Mention(home, called and not passed, ends)
                    local = found[operand]
                    local.mentions += [mention] * (2 if local.position < around else 1)
            if isinstance(value, Function):
                if isinstance(block, Let):
                    found[block.var] = _Local(block.var, value, home, len(found))
                inner.append((value.body, value, True, around))
            else:
                is_several = isinstance(value, Match) and not is_flat(value)
                known = len(found) if is_several else around
                inner.extend((x, home, ends, known) for x in nested(value))
            if not isinstance(block, Let):
                break
            block = block.body
        # A mention is recorded only after its binding was met: values behind go on the stack
        # under those before, and every binding on this spine has been met by now.
        pending.extend(reversed(inner))
    return found


def _outer_call(
    local: _Local, by_node: dict[Function, _Local], loops: dict[Var, _Mention]
) -> _Mention | None:
    """Return the one call that a loop is written at; None if the function is no loop."""
    outer: _Mention | None = None
    for mention in local.mentions:
        if not mention.is_call:
            return None
        home, is_tail = mention.home, mention.is_tail
        # Climb out of loops: what stands in a loop stands where the loop is written.
        while home is not local.node and home is not local.home:
            inner = by_node.get(home)
            site = loops.get(inner.var) if inner is not None else None
            if site is None:
                return None
            home, is_tail = site.home, is_tail and site.is_tail
        if home is local.node:
            if not is_tail:
                return None
        elif outer is not None:
            return None
        else:
            outer = mention
    return outer
