"""Cases of passes: programs in, programs out, in one file for what one pass is about.

    // PASSES: to-anf,simplify-algebra,eliminate-dead

    // ---- zero added is nothing
    fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
      add(x, f32(0.0))
    }
    // ====
    fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] {
      x
    }

Each case is one test: what the passes make of the first program is verified, printed, and must be the
second to the letter; what it prints is read back, and `main` of both must compute the same, to the bit.
Comments below the title of a case change what is asked:

* ``// ROUNDED``: the same up to rounding;
* ``// GIVEN x = [0, 127]``: these elements of an input, over and over; others get numbers that are made up,
  integers from 0 to 2;
* ``// NOT RUN``: only the text counts, as for programs of devices that are not here.

After a change that is meant, `python -m tests.text --update [FILE ...]` writes the second programs again:
look at what `git diff` says of them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from inlay.analysis.blocks import is_anf
from inlay.analysis.infer_types import infer_types
from inlay.arith import expr as arith
from inlay.arith.dtype import Kind
from inlay.interp.tensor import evaluate, evaluate_expr
from inlay.ir.module import Module
from inlay.ir.parser import parse_module
from inlay.ir.printer import print_module
from inlay.ir.types import BOOL_CONTROL, IntType, TensorType
from inlay.ir.verify import check
from inlay.ops.table import table
from inlay.passes.contract import PassContext, Property
from inlay.passes.discover import pass_table, passes_named
from inlay.passes.manager import make_pipeline, run_pipeline

PASSES = "// PASSES:"
TITLE = "// ---- "
BECOMES = "// ====\n"
GIVEN = re.compile(r"// GIVEN (\w+) = (.*)")
SIZES = (6, 4, 5, 3)
"""Of the dims of inputs, in the order in which they are met, over and over."""


class CaseError(Exception):
    """A case whose passes make something else; the text is the report."""


@dataclass(frozen=True)
class Case:
    """A program, and what passes make of it.

    Attributes:
        title: what it shows.
        before: the program, with the comments that say what is asked.
        after: what the passes print.
        passes: their names.
    """

    title: str
    before: str
    after: str
    passes: str

    def given(self) -> dict[str, list[object]]:
        """Return the elements of inputs that the case says."""
        return {name: ast.literal_eval(text) for name, text in GIVEN.findall(self.before)}

    def text(self) -> str:
        """Return the case as it stands in its file."""
        return f"{TITLE}{self.title}\n{self.before.strip()}\n{BECOMES}{self.after.strip()}\n"


def is_cases(path: Path) -> bool:
    """Whether a file holds cases."""
    with path.open(encoding="utf-8") as file:
        return file.readline().startswith(PASSES)


def read_cases(path: Path) -> list[Case]:
    """Read the cases of a file."""
    head, *parts = path.read_text(encoding="utf-8").split(TITLE)
    passes = head.splitlines()[0].removeprefix(PASSES).strip()
    found: list[Case] = []
    for part in parts:
        title, _, body = part.partition("\n")
        before, _, after = body.partition(BECOMES)
        found.append(Case(title.strip(), before, after, passes))
    return found


def update(path: Path) -> bool:
    """Write again what the passes make of the cases of a file; return whether that changed it."""
    old = path.read_text(encoding="utf-8")
    head = old.partition(TITLE)[0]
    cases = [Case(c.title, c.before, print_module(done(c)[1]), c.passes) for c in read_cases(path)]
    new = head + "\n".join(c.text() for c in cases)
    path.write_text(new, encoding="utf-8")
    return new != old


@functools.cache
def _tables() -> list[object]:
    return [pass_table(f"inlay.{p}") for p in ("placement", "memory", "pipeline", "transforms")]


def done(case: Case) -> tuple[Module, Module]:
    """Return the program of a case, and what its passes make of it."""
    before = infer_types(parse_module(case.before, table(), name=case.title))
    given = frozenset([Property.TYPED, *([Property.ANF] if is_anf(before) else [])])
    pipeline = make_pipeline(passes_named(case.passes, _tables()), given)
    return before, run_pipeline(pipeline, before, PassContext(table(), evaluate_expr), verify=check)


def run_case(case: Case) -> None:
    """Run a case.

    Raises:
        CaseError: The program that comes out is another, or does not compute the same.
    """
    before, after = done(case)
    text = print_module(after)
    if text.strip() != case.after.strip():
        raise CaseError(f"needed\n{case.after.strip()}\n\nfound\n{text}")
    if "// NOT RUN" in case.before:
        return
    again = parse_module(text, table(), name="the result")
    for inputs in _inputs(before, case.given()):
        wanted, found = (evaluate(m, inputs) for m in (before, again))
        if "// ROUNDED" in case.before:
            _compare(wanted, found)
        else:
            np.testing.assert_equal(found, wanted)


def _compare(wanted: object, found: object) -> None:
    pairs = zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]
    for a, b in pairs:
        if isinstance(a, tuple):
            _compare(a, b)
        else:
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


@dataclass
class _Maker:
    """What makes up the inputs of a program; flags are all `flag`."""

    flag: bool
    given: dict[str, list[object]]
    sizes: dict[arith.Sym, int] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def size(self, d: arith.Int) -> int:
        for s in arith.symbols(d):
            self.sizes.setdefault(s, SIZES[len(self.sizes) % len(SIZES)])
        return arith.evaluate(d, self.sizes)

    def make(self, name: str, t: object) -> object:
        if t == BOOL_CONTROL:
            return self.flag
        if isinstance(t, IntType):
            return self.size(t.value)
        assert isinstance(t, TensorType), f"no numbers are made up for {t}: say NOT RUN"
        shape, dtype = tuple(map(self.size, t.shape)), t.dtype
        if name in self.given:
            return np.resize(np.array(self.given[name]).astype(dtype.numpy), shape)
        if dtype.is_float:
            return self.random.uniform(-4, 9, shape).astype(dtype.numpy)
        return self.random.integers(0, 2 if dtype.kind is Kind.BOOL else 3, shape).astype(dtype.numpy)


def _inputs(module: Module, given: dict[str, list[object]]) -> Iterator[list[object]]:
    params = module.functions[module.entry].params
    for flag in (True, False) if any(p.type == BOOL_CONTROL for p in params) else (True,):
        maker = _Maker(flag, given)
        yield [maker.make(p.name, p.type) for p in params]


class CaseFile(pytest.File):
    """A file of cases; each is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each case."""
        for case in read_cases(self.path):
            yield CaseTest.from_parent(self, name=case.title, case=case)


class CaseTest(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **more) -> None:
        super().__init__(**more)
        self.case = case

    def runtest(self) -> None:
        """Run it."""
        run_case(self.case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style=None):
        """Show the report and not our frames."""
        if isinstance(excinfo.value, CaseError):
            return f"{self.path}: {self.case.title}\n{excinfo.value}\n\nif it is meant: python -m tests.text --update"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        """Say where the test is."""
        return self.path, None, f"{self.path.name}::{self.name}"
