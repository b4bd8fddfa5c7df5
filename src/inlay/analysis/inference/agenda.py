"""What waits during type inference, and when it goes on.

A type rule needs the ranks of its operands, and a call of a function that waits needs what its
arguments are. Such a computation is suspended on the lists of the unknowns that it needs; solving one
wakes it. It goes on when all is known, or, if it is *eager*, tries again with every bit of news.

A *join* of branches waits for all its sides. It is the one computation that can be forced: where
nothing else moves, its known side decides, or all sides become one type.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inlay.analysis.inference.solver import Reason, Solver, is_meta
from inlay.base.diagnostics import Collector, CompileError
from inlay.base.span import Span
from inlay.ir.types import UNKNOWN, Type, TypeVar


@dataclass(slots=True, eq=False)
class Waiting:
    """A computation of a type that waits for others; `result` is bound to what it returns.

    Attributes:
        compute: the computation; None says that it needs to know more.
        result: the unknown that stands for the result.
        needs: what it waits for: all of it, at all depths, unless it is `eager`.
        span: where, for messages.
        sides: for joins, the types that are joined.
        eager: whether it is tried as soon as anything in `needs` becomes known.
        done: whether it has its result.
        lists: the metas on whose lists it is.
    """

    compute: Callable[[], Type | None]
    result: Type
    needs: tuple[Type, ...]
    span: Span
    sides: tuple[Type, ...] = ()
    eager: bool = False
    done: bool = False
    lists: set[str] = field(default_factory=set[str])


class Agenda:
    """The suspended computations of one inference."""

    def __init__(self, solver: Solver, findings: Collector) -> None:
        self._solver = solver
        self._findings = findings
        self._waiting: dict[str, list[Waiting]] = {}  # by the meta that is waited for
        self._pending: dict[str, Waiting] = {}  # by the meta that stands for the result
        self._ready: deque[Waiting] = deque()
        self._joins: deque[Waiting] = deque()
        self._draining = False
        solver.on_solved = self.wake

    def wake(self, meta: str) -> None:
        """Take note that an unknown was solved; `drain` runs what waited for it."""
        self._ready += self._waiting.pop(meta, ())

    def when_known(
        self, needs: Sequence[Type], compute: Callable[[], Type], what: Reason, sides: tuple[Type, ...] = ()
    ) -> Type:
        """Compute a type as soon as others are known, at all depths."""
        waiting = Waiting(compute, UNKNOWN, tuple(needs), what.span, sides)
        if not self._suspend(waiting):
            return compute()
        self._await(waiting, what)
        if sides:
            self._joins.append(waiting)
        return waiting.result

    def eagerly(
        self, compute: Callable[[], Type | None], needs: Callable[[], tuple[Type, ...]], what: Reason
    ) -> Type:
        """Compute a type now, or try again whenever more is known of what it needs."""
        t = compute()
        if t is not None:
            return t
        waiting = Waiting(compute, UNKNOWN, needs(), what.span, eager=True)
        if not self._suspend(waiting):
            return UNKNOWN
        self._await(waiting, what)
        return waiting.result

    def _suspend(self, w: Waiting) -> bool:
        """Put a computation on the list of each type that it waits for; whether there is one."""
        blocked = dict.fromkeys(m for t in w.needs for m in self._solver.type_metas(t))
        for m in blocked:
            if m not in w.lists:
                w.lists.add(m)
                self._waiting.setdefault(m, []).append(w)
        return bool(blocked)

    def _await(self, w: Waiting, what: Reason) -> None:
        """Give a suspended computation the unknown that stands for its result."""
        result = self._solver.new_type(what)
        w.result = result
        self._pending[result.name] = w

    def drain(self) -> None:
        """Run what has been woken. What runs may ask for it again: then the first one goes on."""
        if self._draining:
            return
        self._draining = True
        try:
            self._run_ready()
        finally:
            self._draining = False

    def _run_ready(self) -> None:
        while self._ready:
            w = self._ready.popleft()
            if w.done or (not w.eager and self._suspend(w)):
                continue
            try:
                t = w.compute()
                if t is None and self._suspend(w):
                    continue
                self._settle(w, UNKNOWN if t is None else t)
            except CompileError as failure:
                self._findings.absorb(failure)
                self._settle(w, UNKNOWN)

    def _settle(self, w: Waiting, t: Type) -> None:
        """Say what a computation gave."""
        w.done = True
        assert isinstance(w.result, TypeVar)
        self._pending.pop(w.result.name, None)
        self.bind_result(w.result, t, w.span)

    def bind_result(self, result: TypeVar, t: Type, span: Span) -> None:
        """Say what the unknown that stands for a result is.

        Raises:
            CompileError: as `Solver.unify`, where it was decided otherwise before.
        """
        found = self._solver.find(result)
        if isinstance(found, TypeVar) and is_meta(found):
            self._solver.bind(found, t, Reason(span, "what it is computed from"))
        else:
            self._solver.unify(found, t, Reason(span, "its other uses"))

    def force_join(self) -> bool:
        """Take the known side of a join that cannot wait any longer for the other."""
        while self._joins:
            w = self._joins.popleft()
            if w.done:
                continue
            known = [s for s in w.sides if not self._solver.type_metas(s)]
            if known:
                self._settle(w, known[0])
            else:
                self._unify_sides(w)
            return True
        return False

    def _unify_sides(self, w: Waiting) -> None:
        """Give all sides of a join one type, as nothing tells them apart."""
        for other in w.sides[1:]:
            self._solver.unify(w.sides[0], other, Reason(w.span, "the other branch"))
        self._settle(w, w.sides[0])

    def is_pending(self, t: Type) -> bool:
        """Whether a type is the result of something that waits; its dims are not to be guessed."""
        found = self._solver.find(t)
        return isinstance(found, TypeVar) and found.name in self._pending

    def is_blocked(self, t: Type, since: int) -> bool:
        """Whether something waits for an unknown in a type, or will yet say what it is.

        Unknowns that are older belong to the functions around, and are theirs to wait for. Joins do
        not hold up: if nothing else asks what their sides are, they are of one type.
        """
        while True:
            metas = self._solver.own_types(t, since)
            waiting = [w for m in metas for w in self._waiting.get(m, ()) if not w.done]
            if any(not w.sides for w in waiting):
                return True
            if not waiting:
                return any(m in self._pending for m in metas)
            self._unify_sides(waiting[0])
            self.drain()
