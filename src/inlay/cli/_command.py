"""What a command is, and how it speaks: text for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from inlay.base.diagnostics import printable

SCHEMA = 1
"""Version of what programs get: it counts up when something is renamed, moved or removed."""


def print_json(record: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Print one JSON object, with the version of its form."""
    text = json.dumps(_plain({"schema": SCHEMA, **record}), indent=indent, allow_nan=False)
    print(text, flush=True)


def warn(text: str) -> None:
    """Print a line to the error stream: what is no result."""
    print(printable(text), file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    """Return a value in the terms of JSON: numbers as numbers, those that are none as null."""
    match value:
        case str() | bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {str(key): _plain(item) for key, item in items}
        case list() | tuple():
            return [_plain(item) for item in cast("Sequence[Any]", value)]
        case Path():
            return str(value)
        case _ if hasattr(value, "item"):  # a number of NumPy
            return _plain(value.item())
        case _:
            raise TypeError(f"found {type(value).__name__} in what is printed as JSON")


class Output:
    """Where a command's words go: text to people, or at the end one JSON object to programs.

    Names in what is said come from files of others: what is printed here cannot command a terminal,
    and a line stays one.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._record: dict[str, Any] = {}
        self._is_finished = False

    def say(self, line: str = "") -> None:
        """Print a line for people; programs do not see it."""
        if not self.as_json:
            print(printable(line), flush=True)

    def show(self, text: str) -> None:
        """Print a text of several lines for people: one whose line ends are not those of a name."""
        if not self.as_json:
            print(printable(text, lines=True), flush=True)

    def record(self, **facts: Any) -> None:
        """Add facts to what programs get; people do not see them."""
        self._record.update(facts)

    def announce(self, text: str, **facts: Any) -> None:
        """Print one line now, to people as text and to programs as a JSON object, their last."""
        self._is_finished = True
        if self.as_json:
            print_json(facts, indent=None)
        else:
            self.say(text)

    def finish(self) -> None:
        """Print what programs get, unless that was announced."""
        if self.as_json and not self._is_finished:
            print_json(self._record)


@dataclass(frozen=True, slots=True)
class Command:
    """A command; what it is for, in lists, is the first line of its file.

    Attributes:
        add_arguments: declares what it takes.
        run: does it; returns the exit code.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], int]
