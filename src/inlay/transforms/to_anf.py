"""Names every intermediate: the A-normal form that `analysis.blocks` describes.

A program may arrive as any graph of expressions. A node that is reached twice is one value, so it
gets one name, bound where everything that reaches it can see it: in the innermost block that
encloses all its uses, just before the first of them in order of evaluation. A node that may not be
moved out of a branch (it may fail, write, or run unknown code) and that several branches reach is
instead named in each of them; only one of them runs.

Lets inside operands come out in front, which keeps the order of evaluation. Calls of functions and
branches in tail position stay unnamed.

Naming an operand of a `some` type gives its dims names. Calls over it, which had to quantify them
again, are typed anew, so that fewer dims are unknown than before. Lets that were declared with less
than their value says (`let v: some k. Tensor[k] = neg(x)`) no longer hide it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from inlay.analysis.blocks import ATOMS, is_anf, is_tail_form
from inlay.analysis.effects import EffectTable
from inlay.ir import make, walk
from inlay.ir.existentials import hides, is_open, open_exists
from inlay.ir.expr import (
    Arm,
    Call,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    Project,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Tuple,
    Var,
)
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property
from inlay.transforms._blocks import BlockWriter, keep, rewrite_function

_OPERATORS = EffectTable({}, {})
"""Knows the effects of operators only: calls of functions may do anything."""


def run(module: Module, context: PassContext) -> Module:
    """Bring every function into A-normal form. Cost: linear in the nodes."""
    del context
    if is_anf(module):
        hiding = {n: f for n, f in module.functions.items() if _hides(f)}
        found = {n: rewrite_function(f, keep) for n, f in hiding.items()}
        return module.with_functions({**module.functions, **found}) if found else module
    return module.with_functions({n: _name_all(f) for n, f in module.functions.items()})


def _name_all(function: Function) -> Function:
    naming = _Naming(function.body)
    body = _run(naming.block(function.body, naming.top))
    named = replace(function, body=body)
    if naming.opened:
        return rewrite_function(named, _type_again)
    return rewrite_function(named, keep) if _hides(named) else named


def _hides(function: Function) -> bool:
    """Whether a let is declared with less than its value says."""
    lets = (n for n in walk.postorder(function) if isinstance(n, Let))
    return any(hides(n.value.type, n.var.type) for n in lets)


def _type_again(block: BlockWriter, value: Expr) -> Expr | None:
    if isinstance(value, Call) and not is_open(value.type):
        return block.make(value.callee, value.args)
    return None


def _run(work: Generator[object, Expr, Expr]) -> Expr:
    """Run work that yields work: recursion without Python's stack."""
    stack = [work]
    result: Expr | None = None
    while True:
        try:
            stack.append(stack[-1].send(result))  # type: ignore[arg-type]
            result = None
        except StopIteration as done:
            stack.pop()
            result = done.value
            if not stack:
                assert result is not None, "work ends in an expression"
                return result


@dataclass(slots=True, eq=False)
class _Scope:
    """A block that is being written.

    Attributes:
        parent: the block around it.
        depth: number of blocks around it.
        lets: what is bound so far.
        names: what nodes are called that were named here.
    """

    parent: _Scope | None
    depth: int
    lets: list[tuple[Var, Expr, Let | None]] = field(default_factory=list[tuple[Var, Expr, Let | None]])
    names: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    def name_of(self, node: Expr) -> Expr | None:
        """Return what a node is called in this scope, if it has a name."""
        scope: _Scope | None = self
        while scope is not None:
            found = scope.names.get(node)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def finish(self, tail: Expr) -> Expr:
        """Return the block."""
        for var, value, let in reversed(self.lets):
            if let is None:
                tail = make.let(var, value, tail)
            else:
                tail = make.let(var, value, tail, span=let.span, place=let.place)
        return tail


