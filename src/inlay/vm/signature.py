"""What an entry takes and gives: symbols read from dims of inputs, formulas for all dims.

An entry of a container takes and gives tensors, and the prelude's lists and options and tuples of
them (`bytecode/spec.py`). Control values of the function are tensors outside: `int` and `bool` are
scalars (i64, bool), `shape` is a vector of i64; `compile` writes the function that converts them. In
lists and options there are none. A result that is a tuple is an output for each field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from inlay.arith.dtype import BOOL, I64
from inlay.arith.expr import Int, Sym, coefficient, lit, substitute, symbols
from inlay.base.diagnostics import Collector
from inlay.base.span import Span
from inlay.bytecode.formula import Arg, Formula, check
from inlay.bytecode.of_integers import formula
from inlay.bytecode.program import Entry, Requirement
from inlay.bytecode.spec import (
    MAX_NESTING,
    Dim,
    Element,
    ListSpec,
    OptionSpec,
    Spec,
    Symbol,
    TensorSpec,
    TupleSpec,
)
from inlay.ir.expr import Function
from inlay.ir.kernel import Kernel
from inlay.ir.module import EntryNames
from inlay.ir.type_printer import type_text
from inlay.ir.types import (
    AdtType,
    BoolType,
    DimParam,
    ExistsType,
    IntType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)


@dataclass(frozen=True, slots=True)
class Signature:
    """The outside of an entry, still without the index of its function."""

    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    symbols: tuple[Symbol, ...]
    requirements: tuple[Requirement, ...]

    def entry(self, name: str, function: int) -> Entry:
        """Return the entry that runs a function."""
        return Entry(name, function, self.inputs, self.outputs, self.symbols, self.requirements)


def signature_of(name: str, function: Function, names: EntryNames | None) -> Signature:
    """Return the signature of a function of the module.

    Raises:
        CompileError: `entry.type` for parameters and results that have no form outside,
            `entry.dim` for a dim that no input determines.
    """
    findings = Collector()
    results = output_types(function.type.result, names)
    named = entry_names(function, names)
    inputs, outputs = named.inputs, named.outputs
    place = function.span or Span.named(name)
    writer = _Writer(place, findings)
    scope = _Solver()
    given = [
        writer.form(t, f"input '{label}' of '{name}'", 0, is_inside=False)
        for t, label in zip(function.type.params, inputs, strict=True)
    ]
    made = [
        writer.form(t, f"output '{label}' of '{name}'", 0, is_inside=False)
        for t, label in zip(results, outputs, strict=True)
    ]
    findings.raise_if_fatal()
    scope.read(_leaves(given))
    takes = tuple(
        writer.spec(label, label, f, scope, is_input=True) for label, f in zip(inputs, given, strict=True)
    )
    findings.raise_if_fatal()
    gives = tuple(
        writer.spec(label, label, f, scope, is_input=False) for label, f in zip(outputs, made, strict=True)
    )
    return Signature(takes, gives, tuple(scope.found), scope.requirements(function.dims))


@dataclass(frozen=True, slots=True)
class _Form:
    """A type of an entry without existential types around it.

    Attributes:
        type: a tensor, a tuple, a list or an option.
        fields: of a tuple; the element of a list or option.
    """

    type: TensorType | TupleType | AdtType
    fields: tuple[_Form, ...] = ()


def _leaves(forms: Sequence[_Form]) -> list[TensorType]:
    """Return the tensors in fixed places, in order."""
    found: list[TensorType] = []
    for form in forms:
        match form.type:
            case TensorType() as t:
                found.append(t)
            case TupleType():
                found += _leaves(form.fields)
            case AdtType():
                pass
            case _:
                assert_never(form.type)
    return found


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes types as specs, and files what has no form."""

    place: Span
    findings: Collector

    def form(self, t: Type, what: str, depth: int, *, is_inside: bool) -> _Form:
        """Return the form of a type; what is inside of a list or option stays as it is there."""
        match t:
            case ExistsType(body=body):
                return self.form(body, what, depth, is_inside=is_inside)
            case TensorType():
                return _Form(t)
            case IntType() if not is_inside:
                return _Form(TensorType((), I64))
            case BoolType() if not is_inside:
                return _Form(TensorType((), BOOL))
            case ShapeType(values=values) if not is_inside:
                return _Form(TensorType((lit(len(values)),), I64))
            case TupleType(fields=fields) if depth < MAX_NESTING:
                forms = (self.form(f, what, depth + 1, is_inside=is_inside) for f in fields)
                return _Form(t, tuple(forms))
            case AdtType(name="List" | "Option", args=(element,)) if depth < MAX_NESTING:
                return _Form(t, (self.form(element, what, depth + 1, is_inside=True),))
            case _:
                hint = "take it apart inside the program"
                needed = "tensors, and lists, options and tuples of them"
                if not is_inside:
                    needed = f"tensors, numbers, and lists, options and tuples up to {MAX_NESTING} deep"
                self.findings.error(
                    "entry.type", f"{what} is {type_text(t)}, needed {needed}", span=self.place, hint=hint
                )
                return _Form(TensorType((), BOOL))

    def spec(self, label: str, name: str, form: _Form, scope: _Solver, *, is_input: bool) -> Spec:
        """Return a form as a spec; `label` is the way to it, `name` what it adds to its scope's."""
        match form.type:
            case TensorType(shape=shape, dtype=dtype):
                dims = tuple(scope.dim(d) for d in shape)
                for axis, dim in enumerate(dims):
                    if is_input and dim.value is None:
                        self.findings.error(
                            "entry.dim",
                            f"dim {axis} of input '{label}' is {dim.text}, and no input determines it",
                            span=self.place,
                            hint="let some input have that dim alone",
                        )
                return TensorSpec(name, dtype.name, dims)
            case TupleType():
                return TupleSpec(
                    name,
                    tuple(
                        self.spec(f"{label}.{i}", f"{name}.{i}", f, scope, is_input=is_input)
                        for i, f in enumerate(form.fields)
                    ),
                )
            case AdtType(name=adt):
                inner = _Solver(scope)
                if is_input:
                    inner.read(_leaves(form.fields))
                label += "[]" if adt == "List" else ""
                content = self.spec(label, "", form.fields[0], inner, is_input=is_input)
                element = Element(content, tuple(inner.found))
                return ListSpec(name, element) if adt == "List" else OptionSpec(name, element)
            case _:
                assert_never(form.type)


