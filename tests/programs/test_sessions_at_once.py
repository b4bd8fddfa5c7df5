"""Sessions in several threads, each doing what comes to it: run, fail, be late, be given up, spill, save.

What each session has and gives is compared with calls, one after the other, that give all state back.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import RunError
from inlay.runtime.native import Settings
from inlay.runtime.request import Request
from inlay.runtime.session import Executable
from tests.programs.test_growing_state import DECODER, Copying, inputs

LONGEST = 300
ENDLESS = 10**9


class Client:
    """One session, what it should be, and where its files are."""

    def __init__(self, executable: Executable, reference: Executable, folder: Path, seed: int) -> None:
        self.executable, self.reference = executable, reference
        self.file, self.kept = folder / f"{seed}.state", folder / f"{seed}.kept"
        self.random = np.random.default_rng(seed)
        self.begin()

    def begin(self) -> None:
        self.session, self.copying = self.executable.session(), Copying(self.reference)
        self.saved: dict[str, Any] | None = None

    def expect(self, given: dict[str, np.ndarray], found: dict[str, Any]) -> None:
        expected = self.copying.run(given)
        assert all(np.array_equal(found[n], expected[n]) for n in expected)

    def may_fail(self, given: dict[str, np.ndarray], submit: Callable[[], Request]) -> None:
        """A request with little time is refused at once, fails, or is in time."""
        try:
            found = submit().result(60)
        except RunError:
            return
        self.expect(given, found)

    def act(self) -> None:
        length = self.copying.state["keys"].shape[1]
        seed, at, turns = (int(self.random.integers(n)) for n in (1 << 30, length + 1, 20))
        given = inputs(seed, at=at, turns=turns)
        match int(self.random.integers(11)):
            case 0 | 1 | 2:
                self.expect(given, self.session.run(given))
            case 3 | 4:
                for request in [self.session.submit(given) for _ in range(3)]:
                    self.expect(given, request.result(60))
            case 5:
                with pytest.raises(RunError):
                    self.session.run({**given, "at": np.array(10**6)})
            case 6:
                with pytest.raises(RunError):
                    self.session.submit({**given, "turns": np.array(ENDLESS)}, timeout=0.005).result(60)
                self.expect(given, self.session.submit(given).result(60))
            case 7:
                request = self.session.submit(given)
                time.sleep(float(self.random.uniform(0, 0.0005)))
                request.cancel()
                self.may_fail(given, lambda: request)
            case 8:
                timeout = float(self.random.uniform(0, 0.002))
                self.may_fail(given, lambda: self.session.submit(given, timeout=timeout))
            case 9:
                self.session.spill(self.file if self.random.integers(2) else None)
            case _ if self.saved is None:
                self.session.save(self.kept)
                self.saved = dict(self.copying.state)
            case _:
                self.session.restore(self.kept)
                self.copying.state, self.saved = self.saved, None
        if length > LONGEST:
            self.begin()

    def check(self) -> None:
        state = self.session.state
        assert all(np.array_equal(state[n], a) for n, a in self.copying.state.items())


def drive(folder: Path, settings: Settings, *, batch: bool, clients: int, seconds: float) -> int:
    """Return how much was done."""
    file, failures, done = folder / "decoder.inlay", list[BaseException](), list[int]()
    inlay.compile(io.StringIO(DECODER), threads=1, batch=batch).save(file)
    executable = inlay.load_executable(file, settings=settings)
    reference = inlay.load_executable(file, threads=1, mode="sequential")
    until = time.monotonic() + seconds

    def work(seed: int) -> None:
        try:
            client = Client(executable, reference, folder, seed)
            while time.monotonic() < until and not failures:
                for _ in range(5):
                    client.act()
                    done.append(1)
                client.check()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return len(done)


def test_two_sessions_at_once(tmp_path: Path) -> None:
    assert drive(tmp_path, Settings(threads=2, activations=2), batch=False, clients=2, seconds=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "parallel", "sequential"])
@pytest.mark.parametrize("batch", [False, True])
def test_sessions_at_once(batch: bool, mode: Any, tmp_path: Path) -> None:
    settings = Settings(threads=2, activations=6, mode=mode)
    assert drive(tmp_path, settings, batch=batch, clients=8, seconds=5) > 100
