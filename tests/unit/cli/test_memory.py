"""`inlay memory`: plans of lists of buffers, what is said of them, and what is refused."""

from __future__ import annotations

import csv
import json
from random import Random

import pytest

from inlay.cli.main import main
from inlay.packing import check_certificate
from inlay.packing.buffer import Buffer
from inlay.packing.check import violations

TABLE = "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,4\nd,9,21,4\ne,0,21,4\n"
TWO = "memory,size,id,upper,lower,alignment\nfast,5,a,2,0,1\nslow,7,b,2,0,4\nfast,6,c,3,1,8\nslow,2,d,2,1,4\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "two.csv").write_text(TWO)
    return tmp_path


def told(capsys, words, code=0):
    assert main(words.split()) == code
    return capsys.readouterr().out


def record(capsys, words, code=0):
    return json.loads(told(capsys, f"{words} --json", code))


def buffers_of(text):
    numbers = ("lower", "upper", "size", "alignment")
    return [Buffer(r["id"], *(int(r.get(n, 1)) for n in numbers)) for r in csv.DictReader(text.splitlines())]


def test_a_plan_is_told_to_programs(capsys):
    found = record(capsys, "memory t.csv")
    assert {k: found[k] for k in ("peak", "lower_bound", "gap", "proved")} == {
        "peak": 12,
        "lower_bound": 12,
        "gap": 0.0,
        "proved": True,
    }
    assert found["steps"] > 0
    buffers = buffers_of(TABLE)
    assert violations(buffers, [found["offsets"][b.id] for b in buffers], capacity=12) == []
    assert set(found["memories"][0]["live"]) in ({"a", "c", "e"}, {"b", "c", "e"})


def test_memories_are_planned_apart(capsys):
    found = record(capsys, "memory two.csv --capacity fast=14 --capacity slow=1KiB")
    assert found["peak"] == 11 + 10
    assert [(m["memory"], m["peak"], m["within"]) for m in found["memories"]] == [
        ("fast", 11, True),
        ("slow", 10, True),
    ]
    text = told(capsys, "memory two.csv")
    assert "fast: 2 buffers in 11 bytes" in text
    assert "slow: 2 buffers in 10 bytes" in text


@pytest.mark.parametrize(
    ("words", "code", "within", "said"),
    [
        ("--capacity 12", 0, True, "within the capacity of 12 bytes"),
        ("--capacity 11", 1, False, "no plan is within the capacity of 11 bytes"),
    ],
)
def test_a_capacity_is_answered(capsys, words, code, within, said):
    assert record(capsys, f"memory t.csv {words}", code)["memories"][0]["within"] is within
    assert said in told(capsys, f"memory t.csv {words}", code)


def hard(count):
    """Return a table of a square that is cut into pieces: they fit it just so, and greedy does not find how."""
    random, pieces = Random(7), [(0, 512, 0, 512)]
    while len(pieces) < count:
        low, end, begin, top = pieces.pop(random.randrange(len(pieces)))
        if end - low >= 2 and random.random() < 0.5:
            at = random.randrange(low + 1, end)
            pieces += [(low, at, begin, top), (at, end, begin, top)]
        elif top - begin >= 2:
            at = random.randrange(begin + 1, top)
            pieces += [(low, end, begin, at), (low, end, at, top)]
        else:
            pieces.append((low, end, begin, top))
    rows = [f"{i},{p[0]},{p[1]},{p[3] - p[2]}" for i, p in enumerate(pieces)]
    return "\n".join(["id,lower,upper,size", *rows, ""])


def test_what_is_not_found_within_the_budget_is_said(capsys, folder):
    (folder / "hard.csv").write_text(hard(120))
    text = told(capsys, "memory hard.csv --capacity 512 --steps 0", 124)
    assert "found none within the capacity of 512 bytes in this time; there may be one" in text
    found = record(capsys, "memory hard.csv --capacity 512 --steps 0", 124)
    assert found["memories"][0]["within"] is None
    assert not found["proved"]
    assert found["peak"] > 512
    # Steps buy search, and the same steps the same plan.
    a, b = (record(capsys, "memory hard.csv --steps 30000") for _ in range(2))
    assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}


def test_what_no_moment_shows_is_proved_by_search(capsys, folder):
    """At no moment is more alive than 8 bytes, and alignment makes it 9."""
    (folder / "gap.csv").write_text("id,lower,upper,size,alignment\na,3,4,5,1\nb,5,6,5,2\nc,3,6,3,2\n")
    found = record(capsys, "memory gap.csv")
    assert (found["peak"], found["lower_bound"], found["proved"]) == (9, 9, True)
    assert record(capsys, "memory gap.csv --capacity 8", 1)["memories"][0]["within"] is False


def test_what_is_written(capsys, folder):
    told(capsys, "memory two.csv -o out.csv")
    rows = list(csv.DictReader((folder / "out.csv").read_text().splitlines()))
    assert [r["id"] for r in rows] == ["a", "b", "c", "d"]
    for memory in ("fast", "slow"):
        mine = [r for r in rows if r["memory"] == memory]
        buffers = [
            Buffer(r["id"], *(int(r[n]) for n in ("lower", "upper", "size", "alignment"))) for r in mine
        ]
        assert violations(buffers, [int(r["offset"]) for r in mine]) == []
    told(capsys, "memory two.csv -o out.svg --capacity fast=20")
    picture = (folder / "out.svg").read_text()
    assert picture.startswith("<svg")
    assert "fast: 11 bytes, no plan takes less, capacity 20" in picture
    assert picture.count('class="v"') == 4