def entry_names(function: Function, names: EntryNames | None) -> EntryNames:
    """Return the names of what an entry takes and gives: those it has, else of its parameters."""
    if names is not None:
        return names
    count = len(output_types(function.type.result, None))
    outputs = ("output",) if count == 1 else tuple(f"output_{i}" for i in range(count))
    return EntryNames(_distinct([p.name for p in function.params]), outputs)


def output_types(result: Type, names: EntryNames | None) -> tuple[Type, ...]:
    """Return the types of the outputs of an entry: fields of a tuple are outputs of their own.

    A tuple stays one where the entry names a single output.
    """
    match result:
        case ExistsType(body=body):
            return output_types(body, names)
        case TupleType(fields=fields) if names is None or len(names.outputs) != 1:
            return fields
        case _:
            return (result,)


def positions_of(kernel: Kernel) -> dict[Sym, int]:
    """Return where a kernel is given its dims, among its integers."""
    return {e.atom: i for i, e in enumerate(kernel.ints) if isinstance(e.atom, Sym)}


def port_sizes(kernel: Kernel) -> tuple[Formula, ...]:
    """Return the bytes of each tensor that a kernel is given, over its integers.

    A size that is no formula over them counts as nothing.
    """
    made: list[Formula] = []
    for port in kernel.ports:
        size = lit(port.type.dtype.itemsize)
        for dim in port.type.shape:
            size = size * dim
        found = formula(size, positions_of(kernel))
        made.append((0,) if found is None or check(found, len(kernel.ints)) is not None else found)
    return tuple(made)


class _Solver:
    """Finds a dim of a leaf for each symbol of a scope, and counts them as they are read.

    `positions` are those of all symbols that a formula of the scope may mention: those of the
    scopes around it come first.
    """

    def __init__(self, outer: _Solver | None = None) -> None:
        self.found: list[Symbol] = []
        self.positions: dict[Sym, int] = dict(outer.positions) if outer else {}

    def read(self, tensors: Sequence[TensorType]) -> None:
        """Solve for symbols: those that are a dim first, then those in a dim with one unknown."""
        places = [
            (e, i, axis) for i, t in enumerate(tensors) for axis, e in enumerate(t.shape) if e.value is None
        ]
        for e, i, axis in places:
            if isinstance(e.atom, Sym) and e.atom not in self.positions:
                self._add(e.atom, i, axis, (Arg(0),))
        progress = True
        while progress:
            progress = False
            for e, i, axis in places:
                unknown = [s for s in symbols(e) if s not in self.positions]
                if len(unknown) == 1 and (steps := self._solution(e, unknown[0])):
                    self._add(unknown[0], i, axis, steps)
                    progress = True

    def _add(self, sym: Sym, index: int, axis: int, solution: Formula) -> None:
        self.positions[sym] = len(self.positions)
        self.found.append(Symbol(sym.name, index, axis, solution))

    def _solution(self, e: Int, sym: Sym) -> Formula | None:
        """Return the value of the symbol where `e` is argument 0 and symbol k is argument k + 1."""
        c = coefficient(e, sym)
        if c is None or not c.value:
            return None
        rest = formula(substitute(e, {sym: lit(0)}), {s: k + 1 for s, k in self.positions.items()})
        if rest is None:
            return None
        return (Arg(0), *rest, "sub", c.value, "floordiv")

    def dim(self, e: Int) -> Dim:
        """Return a dim of a signature."""
        return Dim(str(e), formula(e, self.positions))

    def requirements(self, dims: Sequence[DimParam]) -> tuple[Requirement, ...]:
        """Return what was declared of the symbols, as conditions."""
        made: list[Requirement] = []
        for d in dims:
            if d.sym not in self.positions:
                continue
            name, at = d.sym.name, Arg(self.positions[d.sym])
            if d.low > 0:
                made.append(Requirement(f"{name} >= {d.low}", (d.low, at, "le")))
            high = None if d.high is None else formula(d.high, self.positions)
            if high is not None:
                made.append(Requirement(f"{name} <= {d.high}", (at, *high, "le")))
            if d.multiple_of > 1:
                steps: Formula = (at, d.multiple_of, "mod", 0, "eq")
                made.append(Requirement(f"{name} % {d.multiple_of} == 0", steps))
        return tuple(made)


def _distinct(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    made: list[str] = []
    for name in names:
        count = seen[name] = seen.get(name, -1) + 1
        made.append(f"{name}_{count}" if count else name)
    return tuple(made)
