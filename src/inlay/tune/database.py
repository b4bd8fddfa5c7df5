"""Trials in a file that several processes may read and extend.

It is an SQLite database. Several processes write to it, one may be killed at any time, and nothing may be
lost or half there: that is what SQLite is for, it is in Python's standard library, and its files are the
same on all machines. A process writes what one step gave in one transaction, and waits while another one
writes.

Who compiles opens the file for reading only, and takes nothing on trust: a file that is none of ours, is of
another version, or does not hold together is refused as it is, and no answer of it is taken that the rule
does not offer. What is refused stays as it was.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, cast

from inlay.analysis.choices import Choice, Value
from inlay.base.diagnostics import InlayError, error
from inlay.base.span import Span
from inlay.tune.trial import Kind, Outcome, Place, Trial

VERSION = 1
_MAGIC = 0x494E4C59
_WAIT_SECONDS = 20.0
_MOST_TEXT = 1 << 16
_TABLES = """
CREATE TABLE place (
    id INTEGER PRIMARY KEY, processor TEXT NOT NULL, target TEXT NOT NULL, rules TEXT NOT NULL,
    threads INTEGER NOT NULL, UNIQUE (processor, target, rules, threads));
CREATE TABLE trial (
    place INTEGER NOT NULL REFERENCES place, kind TEXT NOT NULL, key TEXT NOT NULL, choice TEXT NOT NULL,
    origin TEXT NOT NULL, outcome TEXT NOT NULL, ns REAL NOT NULL, default_ns REAL NOT NULL,
    noise REAL NOT NULL, rounds INTEGER NOT NULL, kept INTEGER, said TEXT NOT NULL,
    PRIMARY KEY (place, kind, key, choice)) WITHOUT ROWID;
"""
_FIELDS = "choice, outcome, ns, default_ns, noise, rounds, kept, said"


@dataclass(frozen=True, slots=True)
class Entry:
    """A trial in a file, and what it is of.

    Attributes:
        place: that it holds for.
        kind, key: of what.
        origin: the operators, for people.
        trial: what came of it.
    """

    place: Place
    kind: Kind
    key: str
    origin: str
    trial: Trial


class Database:
    """A file of trials."""

    def __init__(self, path: Path) -> None:
        """Open a file, or make it.

        Raises:
            CompileError: `tune.damaged`, `tune.version`, `tune.busy`.
            OSError: it cannot be opened or made.
        """
        self._path = path
        _touch(path)
        with _told(path):
            self._file = _opened(path, "rwc")
            with self._file:
                self._file.execute("BEGIN IMMEDIATE")
                if _is_new(self._file):
                    for statement in _TABLES.split(";"):
                        self._file.execute(statement)
                    self._file.execute(f"PRAGMA application_id = {_MAGIC}")
                    self._file.execute(f"PRAGMA user_version = {VERSION}")
            _check(self._file, path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def trials(self, place: Place, kind: Kind, key: str) -> list[Trial]:
        """Return what was tried.

        Raises:
            CompileError: `tune.damaged`, `tune.busy`.
        """
        question = (
            f"SELECT {_FIELDS} FROM trial JOIN place ON place.id = trial.place WHERE processor = ? "
            "AND target = ? AND rules = ? AND threads = ? AND kind = ? AND key = ? ORDER BY choice"
        )
        with _told(self._path):
            rows = self._file.execute(question, (*astuple(place), kind, key)).fetchall()
            return [_trial(row) for row in rows]

    def record(self, place: Place, kind: Kind, key: str, origin: str, trials: Iterable[Trial]) -> None:
        """Add trials, or put them in the place of earlier ones of the same choices: all or none.

        Raises:
            CompileError: `tune.damaged`, `tune.busy`.
        """
        with _told(self._path), self._file:
            self._file.execute("BEGIN IMMEDIATE")
            words = (place.processor, place.target, place.rules, place.threads)
            known = "SELECT id FROM place WHERE processor = ? AND target = ? AND rules = ? AND threads = ?"
            self._file.execute(
                "INSERT OR IGNORE INTO place (processor, target, rules, threads) VALUES (?, ?, ?, ?)", words
            )
            (number,) = self._file.execute(known, words).fetchone()
            for t in trials:
                numbers = t.ns, t.default_ns, t.noise, t.rounds, None if t.kept is None else int(t.kept)
                self._file.execute(
                    "INSERT OR REPLACE INTO trial VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (number, str(kind), key, t.choice.key, origin, str(t.outcome), *numbers, t.said),
                )


def entries_of(path: Path) -> list[Entry]:
    """Return all trials of a file that won twice, which is not changed.

    Raises:
        CompileError: `tune.missing`, `tune.damaged`, `tune.version`, `tune.busy`.
    """
    if not path.exists():
        raise error("tune.missing", f"found no file {path}", hint=f"`inlay tune MODEL --db {path}` makes it")
    columns = f"processor, target, rules, threads, kind, key, origin, {_FIELDS}"
    with _told(path), contextlib.closing(_opened(path, "ro")) as file:
        _check(file, path)
        question = f"SELECT {columns} FROM trial JOIN place ON place.id = trial.place "
        rows = file.execute(question + "WHERE kept = 1 ORDER BY place, kind, key, choice").fetchall()
        return [_entry(row) for row in rows]


def _touch(path: Path) -> None:
    """Let the system say of a file that it cannot be made: SQLite says little."""
    with path.open("ab"):
        pass


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    file = sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON"):
        file.execute(f"PRAGMA {pragma}")
    return file


def _is_new(file: sqlite3.Connection) -> bool:
    (count,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return count == 0 and _pragma(file, "application_id") == 0


def _pragma(file: sqlite3.Connection, name: str) -> Any:
    (value,) = file.execute(f"PRAGMA {name}").fetchone()
    return value


def _check(file: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is none of ours, or does not hold together."""
    if _pragma(file, "application_id") != _MAGIC:
        raise _damaged(path, "a database of another program")
    if (version := _pragma(file, "user_version")) != VERSION:
        raise error(
            "tune.version",
            f"found version {version} of the file of measurements, needed {VERSION}",
            span=Span.named(str(path)),
            hint="give --db another name; the file stays as it is",
        )
    if (said := _pragma(file, "quick_check")) != "ok":
        raise _damaged(path, str(said))


