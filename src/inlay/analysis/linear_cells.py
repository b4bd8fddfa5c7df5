"""Whether each `take` of a cell is followed by one `put`, on every path, before anybody can see it empty.

Between the two the content has one owner, so that what updates it may do so where it is. A program in
A-normal form is walked in order of evaluation with the set of cells that are empty. What keeps that small
is one convention:

    *where a function begins, ends or is called, every cell is full that it could reach.*

So functions need no summaries, and loops none of their turns: a function that takes puts back before it
ends, goes on with the next turn, or calls what might look. Two questions are left.

**Are two variables the same cell?** Cells that `ref` made at two places of a function are not. Parameters,
and what comes out of data, cells and calls, may be any cell with such a content that others have.

**Who can reach an empty cell?** A cell that `ref` made here and that was not handed on is *private*: nobody
but who mentions it. It need not be filled again, and dies empty. Any other may be reached by function values
that are not known here, and through arguments that are or may hold cells or functions. A private cell stays
so as an argument of a call whose result, and whose other arguments, have no room to keep it in.

What cannot be decided in this way is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from inlay.analysis.blocks import definitions, operands, values
from inlay.base.diagnostics import Collector
from inlay.base.span import Span
from inlay.ir.expr import (
    Call,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    RefCreate,
    RefPut,
    RefRead,
    RefTake,
    RefWrite,
    Var,
    pattern_vars,
)
from inlay.ir.module import Adt, Module
from inlay.ir.types import AdtType, ExistsType, FuncType, RefType, TensorType, TupleType, Type, TypeVar
from inlay.ir.walk import free_vars


def check_cells(module: Module) -> None:
    """Check all functions of a module in A-normal form. Cost: linear in those that take and put.

    Raises:
        CompileError: `cell.empty`, `cell.full`, `cell.left-empty`, `cell.arms-differ`, `cell.reached`.
    """
    findings = Collector()
    for name, function in module.functions.items():
        if any(isinstance(v, (RefTake, RefPut)) for v in values(function.body)):
            _Checker(module.adts, function, findings).body(function, f"'{name}'")
    findings.raise_if_fatal()


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """A cell under the name by which it was first seen; `home` is the function whose `ref` made it."""

    var: Var
    home: Function | None = None


@dataclass(slots=True)
class _State:
    """What is known at one place of a function.

    Attributes:
        taken: the empty cells, and where each was taken.
        shared: cells made here that others may have.
    """

    taken: dict[_Cell, Span] = field(default_factory=dict[_Cell, Span])
    shared: set[_Cell] = field(default_factory=set[_Cell])

    def copy(self) -> _State:
        return _State(dict(self.taken), set(self.shared))


class _Checker:
    """Walks one function of a module, and the functions in it."""

    def __init__(self, adts: Mapping[str, Adt], root: Function, findings: Collector) -> None:
        self.findings = findings
        self.holds = _Holds(adts)
        self.known = {v: e for v, e in definitions(root.body).items() if isinstance(e, Function)}
        self.cells: dict[Var, _Cell] = {}
        self.doubtful: set[_Cell] = set()  # of which it was said that arms differ: nothing more is said

    def body(self, function: Function, name: str) -> None:
        """Check the body of a function: all is full where it begins, and where it ends."""
        _Walk(self, function, name).block(function.body, _State(), is_last=True)

    def cell(self, e: Expr) -> _Cell | None:
        """Return the cell that an atom is; None where it is none."""
        if not isinstance(e, Var) or not isinstance(e.type, RefType):
            return None
        return self.cells.setdefault(e, _Cell(e))

    def reached(self, e: Expr) -> list[_Cell]:
        """Return the cells that who has an atom has: itself, or what a known function mentions."""
        cell = self.cell(e)
        if cell is not None:
            return [cell]
        function = self.known.get(e) if isinstance(e, Var) else None
        found = () if function is None else map(self.cell, self.captured(function))
        return [c for c in found if c is not None]

    def may_keep(self, call: Call) -> bool:
        """Whether what is called may keep a cell: in its result, or in what it can write to."""
        callee = call.callee
        if self.holds.cells(call.type) or any(self.holds.have_room(a.type) for a in call.args):
            return True
        if not isinstance(callee, Var):
            return not isinstance(callee, GlobalVar)
        function = self.known.get(callee)
        mentioned = () if function is None else self.captured(function)
        return function is None or any(
            v not in self.known and self.holds.have_room(v.type) for v in mentioned
        )

    def captured(self, function: Function) -> list[Var]:
        """Return what a function mentions from outside, and what known functions do that it mentions."""
        found: dict[Var, None] = {}
        pending = [function]
        while pending:
            for v in free_vars(pending.pop()):
                if v in found:
                    continue
                found[v] = None
                inner = self.known.get(v)
                if inner is not None:
                    pending.append(inner)
        return list(found)


class _Walk:
    """Follows the evaluation of one function."""

    def __init__(self, checker: _Checker, function: Function, name: str) -> None:
        self.checker, self.function, self.name = checker, function, name
        self.findings = checker.findings

    # ------------------------------------------------------------------ blocks

    def block(self, block: Expr, state: _State, *, is_last: bool) -> list[Var]:
        """Follow a block; return the variables that it binds. Where it is the last, the function ends."""
        bound: list[Var] = []
        while isinstance(block, Let):
            bound.append(block.var)
            self._let(block, state)
            block = block.body
        if isinstance(block, (If, Match)):
            self._branch(block, state, is_last=is_last)
            return bound
        self._value(block, state)
        if is_last:
            for cell, span in state.taken.items():
                if not self._is_private(cell, state):
                    self._left(cell, span, f"{self.name} ends")
        return bound

    def _let(self, let: Let, state: _State) -> None:
        checker, value = self.checker, let.value
        match value:
            case Var() if isinstance(value.type, RefType):
                found = checker.cell(value)
                assert found is not None, "a cell has the type of one"
                checker.cells[let.var] = found
            case RefCreate():
                self._value(value, state)
                checker.cells[let.var] = _Cell(let.var, self.function)
            case Function():
                checker.body(value, f"'{let.var.name}'")
                for v in _handed_on(value):
                    state.shared.update(c for c in checker.reached(v) if c.home is self.function)
            case If() | Match():
                self._branch(value, state, is_last=False)
            case _:
                self._value(value, state)

    def _branch(self, value: If | Match, state: _State, *, is_last: bool) -> None:
        for e in operands(value):
            self._hand_on(e, value.span, state)
        ends: list[_State] = []
        arms = (
            [(arm.body, pattern_vars(arm.pattern)) for arm in value.arms] if isinstance(value, Match) else []
        )
        for body, patterns in arms or [(b, list[Var]()) for b in (value.then, value.otherwise)]:  # type: ignore[union-attr]
            end = state.copy()
            own = {*patterns, *self.block(body, end, is_last=is_last)}
            if not is_last:
                self._leave(own, end)
            ends.append(end)
        state.shared.update(*(end.shared for end in ends))
        if is_last:
            return
        for cell in dict.fromkeys(c for end in ends for c in end.taken):
            spans = [end.taken[cell] for end in ends if cell in end.taken]
            if len(spans) == len(ends):
                state.taken[cell] = spans[0]
                continue
            state.taken.pop(cell, None)
            self.checker.doubtful.add(cell)
            self.findings.error(
                "cell.arms-differ",
                f"found '{cell.var.name}' empty behind {len(spans)} of {len(ends)} arms, "
                "needed the same behind all",
                span=value.span or spans[0],
                notes=[f"its content was taken at {spans[0]}"],
                hint="put a content back in each arm that takes, or take and put outside of the arms",
            )
        for cell in [c for c in state.taken if all(c not in end.taken for end in ends)]:
            del state.taken[cell]

    def _leave(self, own: set[Var], state: _State) -> None:
        """End the scope of variables of an arm."""
        for cell, span in list(state.taken.items()):
            if cell.var in own:
                if not self._is_private(cell, state):
                    self._left(cell, span, "the arm ends that it is known in")
                del state.taken[cell]

    def _left(self, cell: _Cell, span: Span, where: str) -> None:
        self.findings.error(
            "cell.left-empty",
            f"found '{cell.var.name}' empty where {where}, needed a put behind this take on every path",
            span=span,
            hint=f"put({cell.var.name}, ...) what is to be in it",
        )

    # ------------------------------------------------------------------ values

    def _value(self, value: Expr, state: _State) -> None:
        match value:
            case RefRead(ref=ref):
                self._use(ref, "read", value.span, state)
            case RefTake(ref=ref):
                self._use(ref, "take", value.span, state)
            case RefWrite(ref=ref, value=content):
                self._hand_on(content, value.span, state)
                self._use(ref, "write", value.span, state)
            case RefPut(ref=ref, value=content):
                self._hand_on(content, value.span, state)
                self._use(ref, "put", value.span, state)
            case Call(callee=OpRef()):
                pass
            case Call(callee=ConstructorRef()):
                for a in value.args:
                    self._hand_on(a, value.span, state)
            case Call():
                self._call(value, state)
            case Var():
                self._hand_on(value, value.span, state)
            case _:
                for e in operands(value):
                    self._hand_on(e, value.span, state)

    def _use(self, ref: Expr, word: str, span: Span, state: _State) -> None:
        """Follow an operation on a cell."""
        cell = self.checker.cell(ref)
        if cell is None or cell in self.checker.doubtful:
            return
        name = cell.var.name
        if cell in state.taken:
            if word == "put":
                del state.taken[cell]
            else:
                self._empty(cell, f"{word} of '{name}'", span, state)
            return
        if word == "put":
            self.findings.error(
                "cell.full",
                f"found a put into '{name}', which has a content, needed a take of it before",
                span=span,
                hint=f"write({name}, ...) replaces a content",
            )
            return
        for other in state.taken:
            if self._may_be(cell, other, state):
                self._reached(other, f"{word} of '{name}', which may be the same cell", span, state)
                break
        if word == "take":
            state.taken[cell] = span

    def _hand_on(self, e: Expr, span: Span, state: _State) -> None:
        """Follow that others get a value: a cell is shared then, and so is what a function mentions."""
        checker = self.checker
        cell = checker.cell(e)
        if cell is not None:
            if cell in state.taken:
                self._empty(cell, f"'{cell.var.name}' handed on", e.span or span, state)
            elif cell.home is self.function:
                state.shared.add(cell)
            return
        for inner in checker.reached(e):
            if inner in state.taken:
                what = f"a function handed on that mentions '{inner.var.name}'"
                self._reached(inner, what, span, state)
            elif inner.home is self.function:
                state.shared.add(inner)

    def _call(self, call: Call, state: _State) -> None:
        keeps = self.checker.may_keep(call)
        for a in call.args:
            cell = self.checker.cell(a)
            if cell is None or cell in state.taken or keeps:
                self._hand_on(a, call.span, state)
        for cell in state.taken:
            why = self._reaches(call, cell, state)
            if why:
                self._reached(cell, why, call.span, state)
                return

    def _reaches(self, call: Call, cell: _Cell, state: _State) -> str:
        """Return how what is called could come to an empty cell; "" where it cannot."""
        checker, callee = self.checker, call.callee
        is_private = self._is_private(cell, state)
        mentioned: list[Var] = []
        if isinstance(callee, Var):
            function = checker.known.get(callee)
            if function is None:
                return (
                    "" if is_private else f"a call of '{callee.name}', of which is not known what it mentions"
                )
            mentioned = checker.captured(function)
        elif not isinstance(callee, GlobalVar):
            return "a call of a value"
        for v, where in (*((v, "mentions") for v in mentioned), *((a, "is given") for a in call.args)):
            other = checker.cell(v)
            if other is not None and self._may_be(other, cell, state):
                name, word = other.var.name, "is" if other is cell else "may be"
                return f"a call of what {where} '{name}', which {word} this cell"
            inside = v.type.content if isinstance(v.type, RefType) else v.type
            if not is_private and v not in checker.known and checker.holds.cells(inside):
                name = v.name if isinstance(v, Var) else "a value"
                return f"a call of what {where} '{name}', which may hold this cell"
        return ""

    # ------------------------------------------------------------------ who is who

    def _is_private(self, cell: _Cell, state: _State) -> bool:
        return cell.home is self.function and cell not in state.shared

    def _may_be(self, a: _Cell, b: _Cell, state: _State) -> bool:
        """Whether two cells may be the same one."""
        if a is b:
            return True
        if (a.home and b.home) or self._is_private(a, state) or self._is_private(b, state):
            return False
        return _alike(a.var.type, b.var.type)

    # ------------------------------------------------------------------ what is wrong

    def _empty(self, cell: _Cell, what: str, span: Span, state: _State) -> None:
        self.findings.error(
            "cell.empty",
            f"found {what} while it is empty, needed a put before",
            span=span,
            notes=[f"its content was taken at {state.taken[cell]}"],
            hint=f"put({cell.var.name}, ...) first",
        )

    def _reached(self, cell: _Cell, what: str, span: Span, state: _State) -> None:
        self.findings.error(
            "cell.reached",
            f"found {what}, while '{cell.var.name}' is empty, needed nothing that could see that",
            span=span,
            notes=[f"its content was taken at {state.taken[cell]}"],
            hint=f"put a content into '{cell.var.name}' before, or take it behind this",
        )


def _handed_on(function: Function) -> Iterator[Var]:
    """Yield the variables under a function that stand elsewhere than where a cell is used."""
    for value in values(function.body):
        match value:
            case RefRead() | RefTake():
                pass
            case RefWrite(value=content) | RefPut(value=content):
                if isinstance(content, Var):
                    yield content
            case Var():
                yield value
            case _:
                yield from (e for e in operands(value) if isinstance(e, Var))


def _alike(a: Type, b: Type) -> bool:
    """Whether two types of cells may be one: those of tensors differ in rank and element type."""
    x = a.content if isinstance(a, RefType) else a
    y = b.content if isinstance(b, RefType) else b
    if isinstance(x, TensorType) and isinstance(y, TensorType):
        return x.dtype == y.dtype and len(x.shape) == len(y.shape)
    return True


class _Holds:
    """Says of types whether their values may hold cells or functions, and whether they have room for more."""

    def __init__(self, adts: Mapping[str, Adt]) -> None:
        self._adts = adts

    def cells(self, t: Type) -> bool:
        """Whether a value of a type may hold a cell."""
        return any(isinstance(x, (RefType, FuncType, TypeVar)) for x in self._parts(t))

    def have_room(self, t: Type) -> bool:
        """Whether a cell can be written to what a value of a type holds."""
        for x in self._parts(t):
            if isinstance(x, (FuncType, TypeVar)) or (isinstance(x, RefType) and self.cells(x.content)):
                return True
        return False

    def _parts(self, t: Type) -> Iterator[Type]:
        """Yield a type and those of what its values are made of."""
        pending, seen = [(t, False)], set[str]()
        while pending:
            now, is_field = pending.pop()
            if not (is_field and isinstance(now, TypeVar)):  # what stands for it is among the arguments
                yield now
            inside: tuple[Type, ...] = ()
            match now:
                case TupleType(fields=fields):
                    inside = fields
                case RefType(content=inner) | ExistsType(body=inner):
                    inside = (inner,)
                case AdtType(name=name, args=args):
                    inside = args
                    if name not in seen and name in self._adts:
                        seen.add(name)
                        own = (f for c in self._adts[name].constructors for f in c.fields)
                        pending.extend((f, True) for f in own)
                case _:
                    pass
            pending.extend((x, is_field) for x in inside)
