"""Planned commands as the words of a stream, and words as what they say.

An encoder is a function of a command. Run with numbers it gives a word. Run once with symbols it gives the
form of all words of its kind: which fields are always the same, and which number of the command each of the
others is. So words can be read again by nothing else than what wrote them (`decoded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from inlay.accel.accelerator import Architecture
from inlay.accel.commands import Ordered, Place, Planned
from inlay.accel.counts import READER
from inlay.accel.declare import Dim, Encoder
from inlay.accel.engines import Stream, Word, Written, joined
from inlay.accel.stages import Untiled
from inlay.accel.waits import registers
from inlay.arith.expr import Int, Sym, fresh, lit, to_int
from inlay.base.diagnostics import error

COPY_NUMBERS = ("y", "x", "stride", "top", "bottom", "left", "right", "value", "dram")


def stream_of(arch: Architecture) -> Stream:
    """Return the stream that a device reads."""
    emit = type(arch.device).emit
    assert isinstance(emit, Stream), "checked with the class"
    return emit


def encoded(arch: Architecture, commands: Sequence[Ordered]) -> bytes:
    """Return the words of a stream, with the last one.

    Raises:
        Untiled: a field is too small for a number.
    """
    made = bytearray()
    for x in commands:
        made += bits(_written(arch, x.command, _flags(arch, x)))
    return bytes(made + bits(stream_of(arch).end))


def command_at(arch: Architecture, commands: Sequence[Ordered], word: int) -> str:
    """Return the name and the numbers of the command that a word of a stream is of; empty for none."""
    width, at = len(bits(stream_of(arch).end)), 0
    for x in commands:
        at += len(bits(_written(arch, x.command, _flags(arch, x)))) // width
        if word < at:
            said = ", ".join(f"{name} = {n}" for name, n in numbers_of(x.command).items())
            return f"{x.command.name or 'a wait'} with {said}" if said else x.command.name or "a wait"
    return ""


def _flags(arch: Architecture, x: Ordered) -> dict[str, Int]:
    order = arch.description.tokens
    flags = dict.fromkeys((name for t in order for name in (t.push, t.pop)), lit(0))
    if not order:  # no flags say who waits
        return flags
    flags |= {order[t].pop: lit(1) for t in x.pops} | {order[t].push: lit(1) for t in x.pushes}
    return flags


def bits(written: Written) -> bytes:
    """Return a word as bytes, the lowest first.

    Raises:
        Untiled: a field is too small for a number.
    """
    value = 0
    for name, said in written.values.items():
        f, number = written.word.fields[name], said.value
        assert number is not None, "a command has numbers"
        if not f.holds(number):
            raise Untiled(f"{name} = {number}, in a field of {f.bits} bits")
        value |= (number & ((1 << f.bits) - 1)) << f.at
    return value.to_bytes(written.word.bits // 8, "little")


class Shown:
    """A command as encoders see it: dims, immediates and operands by name, or the numbers of a copy."""

    def __init__(
        self, arch: Architecture, c: Planned, flags: Mapping[str, Int], numbers: Mapping[str, Int]
    ) -> None:
        self.name, self.queue, self.flags = c.name, c.queue, dict(flags)
        self._said: dict[str, Any] = dict(numbers)
        for name, place in c.places.items():
            stride = tuple(numbers[f"{name} stride {axis}"] for axis in range(len(place.stride)))
            self._said[name] = SimpleNamespace(at=numbers[f"{name} at"], stride=stride)
        if c.name in arch.description.copies:
            end = "to" if arch.description.copies[c.name].is_inside else "dram"
            self._said.pop("dram", None)
            self._said[end] = SimpleNamespace(at=numbers["dram"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._said:
            has = ", ".join(n for n in self._said if " " not in n)
            raise AttributeError(f"a command of '{self.name}' has no '{name}', but {has}")
        return self._said[name]


def numbers_of(c: Planned) -> dict[str, int]:
    """Return all numbers of a command, by name."""
    found = dict(c.numbers)
    for name, place in c.places.items():
        found[f"{name} at"] = place.at
        found |= {f"{name} stride {axis}": n for axis, n in enumerate(place.stride)}
    return found


def _written(arch: Architecture, c: Planned, flags: Mapping[str, Int]) -> Written:
    return _word(arch, c, flags, {name: lit(n) for name, n in numbers_of(c).items()})


def _word(arch: Architecture, c: Planned, flags: Mapping[str, Int], numbers: Mapping[str, Int]) -> Written:
    encoder: Encoder = arch.description.encoders[c.name]
    found = encoder.write(arch.device, Shown(arch, c, flags, numbers))
    if isinstance(found, Written):
        return found
    words = cast("Sequence[object]", found) if isinstance(found, tuple | list) else ()
    several = [x for x in words if isinstance(x, Written)]
    if not several or len(several) != len(words):
        kind = type(cast("object", found)).__name__
        raise error("accel.declaration", f"found the encoding of '{c.name}' to return {kind}: no word")
    return joined(several)


@dataclass(frozen=True, slots=True)
class Form:
    """What words of a kind look like.

    Attributes:
        like: a command with the name and the queue of all of them, and its operands.
        word: the fields.
        fixed: fields that are always the same.
        said: what the other fields are: numbers of the command, or flags, by field.
    """

    like: Planned
    word: Word
    fixed: Mapping[str, int]
    said: Mapping[str, str]


def forms(arch: Architecture) -> list[Form]:
    """Return the forms of all commands of a device.

    Raises:
        CompileError: `accel.declaration`: a field is no number of the command.
    """
    return [_form(arch, c) for c in _kinds(arch)]


def _kinds(arch: Architecture) -> list[Planned]:
    d = arch.description
    queues = {id(q): name for name, q in d.queues.items()}
    made: list[Planned] = []
    for i in d.instructions.values():
        dims = {s: name for name, x in d.dims.items() for s in [x.sym]}
        numbers = {dims[e.sym]: 0 for x in i.operands.values() for e in x.shape if isinstance(e, Dim)}
        numbers |= dict.fromkeys(i.immediates, 0)
        places = {n: Place(0, (0,) * sum(isinstance(e, Dim) for e in x.shape)) for n, x in i.operands.items()}
        made.append(Planned(i.name, queues[id(i.queue)], numbers, places))
    for name, copy in d.copies.items():
        made.append(Planned(name, queues[id(copy.queue)], dict.fromkeys(COPY_NUMBERS, 0), {"chip": Place(0)}))
    if "" in d.encoders:
        made += [Planned("", name) for name in d.queues]
    made += [Planned(name, READER, {"count": 0}) for name in d.counts]
    for name, x in d.events.items():
        ends = [(queue, "signal") for queue, q in d.queues.items() if x.source in (None, q)]
        ends += [(queue, "wait") for queue, q in d.queues.items() if x.target in (None, q)]
        made += [Planned(f"{name}.{does}", queue, {"event": 0}) for queue, does in ends]
    return made


def _form(arch: Architecture, c: Planned) -> Form:
    names: dict[Sym, str] = {}

    def symbol(name: str) -> Int:
        made = fresh(name)
        names[made] = name
        return to_int(made)

    flags = {name: symbol(f"flag {name}") for t in arch.description.tokens for name in (t.push, t.pop)}
    written = _word(arch, c, flags, {name: symbol(name) for name in numbers_of(c)})
    fixed, said = dict.fromkeys(written.word.fields, 0), dict[str, str]()
    for name, e in written.values.items():
        if e.value is not None:
            fixed[name] = e.value
        elif isinstance(e.atom, Sym):
            said[name] = names[e.atom]
            del fixed[name]
        else:
            raise error(
                "accel.declaration", f"found the field {name} of '{c.name}' to be computed from others"
            )
    return Form(c, written.word, fixed, said)


def decoded(arch: Architecture, stream: bytes) -> list[Ordered]:
    """Return what the words of a stream say, without what it takes.

    Raises:
        CompileError: `accel.declaration`: a word has no form, or more than one; the last one is not there.
    """
    found, order, end = forms(arch), arch.description.tokens, bits(stream_of(arch).end)
    at = 0
    made: list[Ordered] = []
    while at < len(stream):
        if stream[at : at + len(end)] == end:
            return made
        here = stream[at:]
        fitting = [(f, read) for f in found if (read := _read(f, here[: f.word.bits // 8])) is not None]
        if len(fitting) != 1:
            names = ", ".join(f.like.name or "waiting" for f, _ in fitting) or "nothing"
            raise error("accel.declaration", f"found word {at // len(end)} of a stream to say {names}")
        ((form, read),) = fitting
        at += form.word.bits // 8
        flags = {name.removeprefix("flag ") for name, n in read.items() if name.startswith("flag ") and n}
        queue = form.like.queue
        names = {id(q): n for n, q in arch.description.queues.items()}
        pops = tuple(i for i, t in enumerate(order) if t.pop in flags and names[id(t.target)] == queue)
        pushes = tuple(i for i, t in enumerate(order) if t.push in flags and names[id(t.source)] == queue)
        if "event" in read:
            pops, pushes = _of_event(arch, form.like.name, read["event"])
        numbers = {name: read.get(name, 0) for name in form.like.numbers}
        copy = arch.description.copies.get(form.like.name)
        if copy is not None and copy.pad is not None and "value" not in form.said.values():
            numbers["value"] = copy.pad.ends[0]
        if "y" in numbers and "y" not in form.said.values():  # one row, unless nothing is read
            numbers["y"] = min(1, numbers["x"])
        places = {
            name: Place(
                read.get(f"{name} at", 0),
                tuple(read.get(f"{name} stride {a}", 0) for a in range(len(p.stride))),
            )
            for name, p in form.like.places.items()
        }
        made.append(Ordered(Planned(form.like.name, queue, numbers, places), pops, pushes))
    raise error("accel.declaration", "found a stream that does not end")


def _of_event(arch: Architecture, name: str, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which register a command waits for and which it sets."""
    events, _, does = name.partition(".")
    found = [i for i, r in enumerate(registers(arch.description)) if (r.events, r.number) == (events, number)]
    if not found:
        raise error("accel.declaration", f"found the event {number} of '{events}', which it does not have")
    return (tuple(found), ()) if does == "wait" else ((), tuple(found))


def _read(form: Form, raw: bytes) -> dict[str, int] | None:
    """Return what the fields of a word say, or None where it has another form."""
    if len(raw) * 8 != form.word.bits:
        return None
    value = int.from_bytes(raw, "little")
    read: dict[str, int] = {}
    for name, f in form.word.fields.items():
        number = (value >> f.at) & ((1 << f.bits) - 1)
        if f.signed and number >> (f.bits - 1):
            number -= 1 << f.bits
        if name in form.fixed:
            if form.fixed[name] != number:
                return None
        elif read.setdefault(form.said[name], number) != number:
            return None
    return read
