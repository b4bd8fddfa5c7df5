"""Expressions of the tensor IR: the closed sum, whole.

    e ::= x                          Var          local variable
        | @f                         GlobalVar    function or kernel of the module
        | c                          Const        tensor, or control value over dims in scope
        | op                         OpRef        operator, with its attributes
        | C                          ConstructorRef  constructor of a data type
        | e(e, ...)                  Call
        | fn<dims>(x: T, ...) { e }  Function
        | let x = e; e               Let          recursive when e is a Function that mentions x
        | if (e) { e } else { e }    If
        | match e { p => e, ... }    Match
        | (e, ...)   e.0             Tuple, Project
        | ref(e)  read(e)  write(e, e)  RefCreate, RefRead, RefWrite
        | take(e)  put(e, e)            RefTake, RefPut

Nodes are immutable and compared by identity: a node that is reached twice is one value, computed
once (sharing is meaningful). Every node carries its type, computed when it is made; make nodes with
`ir.builder` or `ir.make`, which compute it, not with these classes. Every node also carries a span
(source text, or the name of a node of an imported model) and, once planned, a place.

Evaluation is strict and left to right. `If` and `Match` evaluate one arm. The only effects are those
of references and of operators and kernels that declare an effect; they happen in program order.

Let spines may be hundreds of thousands long: walk them with loops (`ir.walk` does it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlay.arith.deferred import DeferredArray
from inlay.arith.expr import Int
from inlay.base.span import NO_SPAN, Span
from inlay.ir.op import Op
from inlay.ir.place import Place
from inlay.ir.types import DimParam, FuncType, Type


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Var:
    """A local variable: a parameter, a let-bound name or a pattern variable.

    Identity is the object; `name` is for people and need not be unique.
    """

    name: str
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GlobalVar:
    """A function or kernel of the module, by name."""

    name: str
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


ConstValue = np.ndarray | Int | bool | tuple[Int, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Const:
    """A constant.

    Attributes:
        held: an array (TensorType), an `Int` (IntType), a bool (BoolType) or a tuple of `Int`
            (ShapeType). The `Int`s may mention dims in scope: `n`, `2*n + 1`. Arrays are read-only, and
            may be deferred: who asks for the size or the identity of one asks this, who wants its
            elements asks for `value`.
    """

    held: ConstValue | DeferredArray
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None

    @property
    def value(self) -> ConstValue:
        """What is held, with the elements of a deferred array."""
        return self.held.array() if isinstance(self.held, DeferredArray) else self.held


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OpRef:
    """An operator with its attributes, as the callee of a call.

    Attributes:
        op: the operator.
        attrs: an instance of `op.attrs_type`.
        type: `UNKNOWN`; operators have type rules, not types.
    """

    op: Op
    attrs: object
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ConstructorRef:
    """A constructor of a data type, as the callee of a call; `type` is its function type."""

    adt: str
    name: str
    tag: int
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Call:
    """Application of an operator, constructor, global or function value."""

    callee: Expr
    args: tuple[Expr, ...]
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Function:
    """A function literal.

    Attributes:
        params: parameters; their types may mention `dims` and symbols of the enclosing scope.
        body: the body; its type may be more exact than `type.result`.
        type: a FuncType whose `dims` are bound in `params` and `body`.
        primitive: a group of operations that becomes one kernel (made by fusion).
    """

    params: tuple[Var, ...]
    body: Expr
    type: FuncType
    span: Span = NO_SPAN
    place: Place | None = None
    primitive: str | None = None

    @property
    def dims(self) -> tuple[DimParam, ...]:
        """The dims that the function binds."""
        return self.type.dims


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Let:
    """`let var = value; body`. The type is that of the body."""

    var: Var
    value: Expr
    body: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class If:
    """A branch on a control boolean."""

    condition: Expr
    then: Expr
    otherwise: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class PatternWildcard:
    """`_`: matches anything."""


@dataclass(frozen=True, slots=True)
class PatternVar:
    """`x`: matches anything and binds it."""

    var: Var


@dataclass(frozen=True, slots=True)
class PatternConstructor:
    """`C(p, ...)`: matches values built by that constructor."""

    adt: str
    name: str
    tag: int
    fields: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class PatternTuple:
    """`(p, ...)`: matches a tuple field by field."""

    fields: tuple[Pattern, ...]


Pattern = PatternWildcard | PatternVar | PatternConstructor | PatternTuple


@dataclass(frozen=True, slots=True)
class Arm:
    """`pattern => body` of a match."""

    pattern: Pattern
    body: Expr


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Match:
    """The first arm whose pattern matches. Arms cover every value (the verifier checks)."""

    scrutinee: Expr
    arms: tuple[Arm, ...]
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Tuple:
    """A tuple of values; `Tuple(())` is unit."""

    fields: tuple[Expr, ...]
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Project:
    """Field `index` of a tuple."""

    value: Expr
    index: int
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RefCreate:
    """A new cell that holds the value."""

    value: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RefRead:
    """The present content of a cell."""

    ref: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RefWrite:
    """Replace the content of a cell; the value of the expression is unit."""

    ref: Expr
    value: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RefTake:
    """The content of a cell, which is empty from then on: the value has no other owner."""

    ref: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RefPut:
    """Fill an empty cell; the value of the expression is unit."""

    ref: Expr
    value: Expr
    type: Type
    span: Span = NO_SPAN
    place: Place | None = None


Expr = (
    Var
    | GlobalVar
    | Const
    | OpRef
    | ConstructorRef
    | Call
    | Function
    | Let
    | If
    | Match
    | Tuple
    | Project
    | RefCreate
    | RefRead
    | RefWrite
    | RefTake
    | RefPut
)


def pattern_vars(pattern: Pattern) -> list[Var]:
    """Return the variables a pattern binds, left to right."""
    found: list[Var] = []
    stack: list[Pattern] = [pattern]
    while stack:
        match stack.pop():
            case PatternVar(var=v):
                found.append(v)
            case PatternConstructor(fields=fields) | PatternTuple(fields=fields):
                stack.extend(reversed(fields))
            case PatternWildcard():
                pass
    return found
