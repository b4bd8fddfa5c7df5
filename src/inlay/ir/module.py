"""A module: functions, data types and kernels. Immutable; updates return a new module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from inlay.base.diagnostics import error
from inlay.base.metadata import NOTHING_SAID, Metadata
from inlay.ir.expr import Function
from inlay.ir.kernel import Kernel
from inlay.ir.types import Type, TypeVar


@dataclass(frozen=True, slots=True)
class Constructor:
    """One way to build a value of a data type; `tag` is its index."""

    name: str
    tag: int
    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Adt:
    """An algebraic data type. Fields may have `some` types: elements of differing sizes."""

    name: str
    params: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """An output of an entry that is one of its inputs with more behind it.

    Attributes:
        given: the input.
        made: the output.
        axis: along which it is longer.
    """

    given: str
    made: str
    axis: int


@dataclass(frozen=True, slots=True)
class EntryNames:
    """The names by which a user gives inputs to, and gets outputs from, an entry function.

    Attributes:
        inputs, outputs: in order.
        state: pairs of an input and the output that is its value in the next run.
        first: the entry without inputs that gives first values of inputs, by their names; those that it
            does not give, or all where it is "", begin with zeros.
        grows: outputs that are an input with more behind it.
        grown: the entry that does the same with these where they are: it takes and gives them with the axis
            first where other dims stand before it. "" where there is none.
        updates: pairs of an input and the output that is it with parts replaced. `grown` does these where
            they are, too, and takes and gives more for it: see `transforms.update_state`.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    state: tuple[tuple[str, str], ...] = ()
    first: str = ""
    grows: tuple[Growth, ...] = ()
    grown: str = ""
    updates: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A whole program.

    Attributes:
        functions: by name, in order of definition.
        adts: by name.
        kernels: by name; functions and kernels share one name space.
        entries: for functions a user calls (`main` unless said otherwise), the names of inputs and
            outputs. An entry returns one value, or a tuple when it has several outputs.
        entry: the name of the function to run. Text may say (`entry NAME;`); otherwise it is `main`, or the
            first of the entries where there is no such function.
        sources: the files that it was read from, which nothing that is made of it may replace.
        metadata: what its file says of itself.
    """

    functions: Mapping[str, Function] = field(default_factory=dict[str, Function])
    adts: Mapping[str, Adt] = field(default_factory=dict[str, Adt])
    kernels: Mapping[str, Kernel] = field(default_factory=dict[str, Kernel])
    entries: Mapping[str, EntryNames] = field(default_factory=dict[str, EntryNames])
    entry: str = "main"
    sources: tuple[str, ...] = ()
    metadata: Metadata = NOTHING_SAID

    def with_functions(self, functions: Mapping[str, Function]) -> Module:
        """Return the module with these functions instead."""
        return replace(self, functions=MappingProxyType(dict(functions)))

    def with_kernels(self, kernels: Mapping[str, Kernel]) -> Module:
        """Return the module with these kernels instead."""
        return replace(self, kernels=MappingProxyType(dict(kernels)))

    def __repr__(self) -> str:
        """Return one line: what can be called, and how much there is."""
        names = ", ".join(self.entries) or self.entry
        counts = ((len(self.functions), "function"), (len(self.kernels), "kernel"))
        sizes = ", ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in counts if n)
        return f"<Module {names}: {sizes or 'empty'}>"


def require_entry(module: Module) -> None:
    """Refuse a module without a function to begin with.

    Raises:
        CompileError: `name.unknown`.
    """
    if module.entry in module.functions or any(name in module.functions for name in module.entries):
        return
    own = ", ".join(module.functions)
    raise error(
        "name.unknown",
        f"found no function named '{module.entry}' to begin with",
        hint=f"name one of its functions: `entry NAME;` ({own})" if own else "write `fn main`",
    )
