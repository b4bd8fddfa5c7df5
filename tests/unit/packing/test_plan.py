"""Packing: plans are right, and good."""

from __future__ import annotations

import csv
import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.base.diagnostics import CompileError
from inlay.packing import bounds
from inlay.packing.algorithms.interface import Task
from inlay.packing.bounds import critical_moment
from inlay.packing.buffer import Buffer, peak_of
from inlay.packing.check import violations
from inlay.packing.instance import make_instance
from inlay.packing.plan import ALGORITHMS, plan
from tests.data import data_path


@st.composite
def buffer_lists(draw):
    made = []
    for index in range(draw(st.integers(0, 12))):
        lower = draw(st.integers(0, 10))
        made.append(
            Buffer(
                str(index),
                lower,
                lower + draw(st.integers(0, 6)),
                draw(st.integers(0, 40)),
                draw(st.sampled_from([1, 1, 4, 16])),
            )
        )
    return made


@given(buffer_lists())
def test_plans_are_right(buffers):
    found = plan(buffers, steps=200)
    assert violations(buffers, found.offsets, capacity=found.peak) == []
    assert found.peak >= found.lower_bound
    assert found.peak == peak_of(buffers, found.offsets)


@given(buffer_lists(), st.integers(0, 3))
def test_every_algorithm_keeps_its_promise(buffers, above):
    instance = make_instance(buffers)
    bound = critical_moment(buffers).bytes
    goal = -(-bound // instance.unit) + above
    assert {"first_fit.size", "best_fit.area", "linear_scan", "stacking", "hill_climb", "exact"} <= set(
        ALGORITHMS
    )
    for name, algorithm in ALGORITHMS.items() if instance.buffers else ():
        found = algorithm(Task(instance, goal, 500))
        if found.offsets is not None:
            offsets = [o * instance.unit for o in found.offsets]
            assert violations(instance.buffers, offsets) == [], name
            assert peak_of(instance.buffers, offsets) >= bound, name
        if name == "exact":
            assert found.bound == 0 or found.bound > goal
            assert found.offsets is None or peak_of(instance.buffers, offsets) <= goal * instance.unit


@given(buffer_lists(), st.integers(0, 11), st.integers(0, 60))
def test_the_checker_agrees_with_the_definition(buffers, which, offset):
    offsets = list(plan(buffers, steps=0).offsets)
    if offsets:
        offsets[which % len(offsets)] = offset
    wrong = any(o % b.alignment for b, o in zip(buffers, offsets, strict=True)) or any(
        a.takes_space
        and b.takes_space
        and a.lower < b.upper
        and b.lower < a.upper
        and offsets[i] < offsets[j] + b.size
        and offsets[j] < offsets[i] + a.size
        for i, a in enumerate(buffers)
        for j, b in enumerate(buffers[:i])
    )
    assert bool(violations(buffers, offsets)) == wrong


@given(buffer_lists())
def test_max_live_is_the_definition(buffers):
    moments = range(20)
    live = [sum(b.size for b in buffers if b.lower <= t < b.upper) for t in moments]
    assert bounds.max_live(buffers) == max(live)


def test_checker_names_each_fault():
    a, b = Buffer("a", 0, 2, 10, 8), Buffer("b", 1, 3, 10)
    assert "not aligned" in violations([a], [4])[0]
    assert "share" in violations([a, b], [0, 9])[0] or "same time" in violations([a, b], [0, 9])[0]
    assert "beyond" in violations([a], [8], capacity=17)[0]
    assert "is at -8" in violations([a], [-8])[0]
    assert "offsets" in violations([a, b], [0])[0]


def load(name):
    with data_path("memplan", name).open() as stream:
        return [
            Buffer(row["id"], int(row["lower"]), int(row["upper"]), int(row["size"]))
            for row in csv.DictReader(stream)
        ]


CASES = [
    *(f"{x}.1048576.csv" for x in "ABCDE"),
    "example.12.csv",
    "tvm_alloc_max.csv",
    "tvm_deep_speech.csv",
    "tvm_five.csv",
    "tvm_simple.csv",
]


@pytest.mark.data
@pytest.mark.parametrize("name", CASES)
def test_known_problems(name):
    facts = json.loads(data_path("memplan", "info.json").read_text())[name]
    buffers = load(name)
    found = plan(buffers, steps=20_000)
    assert found.lower_bound == facts["lower_bound"]
    assert violations(buffers, found.offsets) == []
    greedy = min(facts[key] for key in facts if key.startswith("greedy"))
    assert found.peak <= greedy
    if name.startswith(("tvm", "example")):
        assert found.peak == found.lower_bound
    if capacity := facts["capacity"]:
        assert plan(buffers, capacity=capacity, steps=20_000).within(capacity)


@pytest.mark.slow
def test_large_chains_are_quick_and_tight():
    buffers = [Buffer(str(i), i, i + 2, 64 + 64 * (i % 3), 64) for i in range(20_000)]
    found = plan(buffers)
    assert found.gap <= 0.34
    wide = [Buffer(str(i), 0, 1 + i, 8) for i in range(3_500)]
    assert plan(wide).gap == 0


def test_plans_do_not_change_between_runs():
    buffers = [Buffer(str(i), i % 7, i % 7 + 1 + i % 5, 13 * (i % 11) + 1) for i in range(60)]
    assert plan(buffers, steps=3000) == plan(list(buffers), steps=3000)


def test_there_is_a_plan_however_soon_somebody_wants_an_end():
    buffers = [Buffer(str(i), i % 50, i % 50 + 40, 1 + i % 13) for i in range(6_000)]
    asked = []
    found = plan(buffers, steps=10**9, watch=lambda steps: asked.append(steps) is None)
    assert asked
    assert violations(buffers, found.offsets) == []


def test_sizes_that_offsets_cannot_hold_are_refused():
    buffers = [Buffer("a", 0, 1, 1 << 61), Buffer("b", 0, 1, 1 << 61)]
    with pytest.raises(CompileError) as failure:
        plan(buffers)
    assert failure.value.ids == ("packing.too-large",)
    assert plan([Buffer("a", 0, 1, (1 << 62) - 2)]).proved


def test_a_long_chain_needs_no_more_than_two_neighbors():
    """At one end and the other in turns; by size alone there are gaps."""
    random = Random(1)
    chain = [Buffer(str(i), i, i + 2, 64 * random.randrange(1, 2000), 64) for i in range(2_000)]
    assert plan(chain, steps=0).proved


def pieces(count, seed, share):
    """A rectangle of time and bytes, cut in two again and again; some pieces are not there, some are smaller."""
    random, found = Random(seed), [(0, 1000, 0, 1000)]
    while len(found) < count:
        area = [(b - a) * (d - c) * random.random() for a, b, c, d in found]
        a, b, c, d = found.pop(area.index(max(area)))
        if b - a > 1 and (random.random() < share or d - c < 2):
            at = random.randrange(a + 1, b)
            found += [(a, at, c, d), (at, b, c, d)]
        else:
            at = random.randrange(c + 1, d) if d - c > 1 else d
            found += [(a, b, c, at), (a, b, at, d)]
    kept = [p for p in found if p[2] < p[3] and random.random() > 0.05]
    random.shuffle(kept)
    return [
        Buffer(str(i), a, b, max(int((d - c) * random.uniform(0.9, 1)), 1) if i % 9 == 0 else d - c)
        for i, (a, b, c, d) in enumerate(kept)
    ]


@pytest.mark.parametrize(("count", "seed", "share"), [(300, 1, 0.5), (300, 2, 0.35), (400, 2, 0.35)])
def test_lists_that_come_from_few_decisions_are_planned_soon(count, seed, share):
    """What a search for single buffers does not decide within so many steps."""
    found = plan(pieces(count, seed, share), capacity=1000, steps=60_000)
    assert found.within(1000)


def test_blocks_prove_nothing():
    """Two of one lifetime are glued at once, and have no plan; apart, there is one."""
    rows = [(0, 4, 3), (0, 4, 3), (0, 2, 4), (2, 4, 4), (1, 3, 2)]
    buffers = [Buffer(str(i), *row) for i, row in enumerate(rows)]
    least = plan(buffers, steps=2_000)
    assert least.proved
    assert plan(buffers, capacity=least.peak - 1, steps=2_000).within(least.peak - 1) is False
    assert plan(buffers, capacity=least.peak, steps=2_000).within(least.peak)


def test_parts_that_nothing_connects_are_decided_by_themselves():
    """Of a list whose least peak no moment shows, a copy later on, and what packs easily in between."""
    rows = [(0, 1, 2, 2), (1, 3, 4, 1), (2, 5, 1, 4), (2, 5, 5, 4), (1, 2, 6, 1)]
    hard = [Buffer(f"b{i}", *row) for i, row in enumerate(rows)]
    assert critical_moment(hard).bytes == 10
    easy = [Buffer(f"e{i}", 10 + i, 12 + i, 2) for i in range(4)]
    later = [Buffer(f"{b.id}2", b.lower + 20, b.upper + 20, b.size, b.alignment) for b in hard]
    whole = [*easy, *later, *hard]
    for capacity in (None, 13, 12):
        found = plan(whole, capacity=capacity, steps=5_000)
        assert (found.peak, found.lower_bound) == (13, 10 if capacity == 13 else 13)