@contextlib.contextmanager
def _told(path: Path) -> Generator[None, None, None]:
    """Turn what SQLite and rows say into errors of the file."""
    try:
        yield
    except sqlite3.OperationalError as failure:
        if "locked" not in str(failure) and "busy" not in str(failure):
            raise _damaged(path, str(failure)) from failure
        raise error(
            "tune.busy",
            f"another process has written to it for {_WAIT_SECONDS:.0f} seconds",
            span=Span.named(str(path)),
            hint="wait until it is done; what was measured before is in the file",
        ) from failure
    except (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError) as failure:
        raise _damaged(path, str(failure)) from failure


def _damaged(path: Path, found: str) -> InlayError:
    return error(
        "tune.damaged",
        f"found {found}, needed measurements of `inlay tune`",
        span=Span.named(str(path)),
        hint="give another file; this one stays as it is",
    )


# --------------------------------------------------------------------------- rows, which are not trusted


def _entry(row: tuple[Any, ...]) -> Entry:
    processor, target, rules, threads, kind, key, origin, *rest = row
    place = Place(_text(processor), _text(target), _text(rules), _count(threads))
    return Entry(place, Kind(_text(kind)), _text(key), _text(origin), _trial(rest))


def _trial(row: Iterable[Any]) -> Trial:
    choice, outcome, ns, default_ns, noise, rounds, kept, said = row
    found = Trial(
        _choice(_text(choice)),
        Outcome(_text(outcome)),
        _number(ns),
        _number(default_ns),
        _number(noise),
        _count(rounds),
        None if kept is None else bool(_count(kept)),
        _text(said),
    )
    if found.outcome is Outcome.MEASURED and not found.default_ns:
        raise ValueError("a measured trial without a time")
    return found


def _choice(text: str) -> Choice:
    read: object = json.loads(text)
    if not isinstance(read, dict):
        raise TypeError(f"the choice {text}")
    values = cast("Mapping[str, Any]", read)
    for name, value in values.items():
        if not isinstance(value, int | str) or isinstance(value, bool):
            raise TypeError(f"the answer {value!r} to {name}")
    return Choice.of(cast("Mapping[str, Value]", values))


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MOST_TEXT:
        raise TypeError(f"{type(value).__name__} where text is needed")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} where a number is needed")
    return float(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise ValueError(f"{value!r} where a count is needed")
    return value
