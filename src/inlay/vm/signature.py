"""What an entry takes and gives: symbols read from dims of inputs, formulas for all dims.

An entry of a container takes and gives tensors only. Control values of the function are tensors
outside: `int` and `bool` are scalars (i64, bool), `shape` is a vector of i64; `compile` writes the
function that converts them. Tuples of outputs are spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from inlay.arith.dtype import BOOL, I64
from inlay.arith.expr import (
    Atom,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Sym,
    coefficient,
    lit,
    substitute,
    symbols,
)
from inlay.base.diagnostics import Collector
from inlay.base.span import Span
from inlay.bytecode.formula import Arg, Formula
from inlay.bytecode.program import Dim, Entry, Requirement, Symbol, TensorSpec
from inlay.ir.dims import type_text
from inlay.ir.expr import Function
from inlay.ir.module import EntryNames
from inlay.ir.types import (
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

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[Symbol, ...]
    requirements: tuple[Requirement, ...]

    def entry(self, name: str, function: int) -> Entry:
        """Return the entry that runs a function."""
        return Entry(name, function, self.inputs, self.outputs, self.symbols, self.requirements)


def signature_of(name: str, function: Function, names: EntryNames | None) -> Signature:
    """Return the signature of a function of the module.

    Raises:
        CompileError: `entry.type` for parameters and results that have no tensor form,
            `entry.dim` for a dim that no input determines.
    """
    findings = Collector()
    results = output_types(function.type.result)
    inputs = names.inputs if names else _distinct([p.name for p in function.params])
    outputs = names.outputs if names else tuple(
        "output" if len(results) == 1 else f"output_{i}" for i in range(len(results))
    )  # fmt: skip
    place = function.span or Span.named(name)
    tensors = [
        _tensor_form(t, f"input '{label}' of '{name}'", place, findings)
        for t, label in zip(function.type.params, inputs, strict=True)
    ]
    given = [
        _tensor_form(t, f"output '{label}' of '{name}'", place, findings)
        for t, label in zip(results, outputs, strict=True)
    ]
    findings.raise_if_fatal()
    solver = _Solver()
    solver.read(tensors)
    specs = tuple(
        TensorSpec(label, t.dtype.name, tuple(solver.dim(d) for d in t.shape))
        for label, t in zip(inputs, tensors, strict=True)
    )
    for spec in specs:
        for axis, dim in enumerate(spec.dims):
            if dim.value is None:
                findings.error(
                    "entry.dim",
                    f"dim {axis} of input '{spec.name}' is {dim.text}, and no input determines it",
                    span=place,
                    hint="let some input have that dim alone",
                )
    findings.raise_if_fatal()
    made = tuple(
        TensorSpec(label, t.dtype.name, tuple(solver.dim(d) for d in t.shape))
        for label, t in zip(outputs, given, strict=True)
    )
    return Signature(specs, made, tuple(solver.found), solver.requirements(function.dims))


def output_types(result: Type) -> tuple[Type, ...]:
    """Return the types of the outputs of an entry: fields of a tuple are outputs of their own."""
    match result:
        case ExistsType(body=body):
            return output_types(body)
        case TupleType(fields=fields):
            return tuple(t for f in fields for t in output_types(f))
        case _:
            return (result,)


def formula(e: Int, positions: dict[Sym, int]) -> Formula | None:
    """Return an integer as a formula over numbered symbols; None if it mentions another one."""
    if any(s not in positions for s in symbols(e)):
        return None
    steps: list[int | Arg | str] = []
    _write(e, positions, steps)
    return tuple(steps)


def _write(e: Int, positions: dict[Sym, int], steps: list[int | Arg | str]) -> None:
    if not e.terms:
        steps.append(0)
    for index, (monomial, c) in enumerate(e.terms):
        if c != 1 or not monomial:
            steps.append(c)
        for k, atom in enumerate(monomial):
            _write_atom(atom, positions, steps)
            if k or c != 1:
                steps.append("mul")
        if index:
            steps.append("add")


def _write_atom(atom: Atom, positions: dict[Sym, int], steps: list[int | Arg | str]) -> None:
    match atom:
        case Sym():
            steps.append(Arg(positions[atom]))
        case FloorDiv(numerator=a, denominator=b):
            _write(a, positions, steps)
            _write(b, positions, steps)
            steps.append("floordiv")
        case Mod(numerator=a, denominator=b):
            _write(a, positions, steps)
            _write(b, positions, steps)
            steps.append("mod")
        case Min(args=args) | Max(args=args):
            for index, arg in enumerate(args):
                _write(arg, positions, steps)
                if index:
                    steps.append("min" if isinstance(atom, Min) else "max")
        case _:
            assert_never(atom)


class _Solver:
    """Finds a dim of an input for each symbol, and counts them in the order in which they are read."""

    def __init__(self) -> None:
        self.found: list[Symbol] = []
        self.positions: dict[Sym, int] = {}

    def read(self, tensors: Sequence[TensorType]) -> None:
        """Solve for symbols: those that are a dim first, then those in a dim with one unknown."""
        places = [
            (e, i, axis)
            for i, t in enumerate(tensors)
            for axis, e in enumerate(t.shape)
            if e.value is None
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
        self.positions[sym] = len(self.found)
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


def _tensor_form(t: Type, what: str, span: Span, findings: Collector) -> TensorType:
    match t:
        case ExistsType(body=body):
            return _tensor_form(body, what, span, findings)
        case TensorType():
            return t
        case IntType():
            return TensorType((), I64)
        case BoolType():
            return TensorType((), BOOL)
        case ShapeType(values=values):
            return TensorType((lit(len(values)),), I64)
        case _:
            findings.error(
                "entry.type",
                f"{what} is {type_text(t)}, needed tensors, numbers, or a tuple of them",
                span=span,
                hint="take it apart inside the program",
            )
            return TensorType((), BOOL)


def _distinct(names: list[str]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    made: list[str] = []
    for name in names:
        count = seen[name] = seen.get(name, -1) + 1
        made.append(f"{name}_{count}" if count else name)
    return tuple(made)
