"""Where each node of a graph of expressions belongs: the innermost place that all its uses share.

A *block* is the body of a function, an arm of a branch, or a let inside an operand. *Statement* `i`
of a block is its `i`-th let, and the last one its result. The *position* of a node is the latest
statement that comes before all its uses: their least common ancestor in the tree of blocks. What is
visible there is visible at every use, so scope rules can be asked of positions; and a graph binding
of the text form can stand there.
"""

from __future__ import annotations

from inlay.ir import walk
from inlay.ir.expr import Expr, Function, If, Let, Match, Var, pattern_vars

Position = tuple[int, int]
"""A block, by number, and a statement in it."""


class Positions:
    """Positions of the nodes of one expression. Cost: linear where blocks do not nest deeply.

    Attributes:
        order: the nodes, operands first.
        of: position by `id` of a node; leaves that are shared have that of all their uses.
        statements: the node that stands as a statement at a position.
        binders: position from which on each variable is visible.
        bodies: position at which the body of each function begins, by `id`.
    """

    def __init__(self, root: Expr) -> None:
        self.order = list(walk.postorder(root))
        self.of: dict[int, Position] = {id(root): (0, 0)}
        self.statements: dict[Position, Expr] = {(0, 0): root}
        self.binders: dict[Var, Position] = {}
        self.bodies: dict[int, Position] = {}
        self._parents: list[Position | None] = [None]
        self._depth = [0]
        for e in reversed(self.order):
            self._place(e, self.of[id(e)])

    def is_visible(self, since: Position, at: Position) -> bool:
        """Whether what is visible from one position on is visible at another."""
        block, depth = since[0], self._depth[since[0]]
        while self._depth[at[0]] > depth:
            at = self._parents[at[0]]  # type: ignore[assignment]
        return at[0] == block and at[1] >= since[1]

    def _place(self, e: Expr, here: Position) -> None:
        match e:
            case Let(var=v, value=value, body=body):
                if self.statements.get(here) is not e:
                    here = self._open(e, here)
                after = (here[0], here[1] + 1)
                self._use(value, here)
                self.statements.setdefault(after, body)
                self._use(body, after)
                # A function may mention the variable it is bound to.
                self.binders[v] = here if isinstance(value, Function) else after
            case Function(params=params, body=body):
                start = self.bodies[id(e)] = self._open(body, here)
                self._use(body, start)
                self.binders.update((p, start) for p in params)
            case If(condition=condition, then=then, otherwise=otherwise):
                self._use(condition, here)
                self._use(then, self._open(then, here))
                self._use(otherwise, self._open(otherwise, here))
            case Match(scrutinee=scrutinee, arms=arms):
                self._use(scrutinee, here)
                for arm in arms:
                    start = self._open(arm.body, here)
                    self._use(arm.body, start)
                    for v in pattern_vars(arm.pattern):
                        self.binders[v] = start
            case _:
                for c in walk.children(e):
                    self._use(c, here)

    def _open(self, e: Expr, parent: Position) -> Position:
        start = (len(self._parents), 0)
        self._parents.append(parent)
        self._depth.append(self._depth[parent[0]] + 1)
        self.statements[start] = e
        return start

    def _use(self, e: Expr, where: Position) -> None:
        known = self.of.get(id(e))
        self.of[id(e)] = where if known is None else self._meet(known, where)

    def _meet(self, a: Position, b: Position) -> Position:
        while a[0] != b[0]:
            if self._depth[a[0]] >= self._depth[b[0]]:
                a = self._parents[a[0]]  # type: ignore[assignment]
            else:
                b = self._parents[b[0]]  # type: ignore[assignment]
        return min(a, b)
