"""Where values live and what they take of each memory, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from inlay.arith.expr import Int
from inlay.cli._model import counted, size_text
from inlay.cli._spills import spill_lines
from inlay.machine.memory import PoolKind
from inlay.memory.account import Account, Held
from inlay.memory.plan import CONSTANTS, Alternative, FunctionPlan, MemoryPart
from inlay.pipeline.explain.memory import MemoryExplanation, Planned, StackUse
from inlay.pipeline.smaller import given_up_text
from inlay.placement.explain.reasons import time_text

_SHOWN = 12
"""Values of the critical moment that are shown when not all are asked for."""


def memory_lines(e: MemoryExplanation, *, everything: bool) -> Iterator[str]:
    """Return what a program takes of each memory, what is alive where most is, and every plan."""
    sizes = ", ".join(f"{name}={size}" for name, size in e.dims.used.items())
    yield f"memory on {e.board.name}: what '{e.entry}' takes" + (f", for {sizes}" if sizes else "")
    if e.dims.unbounded:
        names = e.dims.unbounded
        yield f"  {', '.join(names)} have no size here, and what depends on them is not in the sums:"
        yield f"  give sizes with --typical {names[0]}=SIZE, or say them with --bound-dim or --fix-dim"
    for account in e.accounts:
        yield from _account(e, account, everything=everything)
    yield from map(_stack, e.stacks)
    for memory, budget in e.budgets.items():
        takes = next((a.total for a in e.accounts if a.memory == memory), 0)
        has = next((a.capacity for a in e.accounts if a.memory == memory), None)
        text = f"takes at most {takes:,}" if takes else "nothing is there, so it has no effect"
        if takes and has is not None and budget > has:
            text += f"; it has no more than {has:,}, so the budget has no effect"
        yield f"budget of {memory}, {budget:,} bytes: {text}"
    if e.plain:
        bytes_, ns = sum(f.bytes for f in e.plain), sum(f.saves_ns for f in e.plain)
        yield (
            f"for the budget, {given_up_text(e.plain)}: they would take {bytes_:,} bytes and save "
            f"{time_text(ns)} (predicted)"
        )
    if e.states:
        yield "state of sessions:"
        yield from (f"  {text}" for text in e.states)
    if e.chosen.reuse is not None and e.other.reuse is not None:
        yield "which values share bytes (--plan):"
        yield from (f"  {_sharing(p)}" for p in sorted((e.chosen, e.other), key=lambda p: p is e.other))
        if everything:
            yield from _edges(e.chosen)
    yield "plans:"
    for plan in e.plans:
        yield from _plan(e, plan, everything=everything)
    if not everything:
        yield "--all shows every value and every reuse edge, --output F.svg draws memory over time"


def _stack(s: StackUse) -> str:
    most = f"at most {s.most:,}, {s.kernel}" if s.most else "none"
    others = f"; {counted(s.unknown, 'kernel')} not counted" if s.unknown else ""
    return f"stack of kernels on {s.device}: temporaries of {s.budget:,} bytes allowed, {most}{others}"


def _account(e: MemoryExplanation, a: Account, *, everything: bool) -> Iterator[str]:
    of = "" if a.capacity is None else f", {size_text(a.capacity)}"
    yield f"{a.memory} ({a.kind}{of}):"
    side = f"{counted(a.buffers, 'value')}, {size_text(a.unshared)} side by side"
    threads = f"for {counted(e.threads, 'thread')}"
    where = "copied there when the program is loaded" if a is not e.accounts[0] else "in the file"
    rows = (
        ("blocks", a.block, side, a.block > 0 or not a.constants),
        ("  values", a.live, "where most are alive", a.block > 0),
        ("  alignment", a.alignment, "", a.alignment > 0),
        ("  unused", a.unused, "", a.unused > 0),
        ("results", a.results, "the caller gets their memory", a.results > 0),
        ("copied results", a.copies, _copied(a), a.copies > 0),
        ("other values", a.values, "allocated while the program runs", a.values > 0),
        ("of the machine", a.machine, "tensors that the virtual machine makes, at most", a.machine > 0),
        ("scratch", a.scratch, f"of kernels, {threads}", a.scratch > 0),
        (
            "functions",
            a.functions,
            "what is called and has memory of its own, at most at once",
            a.functions > 0,
        ),
        ("a call at most", a.peak, _bound(a), a.peak > 0 or not a.constants),
        ("constants", a.constants, where, a.constants > 0),
        (
            "regions",
            a.regions,
            "what streams of devices work in, as long as the program is loaded",
            a.regions > 0,
        ),
        ("together", a.total, size_text(a.total), True),
        ("inputs", a.inputs, "not in the sum: the caller has them", a.inputs > 0),
    )
    yield from (f"  {name:15}{size:>14,}  {note}".rstrip() for name, size, note, shown in rows if shown)
    if a.unknown:
        yield "  not bounded:"
        yield from (f"    {why}" for why in a.unknown)
    if a.held:
        alive = sum(h.bytes for h in a.held)
        yield f"  most is alive at {a.at}, {alive:,} bytes in {counted(len(a.held), 'value')}:"
        shown = a.held if everything else a.held[:_SHOWN]
        yield from (f"    {held_text(h)}" for h in shown)
        if len(shown) < len(a.held):
            rest = a.held[len(shown) :]
            yield f"    and {counted(len(rest), 'value')} more with {sum(h.bytes for h in rest):,} bytes"


def _copied(a: Account) -> str:
    return (
        "when blocks are gone" if a.kind is PoolKind.HEAP else "not in the sum: the caller has them elsewhere"
    )


def _bound(a: Account) -> str:
    note = size_text(a.peak)
    if a.unknown:
        return f"{note}, without what is not bounded"
    if a.proved:
        return f"{note}; no plan of these values in this order takes less"
    gap = f" ({(a.peak / a.lower_bound - 1) * 100:.1f} % above)" if a.lower_bound else ""
    return f"{note}; at least {a.lower_bound:,} are needed{gap}"


def held_text(h: Held) -> str:
    """Return a value that is alive: its bytes, its names, and why."""
    begin = f"made by {h.producer}" if h.producer else "there from the beginning"
    end = f"last used by {h.user}" if h.user else "stays to the end"
    why = f" ({h.why})" if h.why else ""
    nodes = f" [{'; '.join(h.nodes)}]" if h.nodes else ""
    return f"{h.bytes:>12,}  {', then '.join(h.names)}{nodes}: {begin}, {end}{why}"


def _sharing(p: Planned) -> str:
    assert p.reuse is not None, "both are known"
    reuse = p.reuse
    text = f"{p.sharing:9} {size_text(p.peak):>10} a call, {counted(len(reuse.edges), 'reuse edge')}"
    return f"{text}, longest path {time_text(reuse.path_ns)} of {time_text(reuse.serial_ns)}"


def _edges(p: Planned) -> Iterator[str]:
    assert p.reuse is not None, "it is known"
    yield f"reuse edges of the plan ({p.sharing}): a kernel waits for another one only for its bytes"
    for first, second in p.reuse.edges:
        names = p.reuse.kernels
        yield f"  {names[second - 1]} (kernel {second}) after {names[first - 1]} (kernel {first})"


def _plan(e: MemoryExplanation, plan: FunctionPlan, *, everything: bool) -> Iterator[str]:
    yield f"  {plan.name}:"
    for part in plan.parts:
        pool = e.board.memory(part.memory) or e.board.memories[0]
        of = "" if pool.bytes is None else f" of {size_text(pool.bytes)}"
        number, unit = len(part.members), "constant" if plan.name == CONSTANTS else "buffer"
        gap = "" if part.block == part.bound else f", at least {text_of(part.bound)} needed"
        yield (
            f"    {pool.name} ({part.kind}): {text_of(part.block)}{of} for {counted(number, unit)} "
            f"({text_of(part.total)} unshared{gap})"
        )
        yield from _choices(part)
        for s in part.members if everything else ():
            names = ", then ".join(s.names) or "a constant"
            life = f", {plan.life(s.first, s.last)}" if s.names else ""
            yield f"      at {s.offset}: {text_of(s.bytes)} for {names}{life}"
            if s.others:
                times = "1 access" if s.accesses == 1 else f"{s.accesses} accesses"
                yield f"        {times} by kernels: {', '.join(map(_alternative, s.others))}"
    for s in plan.counted:
        yield f"    {s.name}: while the program runs, for {s.why}"
    for moved in e.spills:
        if moved.function == plan.name:
            yield from spill_lines(moved, everything=everything)


def _choices(part: MemoryPart) -> Iterator[str]:
    """Return what the choice of this memory costs where others were possible."""
    chosen = [s for s in part.members if s.others]
    if not chosen:
        return
    ns = sum(x.ns for s in chosen for x in s.others if not x.lacks)
    elsewhere = [s for s in chosen if s.others[0].lacks]
    lost = ns - sum(s.others[0].ns for s in chosen)
    text = f"      {counted(len(chosen), 'buffer')} with a choice; accesses take {time_text(ns)} (predicted)"
    if elsewhere:
        text += f", {time_text(lost)} more than where {len(elsewhere)} of them have no room"
    yield text


def _alternative(x: Alternative) -> str:
    why = f" ({x.lacks})" if x.lacks else " (chosen)"
    return f"{time_text(x.ns)} in {x.memory}{why}"


def text_of(size: Int) -> str:
    """Return a size in the unit that fits, or as it is over dims."""
    return size_text(str(size) if size.value is None else size.value)
