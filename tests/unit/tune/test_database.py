"""Files of measurements: whole, shared, and refused as they are where they are none."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inlay.analysis.choices import Choice
from inlay.base.diagnostics import CompileError
from inlay.tune.chosen import read_tuned
from inlay.tune.database import Database, entries_of
from inlay.tune.trial import Kind, Outcome, Place, Trial

HERE = Place("a processor", "features", "rules", 2)
KEPT = Trial(
    Choice.of({"mm.rows": 5, "mm.order": "lines"}), Outcome.MEASURED, 80.0, 100.0, 0.01, 21, kept=True
)
LOST = Trial(Choice.of({"mm.rows": 4}), Outcome.MEASURED, 99.0, 100.0, 0.02, 7)
WRONG = Trial(Choice.of({"mm.rows": 3}), Outcome.WRONG, said="7 of 8 differ")


def test_trials_come_back_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    database = Database(file)
    database.record(HERE, Kind.KERNEL, "k", "matmul", [KEPT, LOST, WRONG])
    database.close()
    again = Database(file)
    assert sorted(again.trials(HERE, Kind.KERNEL, "k"), key=lambda t: t.outcome + str(t.ns)) == [
        KEPT,
        LOST,
        WRONG,
    ]
    assert again.trials(HERE, Kind.PRODUCT, "k") == []
    assert again.trials(replace(HERE, threads=1), Kind.KERNEL, "k") == []
    again.record(HERE, Kind.KERNEL, "k", "matmul", [replace(LOST, ns=70.0, kept=True)])
    (entry, other) = entries_of(file)
    assert {e.trial.ns for e in (entry, other)} == {70.0, 80.0}
    assert (entry.place, entry.kind, entry.key, entry.origin) == (HERE, Kind.KERNEL, "k", "matmul")
    assert read_tuned(str(file), HERE).kernels == {"k": LOST.choice}


def test_what_was_measured_elsewhere_is_not_used_and_the_reason_is_told(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    database = Database(file)
    elsewhere = {
        "measured on 'another', this is 'a processor'": replace(HERE, processor="another", rules="x"),
        "measured with other features or caches of the processor": replace(HERE, target="fewer"),
        "measured with version older of the rules, this is rules": replace(HERE, rules="older"),
        "measured on 1 thread, this is for 2 threads": replace(HERE, threads=1),
    }
    for place in elsewhere.values():
        database.record(place, Kind.KERNEL, "k", "matmul", [KEPT, LOST])
    database.record(elsewhere["measured on 1 thread, this is for 2 threads"], Kind.PRODUCT, "p", "m", [KEPT])
    tuned = read_tuned(str(file), HERE)
    assert tuned.kernels == tuned.products == {}
    assert tuned.others == {why: 1 + why.endswith("threads") for why in elsewhere}
    database.record(HERE, Kind.PRODUCT, "p", "m", [KEPT])
    tuned = read_tuned(str(file), HERE)
    assert (tuned.kernels, tuned.products) == ({}, {"p": KEPT.choice})
    assert tuned.of_product("p") == KEPT.choice
    assert not tuned.of_kernel("p")


def test_what_is_left_open_by_one_process_is_seen_by_another(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    first, second = Database(file), Database(file)
    for i in range(6):
        (first, second)[i % 2].record(HERE, Kind.KERNEL, f"k{i}", "m", [KEPT])
    assert all(len(d.trials(HERE, Kind.KERNEL, f"k{i}")) == 1 for d in (first, second) for i in range(6))


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    code = """
import sys
from pathlib import Path
from inlay.analysis.choices import Choice
from inlay.tune.database import Database
from inlay.tune.trial import *
d = Database(Path(sys.argv[1]))
for i in range(6):
    t = Trial(Choice.of({"x": i}), Outcome.MEASURED, 1.0, 2.0, kept=True)
    d.record(Place("a", "b", "c", 1), Kind.KERNEL, sys.argv[2], "m", [t])
