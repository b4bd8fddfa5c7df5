"""Types of the tensor IR.

    T ::= Tensor[dims, dtype] | (T, ...) | fn<dims>(T, ...) -> T | Adt[T, ...] | 'a
        | Ref[T] | Storage | int[e] | bool | shape[e, ...] | some dims. T

* **Rank is static**, dimensions are symbolic integers (`arith.expr.Int`).
* **Control types** (`int`, `bool`, `shape`) are not tensors: they are unboxed in the machine. `int`
  and `shape` may carry their value, so that shape arithmetic cancels in the type.
* **Function types are polymorphic in their dims**: `dims` lists the symbols that a call chooses.
  Symbols that occur free in a type belong to the enclosing scope.
* **`some dims. T`** is a value whose dims exist but are not determined by the inputs. It is opened
  to fresh symbols where it is bound (let, parameter of a local function, pattern variable) and
  packed where a value of a more exact type is given for it.

Types are compared by structure. Bound dims are compared by identity of their symbols here; use
`ir.equal` for comparison up to renaming.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.arith.dtype import DType
from inlay.arith.expr import Int, Sym


@dataclass(frozen=True, slots=True)
class DimParam:
    """A bound dimension symbol and what is known of it.

    Attributes:
        sym: the symbol.
        low: least value (inclusive).
        high: greatest value (inclusive), None when there is no bound; may mention other symbols.
        multiple_of: a positive number that divides the value.
        typical: a value to plan costs for, None when unknown; never a promise.
    """

    sym: Sym
    low: int = 0
    high: Int | None = None
    multiple_of: int = 1
    typical: int | None = None


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor."""

    shape: tuple[Int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class TupleType:
    """A fixed number of values."""

    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class FuncType:
    """A function, polymorphic in `dims` and `type_vars` (both may be empty)."""

    params: tuple[Type, ...]
    result: Type
    dims: tuple[DimParam, ...] = ()
    type_vars: tuple[TypeVar, ...] = ()


@dataclass(frozen=True, slots=True)
class AdtType:
    """An instance of an algebraic data type of the module, by name."""

    name: str
    args: tuple[Type, ...] = ()


@dataclass(frozen=True, slots=True)
class TypeVar:
    """A type parameter of a data type or of a function."""

    name: str


@dataclass(frozen=True, slots=True)
class RefType:
    """A mutable cell. Cells have identity."""

    content: Type


@dataclass(frozen=True, slots=True)
class StorageType:
    """Bytes in a memory, before tensors are laid into them."""


@dataclass(frozen=True, slots=True)
class IntType:
    """An unboxed integer; `value` is what it is known to be, None when it is not known."""

    value: Int | None = None


@dataclass(frozen=True, slots=True)
class BoolType:
    """An unboxed truth value."""


@dataclass(frozen=True, slots=True)
class ShapeType:
    """An unboxed tuple of integers of static length, each with its value where known."""

    values: tuple[Int | None, ...]


@dataclass(frozen=True, slots=True)
class ExistsType:
    """A type whose `dims` exist but are chosen by whoever built the value."""

    dims: tuple[DimParam, ...]
    body: Type


@dataclass(frozen=True, slots=True)
class UnknownType:
    """The type of a node that has not been inferred yet; only the parser makes it."""


Type = (
    TensorType
    | TupleType
    | FuncType
    | AdtType
    | TypeVar
    | RefType
    | StorageType
    | IntType
    | BoolType
    | ShapeType
    | ExistsType
    | UnknownType
)

UNIT = TupleType(())
BOOL_CONTROL = BoolType()
INT_CONTROL = IntType()
STORAGE = StorageType()
UNKNOWN = UnknownType()