class _Naming:
    """Names the nodes of one function.

    Attributes:
        top: the scope of the function's body.
        opened: whether a dim got a name that it did not have before.
    """

    def __init__(self, body: Expr) -> None:
        self.top = _Scope(None, 0)
        self.opened = False
        self._inner: dict[tuple[Expr, int], _Scope] = {}
        self._home: dict[Expr, _Scope] = {body: self.top}
        self._floating: set[Expr] = set()
        self._emitted: set[Expr] = set()
        # Nodes that may fail, write or run unknown code, or contain such.
        self._fixed: set[Expr] = set()
        self._assign_homes(body)

    def _assign_homes(self, body: Expr) -> None:
        """Find for each node the innermost scope that encloses all its uses: users first."""
        order = [n for n in walk.postorder(body) if not isinstance(n, ATOMS)]
        for node in order:
            inner = () if isinstance(node, Function) else walk.children(node)
            if not _OPERATORS.of_one(node).is_movable or not self._fixed.isdisjoint(inner):
                self._fixed.add(node)
        for node in reversed(order):
            home = self._home[node]
            for index, child in enumerate(walk.children(node)):
                scope = self._child_scope(node, index, home)
                if isinstance(child, ATOMS):
                    continue
                before = self._home.get(child)
                if before is None:
                    self._home[child] = scope
                elif before is not scope:
                    self._home[child] = _common(before, scope)
                    if child in self._fixed:
                        self._floating.add(child)

    def _child_scope(self, node: Expr, index: int, home: _Scope) -> _Scope:
        is_nested = isinstance(node, Function) or (isinstance(node, If | Match) and index > 0)
        if not is_nested:
            return home
        scope = _Scope(home, home.depth + 1)
        self._inner[node, index] = scope
        return scope

    def block(self, root: Expr, scope: _Scope) -> Generator[object, Expr, Expr]:
        """Write a block into its scope and return it."""
        tail = yield self._spine(root, scope)
        tail = yield self._tail(tail, scope)
        return scope.finish(tail)

    def _spine(self, root: Expr, scope: _Scope) -> Generator[object, Expr, Expr]:
        """Bind the lets of a spine in a scope and return what stands after them."""
        while isinstance(root, Let):
            value = yield self._value(root.value, scope)
            scope.lets.append((root.var, value, root))
            if not isinstance(root.value, ATOMS):
                scope.names.setdefault(root.value, root.var)
            root = root.body
        return root

    def _tail(self, root: Expr, scope: _Scope) -> Generator[object, Expr, Expr]:
        value = yield self._value(root, scope)
        return value if is_tail_form(value) else self._bind(root, value, scope)

    def _value(self, node: Expr, scope: _Scope) -> Generator[object, Expr, Expr]:
        """Return what stands for a node where a value may stand: its name or its operation."""
        if isinstance(node, ATOMS):
            return node
        found = scope.name_of(node)
        if found is not None:
            return found
        if self._home_of(node, scope) is not scope:
            return (yield self._atom(node, scope))
        if isinstance(node, Let):
            tail = yield self._spine(node, scope)
            return (yield self._value(tail, scope))
        return (yield self._operation(node, scope))

    def _atom(self, node: Expr, scope: _Scope) -> Generator[object, Expr, Expr]:
        """Return an atom for a node, naming it at its home if it has no name yet."""
        if isinstance(node, ATOMS):
            return node
        found = scope.name_of(node)
        if found is not None:
            return found
        home = self._home_of(node, scope)
        value = yield self._value(node, home)
        atom = value if isinstance(value, ATOMS) else self._bind(node, value, home)
        home.names[node] = atom
        return atom

    def _home_of(self, node: Expr, scope: _Scope) -> _Scope:
        return scope if node in self._floating else self._home[node]

    def _bind(self, node: Expr, value: Expr, scope: _Scope) -> Var:
        type, dims = open_exists(value.type)
        self.opened = self.opened or bool(dims)
        var = Var(_hint(value), type, value.span, value.place)
        scope.lets.append((var, value, None))
        scope.names[node] = var
        return var

    def _operation(self, node: Expr, scope: _Scope) -> Generator[object, Expr, Expr]:
        """Return the operation of a node over atoms and blocks."""
        if node in self._emitted:  # named in a sibling branch too: bind variables of its own
            node = walk.copy(node)
            self._assign_copy(node, scope)
        self._emitted.add(node)
        match node:
            case Call(callee=callee, args=args):
                new = yield from self._atoms((callee, *args), scope)
                if all(a is b for a, b in zip(new, (callee, *args), strict=True)):
                    return node
                return Call(new[0], tuple(new[1:]), node.type, node.span, node.place)
            case Tuple(fields=fields):
                new = yield from self._atoms(fields, scope)
                return make.tuple_(new, span=node.span, place=node.place)
            case Project(value=inner) | RefCreate(value=inner):
                return replace(node, value=(yield self._atom(inner, scope)))
            case RefRead(ref=ref) | RefTake(ref=ref):
                return replace(node, ref=(yield self._atom(ref, scope)))
            case RefWrite(ref=ref, value=inner) | RefPut(ref=ref, value=inner):
                new_ref = yield self._atom(ref, scope)
                return replace(node, ref=new_ref, value=(yield self._atom(inner, scope)))
            case Function(body=body):
                return replace(node, body=(yield self.block(body, self._inner[node, 0])))
            case If(condition=condition, then=then, otherwise=otherwise):
                new_condition = yield self._atom(condition, scope)
                new_then = yield self.block(then, self._inner[node, 1])
                new_otherwise = yield self.block(otherwise, self._inner[node, 2])
                return replace(node, condition=new_condition, then=new_then, otherwise=new_otherwise)
            case Match(scrutinee=scrutinee, arms=arms):
                new_scrutinee = yield self._atom(scrutinee, scope)
                new_arms: list[Arm] = []
                for index, arm in enumerate(arms):
                    body = yield self.block(arm.body, self._inner[node, index + 1])
                    new_arms.append(Arm(arm.pattern, body))
                return replace(node, scrutinee=new_scrutinee, arms=tuple(new_arms))
            case _:
                raise AssertionError(f"no operation: {type(node).__name__}")

    def _atoms(self, nodes: tuple[Expr, ...], scope: _Scope) -> Generator[object, Expr, list[Expr]]:
        """Return an atom for each node, named in order."""
        found = list(nodes)
        for index, node in enumerate(nodes):
            if not isinstance(node, ATOMS):
                found[index] = yield self._atom(node, scope)
        return found

    def _assign_copy(self, node: Expr, scope: _Scope) -> None:
        """Give the nodes of a copy their homes, below the scope that it stands in."""
        self._home[node] = scope
        self._assign_homes(node)


def _common(a: _Scope, b: _Scope) -> _Scope:
    """Return the innermost scope that encloses both."""
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None, "scopes of one function have a common root"
            a = a.parent
        else:
            assert b.parent is not None, "scopes of one function have a common root"
            b = b.parent
    return a


def _hint(value: Expr) -> str:
    """Return a name for the result of an operation."""
    match value:
        case Call(callee=OpRef(op=op)):
            return op.name.rpartition(".")[2]
        case Call(callee=GlobalVar(name=name) | ConstructorRef(name=name) | Var(name=name)):
            return name.rpartition(".")[2].lower()
        case Function():
            return "f"
        case RefCreate():
            return "cell"
        case _:
            return "t"


PASS = Pass(
    __name__, run, "name every intermediate value", requires=(Property.TYPED,), establishes=(Property.ANF,)
)
