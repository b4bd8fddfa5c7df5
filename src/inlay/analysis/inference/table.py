"""What type inference knows: the table that its first walk fills and its second reads.

Nodes are named by `id`: both walks hold the module, so the numbers stay what they are; they are never
ordered nor printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlay.analysis.inference.solver import Solver
from inlay.arith.expr import Sym
from inlay.base.graph import strong_components
from inlay.ir.expr import Call, Const, ConstructorRef, Expr, Function, GlobalVar, Let, OpRef, Var
from inlay.ir.module import Module
from inlay.ir.types import (
    UNKNOWN,
    AdtType,
    DimParam,
    ExistsType,
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)
from inlay.ir.walk import bound_here, children, postorder


@dataclass(slots=True, eq=False)
class Named:
    """A function that has a name: a global, or let-bound.

    Attributes:
        name: for messages.
        function: the literal.
        since: the clock before its own unknowns were made.
        type: with unknowns, until `done`.
        open: whether its body, or that of a function it is recursive with, is being inferred.
        recursive: whether a call inside that group was seen.
        done: whether it is generalized.
        varying: declared dims that a recursive call changes.
        dropped: whether a branch was left out of a join because it calls the function itself.
        params: types of the parameters as they were declared, unknowns in place: for explanations.
        group: the functions it is recursive with, itself included; they are generalized together.
        failed: whether an error was found in its body, so that errors of calls are no news.
    """

    name: str
    function: Function
    since: int = 0
    type: FuncType = field(default_factory=lambda: FuncType((), UNKNOWN))
    open: bool = True
    recursive: bool = False
    done: bool = False
    varying: dict[Sym, None] = field(default_factory=dict[Sym, None])
    dropped: bool = False
    params: tuple[Type, ...] = ()
    group: list[Named] = field(default_factory=lambda: list[Named]())
    failed: bool = False

    @property
    def waits(self) -> bool:
        """Whether its body was inferred but for what operators in it ask of the parameters."""
        return not self.done and not self.open

    def mention(self) -> FuncType:
        """Return its type for a mention of it; inside of its group it is then recursive."""
        self.recursive = self.recursive or self.open
        return self.type


@dataclass(slots=True)
class Types:
    """What the first walk found.

    Attributes:
        solver: gives final types with `zonk`.
        survey: of the module.
        functions: by `id` of the literal.
        named: by `id` of the literal, for functions that have a name.
        vars: the type of each variable.
        opened: variables whose value is opened where they are bound, with the dims.
        type_args: by `id` of the reference, the type arguments of constructors.
        expanded: by `id`, the function that stands for an operator which is passed as a value.
        since: by `id` of a function, the clock before its own unknowns were made.
        claimed: dims that are open to the end, in parameters of a function that will bind them.
    """

    solver: Solver
    survey: Survey
    functions: dict[int, FuncType] = field(default_factory=dict[int, FuncType])
    named: dict[int, Named] = field(default_factory=dict[int, Named])
    vars: dict[Var, Type] = field(default_factory=dict[Var, Type])
    opened: dict[Var, tuple[DimParam, ...]] = field(default_factory=dict[Var, tuple[DimParam, ...]])
    type_args: dict[int, tuple[Type, ...]] = field(default_factory=dict[int, tuple[Type, ...]])
    expanded: dict[int, Function] = field(default_factory=dict[int, Function])
    since: dict[int, int] = field(default_factory=dict[int, int])
    claimed: dict[Sym, None] = field(default_factory=dict[Sym, None])


def has_unknown(t: Type) -> bool:
    """Whether a type is not annotated, or not whole."""
    match t:
        case UnknownType():
            return True
        case TupleType(fields=types) | AdtType(args=types):
            return any(map(has_unknown, types))
        case FuncType(params=params, result=result):
            return has_unknown(result) or any(map(has_unknown, params))
        case RefType(content=inner) | ExistsType(body=inner):
            return has_unknown(inner)
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look over a module says.

    Attributes:
        typed: the `id` of each node that has its type, and whose parts and binders have theirs.
        groups: the names of functions in groups that call each other, callees first.
        type_vars: the names of type variables that the program declares.
    """

    typed: frozenset[int]
    groups: list[list[str]]
    type_vars: tuple[str, ...]


def survey(module: Module) -> Survey:
    """Look over a module, each node once."""
    typed: set[int] = set()
    mentions: dict[str, dict[str, None]] = {}
    type_vars = {v.name: None for adt in module.adts.values() for v in adt.params}
    # By identity: a long spine has one large type at every let, and comparing it costs its size.
    whole: dict[int, tuple[Type, bool]] = {}

    def known(t: Type) -> bool:
        if isinstance(t, TensorType):
            return True
        answer = whole.get(id(t))
        if answer is None:
            answer = whole[id(t)] = (t, not has_unknown(t))
        return answer[1]

    for name, f in module.functions.items():
        mentioned = mentions[name] = {}
        for e in postorder(f):
            match e:
                case OpRef():
                    continue
                case Var() | Const() | ConstructorRef():
                    parts: tuple[Expr, ...] = ()
                case GlobalVar(name=other):
                    parts = ()
                    if other in module.functions:
                        mentioned[other] = None
                case Call(callee=OpRef(), args=args):
                    parts = args
                case Let(var=v, value=value, body=body):
                    parts = (value, body) if known(v.type) else (e,)
                case Function(type=FuncType(type_vars=declared)):
                    type_vars.update((v.name, None) for v in declared)
                    parts = (e.body,) if all(known(v.type) for v in e.params) else (e,)
                case _:
                    parts = children(e) if all(known(v.type) for v in bound_here(e)) else (e,)
            if known(e.type) and all(id(c) in typed for c in parts):
                typed.add(id(e))
    order = {name: list(mentioned) for name, mentioned in mentions.items()}
    components = strong_components(list(order), lambda name: order[name])
    return Survey(frozenset(typed), components, tuple(type_vars))


def parts(a: Type, b: Type) -> list[tuple[Type, Type]]:
    """Return the corresponding parts of two types of one kind, none for others."""
    match a, b:
        case (TupleType(fields=x), TupleType(fields=y)) | (AdtType(args=x), AdtType(args=y)):
            return list(zip(x, y)) if len(x) == len(y) else []
        case RefType(content=x), RefType(content=y):
            return [(x, y)]
        case FuncType(), FuncType() if len(a.params) == len(b.params):
            return [*zip(a.params, b.params, strict=True), (a.result, b.result)]
        case _:
            return []


def determined(generic: FuncType) -> bool:
    """Whether the parameters mention every type variable."""
    found = type_var_names(TupleType(generic.params))
    return all(v.name in found for v in generic.type_vars)


def type_var_names(t: Type) -> set[str]:
    """Return the names of the type variables in a type."""
    found: set[str] = set()
    stack = [t]
    while stack:
        match stack.pop():
            case TypeVar(name=name):
                found.add(name)
            case TupleType(fields=types) | AdtType(args=types):
                stack.extend(types)
            case FuncType(params=params, result=result):
                stack.extend((*params, result))
            case RefType(content=inner) | ExistsType(body=inner):
                stack.append(inner)
            case _:
                pass
    return found


def holds_cells(t: Type) -> bool:
    """Whether a value of the type holds a cell, so that its type must agree exactly."""
    match t:
        case RefType():
            return True
        case TupleType(fields=types) | AdtType(args=types):
            return any(map(holds_cells, types))
        case ExistsType(body=body):
            return holds_cells(body)
        case _:
            return False
