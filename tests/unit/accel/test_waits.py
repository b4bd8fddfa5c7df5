"""Queues that wait until at most some commands are outstanding, and for events: placed, mild, and all needed."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np
import pytest

from inlay.accel.api import AtMost, Events, Mock, encodes
from inlay.accel.backend import AcceleratorBackend
from inlay.accel.commands import Ordered, Planned, Span
from inlay.accel.counts import as_tokens, counted
from inlay.accel.encode import decoded, encoded
from inlay.accel.events import Register, fewest, messages, pairs, with_events
from inlay.accel.kit import Checked, checks
from inlay.accel.kit_order import conflict, tokens, with_less, without
from inlay.accel.launch import Launcher
from inlay.accel.order import Channel, unordered
from inlay.accel.waits import in_tokens
from inlay.accelerators.strawberry import Strawberry
from inlay.base.diagnostics import CompileError, RunError
from inlay.interp.tensor import evaluate
from inlay.ops.table import table
from tests.unit.accel.test_streams import command, convolution, parsed

ALL = tuple(Channel(a, b) for a in "abc" for b in "abc" if a != b)
LOAD, COMPUTE, STORE = Strawberry.load, Strawberry.compute, Strawberry.store


class Counted(Strawberry):
    """A strawberry whose stream is read no further until at most some commands are outstanding."""

    loads, runs, stores = AtMost(LOAD, 7), AtMost(COMPUTE, 3), AtMost(STORE)
    order = (loads, runs, stores)
    drivers = (Mock(),)

    @encodes(loads, runs)
    def wait_for_some(self, c):
        return self.RUN(op=5, kind=0 if c.name == "loads" else 1, i=c.count)

    @encodes(stores)
    def wait_for_all(self, c):
        return self.RUN(op=5, kind=2)


class Evented(Strawberry):
    """A strawberry with registers that commands in its queues set and wait for."""

    flags = Events(8)
    order = (flags,)
    drivers = (Mock(),)

    @encodes(flags.signal, flags.wait)
    def event(self, c):
        queue = {"load": 0, "compute": 1, "store": 2}[c.queue]
        return self.RUN(op=5, kind=queue, i=c.event, j=c.name == "flags.wait")


class Paired(Strawberry):
    """A strawberry with a few registers between each two neighbors."""

    to_compute, to_load = Events(2, LOAD, COMPUTE), Events(2, COMPUTE, LOAD)
    to_store, from_store = Events(2, COMPUTE, STORE), Events(2, STORE, COMPUTE)
    order = (to_compute, to_load, to_store, from_store)
    drivers = (Mock(),)

    @encodes(
        to_compute.signal, to_compute.wait, to_load.signal, to_load.wait, to_store.signal, to_store.wait,
        from_store.signal, from_store.wait,
    )  # fmt: skip
    def event(self, c):
        events, _, does = c.name.partition(".")
        kind = {"to_compute": 0, "to_load": 1, "to_store": 2, "from_store": 3}[events]
        return self.RUN(op=5, kind=kind, i=c.event, j=does == "wait")


VARIANTS = {x.__name__.lower(): AcceleratorBackend(x.__name__.lower(), x) for x in (Counted, Evented, Paired)}


def random_commands(seed: int, count: int = 14) -> list[Planned]:
    r = Random(seed)

    def span() -> Span:
        first = r.randrange(6)
        return Span(r.choice("xy"), first, first + r.randrange(1, 4))

    return [Planned("run", r.choice("abc"), reads=(span(),), writes=(span(),)) for _ in range(count)]


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(60))
def test_counts_order_every_conflict_and_none_is_stricter_than_needed(seed: int) -> None:
    most = Random(seed).randrange(4)
    stream = counted(random_commands(seed), {q: (f"wait {q}", most) for q in "abc"})
    counts = {f"wait {q}": q for q in "abc"}
    assert not list(unordered(as_tokens(stream, counts, ALL), ALL))
    for at, x in enumerate(stream):
        if x.command.name not in counts:
            continue
        left = x.command.numbers["count"]
        assert left <= most
        milder = Ordered(Planned(x.command.name, "", {"count": left + 1}), (), ())
        for instead in [[], *([[milder]] if left < most else [])]:
            changed = [*stream[:at], *instead, *stream[at + 1 :]]
            assert list(unordered(as_tokens(changed, counts, ALL), ALL)), (at, instead)


def events(kind: str) -> tuple[Register, ...]:
    if kind == "of all":
        return tuple(Register("e", n) for n in range(fewest(3, is_pair=False)))
    return tuple(Register(f"{a}{b}", n, a, b) for a, b in ("ab", "ba", "bc", "cb") for n in range(2))


@pytest.mark.sample(16)
@pytest.mark.parametrize("kind", ["of all", "of pairs"])
@pytest.mark.parametrize("seed", range(60))
def test_the_fewest_events_order_every_conflict_and_none_can_be_left_out(seed: int, kind: str) -> None:
    registers = events(kind)
    ways, channels = pairs(registers, "abc"), [r.channel for r in registers]
    stream = with_events(random_commands(seed, 24), ways, registers)
    assert list(unordered(stream, channels)) == []
    seen: set[int] = set()
    for x in stream:  # a wait never stands before the command that sets what it waits for
        assert set(x.pops) <= seen
        seen = seen - set(x.pops) | set(x.pushes)
    for pushed, popped, token in tokens(stream):
        if token not in messages(ways, registers):
            assert list(unordered(without(stream, pushed, popped, token), channels)), (pushed, popped)


def test_registers_that_are_a_matter_of_luck_are_refused() -> None:
    registers = [Register("e", n).channel for n in (0, 1)]

    def said(*words: tuple[str, str, int]) -> str:
        made = [
            Ordered(Planned(f"e.{does}", q), (n,) * (does == "wait"), (n,) * (does == "signal"))
            for q, does, n in words
        ]
        return next(unordered(made, registers), "")

    a, b, c = ("a", "signal", 0), ("b", "wait", 0), (("c", "signal", 1), ("a", "wait", 1))
    assert said(a, b) == ""
    assert said(a, b, ("b", "signal", 1), ("a", "wait", 1), a, b) == ""  # `a` knows that `b` has looked
    assert "is set and was not waited for" in said(a, b, a, b)  # `a` may set it twice before `b` looks
    assert "nothing orders command 1, which waits for the event 0 of 'e', before 4" in said(a, b, *c, a, b)
    assert "before 3, which waits for" in said(a, b, ("b", "signal", 0), ("c", "wait", 0))
    assert "nobody waits for it" in said(a)


@lru_cache(maxsize=16)
def made(name: str, text: str):
    found = command(text, VARIANTS[name])
    assert found.made is not None, found.reasons
    return found


TEXTS = {
    "conv": convolution(20, 24, 9, 3),
    "depthwise": convolution(40, 40, 8, 5, groups=40),
    "wide": convolution(96, 80, 14, 3),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("shape", ["conv", "depthwise"])
def test_a_device_that_waits_in_another_way_computes_the_same(name: str, shape: str) -> None:
    found, module = made(name, TEXTS[shape]), parsed(TEXTS[shape])
    f = module.functions["main"]
    arch = VARIANTS[name].patterns(()).arch
    x = (
        np.random.default_rng(3)
        .integers(-128, 128, [e.value for e in f.params[0].type.shape])
        .astype(np.int8)
    )  # type: ignore[union-attr]
    want = evaluate(module, [x], lambda op, attrs, args: table().definition(op).evaluate(attrs, *args))
    got = np.zeros_like(want)
    Launcher(arch, Mock(), "npu0", found, f.params)([x, got], [])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_wait_that_is_missing_is_noticed_by_the_words(name: str) -> None:
    found, arch = made(name, TEXTS["conv"]), VARIANTS[name].patterns(()).arch
    stream = found.made.scheduled.stream
    fewer = list(with_less(arch, stream))
    assert len(fewer) >= 3
    for changed, what in fewer:
        assert conflict(arch, changed), what
        said = decoded(arch, encoded(arch, changed))
        assert [(x.command.name, x.pops, x.pushes) for x in in_tokens(arch, said)] == [
            (x.command.name, x.pops, x.pushes) for x in in_tokens(arch, changed)
        ] or name != "counted"


def test_the_mock_refuses_words_with_a_count_too_large() -> None:
    found, arch, module = (
        made("counted", TEXTS["conv"]),
        VARIANTS["counted"].patterns(()).arch,
        parsed(TEXTS["conv"]),
    )
    changed, _ = next(x for x in with_less(arch, found.made.scheduled.stream) if "outstanding" in x[1])
    words = encoded(arch, changed)
    wrong = type(found)(
        **{**vars(found), "made": type(found.made)(found.made.scheduled, words, found.made.stages)}
    )
    x = np.zeros([e.value for e in module.functions["main"].params[0].type.shape], np.int8)  # type: ignore[union-attr]
    y = np.zeros((1, 24, 9, 9), np.int8)
    with pytest.raises(RunError, match="the mock refuses: nothing orders command"):
        Launcher(arch, Mock(), "npu0", wrong, module.functions["main"].params)([x, y], [])


@pytest.mark.slow
def test_copies_run_beside_instructions_and_explanations_say_who_waits() -> None:
    tokens_take = command(TEXTS["wide"]).total
    notes = {name: made(name, TEXTS["wide"]) for name in VARIANTS}
    for name, found in notes.items():
        timing = found.made.scheduled.timing
        assert timing.hidden * 2 > timing.moving, name
        assert found.total < tokens_take * 1.25, name
    assert "waits until at most some are outstanding" in notes["counted"].note
    assert "waits for events" in notes["evented"].note


FEW = Events(4)
WRONG = [
    (Counted, {"order": (Counted.loads, Counted.runs)}, "the AtMost 'stores', which is not in `order`"),
    (Counted, {"loads": AtMost(LOAD, -1)}, "found the AtMost 'loads', which is not"),
    (
        Counted,
        {"order": (*Counted.order, *Evented.order)},
        "found an order of AtMost, Events, needed one of them",
    ),
    (Evented, {"flags": FEW, "order": (FEW,), "event": None}, "found 4 events of 'flags', needed 5 at least"),
    (
        Paired,
        {"order": Paired.order[:3], "from_store": None, "event": None},
        "no way of tokens from the queue 'store'",
    ),
]


@pytest.mark.parametrize(("base", "changed", "message"), WRONG)
def test_orders_that_contradict_themselves_are_refused(base, changed, message) -> None:
    made_wrong = type("Wrong", (base,), changed)
    with pytest.raises(CompileError) as failure:
        AcceleratorBackend("wrong", made_wrong).description
    assert any(message in d.message for d in failure.value.diagnostics), [
        d.message for d in failure.value.diagnostics
    ]


@pytest.mark.llvm
@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_the_kit_finds_nothing_wrong_with_other_ways_to_wait(name: str) -> None:
    found = [c for c in checks(VARIANTS[name], 4, 0) if isinstance(c, Checked)]
    assert [c for c in found if c.failure] == []
