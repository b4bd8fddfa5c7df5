"""Passes: a rewriting of modules, what it needs to hold before and what holds after.

A pass is one file, and its record is the file's `PASS`:

    PASS = Pass(__name__, run, "group operators into kernels",
                requires=(Property.ANF,), establishes=(Property.FUSED,), options=FuseOptions)

Its name is the file's name, in kebab case (`fuse-ops` for `fuse_ops.py`). `run` takes a module and
a `PassContext` and returns a module; it changes nothing in place and keeps nothing between calls,
so the same module and context give the same result.

**Properties.** A pass never calls another pass. What it counts on is a `Property` that some pass
before it has established and that none in between has lost. A pass keeps every property unless it
says what it `loses`. The manager checks a list of passes against this before it runs any.

**Remarks.** A pass that decides (fuse or not, pack or not) records why, as data, in
`PassContext.remarks`; nothing is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeVar

from inlay.base.diagnostics import Collector
from inlay.base.instrument import SILENT, Instrument
from inlay.base.span import NO_SPAN, Span
from inlay.ir.expr import Expr
from inlay.ir.module import Module
from inlay.ir.op import OpTable

Options = TypeVar("Options")


class Property(StrEnum):
    """What may be known to hold of a whole module."""

    TYPED = "typed"
    """Every node has its type."""
    ANF = "anf"
    """Every function body is in A-normal form; `analysis.anf` says exactly what that is."""
    ETA_EXPANDED = "eta-expanded"
    """Operators and constructors occur only as callees."""
    MATCHES_FLAT = "matches-flat"
    """Every match tests one tag: arms are constructors over variables and wildcards, or one arm."""
    PLACED = "placed"
    """Every value-producing node has a place, and copies between devices are explicit."""
    CHANNELS_LAST = "channels-last"
    """Convolutions and pools that gain by it read and write channels-last tensors."""
    PACKED = "packed"
    """Constant right-hand sides of contractions are packed."""
    FUSED = "fused"
    """Every tensor operator is inside a primitive function, is a view, or has an effect."""
    LOWERED = "lowered"
    """Primitive functions have become kernels."""
    EXPLICIT_STORAGE = "explicit-storage"
    """Results of kernels are written into storage that the program allocates and kills."""
    PLANNED = "planned"
    """Storage of bounded lifetime has its offset."""


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of passes that have none."""


class Evaluator(Protocol):
    """Computes the values of expressions without free variables; given by the layers above."""

    def __call__(self, expression: Expr) -> object:
        """Return the value: an array, an int, a bool, a tuple of ints (shape), a tuple of values.

        Raises:
            CompileError: evaluation fails, as it would at run time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Remark:
    """One decision of a pass, for reports.

    Attributes:
        pass_name: who decided.
        decision: what was decided, as a kebab word that reports group by (`not-fused`).
        reason: why, as a kebab word that reports group by (`used-elsewhere`).
        message: the same for people, one sentence.
        span: the node that it is about.
        other: the second node, where a decision is about two.
    """

    pass_name: str
    decision: str
    reason: str
    message: str
    span: Span = NO_SPAN
    other: Span = NO_SPAN


class Remarks:
    """Gathers remarks in the order in which they were made."""

    def __init__(self) -> None:
        self._found: list[Remark] = []

    def add(self, remark: Remark) -> None:
        """Add one."""
        self._found.append(remark)

    def forget(self, behind: int) -> None:
        """Forget those behind the first so many: what they say was tried and is not done."""
        del self._found[behind:]

    def of(self, pass_name: str) -> tuple[Remark, ...]:
        """Return those of one pass."""
        return tuple(r for r in self._found if r.pass_name == pass_name)

    @property
    def all(self) -> tuple[Remark, ...]:
        """Return all of them."""
        return tuple(self._found)


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a pass may ask of its caller.

    Attributes:
        ops: finds operators by name.
        evaluate: the evaluator of constant expressions; None where there is none, and then nothing
            is folded.
        options: options of passes by their record type; see `options_for`.
        instrument: where times and progress go.
        diagnostics: where findings go that do not stop the pass at once.
        remarks: where decisions go.
    """

    ops: OpTable
    evaluate: Evaluator | None = None
    options: Mapping[type, object] = field(default_factory=dict[type, object])
    instrument: Instrument = SILENT
    diagnostics: Collector = field(default_factory=Collector)
    remarks: Remarks = field(default_factory=Remarks)

    def with_options(self, *options: object) -> PassContext:
        """Return the context with these records of options instead of those of the same types."""
        return replace(self, options={**self.options, **{type(o): o for o in options}})

    def options_for(self, kind: type[Options]) -> Options:
        """Return the options of that record type: those given, else its defaults."""
        found = self.options.get(kind)
        if found is None:
            return kind()
        assert isinstance(found, kind), f"options of {kind.__name__} are a {type(found).__name__}"
        return found


Run = Callable[[Module, PassContext], Module]


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass.

    Attributes:
        module: `__name__` of the file that defines it.
        run: the rewriting.
        summary: one line for lists.
        requires: what must hold before.
        establishes: what holds after.
        loses: what may no longer hold after; everything else is kept.
        options: the record type of its options; every field has a default.
    """

    module: str
    run: Run
    summary: str
    requires: tuple[Property, ...] = ()
    establishes: tuple[Property, ...] = ()
    loses: tuple[Property, ...] = ()
    options: type = NoOptions

    @property
    def name(self) -> str:
        """The name of the file in kebab case."""
        return self.module.rpartition(".")[2].replace("_", "-")
