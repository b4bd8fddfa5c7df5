"""What people see while something takes long, and when sizes that nobody gave do not do."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from inlay.base.diagnostics import RunError, error
from inlay.base.instrument import Instrument
from inlay.cli._model import run_once
from inlay.cli._progress import PATIENCE_NS, _Watcher

SECOND = 1_000_000_000


def test_one_thing_that_takes_long_is_named_once():
    shown: list[str] = []
    now = [0]
    watcher = _Watcher(shown.append, SECOND)
    with Instrument(watcher, clock=lambda: now[0]).span("load-image"):
        for seconds in range(1, 8):
            watcher.tick(seconds * SECOND)
    assert [line.split()[-1] for line in shown] == ["load-image"]
    assert float(shown[0].split()[0]) * SECOND >= PATIENCE_NS


def test_sizes_that_were_guessed_are_named():
    def run(inputs):
        raise error("run.check-failed", "the window fits: found -184, needed at least 0")

    symbols = [SimpleNamespace(name="batch"), SimpleNamespace(name="time")]
    executable = SimpleNamespace(entries=[SimpleNamespace(symbols=symbols)], run=run)
    for given, hint in ([], "--dim time=512"), (["time=8"], "--dim batch=512"):
        arguments = argparse.Namespace(dim=given, inputs=None)
        with pytest.raises(RunError, match=hint):
            run_once(arguments, executable, {})
    arguments = argparse.Namespace(dim=["time=8", "batch=1"], inputs=None)
    with pytest.raises(RunError) as failure:
        run_once(arguments, executable, {})
    assert not failure.value.diagnostics[0].hint
