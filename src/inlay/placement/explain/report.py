"""An explanation as text: totals first, then what takes longest, then as much as is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from inlay.base.diagnostics import error
from inlay.base.registry import did_you_mean
from inlay.placement.choose.problem import GUESS
from inlay.placement.choose.schedule import INFINITE
from inlay.placement.explain.reasons import Explanation, Moved, Placed, time_text
from inlay.placement.infer.pins import means, near_names

T = TypeVar("T", Placed, Moved)
_LONGEST = 8
"""Kernels and copies that are shown when not all are asked for."""


def describe(e: Explanation, *, everything: bool = False, pattern: str = "") -> list[str]:
    """Return an explanation as lines.

    Args:
        e: the explanation.
        everything: whether every kernel and copy is shown, with what speaks against other devices.
        pattern: shows these kernels in that way: names as in pins, with `*`.
    """
    lines = [*_totals(e), *_devices(e)]
    chosen = [o for o in e.operations if everything or (pattern and matches(o, pattern))]
    if everything or pattern:
        lines.append(f"kernels that match {pattern}:" if pattern else "kernels:")
        lines += [line for o in chosen for line in _in_full(o)] or ["  none"]
    elif e.operations:
        lines.append("longest kernels:")
        lines += map(_in_short, _longest(e.operations))
    if e.copies and not pattern:
        lines.append("copies:" if everything else "longest copies:")
        lines += map(_copy, e.copies if everything else _longest(e.copies))
    if e.operations and not everything and not pattern:
        lines.append("--op PATTERN says more of some kernels, --all of all")
    return lines


def _totals(e: Explanation) -> list[str]:
    lines = [f"board {e.board}: predicted {time_text(e.total_ns)}{_quality(e)}"]
    if 0 < e.first_fit_ns < INFINITE:
        share = (1 - e.total_ns / e.first_fit_ns) * 100
        lines.append(f"  first device that can: {time_text(e.first_fit_ns)} ({share:.0f} % saved)")
    lines += [f"  {d} runs kernels on {n} threads" for d, n in e.threads.items() if n > 1]
    if sum(ns > 0 for ns in e.busy_ns.values()) > 1:
        lines.append(
            "  devices are counted as working side by side, as they do where calls are faster so (--mode)"
        )
    if not e.is_measured and len(e.busy_ns) > 1:
        lines.append("  by the board's figures; `inlay bench --calibrate` measures this machine")
    lines += [f"  {batch}; --whole-batches computes layer by layer" for batch in e.batches]
    lines += [_size(e, name) for name in e.sizes]
    loops = list(e.iterations.items())[:_LONGEST]
    lines += [f"  {name} runs {n:g} times, from {who}" for name, (n, who) in loops]
    if e.copies:
        moved = sum(c.bytes for c in e.copies)
        spent = time_text(sum(c.ns for c in e.copies))
        lines.append(f"  {len(e.copies)} copies move {moved} bytes in {spent}")
    else:
        lines.append("  nothing is copied between devices")
    if sum(ns > 0 for ns in e.busy_ns.values()) > 1:
        lines.append("  changes of layout where values go from device to device are not counted")
    return lines


def _size(e: Explanation, name: str) -> str:
    size, who = e.sizes[name]
    line = f"  size {name} = {size}, from {who}"
    if name in e.depends:
        line += f" that decides: with {e.depends[name]} the plan is another; say --typical {name}=SIZE"
    elif who == GUESS:
        line += f"; --typical {name}=SIZE says another"
    return line


def _devices(e: Explanation) -> list[str]:
    """Return what each device does, and why it does not do the rest, the most frequent reason first."""
    lines: list[str] = []
    for device, ns in e.busy_ns.items():
        own = sum(o.device == device for o in e.operations)
        lines.append(f"{device}: {own} of {len(e.operations)} kernels, {time_text(ns)}")
        reasons = Counter(_kind(o.others[device]) for o in e.operations if device in o.others)
        if device in e.without_code:
            lines.append(f"  no code is made here for '{device}': {e.without_code[device]}")
            if own:
                lines.append("  so this plan can be explained and not compiled")
        lines += [f"  not {n} of them: {why}" for why, n in reasons.most_common(_LONGEST)]
        if len(reasons) > _LONGEST:
            lines.append(f"  and {len(reasons) - _LONGEST} other reasons")
    return lines


def _kind(reason: str) -> str:
    """Return what reasons have in common that differ in numbers."""
    if reason.startswith("cost: "):
        return "cost: the program would not be faster"
    return reason.partition(" bytes: ")[0] if reason.startswith("capacity: ") else reason


def _longest(things: Iterable[T]) -> list[T]:
    return sorted(things, key=lambda x: -x.ns)[:_LONGEST]


def matches(o: Placed, pattern: str) -> bool:
    """Whether a pattern, as in pins, means a kernel."""
    return means(pattern, (*o.names, o.operator), o.operator.split("+"))


def check_pattern(e: Explanation, pattern: str) -> None:
    """Refuse a pattern that means no kernel.

    Raises:
        CompileError: `name.unknown`.
    """
    if not any(matches(o, pattern) for o in e.operations):
        names = dict.fromkeys(n for o in e.operations for n in (*o.operator.split("+"), *o.names))
        near = did_you_mean(near_names(pattern, names))
        raise error("name.unknown", f"found no kernel named '{pattern}'", hint=near)


def _in_short(o: Placed) -> str:
    inside = "" if o.function == "main" else f" in {o.function}"
    return f"  {o.device:8} {time_text(o.ns):>10}  {o.operator}{inside}  {o.where}"


def _in_full(o: Placed) -> list[str]:
    against = [f"    not {d}: {why}" for d, why in o.others.items()]
    return [f"{_in_short(o)}: {o.reason}", *against]


def _copy(c: Moved) -> str:
    return f"  {c.value}: {c.bytes} bytes, {c.source} -> {c.target} by {c.engine}, {time_text(c.ns)}"


def _quality(e: Explanation) -> str:
    if e.proved:
        return ", proved to be the least of plans in this order of operations"
    if e.gap == INFINITE:
        return ", with no bound below it"
    bound = time_text(e.bound_ns)
    return f", at most {e.gap * 100:.1f} % above the least in program order (bound {bound})"
