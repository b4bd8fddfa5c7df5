"""Reads the rows of a container's sections: words, and what `writer` makes of words."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from inlay.base.diagnostics import error
from inlay.bytecode.formula import MAX_STEPS, OPERATOR_NAMES, Arg, Formula
from inlay.bytecode.isa import DTYPES, MAX_RANK, Kind
from inlay.bytecode.program import (
    MOST_PIECES,
    AccessCode,
    BatchRecord,
    Body,
    CopyBody,
    DeviceBody,
    DevicePhase,
    Entry,
    FunctionBody,
    HostBody,
    ImageBody,
    Kernel,
    Phase,
    Requirement,
    SymbolBody,
)
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

HAS_SIZES, HAS_SPANS = 1, 2
"""What a kernel's row says of its tensors: bytes that may be touched, phases that touch them."""

SPEC_FORMS = (TensorSpec, TupleSpec, ListSpec, OptionSpec)
"""Forms of values of signatures; their positions are their numbers in the file."""


def refuse(id: str, message: str, *notes: str, hint: str = "") -> NoReturn:
    """Refuse a file with a `container.*` diagnostic."""
    raise error(f"container.{id}", message, notes=notes, hint=hint)


class Words:
    """Reads a section of words; every count is held against the words that are left."""

    def __init__(self, name: str, data: memoryview, strings: Sequence[str]) -> None:
        self._name = name
        self._all = array("I", bytes(data))
        if sys.byteorder == "big":
            self._all.byteswap()
        self._strings = strings
        self.position = 0

    def fail(self, message: str) -> NoReturn:
        """Refuse the file, at this word."""
        refuse("corrupt", f"section {self._name} at word {self.position}: {message}")

    def end(self) -> None:
        """Refuse what follows the last row."""
        if self.position != len(self._all):
            self.fail(f"{len(self._all) - self.position} words follow the last row")

    def word(self) -> int:
        """Read 32 bits."""
        if self.position >= len(self._all):
            self.fail("the section ends within a row")
        self.position += 1
        return self._all[self.position - 1]

    def take(self, count: int) -> tuple[int, ...]:
        """Read so many words."""
        if count > len(self._all) - self.position:
            self.fail("the section ends within a row")
        self.position += count
        return tuple(self._all[self.position - count : self.position])

    def count(self) -> int:
        """Read the length of a list whose items are a word at least."""
        value = self.word()
        if value > len(self._all) - self.position:
            self.fail(f"a list of {value} items does not fit")
        return value

    def wide(self) -> int:
        """Read 64 bits, with a sign."""
        low, high = self.word(), self.word()
        value = low | high << 32
        return value - (1 << 64) if value >> 63 else value

    def flag(self) -> bool:
        """Read a truth value."""
        return bool(self.below(2, "flag"))

    def below(self, limit: int, what: str) -> int:
        """Read a number below a limit."""
        value = self.word()
        if value >= limit:
            self.fail(f"{what} {value} is not below {limit}")
        return value

    def string(self) -> str:
        """Read a string, by its position."""
        return self._strings[self.below(len(self._strings), "string")]

    def strings(self) -> list[str]:
        """Read a list of strings."""
        return [self.string() for _ in range(self.count())]

    def dtype(self) -> str:
        """Read the name of an element type."""
        return DTYPES[self.below(len(DTYPES), "dtype")][0]

    def rank(self) -> int:
        """Read a number of axes."""
        return self.below(MAX_RANK + 1, "rank")

    def kinds(self) -> tuple[Kind, ...]:
        """Read a list of kinds of slots."""
        words = self.take(self.count())
        try:
            return tuple(Kind(word) for word in words)
        except ValueError:
            self.fail("a slot has no possible kind")

    def formula(self) -> Formula:
        """Read a formula."""
        steps: list[int | Arg | str] = []
        for _ in range(self.below(MAX_STEPS + 1, "length of a formula")):
            code = self.below(2 + len(OPERATOR_NAMES), "operator")
            if code == 0:
                steps.append(self.wide())
            elif code == 1:
                steps.append(Arg(self.word()))
            else:
                steps.append(OPERATOR_NAMES[code - 2])
        return tuple(steps)

    def kernel(self) -> Kernel:
        """Read a row of `KERN`."""
        name = self.string()
        accesses = [AccessCode(1 + self.below(3, "access")) for _ in range(self.count())]
        ints = self.word()
        body = self._body()
        workspace_kind = self.below(4, "workspace")
        workspace = self.formula() if workspace_kind else None
        made = Kernel(
            name,
            tuple(accesses),
            ints,
            body,
            workspace,
            workspace_kind >= 2,
            self.formula(),
            tuple(self.strings()),
            ordered=self.flag(),
            batch=self._batch(),
        )
        said = self.below(4, "what is said of tensors")
        sizes = tuple(self.formula() for _ in accesses) if said & HAS_SIZES else ()
        spans = tuple((self.word(), self.word()) for _ in accesses) if said & HAS_SPANS else ()
        return replace(made, sizes=sizes, spans=spans, workspace_in_port=workspace_kind == 3)

    def _batch(self) -> BatchRecord | None:
        kernel = self.word()
        if kernel == 0:
            return None
        return BatchRecord(kernel - 1, tuple(self.word() for _ in range(self.count())))

    def _phase(self) -> Phase:
        offset, pieces = self.wide(), self.below(MOST_PIECES + 1, "pieces")
        return Phase(offset, pieces > 0, max(1, pieces))

    def _body(self) -> Body:
        match self.below(6, "body"):
            case 0:
                return ImageBody(tuple(self._phase() for _ in range(self.count())))
            case 1:
                return SymbolBody(self.string(), self.flag())
            case 2:
                return HostBody(self.string())
            case 3:
                return FunctionBody(self.string(), self.string(), self.string())
            case 4:
                memory, name = self.word(), self.string()
                phases = [(self.wide(), self.formula()) for _ in range(self.count())]
                return DeviceBody(memory, name, tuple(DevicePhase(f, o) for o, f in phases))
            case _:
                return CopyBody()

    def entry(self) -> Entry:
        """Read a row of `ENTR`."""
        name, function = self.string(), self.word()
        count = self.count()
        symbols = self._symbols()
        inputs = tuple(self._spec(1) for _ in range(count))
        count = self.count()
        if self._symbols():
            self.fail("outputs have symbols")
        outputs = tuple(self._spec(1) for _ in range(count))
        requirements = tuple(Requirement(self.string(), self.formula()) for _ in range(self.count()))
        return Entry(name, function, inputs, outputs, symbols, requirements)

    def _symbols(self) -> tuple[Symbol, ...]:
        return tuple(
            Symbol(self.string(), self.word(), self.word(), self.formula()) for _ in range(self.count())
        )

    def _spec(self, depth: int) -> Spec:
        if depth > MAX_NESTING + 1:
            self.fail(f"lists and tuples are nested deeper than {MAX_NESTING}")
        name = self.string()
        form = SPEC_FORMS[self.below(len(SPEC_FORMS), "form")]
        if form is TensorSpec:
            dtype = self.dtype()
            dims = [Dim(self.string(), self.formula() if self.flag() else None) for _ in range(self.rank())]
            return TensorSpec(name, dtype, tuple(dims))
        if form is TupleSpec:
            return TupleSpec(name, tuple(self._spec(depth + 1) for _ in range(self.count())))
        symbols = self._symbols()
        element = Element(self._spec(depth + 1), symbols)
        return ListSpec(name, element) if form is ListSpec else OptionSpec(name, element)
