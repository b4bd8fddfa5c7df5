"""What must hold of a description whose device reads a stream; what holds of all is in `accelerator`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from inlay.accel.accelerator import Architecture, Description
from inlay.accel.declare import Dim, Imm, Instruction, Memory, Shared
from inlay.accel.encode import Form, bits, forms, numbers_of, stream_of
from inlay.accel.engines import AtMost, Copy, Events, Interlock, Stream, Token
from inlay.accel.events import fewest
from inlay.accel.match import fault_of
from inlay.accel.order import connected
from inlay.accel.waits import kind_of, ways
from inlay.base.diagnostics import Collector, InlayError


def checked(d: Description) -> Description:
    """Return a description, if nothing is wrong with its memories, copies, tokens and words.

    Raises:
        CompileError: all `accel.declaration` at once.
    """
    findings = Collector()
    if isinstance(d.cls.emit, Stream):
        arch = d.architecture({})
        for problem in _problems(arch):
            findings.error("accel.declaration", f"{d.cls.__name__}: {problem}")
    elif d.copies:
        findings.error("accel.declaration", f"{d.cls.__name__}: found copies, which only a `Stream` commands")
    findings.raise_if_fatal()
    return d


def _problems(arch: Architecture) -> Iterator[str]:
    d = arch.description
    for name, m in d.memories.items():
        if isinstance(m, Memory):
            size, unit = arch.number(m.size).value, arch.number(m.unit).value
            if not size or not unit or size % unit:
                yield f"found '{name}' of {size} bytes in units of {unit}, needed a multiple"
    yield from _of_borrowed(d)
    if outside := [problem for i in d.instructions.values() for problem in _outside(i)]:
        yield from outside
        return  # words of such a command have no places to speak of
    for name, copy in d.copies.items():
        yield from (f"the copy '{name}' {problem}" for problem in _of_copy(arch, name, copy))
    used = {*(i.queue for i in d.instructions.values()), *(c.queue for c in d.copies.values())}
    names = [name for name, q in d.queues.items() if q in used]
    yield from (*_of_order(arch), *_of_counts(d), *_of_events(d))
    if apart := connected(ways(arch), names):
        how = _WAYS[kind_of(d)].format(*apart)
        yield f"found no way of tokens from the queue '{apart[0]}' to '{apart[1]}'{how}"
    yield from _of_flags(arch)
    try:
        found = forms(arch)
    except InlayError as failure:
        yield from (x.message for x in failure.diagnostics)
    except Exception as failure:  # noqa: BLE001 (code of others)
        yield f"an encoding failed: {fault_of(failure)}"
    else:
        for form in found:
            yield from _of_form(arch, form)
        yield from _alike(found)
        yield from _of_widths(arch, found)


_WAYS = {
    Token: "",
    Interlock: "",
    AtMost: ": `order` has no AtMost({0})",
    Events: ": `order` has no Events for it",
}


def _outside(i: Instruction) -> Iterator[str]:
    """Yield operands in the memory of the board: commands of a stream do not reach it, copies do."""
    for name, x in i.operands.items():
        if isinstance(x.memory, Shared):
            yield (
                f"found '{name}' of '{i.name}' in the memory of the board, needed a `Memory` that a `Copy` "
                "fills or empties; where commands are whole layers on tensors outside, `emit = CCalls()` and "
                "p.call: the C function writes the words"
            )


def _of_widths(arch: Architecture, found: list[Form]) -> Iterator[str]:
    """Yield words of other widths than the last one: a device reads one after the other."""
    whole = len(bits(stream_of(arch).end)) * 8
    for form in found:
        if form.word.bits % whole:
            name = form.like.name or f"waiting in {form.like.queue}"
            yield f"found words of '{name}' of {form.word.bits} bits, needed {whole}, as the end has"


def _of_order(arch: Architecture) -> Iterator[str]:
    """Yield what is wrong with how queues wait: of an interlock, of counts, of events."""
    d = arch.description
    locks = [x for x in d.order if isinstance(x, Interlock)]
    if len({type(x) for x in d.order}) > 1 and not locks:
        listed = ", ".join(sorted({type(x).__name__ for x in d.order}))
        yield f"found an order of {listed}, needed one of them: a command waits in one way"
    if locks and len(d.order) > 1:
        yield "found an Interlock among other ways to wait, needed it alone: then nothing else is waited for"
    for x in locks:
        if left := [name for name, q in d.queues.items() if q not in x.queues]:
            yield f"found an Interlock without the queue '{left[0]}', needed all of the device"


def _of_borrowed(d: Description) -> Iterator[str]:
    """Yield what is wrong with memories that are a part of one of the board: they are of one."""
    borrowed = {name: m for name, m in d.memories.items() if isinstance(m, Memory) and m.of is not None}
    for name, m in borrowed.items():
        if not isinstance(m.of, Shared):
            yield f"found '{name}' to be a part of what is no Shared: a memory of the board"
        elif m.of not in d.memories.values():
            yield f"found '{name}' to be a part of a memory that is no attribute of this class"
    if len({id(m.of) for m in borrowed.values()}) > 1:
        yield f"found {', '.join(borrowed)} to be parts of several memories of the board, needed one"


def _of_counts(d: Description) -> Iterator[str]:
    names = {id(q): name for name, q in d.queues.items()}
    for name, x in d.counts.items():
        if x.most < 0:
            yield f"found '{name}' to wait until at most {x.most} are outstanding, needed 0 or more"
        if name not in d.encoders:
            yield f"found no encoding of the wait '{name}', needed one by @encodes, of c.count"
    for queue in d.queues.values():
        if sum(x.queue is queue for x in d.counts.values()) > 1:
            yield f"found two counts of the queue '{names[id(queue)]}', needed one"


def _of_events(d: Description) -> Iterator[str]:
    for name, x in d.events.items():
        is_pair = x.source is not None and x.target is not None
        least = fewest(len(d.queues), is_pair=is_pair)
        if x.count < least:
            why = "some tell queues which others are free"
            yield f"found {x.count} events of '{name}', needed {least} at least: {why}"
        for does in ("signal", "wait"):
            if f"{name}.{does}" not in d.encoders:
                yield f"found no encoding of '{name}.{does}', needed one by @encodes, of c.queue and c.event"


def _of_flags(arch: Architecture) -> Iterator[str]:
    """Yield flags that mean two tokens in commands of one queue."""
    d = arch.description
    names = {id(q): name for name, q in d.queues.items()}
    for queue in d.queues.values():
        flags = [t.pop for t in d.tokens if t.target is queue]
        flags += [t.push for t in d.tokens if t.source is queue]
        for flag in dict.fromkeys(f for f in flags if flags.count(f) > 1):
            yield f"found the flag '{flag}' of the queue '{names[id(queue)]}' to mean two tokens"


def _alike(found: list[Form]) -> Iterator[str]:
    """Yield commands whose words cannot be told apart."""
    for a, b in itertools.combinations(found, 2):
        (mask, value), (other_mask, other) = _fixed_bits(a), _fixed_bits(b)
        if not mask & other_mask & (value ^ other):
            first, second = (x.like.name or f"waiting in {x.like.queue}" for x in (a, b))
            yield f"found no field that tells words of '{first}' from those of '{second}'"


def _fixed_bits(form: Form) -> tuple[int, int]:
    """Return which bits are always the same, and what they are."""
    mask = value = 0
    for name, number in form.fixed.items():
        f = form.word.fields[name]
        inside = (1 << f.bits) - 1
        mask, value = mask | inside << f.at, value | (number & inside) << f.at
    return mask, value


def _of_copy(arch: Architecture, name: str, copy: Copy) -> Iterator[str]:
    d = arch.description
    ends = (copy.source, copy.target)
    if copy.is_inside and all(x in d.memories.values() for x in ends):
        units = {arch.number(x.unit).value for x in ends if isinstance(x, Memory)}
        if copy.source is copy.target or len(units) > 1 or copy.pad is not None:
            yield "between memories of the device has one end, ends of other units, or something around it"
    elif sum(isinstance(x, Shared) for x in ends) != 1 or any(x not in d.memories.values() for x in ends):
        yield "is not between a memory of the board and one of the device, or two of the device"
    if copy.dims not in (1, 2):
        yield f"has {copy.dims} dims, needed 1 or 2"
    if name not in d.encoders:
        yield "has no encoding"
    if copy.most is not None and (copy.dims != 1 or copy.pad is not None or copy.most < 1):
        yield f"moves at most {copy.most} units, needed some above 0, and one row without anything around it"
    if copy.pad is not None and not isinstance(copy.target, Memory):
        yield "puts something around what leaves the device"


def _of_form(arch: Architecture, form: Form) -> Iterator[str]:
    """Yield dims and immediates that a field is too small for, and numbers that no field says."""
    d, name = arch.description, form.like.name
    missing = set(numbers_of(form.like)) - set(form.said.values())
    if name in d.copies:
        copy = d.copies[name]
        pads = {"top", "bottom", "left", "right", "value"} if copy.pad is None else set[str]()
        if copy.pad is not None and len(set(copy.pad.ends)) == 1:
            pads = {"value"}
        missing -= pads | (set() if copy.dims > 1 else {"y", "stride"})
    if name in d.counts and not d.counts[name].most:
        missing -= {"count"}
    names = {id(q): n for n, q in d.queues.items()}
    mine = [t.pop for t in d.tokens if names[id(t.target)] == form.like.queue]
    mine += [t.push for t in d.tokens if names[id(t.source)] == form.like.queue]
    if lost := [flag for flag in dict.fromkeys(mine) if f"flag {flag}" not in form.said.values()]:
        what = name or f"waiting in {form.like.queue}"
        yield f"found no field for the flags {', '.join(lost)} in words of '{what}': pass on **c.flags"
    if missing:
        steps = any(" stride " in x for x in missing)
        why = (
            ": an operand has a stride along each of its `Dim`s, which the compiler chooses" if steps else ""
        )
        yield f"found no field for {', '.join(sorted(missing))} in words of '{name}'{why}"
    most = {n: x.most for n, x in d.counts.items()} | {
        f"{n}.{does}": x.count - 1 for n, x in d.events.items() for does in ("signal", "wait")
    }
    limits: dict[str, Dim | Imm] = dict(d.dims)
    if name in most:
        limits |= {n: Imm(0, most[name]) for n in form.like.numbers}
    if name in d.instructions:
        limits |= d.instructions[name].immediates
    for field, said in form.said.items():
        limit, f = limits.get(said), form.word.fields[field]
        if limit is None or limit.high is None or (f.holds(limit.low) and f.holds(limit.high)):
            continue
        yield f"found {said} of '{name}' up to {limit.high} in the field '{field}' of {f.bits} bits"
