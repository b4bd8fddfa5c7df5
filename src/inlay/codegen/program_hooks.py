"""Hooks: code of a back end that changes programs on their way, in an order that is declared.

A hook says at which level it works, and behind and before what: names of passes, and of other hooks as
`accelerator.hook`. Nothing else decides where it stands, so two vendors that know nothing of each other fit
into one compilation, and who depends on another one says so. A name that nothing has, and names that wait
for each other, are refused before anything is compiled.

    tensor       the whole module in tensor IR, before or after operations have their devices
    schedulable  the loops of one kernel before they are scheduled; what comes back is scheduled, or is
                 lowered already
    lowered      the loops of all kernels of the module
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from inlay.base.diagnostics import Collector
from inlay.base.graph import dependency_order
from inlay.base.registry import suggestion
from inlay.base.span import NO_SPAN, Span
from inlay.machine.board import Board
from inlay.machine.target import Target


class Level(StrEnum):
    """What a hook is given."""

    TENSOR = "tensor"
    SCHEDULABLE = "schedulable"
    LOWERED = "lowered"


class When(StrEnum):
    """Where a hook of tensor IR stands, of the two places that there are."""

    BEFORE = "before_partition"
    AFTER = "after_partition"


@dataclass(frozen=True, slots=True)
class HookSite:
    """Where a hook is called.

    Attributes:
        board: as programs run on it.
        device: whose hook it is.
        kernel: that is lowered; empty where it is the whole module.
        origin: the operators in the kernel.
        runs_on: the device that the kernel is lowered for.
        target: what the kernel is lowered for; None at the level of tensors.
    """

    board: Board
    device: str
    kernel: str = ""
    origin: str = ""
    runs_on: str = ""
    target: Target | None = None


class RunHook(Protocol):
    """The code of a hook."""

    def __call__(self, found: Any, site: HookSite) -> Any:
        """Return what there is to be instead of what was found; None for that itself."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramHook:
    """A hook.

    Attributes:
        name: as other hooks say it: `accelerator.hook`.
        device: whose it is; the first of several devices of one architecture.
        level: what it is given.
        when: of hooks of tensor IR, where.
        after, before: names of passes and hooks.
        run: its code.
        digest: of the text that it is made from: kernels in the cache depend on it.
        span: of its declaration.
        fault: says what failed in it, and where.
    """

    name: str
    device: str
    level: Level
    when: When | None
    after: tuple[str, ...]
    before: tuple[str, ...]
    run: RunHook
    digest: str
    span: Span
    fault: Callable[[Exception], str]


def in_order(
    hooks: Sequence[ProgramHook], passes: Sequence[str], spans: Mapping[str, tuple[int, int]]
) -> list[int]:
    """Return passes and hooks in order: passes by position, hooks by position behind the passes.

    Args:
        hooks: in the order of devices on the board.
        passes: names, in order; one may be there more than once.
        spans: for each hook, by name, the positions of passes between which it stands: behind the first of
            the two (-1 for the beginning), before the second, and as near to it as can be.

    Raises:
        CompileError: all `accel.hook-order` at once.
    """
    findings = Collector()
    count, names = len(passes), [h.name for h in hooks]
    before: list[set[int]] = [{i - 1} if i else set() for i in range(count)]
    before += [set() for _ in hooks]
    for number, hook in enumerate(hooks):
        node, (low, high) = count + number, spans[hook.name]
        before[node] |= {low} if low >= 0 else set()
        if high < count:
            before[high].add(node)
        for name in hook.after:
            if (found := _known(hook, name, names, passes, low, high, findings)) is not None:
                before[node].add(max(found))
        for name in hook.before:
            if (found := _known(hook, name, names, passes, low, high, findings)) is not None:
                before[min(found)].add(node)
    findings.raise_if_fatal()
    keys = [(float(i), 0) for i in range(count)]
    keys += [(spans[h.name][1] - 0.5, i) for i, h in enumerate(hooks)]
    order = dependency_order([sorted(x) for x in before], keys)
    if order is None:
        said = "; ".join(_wishes(h) for h in hooks if h.after or h.before)
        findings.error(
            "accel.hook-order",
            f"found hooks that wait for each other: {said}",
            span=next((h.span for h in hooks if h.after or h.before), NO_SPAN),
            hint="drop one of `after` and `before`",
        )
        findings.raise_if_fatal()
        raise AssertionError("a cycle is fatal")
    return order


def _known(
    hook: ProgramHook,
    name: str,
    names: Sequence[str],
    passes: Sequence[str],
    low: int,
    high: int,
    findings: Collector,
) -> list[int] | None:
    """Return the positions of what a hook names: of a pass those where the hook can be, or else all."""
    if name in names:
        return [len(passes) + names.index(name)]
    positions = [i for i, x in enumerate(passes) if x == name]
    if not positions:
        known = [*(n for n in names if n != hook.name), *dict.fromkeys(passes)]
        findings.error(
            "accel.hook-order",
            f"found '{name}' in the order of the hook '{hook.name}': no pass and no hook of this level",
            span=hook.span,
            hint=suggestion(name, known, f"there are {', '.join(known)}"),
        )
        return None
    return [i for i in positions if low < i < high] or positions


def _wishes(hook: ProgramHook) -> str:
    said = [f"{word} {', '.join(x)}" for word, x in (("after", hook.after), ("before", hook.before)) if x]
    return f"{hook.name} {' and '.join(said)}"
