"""What goes in and out of an entry: tensors, and lists, options and tuples of them.

**Scopes.** A call is a *scope*, and so is each element of a list or option. The tensors of a scope
that are in fixed places, inputs and fields of tuples, are its *leaves*; its lists and options are its
*parts*: how much is in them, only a call tells. A scope has symbols, each read from a dim of one
of its leaves. Formulas of a scope see the symbols of the scopes around it, outermost first, and
then its own; so every element of a list may have sizes of its own.

**Flat form.** Between the outside and the machine a value is a list of tensors and a list of
counts: first the leaves, then for each part its count (of an option 0 or 1), and for each of its
elements the same again. What has no parts is just its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from inlay.bytecode.formula import Formula
from inlay.bytecode.isa import Kind

MAX_NESTING = 16
"""How deep lists, options and tuples may be nested in a signature."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A dim of a signature: text for people, and its value as a formula over the symbols.

    The formula is None for a dim of an output that only running tells.
    """

    text: str
    value: Formula | None


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that the inputs decide.

    Attributes:
        name: as the user knows it.
        input: which leaf of its scope it is read from; of a call without tuples, which input.
        axis: which dim of that tensor.
        solution: its value; argument 0 is the dim found, argument k + 1 is symbol k, which
            precedes this one.
    """

    name: str
    input: int
    axis: int
    solution: Formula


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor.

    Attributes:
        name: of the input or output; inside of one, what a path adds to it (".1", or nothing).
        dtype: the name of its element type.
        dims: its shape.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...]

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The sizes; of a dim that inputs or data decide, its text."""
        return tuple(int(d.text) if d.text.isdecimal() else d.text for d in self.dims)

    @property
    def shape_text(self) -> str:
        """The dims as `[n, 64]`."""
        return "[" + ", ".join(dim.text for dim in self.dims) + "]"

    @property
    def type_text(self) -> str:
        """The whole as `f32 [n, 64]`."""
        return f"{self.dtype} {self.shape_text}"


@dataclass(frozen=True, slots=True)
class TupleSpec:
    """A fixed number of values; in Python a tuple."""

    name: str
    fields: tuple[Spec, ...]

    @property
    def type_text(self) -> str:
        """The whole as `(f32 [n], i64 [])`."""
        return "(" + ", ".join(f.type_text for f in self.fields) + ")"


@dataclass(frozen=True, slots=True)
class Element:
    """What each element of a list or option is, with symbols of its own."""

    spec: Spec
    symbols: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True)
class ListSpec:
    """A value of the prelude's `List`; in Python a list."""

    name: str
    element: Element

    @property
    def type_text(self) -> str:
        """The whole as `list of f32 [k, 4]`."""
        return f"list of {self.element.spec.type_text}"


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """A value of the prelude's `Option`; in Python None or the value."""

    name: str
    element: Element

    @property
    def type_text(self) -> str:
        """The whole as `optional f32 [4]`."""
        return f"optional {self.element.spec.type_text}"


Spec: TypeAlias = TensorSpec | TupleSpec | ListSpec | OptionSpec


def leaves(specs: Sequence[Spec]) -> Iterator[TensorSpec]:
    """Yield the tensors in fixed places, in order."""
    for spec in specs:
        match spec:
            case TensorSpec():
                yield spec
            case TupleSpec(fields=fields):
                yield from leaves(fields)
            case ListSpec() | OptionSpec():
                pass
            case _:
                assert_never(spec)


def parts(specs: Sequence[Spec]) -> Iterator[ListSpec | OptionSpec]:
    """Yield the lists and options, in order, without what is in them."""
    for spec in specs:
        match spec:
            case TensorSpec():
                pass
            case TupleSpec(fields=fields):
                yield from parts(fields)
            case ListSpec() | OptionSpec():
                yield spec
            case _:
                assert_never(spec)


def is_flat(specs: Sequence[Spec]) -> bool:
    """Whether all are tensors."""
    return all(isinstance(spec, TensorSpec) for spec in specs)


def slot_kind(spec: Spec) -> Kind:
    """Return the kind of the slot in which a function of the program takes or gives the value."""
    match spec:
        case TensorSpec():
            return Kind.TENSOR
        case TupleSpec():
            return Kind.TUPLE
        case ListSpec() | OptionSpec():
            return Kind.ADT
        case _:
            assert_never(spec)
