"""A schedule under construction: the function, where its parts are, and the trace.

Loops and blocks are addressed by name. Names are unique in the function, survive every primitive
that does not consume their owner, and depend only on the order of primitives; so a handle is a
string, and a trace is a list of names and numbers that replays on any function made alike.

A primitive is a function of a `Schedule` in a file of its name under `primitives/`, marked with
`primitive`: that records the call. It checks that it is legal and raises `Illegal` with the reason
before it changes anything; it changes the function through `replace` and `set_body`. Primitives
that call others are recorded as one step.

Statements are immutable: a change rebuilds the path from the root. Where things are is looked up in
an index that is made again after a change, in one walk.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from inlay.analysis.choices import NO_CHOICE, Asked, Choice
from inlay.arith.expr import Sym, fresh, to_int
from inlay.base.diagnostics import CompileError, Diagnostic
from inlay.loop.buffer import Buffer
from inlay.loop.deps import BlockAccess, Touched, accesses
from inlay.loop.func import LoopFunction, Stage
from inlay.loop.stmt import Alloc, Block, For, Stmt
from inlay.loop.walk import Rewrite, blocks_of, child_stmts, fresh_copy, map_children, stmts_below

P = ParamSpec("P")
R = TypeVar("R")


class Illegal(CompileError):
    """A primitive that would change the meaning, or does not apply; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a primitive; arguments are names, numbers and tuples of them."""

    primitive: str
    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        shown = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.keywords]
        return f"{self.primitive}({', '.join(shown)})"


class Place:
    """A statement and the places around it, innermost first.

    Not a dataclass: hundreds are made after each primitive.
    """

    __slots__ = ("parent", "stmt")

    def __init__(self, stmt: Stmt, parent: Place | None) -> None:
        self.stmt = stmt
        self.parent = parent

    def above(self) -> Iterator[Place]:
        """Yield the places around this one, innermost first."""
        place = self.parent
        while place is not None:
            yield place
            place = place.parent


@dataclass(slots=True)
class _Index:
    loops: dict[str, Place]
    blocks: dict[str, Place]
    buffers: dict[str, Buffer]


class Schedule:
    """A loop function in transformation.

    Attributes:
        trace: the primitives applied so far.
        declined: those that do not apply, or are not worth it, each with the reason.
        rule: the name of the rule that made it; empty where none did.
        refusals: the names of rules that were tried before and gave up, with their reasons.
        asked: what rules leave open to measuring, and the answers.
        is_short: whether it is known to take less time than giving others a part.
    """

    def __init__(self, function: LoopFunction, choice: Choice = NO_CHOICE, *, is_short: bool = False) -> None:
        assert function.stage is Stage.SCHEDULABLE, "only schedulable functions are scheduled"
        self._function = function
        self._body = function.body
        self._index: _Index | None = None
        self._touched: dict[Block, Touched] = {}
        self._depth = 0
        self._taken: set[str] = {b.name for b in function.params}
        index = self._indexed()
        self._taken.update(index.loops, index.blocks, index.buffers)
        self.trace: list[Step] = []
        self.declined: list[tuple[Step, str]] = []
        self.rule = ""
        self.refusals: list[tuple[str, Diagnostic]] = []
        self.asked = Asked(choice)
        self.is_short = is_short

    # ---------------------------------------------------------------- looking

    @property
    def function(self) -> LoopFunction:
        """The function as it is now."""
        f = self._function
        return LoopFunction(f.name, f.params, f.n_reads, f.dims, self._body)

    @property
    def body(self) -> Stmt:
        """The body as it is now."""
        return self._body

    @property
    def params(self) -> tuple[Buffer, ...]:
        """The parameters."""
        return self._function.params

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The parameters that are written."""
        return self._function.params[self._function.n_reads :]

    @property
    def temporaries(self) -> list[Buffer]:
        """The buffers that are allocated around all else."""
        found: list[Buffer] = []
        s = self._body
        while isinstance(s, Alloc):
            found.append(s.buffer)
            s = s.body
        return found

    def loop(self, name: str) -> For:
        """Return a loop by the name of its variable."""
        stmt = self.loop_place(name).stmt
        assert isinstance(stmt, For), "the index holds loops"
        return stmt

    def block(self, name: str) -> Block:
        """Return a block by name."""
        stmt = self.block_place(name).stmt
        assert isinstance(stmt, Block), "the index holds blocks"
        return stmt

    def loop_place(self, name: str) -> Place:
        """Return where a loop is."""
        found = self._indexed().loops.get(name)
        if found is None:
            raise illegal("name", f"found no loop named {name}", f"loops: {self._names('loops')}")
        return found

    def block_place(self, name: str) -> Place:
        """Return where a block is."""
        found = self._indexed().blocks.get(name)
        if found is None:
            raise illegal("name", f"found no block named {name}", f"blocks: {self._names('blocks')}")
        return found

    def buffer(self, name: str) -> Buffer:
        """Return a parameter or an allocated buffer by name."""
        found = self._indexed().buffers.get(name)
        if found is None:
            raise illegal("name", f"found no buffer named {name}")
        return found

    def block_names(self) -> tuple[str, ...]:
        """Return the names of all blocks, in order of execution."""
        return tuple(self._indexed().blocks)

    def loops_of(self, block: str) -> tuple[str, ...]:
        """Return the names of the loops around a block, outermost first."""
        around = [p.stmt.var.name for p in self.block_place(block).above() if isinstance(p.stmt, For)]
        return tuple(reversed(around))

    def accesses(self, s: Stmt, buffer: Buffer | None = None) -> list[BlockAccess]:
        """Return what the blocks in a statement touch (see `loop.deps.accesses`)."""
        return accesses(s, self._touched, buffer)

    def require_in_scope(self, block: Block, place: Place, *, but: Buffer | None = None) -> None:
        """Refuse to move what a block reads and writes to where one of its buffers is not known.

        Raises:
            Illegal: `schedule.dependence`.
        """
        known = {p.stmt.buffer for p in place.above() if isinstance(p.stmt, Alloc)}
        for x in self.accesses(block):
            b = x.buffer
            if b is not but and b not in known and b not in self._function.params:
                raise illegal("dependence", f"found {b.name} allocated further inside")

    def _names(self, kind: str) -> str:
        return ", ".join(getattr(self._indexed(), kind)) or "none"

    def _indexed(self) -> _Index:
        if self._index is None:
            self._index = _make_index(self._body, self._function.params)
        return self._index

    # ---------------------------------------------------------------- changing

    def fresh_name(self, base: str) -> str:
        """Return a name that nothing in this schedule has had."""
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def fresh_loop(self, base: str) -> Sym:
        """Return a variable for a new loop."""
        return fresh(self.fresh_name(base))

    def copied(self, body: Stmt) -> tuple[Stmt, dict[str, str]]:
        """Return a copy with names of its own, and old to new names of the loops and blocks in it."""
        names: dict[str, str] = {}

        def rename(name: str) -> str:
            if name not in names:
                names[name] = self.fresh_name(name)
            return names[name]

        copy = fresh_copy(body, rename)
        own = [x.var.name for x in stmts_below(body) if isinstance(x, For)]
        return copy, {n: names[n] for n in (*own, *(b.name for b in blocks_of(body)))}

    def copied_loop(self, loop: For) -> tuple[For, dict[str, str]]:
        """Return as `copied` a loop of another variable, and names with those of the loops."""
        var = self.fresh_loop(loop.var.name)
        body, names = self.copied(loop.body)
        body = Rewrite({loop.var: to_int(var)}).stmt(body)
        return replace(loop, var=var, body=body), {loop.var.name: var.name} | names

    def replace(self, place: Place, new: Stmt) -> None:
        """Put a statement where another was."""
        old = place.stmt
        for above in place.above():
            new, old = _with_child(above.stmt, old, new), above.stmt
        self.set_body(new)

    def set_params(self, params: tuple[Buffer, ...]) -> None:
        """Give the parameters other shapes of the same bytes; the body must follow."""
        f = self._function
        self._function = LoopFunction(f.name, params, f.n_reads, f.dims, self._body)

    def set_body(self, body: Stmt) -> None:
        """Replace the whole body."""
        self._body = body
        self._index = None

    @contextlib.contextmanager
    def recording(self, step: Step) -> Generator[None, None, None]:
        """Record a step, unless it is part of another; one that is refused leaves no change."""
        if self._depth:
            yield
            return
        before = self._function, self._body, set(self._taken)
        self._depth = 1
        self.trace.append(step)
        try:
            yield
        except Illegal as refusal:
            self.trace.pop()
            self.declined.append((step, refusal.diagnostics[0].message))
            self._function, body, self._taken = before
            self.set_body(body)
            raise
        finally:
            self._depth = 0