def test_a_certificate_is_written_and_holds(capsys, folder):
    text = told(capsys, "memory two.csv --capacity fast=10 --certificate c.json", 1)
    assert "certificate of 2 plans in c.json; no less is possible: shown for 2" in text
    assert check_certificate.main(["c.json", "two.csv"]) == 0
    said = capsys.readouterr().out
    assert "plan 'fast': 2 buffers in 11 bytes, no two in one place; at least 11: what lives at 1" in said
    assert record(capsys, "memory two.csv --certificate c.json")["certificate"] == {
        "plans": 2,
        "proved": 2,
        "without": [],
    }
    changed = json.loads((folder / "c.json").read_text())
    changed["plans"][1]["buffers"][1][5] += 8
    (folder / "c.json").write_text(json.dumps(changed))
    assert check_certificate.main(["c.json"]) == 1
    assert "plan 2, 'slow': buffer 'd'" in capsys.readouterr().err


def test_plans_of_models_have_certificates(capsys, folder):
    program = (
        "fn main<n>(x: Tensor[n, 8, f32], v: Tensor[8, 16, f32], w: Tensor[16, 8, f32]) "
        "{ matmul(matmul(matmul(x, v), w), v) }"
    )
    (folder / "p.inl").write_text(program)
    text = told(capsys, "explain p.inl --view memory --certificate c.json")
    assert "none for 'main in host': a dim in it has no size" in text
    told(capsys, "explain p.inl --view memory --typical n=7 --certificate c.json")
    assert check_certificate.main(["c.json"]) == 0
    assert "plan 'main in host': 2 buffers in 704 bytes" in capsys.readouterr().out
    told(capsys, "explain p.inl --view memory --fix-dim n=7 --certificate c.json")
    told(capsys, "compile p.inl --fix-dim n=7 -o p.inlay --certificate d.json --cache none")
    assert (folder / "d.json").read_bytes() == (folder / "c.json").read_bytes()
    assert main("explain p.inl --certificate e.json".split()) == 2
    assert "--certificate, which does nothing with --view placement" in capsys.readouterr().err
    assert main("compile p.inl -o p.inlay --certificate p.inl".split()) == 1
    assert "save.over-input" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "id", "said"),
    [
        ("", "bad-list", "found no column 'id' in"),
        ("id,lower,upper\n", "bad-list", "found no column 'size'"),
        ("id,lower,upper,size,sise\n", "bad-list", "found column 'sise'"),
        ("id,lower,upper,size,size\n", "bad-list", "found two columns 'size'"),
        ("id,lower,upper,size\na,0,1\n", "bad-list", "found 3 fields in line 2 of x.csv, needed 4"),
        ('id,lower,upper,size\n"a,0,1,4\n', "bad-list", "to be no line of a table"),
        ("id,lower,upper,size\na,0,1,four\n", "bad-buffer", "found size 'four' of buffer 'a' in line 2"),
        ("id,lower,upper,size\na,0,1,1.5\n", "bad-buffer", "needed an integer"),
        ("id,lower,upper,size\na,0,1,\n", "bad-buffer", "found size '' of buffer 'a'"),
        ("id,lower,upper,size\na,0,1,-4\n", "bad-buffer", "found size -4 of buffer 'a'"),
        ("id,lower,upper,size\na,0,1,0\n", "bad-buffer", "found size 0 of buffer 'a'"),
        (f"id,lower,upper,size\na,0,1,{2**62}\n", "bad-buffer", "needed bytes from 1 to 2**62 - 1"),
        (f"id,lower,upper,size\na,0,1,{'9' * 5000}\n", "bad-buffer", "found size '9999999999"),
        ("id,lower,upper,size\na,4,4,1\n", "bad-buffer", "to live in [4, 4), needed an upper end above"),
        ("id,lower,upper,size\na,5,4,1\n", "bad-buffer", "found buffer 'a' in line 2 of x.csv to live"),
        ("id,lower,upper,size,alignment\na,0,1,4,3\n", "bad-buffer", "found alignment 3 of buffer 'a'"),
        ("id,lower,upper,size,alignment\na,0,1,4,0\n", "bad-buffer", "needed a power of two"),
        ("id,lower,upper,size\n,0,1,4\n", "bad-buffer", "found no id in line 2"),
        ("id,lower,upper,size\na,0,1,4\na,0,1,4\n", "bad-buffer", "'a' in line 3 of x.csv and in line 2"),
        (f"id,lower,upper,size\na,0,1,{2**61}\nb,0,1,{2**61}\n", "too-large", "the largest is 'a'"),
    ],
)
def test_a_bad_list_is_refused(capsys, folder, table, id, said):
    (folder / "x.csv").write_text(table)
    assert main(["memory", "x.csv"]) == 1
    text = capsys.readouterr().err
    assert f"packing.{id}" in text
    assert said in text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("two.csv --capacity 20", 1, "found --capacity 20 for 2 memories, needed MEMORY=SIZE"),
        ("two.csv --capacity fats=20", 1, "no buffer is in 'fats'"),
        ("two.csv --capacity fast=5", 1, "found buffer 'c' of 6 bytes for a capacity of 5"),
        ("t.csv --capacity 3", 1, "packing.no-room"),
        ("t.csv --capacity many", 1, "found --capacity many, needed bytes"),
        ("t.csv --capacity 9 --capacity 10", 1, "found two capacities of one memory"),
        ("t.csv -o out.txt", 1, "needed a name that ends in .csv or .svg"),
        ("t.csv -o t.csv", 1, "save.over-input"),
        ("absent.csv", 1, "load.missing"),
        ("t.csv --seconds 3 --steps 5", 2, "--seconds, which does nothing beside --steps"),
    ],
)
def test_words_that_do_not_fit_are_refused(capsys, words, code, said):
    assert main(["memory", *words.split()]) == code
    assert said in capsys.readouterr().err
