"""What happens to a running program when the server of its device dies or hangs, or the network does."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import RunError
from tests.drivers.build import offers
from tests.drivers.proxy import Proxy
from tests.drivers.serving import served
from tests.drivers.test_remote_programs import board_at
from tests.unit.placement.cases import read

pytestmark = [pytest.mark.cc, pytest.mark.llvm]

TURNS = read("""
fn main<n>(x: Tensor[64, 64, f32], turns: Tensor[n, f32]) -> (Tensor[64, 64, f32], Tensor[n, f32]) {
  let loop = fn<i>(i: int[i], h: Tensor[64, 64, f32]) -> Tensor[64, 64, f32] {
    if (int_less(int(i), int(n))) { loop(int(i + 1), on(far0, sigmoid(h))) } else { h }
  };
  (loop(int(0), x), turns)
}
entry main("x", "turns") -> ("y", "z");
""")
"""A device takes as many turns as an input is long."""
MODES = [pytest.param("sequential", marks=pytest.mark.slow), "parallel"]


def turns(n: int) -> dict[str, np.ndarray]:
    x = np.linspace(-3, 3, 64 * 64, dtype=np.float32).reshape(64, 64)
    return {"x": x, "turns": np.zeros(n, np.float32)}


def works(exe: inlay.Executable) -> None:
    """A short run is right."""
    want = turns(3)["x"].astype(np.float64)
    for _ in range(3):
        want = 1 / (1 + np.exp(-want))
    np.testing.assert_allclose(exe.run(turns(3))["y"], want, rtol=1e-5)
    assert exe.live_objects() == 0


def fails_in_the_middle(exe: inlay.Executable, endpoint: str, why: str, act: Callable) -> None:
    """A long run fails by `act`, and tells device, place, reason and operation."""
    timer = threading.Timer(0.3, act)
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(RunError, match=why) as failure:
            exe.run(turns(4_000_000))
    finally:
        timer.join()
    assert time.monotonic() - begun > 0.25
    assert failure.value.ids == ("run.device-lost",)
    assert re.search(
        rf"device 'far0': the device at {endpoint}: .*\((kernel '\w+'|where memory was asked for)\)",
        str(failure.value),
    )
    assert exe.live_objects() == 0


def compiled(folder: Path, server: object, words: str, mode: str) -> inlay.Executable:
    board = Path(board_at(folder, server, "remote"))
    board.write_text(board.read_text().replace(" }\nlaunch", f", {words} }}\nlaunch"))
    assert words in board.read_text()
    return inlay.compile(TURNS, board=str(board), cache="none", threads=2, mode=mode)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_is_killed_and_started_again(mode, suite, tmp_path):
    with served(suite, "native", offers()) as server:
        exe = compiled(tmp_path, server, "connect = 200", mode)
        works(exe)
        fails_in_the_middle(exe, server.endpoint, "connection was closed", server.process.kill)
        with pytest.raises(RunError, match="nothing answers within 200 ms") as failure:
            exe.run(turns(3))
        assert failure.value.ids == ("run.device-absent",)
    with served(suite, "native", offers(), server.endpoint):
        works(exe)


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_hangs_and_goes_on(mode, suite, tmp_path):
    with served(suite, "native", offers()) as server:
        exe = compiled(tmp_path, server, "timeout = 400", mode)
        stop = lambda: server.process.send_signal(signal.SIGSTOP)  # noqa: E731
        fails_in_the_middle(exe, server.endpoint, "has not answered for 400 ms", stop)
        server.process.send_signal(signal.SIGCONT)
        works(exe)


def test_a_server_whose_processor_lacks_what_the_code_needs_is_refused_again_and_again(suite, tmp_path):
    with served(suite, "native", offers()) as server:
        exe = compiled(tmp_path, server, "connect = 2000", "sequential")
        works(exe)
        server.process.kill()
        with pytest.raises(RunError, match=server.endpoint):
            exe.run(turns(3))
    with served(suite, "native", "", server.endpoint):  # offers its architecture and no more
        for _ in range(2):
            with pytest.raises(RunError, match="the image needs") as failure:
                exe.run(turns(3))
            assert failure.value.ids == ("run.build-failed",)
    with served(suite, "native", offers(), server.endpoint):
        works(exe)


def test_a_network_that_is_late_silent_and_cut(suite, tmp_path):
    with served(suite, "native", offers()) as server, Proxy(server.endpoint, 0.01) as network:
        exe = compiled(tmp_path, network, "timeout = 400", "parallel")
        begun = time.monotonic()
        works(exe)
        assert time.monotonic() - begun > 0.04  # there and back, at least
        fails_in_the_middle(exe, network.endpoint, "has not answered for 400 ms", network.stall)
        network.resume()
        works(exe)
        fails_in_the_middle(exe, network.endpoint, "connection was closed", network.cut)
        works(exe)


def test_calls_of_many_threads_that_lose_a_device_share_the_next_one(suite, tmp_path):
    failures: list[str] = []

    def work() -> None:
        for n in (4_000_000, 3):
            try:
                exe.run(turns(n))
            except RunError as failure:
                failures.append(f"{n}: {failure.ids[0]}")

    with served(suite, "native", offers()) as server, Proxy(server.endpoint) as network:
        exe = compiled(tmp_path, network, "timeout = 5000", "sequential")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.3)
        network.cut()
        for t in threads:
            t.join()
        works(exe)
    assert failures == ["4000000: run.device-lost"] * 4


def test_a_device_that_was_lost_between_calls_is_opened_again_at_once(suite, tmp_path):
    with served(suite, "native", offers()) as server:
        exe = compiled(tmp_path, server, "connect = 2000", "sequential")
        works(exe)
        server.process.kill()
        server.process.wait()
        with served(suite, "native", offers(), server.endpoint, idle=1):
            for _ in range(2):  # the second time it was idle for too long
                wait_until(exe._engine.is_lost)
                works(exe)
