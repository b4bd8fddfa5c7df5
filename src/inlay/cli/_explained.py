"""What is explained besides places, as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import assert_never, cast

from inlay.cli._memory_text import memory_lines, text_of
from inlay.cli._model import counted, size_text, tuned_lines
from inlay.pipeline.explain.fusion import FusionExplanation
from inlay.pipeline.explain.loops import KernelSchedule, LoopsExplanation, Nest
from inlay.pipeline.explain.memory import MemoryExplanation
from inlay.pipeline.explain.numerics import NumericsExplanation
from inlay.pipeline.explain.story import Lives, Part, Story, Told
from inlay.placement.explain.reasons import time_text
from inlay.schedule.choose import Decision
from inlay.transforms.fuse_ops import Border, KernelCall
from inlay.transforms.round_operands import REASONS

_FEW = 2
"""Blocks of a schedule that are shown when not all are asked for."""
_LONG = 48
"""Characters of a loop beyond which its extent is left out."""
_FACTS = {
    "vector_bytes": "vectors of {} bytes",
    "vector_registers": "{} vector registers",
    "l1_bytes": "{} bytes of first cache",
    "l2_bytes": "{} bytes of second cache",
    "l3_bytes": "{} bytes of third cache",
    "stack_bytes": "{} bytes of stack",
    "index_bits": "indices of {} bits",
    "dot": "dot products of {}",
    "doubles": "f64: {}",
    "fma": "fused multiply-add: {}",
}
"""Facts of a target that schedules ask for, in words."""


def lines_of(
    found: FusionExplanation | LoopsExplanation | MemoryExplanation | NumericsExplanation | Story,
    *,
    everything: bool,
) -> Iterator[str]:
    """Return what is explained as lines."""
    match found:
        case FusionExplanation():
            return _fusion(found, everything=everything)
        case LoopsExplanation():
            return _loops(found, everything=everything)
        case MemoryExplanation():
            return memory_lines(found, everything=everything)
        case NumericsExplanation():
            return _numerics(found, everything=everything)
        case Story():
            return _story(found)
        case _:
            assert_never(found)


# --------------------------------------------------------------------------- fusion


def _fusion(e: FusionExplanation, *, everything: bool) -> Iterator[str]:
    operators = sum(len(c.members) for c in e.calls)
    distinct = counted(len(e.kernels), "kernel")
    yield f"board {e.board}: {counted(operators, 'operation')} in {distinct}, {counted(len(e.calls), 'call')}"
    if everything:
        for call in e.calls:
            yield f"{call.kernel} on {_device(e, call)}: {_members(call)}"
            yield from (f"  {line}" for line in _borders(e, call))
    else:
        shown = {c.kernel: c for c in reversed(e.calls)}
        width = max((len(name) for name in shown), default=0)
        for name, times in e.kernels.items():
            call = shown[name]
            yield f"  {times:4} x {name:{width}}  {_device(e, call):8} {_members(call)}"
    if e.borders:
        yield f"{counted(len(e.borders), 'value')} from one kernel to another, or to what is no kernel:"
        reasons = Counter(b.message.partition(": ")[2] for b in e.borders)
        yield from (f"  {n:4} x {why}" for why, n in reasons.most_common())
    if e.outside:
        names = Counter(m.operator for m, _ in e.outside)
        yield f"in no kernel: {', '.join(f'{n} {name}' for name, n in names.most_common())}"
    if e.calls and not everything:
        yield "--all shows every call and border, --at NODE all about one operation"


def _device(e: FusionExplanation, call: KernelCall) -> str:
    return call.device or e.host


def _members(call: KernelCall) -> str:
    text = " + ".join(m.operator for m in call.members)
    return f"{text} (as one, by its device)" if call.is_region else text


def _borders(e: FusionExplanation, call: KernelCall) -> Iterator[str]:
    """Return why a kernel ends where it does."""
    yield from _border_lines(call, e.borders_of(call))


def _border_lines(call: KernelCall, borders: Iterable[Border]) -> Iterator[str]:
    inside = {id(m) for m in call.members}
    for b in borders:
        reads = id(b.reader) in inside
        other, own = (b.producer, b.reader) if reads else (b.reader, b.producer)
        says = f"which {own.operator} reads" if reads else f"which reads {own.operator}"
        place = f" ({other.span})" if other.span else ""
        yield f"not with {other.operator}{place}, {says}: {b.message.partition(': ')[2]}"


# --------------------------------------------------------------------------- loops


def _loops(e: LoopsExplanation, *, everything: bool) -> Iterator[str]:
    yield f"board {e.board}: {counted(len(e.kernels), 'kernel')}"
    if e.tuned is not None:
        yield from (f"  {line}" for line in tuned_lines(e.tuned.to_json()))
    rules = Counter(_rule(k.decision) for k in e.kernels if k.decision is not None)
    yield from (f"  {n:4} x {rule}" for rule, n in rules.most_common())
    yield from (f"  {line}" for line in dict.fromkeys(_facts(k.decision) for k in e.kernels) if line)
    for kernel in e.kernels:
        yield f"{kernel.kernel} on {kernel.device}: {kernel.origin or 'no operators'}"
        yield from (f"  {line}" for line in _schedule(kernel, everything=everything))
    if e.kernels and not everything:
        yield "--all shows all blocks and steps, --at NODE all about one operation"


def _answers(d: Decision) -> Iterator[str]:
    """Return what was measured to be faster than the estimates of a rule."""
    for q in d.questions:
        if q.answer != q.default:
            yield f"{q.name} {q.answer} ({q.default} by estimate)"


def _schedule(k: KernelSchedule, *, everything: bool) -> Iterator[str]:
    """Return how a kernel is scheduled, and why not otherwise."""
    d = k.decision
    if d is None:
        yield f"no schedule: {k.why_none}"
        return
    yield f"schedule: {_rule(d)}"
    yield from (f"not {rule}: {found.message}" for rule, found in d.refused)
    yield from (f"measured: {line}" for line in _answers(d))
    yield from (f"measured, and not used: {why}" for why in d.unused)
    declined = Counter((step.primitive, why) for step, why in d.declined)
    yield from (f"no {step}: {why}" + _times(count) for (step, why), count in declined.items())
    # Beginnings of sums are loops of their own; they say nothing new.
    main = [n for n in k.nests if n.loops and "_init" not in n.block]
    nests = k.nests if everything else main[:_FEW]
    blocks = sorted({n.block for n in k.nests}, key=len, reverse=True)
    yield from (f"loops: {_nest(n, blocks, everything=everything)}" for n in nests)
    if len(nests) < len(main):
        yield f"loops: and {counted(len(main) - len(nests), 'block')} more"
    if everything:
        yield from (f"step: {step}" for step in d.steps)


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _rule(d: Decision | None) -> str:
    if d is None:
        return ""
    if d.rule:
        return f"rule {d.rule}"
    return "no rule takes it: serial loops" if d.refused else "loops of its operator, as they are written"


def _facts(d: Decision | None) -> str:
    """Return what rules asked of the target."""
    if d is None or not d.facts:
        return ""
    words = [_FACTS.get(name, f"{name}: {{}}").format(_value(value)) for name, value in d.facts.items()]
    return f"by {', '.join(words)}"


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(map(str, cast("tuple[object, ...]", value))) or "none"
        case _:
            return str(value)


def _nest(n: Nest, blocks: Iterable[str], *, everything: bool) -> str:
    """Return the loops around a block; by default those that run more than once, by their own names."""
    words: list[str] = []
    for name, extent, kind in n.loops:
        if everything or extent != "1":
            owner = next((f"{b}_" for b in blocks if name.startswith(f"{b}_")), "")
            text = f"{name} {extent}"
            if not everything:
                text = text.replace(owner, "") if owner else text
                text = text if len(text) < _LONG else f"{text.partition(' ')[0]} (...)"
            words.append(text if kind == "serial" else f"{text} {kind}")
    return f"{n.block}: {', '.join(words) or 'once'}"


# --------------------------------------------------------------------------- one operation


def _numerics(e: NumericsExplanation, *, everything: bool) -> Iterator[str]:
    if e.exact:
        yield "floats between a dequantize and a quantize: asked for by --exact-qdq"
    if e.saturating:
        where = ", ".join(e.saturating)
        yield f"sums of two products of u8 and i8 may saturate on {where}: asked for by --numerics saturating"
    elif e.saturating is not None:
        yield "--numerics saturating changes nothing: no device here is faster by instructions that saturate"
    yield f"{counted(len(e.integers), 'operation')} in integers"
    if everything:
        for o in e.integers:
            reach = f", accumulator {o.low} to {o.high}" if (o.low, o.high) != (0, 0) else ""
            yield f"  {o.operator} ({o.span or o.value}): {' + '.join(o.became)}{reach}"
    else:
        forms = Counter(f"{o.operator}: {' + '.join(o.became)}" for o in e.integers)
        yield from (f"  {n:4} x {form}" for form, n in forms.most_common())
    between = "between a dequantize and a quantize"
    yield f"{counted(len(e.floats), 'operation')} {between} in floats{':' if e.floats else ''}"
    for o in e.floats:
        yield f"  {o.operator} ({o.span or o.value}): {o.message}"
    for found, what, how in (
        (e.in_bytes, "product", "in integers, an operand"),
        (e.rounded, "operand", "multiplied in floats,"),
    ):
        if found:
            yield f"{counted(len(found), what)} {how} rounded to 8 bits in blocks, as the model says"
            yield from (f"  {at}" for at in found if everything)
    yield from _precision(e, everything=everything)
    if e.integers and not everything:
        yield "--all shows every operation with the range of its accumulator"


def _precision(e: NumericsExplanation, *, everything: bool) -> Iterator[str]:
    if e.precision != "f32":
        narrow = [p for p in e.products if p.reason is None]
        asked = f"asked for by --precision {e.precision}"
        yield f"{counted(len(narrow), 'product')} of floats in {e.precision}: {asked}"
        if everything:
            yield from (f"  {p.operator} ({p.span or p.value})" for p in narrow)
        else:
            yield from (f"  {n:4} x {what}" for what, n in Counter(p.operator for p in narrow).most_common())
        wide = [(p, REASONS[p.reason]) for p in e.products if p.reason is not None]
        yield f"{counted(len(wide), 'product')} of floats in f32{':' if wide else ''}"
        if everything:
            yield from (f"  {p.operator} ({p.span or p.value}): {why}" for p, why in wide)
        else:
            found = Counter(f"{p.operator}: {why}" for p, why in wide)
            yield from (f"  {n:4} x {what}" for what, n in found.most_common())
    yield f"errors of products in f32: at most {e.accuracy:g} of their largest result (--accuracy)"
    yield from (f"  {n:4} x {form}" for form, n in e.forms)
    for dtype in sorted({str(s.dtype) for s in e.stored}):
        for kept in (True, False):
            chosen = [s for s in e.stored if str(s.dtype) == dtype and s.is_kept is kept]
            what, size = counted(len(chosen), "constant"), size_text(sum(s.bytes for s in chosen))
            if chosen and kept:
                yield f"{what} stored as {dtype}, which holds them: {size}, half of f32"
            elif chosen:
                yield f"{what} stored as f32 that {dtype} holds in {size}: no instruction widens it (F16C)"


def _story(e: Story) -> Iterator[str]:
    for index, told in enumerate(e.told):
        if index:
            yield ""
        yield from _told(e, told)
    if e.no_memory:
        yield f"memory was not planned: {e.no_memory}"


def _told(e: Story, t: Told) -> Iterator[str]:
    own = ", ".join(t.operators)
    yield t.name if t.name == own else f"{t.name}: {own}"
    for p in t.placed:
        times = f"takes {time_text(p.ns)}, starts at {time_text(p.starts)}"
        yield _row("place", f"{p.device}: {p.reason}; {times}")
        if "+" in p.operator:
            yield _row("", f"planned as one: {p.operator.replace('+', ' + ')}")
        yield from (_row("", f"not {d}: {why}") for d, why in p.others.items())
    for part in t.parts:
        yield from _part(e, part)
    yield from (_row("no kernel", f"{operator}: {why}") for operator, why in t.outside)
    if not t.parts and not t.outside:
        yield _row("kernel", "not found: passes replaced it by what does not say where it comes from")


def _part(e: Story, part: Part) -> Iterator[str]:
    call = part.call
    yield _row("kernel", f"{call.kernel} in {call.function}, on {_device(e.fusion, call)}: {_members(call)}")
    yield from (_row("", line) for line in _border_lines(call, part.borders))
    yield from (
        _row("" if i else "loops", line) for i, line in enumerate(_schedule(part.schedule, everything=False))
    )
    if facts := _facts(part.schedule.decision):
        yield _row("", facts)
    yield from (_row("" if i else "memory", _lives(r)) for i, r in enumerate(part.results))


def _lives(r: Lives) -> str:
    if r.stored is None:
        return f"{r.value}: allocated while the program runs, for {r.why}"
    s = r.stored
    shares = [n for n in s.names if n != r.value]
    beside = f"; shares its bytes with {', '.join(shares)}" if shares else ""
    return f"{r.value}: {text_of(s.bytes)} in {r.memory} at {s.offset}, {r.life}{beside}"


def _row(title: str, text: str) -> str:
    return f"  {title:10}{text}"
