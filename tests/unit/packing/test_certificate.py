"""Certificates: what the second program accepts, what it refuses and how it names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.packing import check_certificate
from inlay.packing.bounds import critical_moment
from inlay.packing.buffer import Buffer
from inlay.packing.certificate import certificate_text, certified
from inlay.packing.check_certificate import Row, Wrong, check, checksum, fits
from inlay.packing.plan import plan
from tests.unit.packing.test_plan import buffer_lists

GAP = [Buffer("a", 3, 4, 5), Buffer("b", 5, 6, 5, 2), Buffer("c", 3, 6, 3, 2), Buffer("d", 0, 2, 1)]
"""At no moment are more than 8 bytes alive, and no plan takes less than 9."""


def certificate_of(buffers, capacity=None):
    found = certified("m", buffers, plan(buffers, capacity=capacity, steps=2000), capacity=capacity)
    return json.loads(certificate_text([found]))


@given(buffer_lists(), st.integers(1, 50))
def test_what_is_certified_is_accepted(buffers, capacity):
    found = plan(buffers, steps=2000)
    made = certificate_of(buffers)
    assert len(check(made)) == 1
    told = made["plans"][0]
    assert told["proved"] == (told["peak"] == told["bound"])
    assert critical_moment(buffers).bytes <= told["bound"] <= found.lower_bound
    assert "unchecked" in told or told["bound"] == found.lower_bound
    check(certificate_of(buffers, capacity))


@given(buffer_lists(), st.integers(0, 11), st.integers(-3, 60))
def test_an_offset_that_was_changed_is_refused_with_the_name(buffers, which, by):
    made = certificate_of(buffers)
    rows = made["plans"][0]["buffers"]
    if not rows or by == 0:
        return
    row = rows[which % len(rows)]
    row[5] += by
    with pytest.raises(Wrong, match=f"buffer '{row[0]}'"):
        check(made)
    # With a checksum that fits, it is a plan or it is none: what is wrong is found by itself.
    row[6] = checksum("m", row[:6])
    found = [Buffer(*r[:5]) for r in rows]
    offsets = [r[5] for r in rows]
    peak = max((o + b.size for b, o in zip(found, offsets, strict=True) if b.takes_space), default=0)
    wrong = peak != made["plans"][0]["peak"] or any(
        a.takes_space
        and b.takes_space
        and a.lower < b.upper
        and b.lower < a.upper
        and offsets[i] < offsets[j] + b.size
        and offsets[j] < offsets[i] + a.size
        for i, a in enumerate(found)
        for j, b in enumerate(found[:i])
    )
    wrong = wrong or any(o < 0 or o % b.alignment for b, o in zip(found, offsets, strict=True))
    if wrong:
        with pytest.raises(Wrong):
            check(made)
    else:
        check(made)


def rows_of(buffers):
    return [Row([b.id, b.lower, b.upper, b.size, b.alignment, 0, 0]) for b in buffers]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 2])),
        max_size=4,
    )
)
def test_the_search_of_the_checker_is_the_definition(drawn):
    buffers = [Buffer(str(i), low, low + life, size, a) for i, (low, life, size, a) in enumerate(drawn)]
    least = 0
    for capacity in range(13):
        if any(_plans_within(buffers, capacity)):
            least = capacity
            break
    assert fits(rows_of(buffers), least) is True
    assert least == 0 or fits(rows_of(buffers), least - 1) is False


def _plans_within(buffers, capacity, placed=()):
    """Yield True for each plan within a capacity: all offsets are tried."""
    if len(placed) == len(buffers):
        yield True
        return
    b = buffers[len(placed)]
    for offset in range(0, capacity - b.size + 1, b.alignment):
        if all(
            o.upper <= b.lower or b.upper <= o.lower or at + o.size <= offset or offset + b.size <= at
            for o, at in zip(buffers, placed, strict=False)
        ):
            yield from _plans_within(buffers, capacity, (*placed, offset))


def test_a_bound_that_search_found_has_a_witness_of_few_buffers():
    told = certificate_of(GAP)["plans"][0]
    assert (told["peak"], told["bound"], told["proved"]) == (9, 9, True)
    assert told["witness"] == {"buffers": ["b", "c"]}
    assert certificate_of(GAP, 8)["plans"][0]["within"] is False


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"peak": 8}, "found a peak of 8 bytes, but the buffers end at 9"),
        ({"bound": 8}, "found proved: True"),
        ({"proved": False}, "found proved: False"),
        ({"witness": {"moment": 3}}, "what lives at 3 needs 8 bytes, not 9"),
        ({"witness": {"buffers": ["c", "d"]}}, "the buffers c, d fit into less than 9 bytes"),
        ({"witness": {"buffers": ["x"]}}, "names buffers that are not there"),
        ({"witness": {"buffers": [["x"]]}}, "names buffers that are not there"),
        ({"witness": None}, "found no witness"),
        ({"witness": {"moment": True}}, "found no witness"),
        ({"bound": "9"}, "needed peak and bound"),
        ({"capacity": 8, "within": True}, "found a plan of 9 bytes for a capacity of 8"),
        ({"capacity": 9, "within": False}, "does not forbid plans within 9"),
        ({"within": "perhaps"}, "does not forbid"),
        ({"buffers": [["a", 0, 1]]}, "needed an id and six integers"),
        ({"buffers": [["a", 0, 1, 4, 1, True, 0]]}, "what is no integer"),
        ({"buffers": [["a", 0, 1, -4, 1, 0, 0]]}, "no size, alignment or lifetime"),
        ({"buffers": [["a", 0, 1, 4, 0, 0, 0]]}, "no size, alignment or lifetime"),
        ({"buffers": 4}, "needed a name and buffers"),
        ({"name": "other"}, "buffer 'a' was changed"),
    ],
)
def test_a_wrong_claim_is_refused(change, said):
    made = certificate_of(GAP)
    made["plans"][0].update(change)
    with pytest.raises(Wrong, match=said):
        check(made)


def test_what_is_no_certificate_is_refused():
    for wrong in (
        None,
        [],
        {},
        {"form": check_certificate.FORM},
        {"form": check_certificate.FORM, "version": 1},
    ):
        with pytest.raises(Wrong):
            check(wrong)
    made = certificate_of(GAP)
    made["plans"][0]["buffers"].append(made["plans"][0]["buffers"][0])
    with pytest.raises(Wrong, match="buffer 'a' is there twice"):
        check(made)


def test_the_program_stands_alone(tmp_path):
    """It runs without this package, and compares with the table."""
    made, table = tmp_path / "c.json", tmp_path / "t.csv"
    made.write_text(certificate_text([certified("m", GAP, plan(GAP))]))
    lines = [f"{b.id},{b.lower},{b.upper},{b.size},{b.alignment},m" for b in GAP]
    table.write_text("\n".join(["id,lower,upper,size,alignment,memory", *lines, ""]))
    source = check_certificate.__file__
    assert len(Path(source).read_text().splitlines()) <= 300

    def run(*words):
        words = [sys.executable, "-I", "-S", source, *map(str, words)]
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)

    done = run(made, table)
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 buffers in 9 bytes, no two in one place; at least 9: 2 buffers alone" in done.stdout
    table.write_text(table.read_text().replace("d,0,2,1", "d,0,2,2"))
    assert "buffer 'd' is ('m', 0, 2, 1, 1) here and ('m', 0, 2, 2, 1) in" in run(made, table).stderr
    for text in ("", "[" * 100_000, "{}", '{"form": 3}', "\x00"):
        made.write_text(text)
        done = run(made)
        assert done.returncode == 1
        assert done.stderr.startswith("refused: ")
    assert run().returncode == 2