"""
    running = [subprocess.Popen([sys.executable, "-c", code, file, name]) for name in "ab"]
    assert [p.wait(60) for p in running] == [0, 0]
    assert len(entries_of(file)) == 12


def test_a_process_that_is_killed_while_it_writes_leaves_whole_steps(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    Database(file).record(HERE, Kind.KERNEL, "k", "m", [KEPT])
    half = sqlite3.connect(file, isolation_level=None)
    half.execute("BEGIN IMMEDIATE")
    half.execute("UPDATE trial SET ns = 1")
    half.close()
    assert [e.trial for e in entries_of(file)] == [KEPT]


def test_a_writer_that_does_not_let_go_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.db"
    Database(file).close()
    monkeypatch.setattr("inlay.tune.database._WAIT_SECONDS", 0.01)
    database = Database(file)
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(CompileError) as failure:
        database.record(HERE, Kind.KERNEL, "k", "m", [KEPT])
    assert failure.value.ids == ("tune.busy",)
    holder.execute("ROLLBACK")
    database.record(HERE, Kind.KERNEL, "k", "m", [KEPT])
    assert len(entries_of(file)) == 1


@pytest.fixture(name="good", scope="module")
def good_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of a file of several pages."""
    file = tmp_path_factory.mktemp("good") / "t.db"
    database = Database(file)
    for i in range(8):
        database.record(HERE, Kind.KERNEL, f"key{i}" * 200, "m", [KEPT])
    database.close()
    return file.read_bytes()


def made(file: Path, good: bytes, change: str, *values: object) -> Path:
    """Write a good file, changed by a statement."""
    file.write_bytes(good)
    with sqlite3.connect(file) as connection:
        connection.execute(change, values)
    connection.close()
    return file


def damaged(kind: str, good: bytes, file: Path) -> Path:
    """Write a file that is none of ours, or no longer."""
    match kind:
        case "text":
            file.write_text("matmul 6 x 4\n" * 100)
        case "short":
            file.write_bytes(good[: len(good) // 2])
        case "torn":
            file.write_bytes(good[:4096] + bytes(4000) + good[8096:])
        case "other":
            with sqlite3.connect(file) as connection:
                connection.execute("CREATE TABLE trial (x)")
            connection.close()
        case _:
            made(file, good, "PRAGMA user_version = 7")
    return file


@pytest.mark.parametrize("kind", ["text", "short", "torn", "other", "version"])
def test_a_damaged_file_is_refused_and_stays_as_it_is(tmp_path: Path, kind: str, good: bytes) -> None:
    file = damaged(kind, good, tmp_path / "t.db")
    before = file.read_bytes()
    for use in (entries_of, Database):
        with pytest.raises(CompileError) as failure:
            use(file)
        assert failure.value.ids == (("tune.version",) if kind == "version" else ("tune.damaged",))
        assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("choice", "[1]"),
        ("choice", '{"a": true}'),
        ("choice", '{"a": 1.5}'),
        ("choice", "{"),
        ("choice", "[" * 5000),
        ("choice", b"\xff"),
        ("outcome", "fine"),
        ("ns", float("inf")),
        ("ns", -1.0),
        ("ns", "x"),
        ("default_ns", 0.0),
        ("rounds", -1),
        ("rounds", 1 << 60),
        ("kind", "loop"),
        ("origin", b"x"),
        ("origin", "x" * 100_000),
    ],
)
def test_values_that_none_of_ours_has_are_refused(
    tmp_path: Path, good: bytes, column: str, value: object
) -> None:
    file = made(tmp_path / "t.db", good, f"UPDATE trial SET {column} = ? WHERE key LIKE 'key0%'", value)
    with pytest.raises(CompileError) as failure:
        read_tuned(str(file), HERE)
    assert failure.value.ids == ("tune.damaged",)


def test_an_empty_file_is_begun_by_who_measures_and_refused_by_who_compiles(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.write_bytes(b"")
    with pytest.raises(CompileError) as failure:
        entries_of(file)
    assert failure.value.ids == ("tune.damaged",)
    Database(file).close()
    assert entries_of(file) == []


def test_a_file_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="found no file") as failure:
        read_tuned(str(tmp_path / "none.db"), HERE)
    assert failure.value.ids == ("tune.missing",)
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(OSError, match="none"):
        Database(tmp_path / "none" / "t.db")
