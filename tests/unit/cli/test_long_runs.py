"""What people see while something takes long."""

from __future__ import annotations

from inlay.base.instrument import Instrument
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
