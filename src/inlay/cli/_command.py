"""What a command is, and how it speaks: text for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Output:
    """Where a command's words go: text to people, or at the end one JSON object to programs."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._record: dict[str, Any] = {}
        self._is_finished = False

    def say(self, text: str = "") -> None:
        """Print a line for people; programs do not see it."""
        if not self.as_json:
            print(text, flush=True)

    def record(self, **facts: Any) -> None:
        """Add facts to what programs get; people do not see them."""
        self._record.update(facts)

    def announce(self, text: str, **facts: Any) -> None:
        """Print one line now, to people as text and to programs as a JSON object, their last."""
        self._is_finished = True
        print(json.dumps(facts, default=str) if self.as_json else text, flush=True)

    def finish(self) -> None:
        """Print what programs get, unless that was announced."""
        if self.as_json and not self._is_finished:
            json.dump(self._record, sys.stdout, indent=2, default=str)
            sys.stdout.write("\n")


@dataclass(frozen=True, slots=True)
class Command:
    """A command; what it is for, in lists, is the first line of its file.

    Attributes:
        add_arguments: declares what it takes.
        run: does it; returns the exit code.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Output], int]
