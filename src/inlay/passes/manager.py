"""Runs a list of passes in order, after checking that the order makes sense.

The list is checked whole before anything runs: each pass must find the properties it requires
among those given at the start or established before it and not lost since. While it runs, an
observer sees the module after each pass (to dump, to draw, to compare), the caller's verifier may
check every result, and each pass is a timed span of the context's instrument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inlay.base.diagnostics import CompileError, InternalError
from inlay.ir.module import Module
from inlay.passes.contract import Pass, PassContext, Property

Verify = Callable[[Module], None]
"""Raises `CompileError` when a module is not well formed."""

Observe = Callable[[Pass, Module, Module], None]
"""Sees a pass with the module before and the module after it."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """An ordered list of passes that was found to be well ordered.

    Attributes:
        passes: the list.
        given: what holds before the first of them.
    """

    passes: tuple[Pass, ...]
    given: frozenset[Property]

    @property
    def establishes(self) -> frozenset[Property]:
        """What holds after the last pass."""
        held = self.given
        for step in self.passes:
            held = _after(step, held)
        return held


def make_pipeline(passes: Iterable[Pass], given: Iterable[Property] = (Property.TYPED,)) -> Pipeline:
    """Return the pipeline of these passes.

    Raises:
        InternalError: some pass requires a property that does not hold where it stands; names the
            pass that establishes it too late, and the one that lost it.
    """
    steps = tuple(passes)
    fault = order_fault(steps, given)
    if fault is not None:
        raise InternalError(fault[1], where=fault[0].name)
    return Pipeline(steps, frozenset(given))


def order_fault(steps: Sequence[Pass], given: Iterable[Property]) -> tuple[Pass, str] | None:
    """Return the first pass that requires what does not hold where it stands, and why; or None."""
    held = frozenset(given)
    for index, step in enumerate(steps):
        for needed in step.requires:
            if needed not in held:
                return step, _order_fault(steps, index, needed)
        held = _after(step, held)
    return None


def run_pipeline(
    pipeline: Pipeline,
    module: Module,
    context: PassContext,
    *,
    verify: Verify | None = None,
    observe: Observe | None = None,
) -> Module:
    """Run the passes in order and return the last module.

    Args:
        pipeline: what to run.
        module: what to run it on.
        context: what the passes may ask.
        verify: called on the result of every pass.
        observe: called after every pass, before its result is verified.

    Raises:
        CompileError: a pass refuses the program.
        InternalError: a pass made a module that does not verify; names the pass.
    """
    for step in pipeline.passes:
        with context.instrument.span(step.name):
            result = step.run(module, context)
        if observe is not None:
            observe(step, module, result)
        if verify is not None:
            _verified(step, result, verify)
        module = result
    return module


def _after(step: Pass, held: frozenset[Property]) -> frozenset[Property]:
    return (held - frozenset(step.loses)) | frozenset(step.establishes)


def _order_fault(steps: Sequence[Pass], index: int, needed: Property) -> str:
    name = steps[index].name
    losers = [s.name for s in steps[:index] if needed in s.loses]
    makers = [s.name for s in steps[index + 1 :] if needed in s.establishes]
    why = "nothing before it establishes that"
    if losers:
        why = f"'{losers[-1]}' loses that"
    elif makers:
        why = f"'{makers[0]}', which establishes that, comes after it"
    return f"pass '{name}' requires '{needed}', and {why}"


def _verified(step: Pass, module: Module, verify: Verify) -> None:
    try:
        verify(module)
    except CompileError as failure:
        raise InternalError(
            f"the result of pass '{step.name}' is not well formed:\n{failure}",
            where=step.name,
            reproduce=f"inlay opt FILE --passes ...,{step.name}",
        ) from failure
