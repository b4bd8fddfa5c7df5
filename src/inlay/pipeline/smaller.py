"""The same program with kernels that take fewer bytes, for who keeps it to a budget.

Some operations have a form that is faster than the plainest one and takes more bytes. `pack-weights`
chooses the form, and nobody else: a smaller program is made by running the passes from where places are
planned, where some operations are said to keep the plainest form (`PackOptions.plain`). Kernels are lowered
and no code is made of them until such a program is taken: then it is compiled as if that had been asked for.

Forms are given up in the order of the time that they save for a byte, the least first. For bytes of weights
that is the greedy choice of a knapsack. Scratch memory counts only where most is alive, which is not looked
at: a form may be given up though its scratch memory has dead bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from inlay.base.diagnostics import Collector
from inlay.base.instrument import SILENT
from inlay.ir.module import Module
from inlay.memory import spill_values
from inlay.memory.plan_memory import Smaller
from inlay.memory.spill_values import SpillOptions
from inlay.passes.contract import Pass, PassContext, Property, Remarks
from inlay.passes.manager import make_pipeline, run_pipeline
from inlay.pipeline.build_kernels import BuildOptions
from inlay.pipeline.generate import GenerateOptions
from inlay.placement.plan_places import PlanOptions
from inlay.transforms._packings import FasterForm, PackOptions
from inlay.transforms.fuse_ops import FuseOptions


@dataclass(slots=True)
class Forms:
    """The forms of operations in a run, and which are to be given up.

    Attributes:
        found: operations that have a faster form.
        given_up: numbers of those whose forms are given up for a budget.
    """

    found: list[FasterForm] = field(default_factory=list[FasterForm])
    given_up: frozenset[int] = frozenset()

    def give_up(self, numbers: frozenset[int]) -> None:
        """Note which forms are to be given up."""
        self.given_up = numbers


@dataclass(frozen=True, slots=True)
class Tried:
    """What smaller programs are made from.

    Attributes:
        module: before places are planned.
        holds: of it.
        passes: that are left of the route.
        context: of the run that is too large.
        kernels: how kernels are lowered where no code is made.
    """

    module: Module
    holds: frozenset[Property]
    passes: Sequence[Pass]
    context: PassContext
    kernels: tuple[BuildOptions, GenerateOptions]


def smaller_programs(tried: Tried, forms: Forms) -> tuple[int, Callable[[frozenset[int]], Smaller]]:
    """Return how many forms can be given up, and what makes the program without some, by their numbers.

    Those that save the least time for a byte come first.
    """
    order = sorted(forms.found, key=lambda f: (f.saves_ns / max(f.bytes, 1), f.number))

    def make(places: frozenset[int]) -> Smaller:
        return _smaller(tried, forms, [order[i] for i in sorted(places)])

    return len(order), make


def _smaller(tried: Tried, forms: Forms, left: Sequence[FasterForm]) -> Smaller:
    """Return the program without some forms."""
    numbers = frozenset(f.number for f in left)
    context = tried.context
    quiet = replace(
        context.with_options(
            *tried.kernels,
            replace(context.options_for(PlanOptions), watch=None),
            replace(context.options_for(FuseOptions), watch=None),
            replace(context.options_for(SpillOptions), watch=None),
            replace(context.options_for(PackOptions), watch=None, plain=numbers),
        ),
        instrument=SILENT,
        diagnostics=Collector(),
        remarks=Remarks(),
    )
    end = list(tried.passes).index(spill_values.PASS) + 1
    made = run_pipeline(make_pipeline(tried.passes[:end], tried.holds), tried.module, quiet)
    saved = sum(f.saves_ns for f in left)
    return Smaller(made, given_up_text(left), saved, partial(forms.give_up, numbers))


def given_up_text(forms: Sequence[FasterForm]) -> str:
    """Return which forms are given up, as part of a sentence."""
    names = dict.fromkeys(f.name for f in forms)
    counts = (f"{sum(f.name == name for f in forms)} x {name}" for name in names)
    return f"plain forms in place of {', '.join(counts)}"
