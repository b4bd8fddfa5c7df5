"""Values while lowering, and how types are represented in registers.

**Flat form.** A tuple is its fields and a shape its integers, side by side; everything else is one
register. A tuple of more than `WIDEST` leaves is one register that holds a tuple object. Parameters,
results, joins and loops use the flat form *of the declared type*.

**Boxed form.** One register for any value: tuples and shapes are tuple objects. Fields of data
types, contents of cells, values of type variables and what goes through closures are boxed.

While lowering, a tuple that was built here stays apart (`Fields`) until somebody needs the object,
and a local function stays known, so that calling it needs no closure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inlay.arith.deferred import AnyArray
from inlay.arith.expr import Sym
from inlay.bytecode.builder import FunctionBuilder
from inlay.bytecode.isa import Kind
from inlay.ir.expr import Function, Var
from inlay.ir.types import (
    AdtType,
    BoolType,
    ExistsType,
    FuncType,
    IntType,
    RefType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    UnknownType,
)
from inlay.vm.code import Operand, Register

WIDEST = 32
"""Leaves of the widest tuple that is passed flat."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A tuple or shape whose parts are known apart."""

    items: tuple[VmValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor that is known; pushed where it is used, so that it occupies no slot.

    The constant table has it once for each memory where it is used.

    Attributes:
        array: its elements.
        memory: where the program has it; None where that is up to the operation that reads it.
    """

    array: AnyArray
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class GlobalFunction:
    """A function of the module."""

    name: str


@dataclass(slots=True, eq=False)
class Lifted:
    """What is shared by all mentions of a local function that has code of its own.

    Attributes:
        var: its name, by which its body mentions it.
        node: the function.
        values: what it mentions of the function around it, in registers of that function.
        ints: the same for symbols.
        captures: those registers, each once, in the order of the leading parameters of its code.
        direct: code that takes captures and parameters in flat form, once it is needed.
        boxed: code for closures: captures, then boxed parameters; one boxed result.
    """

    var: Var
    node: Function
    values: dict[Var, VmValue]
    ints: dict[Sym, Operand]
    captures: tuple[Register, ...]
    direct: FunctionBuilder | None = None
    boxed: FunctionBuilder | None = None


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A local function with code of its own, and the values that it captured.

    Attributes:
        code: the function, shared.
        captures: `code.captures`, as registers of the function that is being lowered.
    """

    code: Lifted
    captures: tuple[Register, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class LoopFunction:
    """A local function that is written where it is called: the body of a loop."""

    var: Var
    node: Function


VmValue = Register | int | Fields | Constant | GlobalFunction | LocalFunction | LoopFunction

UNIT = Fields(())

Layout = int | tuple["Layout", ...]
"""How a type is spread: 1 for one register, or the layouts of its parts."""


def kind_of(t: Type) -> Kind:
    """Return the kind of the one register that holds a value of the type in boxed form."""
    match t:
        case TensorType():
            return Kind.TENSOR
        case IntType() | BoolType():
            return Kind.INT
        case TupleType() | ShapeType():
            return Kind.TUPLE
        case FuncType():
            return Kind.CLOSURE
        case AdtType():
            return Kind.ADT
        case RefType():
            return Kind.CELL
        case StorageType():
            return Kind.STORAGE
        case ExistsType(body=body):
            return kind_of(body)
        case TypeVar() | UnknownType():
            return Kind.ANY


def flat_kinds(t: Type) -> tuple[Kind, ...]:
    """Return the kinds of the registers of a type in flat form."""
    match t:
        case ExistsType(body=body):
            return flat_kinds(body)
        case ShapeType(values=values):
            return (Kind.INT,) * len(values)
        case TupleType(fields=fields):
            leaves = tuple(k for f in fields for k in flat_kinds(f))
            return leaves if len(leaves) <= WIDEST else (Kind.TUPLE,)
        case _:
            return (kind_of(t),)


def param_kinds(node: Function, *, boxed: bool) -> list[Kind]:
    """Return the kinds of the registers that the code of a function takes, captures apart."""
    if boxed:
        return [kind_of(p.type) for p in node.params]
    return [k for p in node.params for k in flat_kinds(p.type)]


def result_kinds(node: Function, *, boxed: bool) -> tuple[Kind, ...]:
    """Return the kinds of the registers that the code of a function returns."""
    result = node.type.result
    return (kind_of(result),) if boxed else flat_kinds(result)


def layout_of(t: Type) -> Layout:
    """Return how a type is spread in flat form; values of equal layout may stand for each other."""
    match t:
        case ExistsType(body=body):
            return layout_of(body)
        case ShapeType(values=values):
            return (1,) * len(values)
        case TupleType(fields=fields) if is_spread(t):
            return tuple(layout_of(f) for f in fields)
        case _:
            return 1


def is_spread(t: TupleType) -> bool:
    """Whether the fields of a tuple of this type are passed apart."""
    return sum(len(flat_kinds(f)) for f in t.fields) <= WIDEST


def spread(t: Type, take: Callable[[], Register]) -> VmValue:
    """Return a value of the type in flat form, taking its registers in order."""
    match t:
        case ExistsType(body=body):
            return spread(body, take)
        case ShapeType(values=values):
            return Fields(tuple(take() for _ in values))
        case TupleType(fields=fields) if is_spread(t):
            return Fields(tuple(spread(f, take) for f in fields))
        case _:
            return take()


def spread_over(t: Type, registers: Sequence[Register]) -> VmValue:
    """Return a value of the type whose flat form is these registers."""
    supply = iter(registers)
    return spread(t, lambda: next(supply))


def registers_of(value: VmValue) -> list[Register]:
    """Return the registers that a value mentions, those of captures included."""
    match value:
        case Register():
            return [value]
        case Fields(items=items):
            return [r for item in items for r in registers_of(item)]
        case LocalFunction(captures=captures):
            return list(captures)
        case _:
            return []


def map_registers(value: VmValue, f: Callable[[Register], Register]) -> VmValue:
    """Return the value with every register replaced."""
    match value:
        case Register():
            return f(value)
        case Fields(items=items):
            return Fields(tuple(map_registers(item, f) for item in items))
        case LocalFunction(code=code, captures=captures):
            return LocalFunction(code, tuple(f(r) for r in captures))
        case _:
            return value


def as_operand(value: VmValue) -> Operand:
    """Return a value that is one register or a number."""
    assert isinstance(value, (Register, int)), f"one operand is needed, found {value}"
    return value