def _with_child(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return map_children(parent, lambda child: new if child is old else child)


def _make_index(body: Stmt, params: tuple[Buffer, ...]) -> _Index:
    index = _Index({}, {}, {b.name: b for b in params})
    pending = [Place(body, None)]
    while pending:
        place = pending.pop()
        s = place.stmt
        if isinstance(s, For):
            index.loops[s.var.name] = place
            pending.append(Place(s.body, place))
        elif isinstance(s, Block):
            index.blocks[s.name] = place
        elif isinstance(s, Alloc):
            index.buffers[s.buffer.name] = s.buffer
            pending.append(Place(s.body, place))
        else:
            pending.extend([Place(child, place) for child in reversed(child_stmts(s))])
    return index


def primitive(function: Callable[Concatenate[Schedule, P], R]) -> Callable[Concatenate[Schedule, P], R]:
    """Mark a schedule primitive: its calls are recorded in the trace."""
    name = function.__name__

    @functools.wraps(function)
    def recorded(s: Schedule, *args: P.args, **keywords: P.kwargs) -> R:
        with s.recording(Step(name, args, tuple(keywords.items()))):
            return function(s, *args, **keywords)

    return recorded


def illegal(kind: str, message: str, *notes: str, hint: str = "") -> Illegal:
    """Return the refusal of a primitive, to be raised by it."""
    return Illegal(Diagnostic(f"schedule.{kind}", message, notes=notes, hint=hint))


# --------------------------------------------------------------------------- queries


def outermost_loop(place: Place) -> str | None:
    """Return the name of the outermost loop around a place, if there is one."""
    names = [p.stmt.var.name for p in place.above() if isinstance(p.stmt, For)]
    return names[-1] if names else None


def chain(place: Place, inner: Place) -> list[For]:
    """Return the loops from `place` down to `inner` when nothing else stands between them.

    Raises:
        Illegal: `schedule.not-nested`.
    """
    loops: list[For] = []
    around = [inner, *inner.above()]
    if place not in around:
        raise illegal("not-nested", "found loops that are not inside one another")
    for p in around[: around.index(place) + 1]:
        if not isinstance(p.stmt, For):
            kind = type(p.stmt).__name__.lower()
            raise illegal(
                "not-nested", f"found a {kind} between the loops, needed loops directly inside one another"
            )
        loops.append(p.stmt)
    return loops[::-1]
