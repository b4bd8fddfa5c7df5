"""What one client of a server does ends that client alone; what it may have is bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.base.diagnostics import RunError
from inlay.runtime.device import OpenDevice
from inlay.runtime.serve import Limits, Server
from tests.drivers.build import native_image, offers
from tests.drivers.proxy import Proxy
from tests.drivers.serving import Running, served
from tests.drivers.test_remote import N, compute, failing
from tests.drivers.test_remote_programs import board_at
from tests.system import need_zeromq
from tests.unit.placement.cases import read

pytestmark = [pytest.mark.cc, pytest.mark.llvm]
FOR_EVER = 1 << 60
"""Steps of the kernel `slow`: centuries."""
FAR = 1 << 40
"""Items of the kernel `affine`: it writes far beyond the end of its buffer."""
needs_proc = pytest.mark.skipif(
    not list(Path("/proc/self/task").glob("*/children")), reason="no /proc that tells children"
)


@pytest.fixture(scope="module")
def image() -> bytes:
    return native_image()


def start(device: OpenDevice, image: bytes, kernel: str, *ints: int) -> list:
    """Start a kernel and what waits for it."""
    program = device.load(image)
    x = np.ones(N, np.int32)
    a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
    written = device.copy(a, x)
    launched = device.launch(program, kernel, [a, b], list(ints), [1], after=[written])
    return [launched, device.copy(x, b, after=[launched])]


@contextlib.contextmanager
def others_go_on(words: str, image: bytes) -> Iterator[None]:
    """Other clients compute all the while, and what they compute is right."""
    failures: list[Exception] = []
    rounds = [0, 0]
    ends = threading.Event()

    def work(index: int) -> None:
        try:
            with OpenDevice("remote", words) as device:
                while not ends.is_set():
                    compute(device, image)
                    rounds[index] += 1
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    try:
        yield
        before = list(rounds)
        deadline = time.monotonic() + 60
        while any(a == b for a, b in zip(before, rounds, strict=True)) and not failures:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        ends.set()
        for t in threads:
            t.join()
    assert failures == []


def ended(pending: list, id: str, match: str) -> None:
    for p in pending:
        with failing(id, match=match):
            p.wait(60)


# ----------------------------------------------------------------------------------- faults of kernels


def test_a_kernel_that_writes_where_nothing_is_ends_its_own_client(suite, image):
    with (
        served(suite, "native", offers()) as server,
        others_go_on(server.words, image),
        OpenDevice("remote", server.words) as device,
    ):
        ended(start(device, image, "affine", FAR), "run.device-lost", r"signal 11 \(.*others are served")
        with failing("run.device-lost", match="signal 11"):
            device.allocate(4)
        with OpenDevice("remote", server.words) as again:
            compute(again, image)


def test_a_kernel_that_never_ends_is_ended(suite, image):
    with (
        served(suite, "native", offers(), seconds=2) as server,
        others_go_on(server.words, image),
        OpenDevice("remote", server.words) as device,
    ):
        ended(
            start(device, image, "slow", N, FOR_EVER),
            "run.server-limit",
            "takes longer than 2 s, which is all that the server allows",
        )
        with failing("run.server-limit", match="longer than 2 s"):
            device.load(image)


@pytest.mark.slow
@needs_proc
def test_a_client_that_goes_leaves_no_kernel_behind(suite, image):
    with served(suite, "native", offers()) as server:
        with OpenDevice("remote", f"{server.words} timeout=300") as device:
            start(device, image, "slow", N, FOR_EVER)
            assert processes_of(server)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
        server.process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(descendants(server.process.pid)) == 1)


@pytest.mark.slow
def test_many_short_kernels_may_take_longer_than_one_may(suite, image):
    """What waits in a queue, or for another queue, does not run yet."""
    with served(suite, "native", offers(), seconds=2) as server, OpenDevice("remote", server.words) as device:
        program = device.load(image)
        x = np.ones(N, np.int32)
        a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
        device.copy(a, x).wait()
        begun = time.monotonic()
        device.launch(program, "slow", [a, b], [N, 100_000], [1]).wait(60)
        many = int(4 / (time.monotonic() - begun))
        launches = [device.launch(program, "slow", [a, b], [N, 100_000], [1]) for _ in range(many)]
        device.copy(x, b, after=[launches[-1]]).wait(60)
        assert time.monotonic() - begun > 2


def processes_of(server: Running) -> list[int]:
    """Return the process that makes others, and that of the only client."""
    wait_until(lambda: len(descendants(server.process.pid)) == 2)  # one opened the device first
    return descendants(server.process.pid)


def descendants(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        children = [int(c) for c in (task / "children").read_text().split()]
        found += [d for c in children for d in (c, *descendants(c))]
    return found


def wait_until(holds, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@needs_proc
def test_processes_that_are_ended_from_outside(suite, image):
    with served(suite, "native", offers()) as server:
        with OpenDevice("remote", server.words) as device:
            compute(device, image)
            maker, worker = processes_of(server)
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: is_lost(device))
            with failing("run.device-lost", match=r"signal 9 \("):
                device.allocate(4)
        with OpenDevice("remote", server.words) as device:
            os.kill(maker, signal.SIGKILL)
            compute(device, image)  # has its process already
            wait_until(lambda: not is_there(maker))
            with failing("run.device-absent", match="can begin no more processes; start it again"):
                OpenDevice("remote", server.words)


@needs_proc
def test_a_server_that_is_killed_leaves_no_process(suite, image):
    with served(suite, "native", offers()) as server, OpenDevice("remote", server.words) as device:
        pending = start(device, image, "slow", N, FOR_EVER)
        processes = processes_of(server)
        server.process.kill()
        ended(pending, "run.device-lost", "connection was closed")
        wait_until(lambda: not any(is_there(p) for p in processes))


def is_lost(device: OpenDevice) -> bool:
    try:
        device.allocate(4).release()
    except RunError:
        return True
    return False


def is_there(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# ---------------------------------------------------------------------------------------- limits


def test_memory_is_counted_for_each_client(suite, image):
    most = 1 << 20
    with (
        served(suite, "native", offers(), memory=most) as server,
        OpenDevice("remote", server.words) as device,
        OpenDevice("remote", server.words) as other,
    ):
        assert device.facts.memory_bytes == device.facts.largest_bytes == most
        first = device.allocate(600_000)
        with failing("run.out-of-memory", match=r"6000\d\d bytes in use and 600000 asked for, .* 1048576"):
            device.allocate(600_000)
        with failing("run.out-of-memory", match="bytes in use and 1048577 asked for"):
            other.allocate(most + 1)
        second = other.allocate(600_000)
        first.release()
        device.allocate(600_000).release()
        compute(device, image)
        second.release()
        for _ in range(100):  # what is given back counts no more
            compute(other, image)
        with failing("run.out-of-memory", match="in use and 1048576 asked for"):
            kept = [device.allocate(0) for _ in range(100)]
            assert kept
            device.allocate(most)


def test_code_counts_as_memory(suite, image):
    most = len(image) + 1000
    with (
        served(suite, "native", offers(), memory=most) as server,
        OpenDevice("remote", server.words) as device,
    ):
        program = device.load(image)
        with failing("run.out-of-memory", match=f"{len(image)} asked for"):
            device.load(image)
        program.unload()
        device.load(image).unload()


def test_a_program_is_told_of_memory_that_it_may_not_have(suite, tmp_path):
    source = (
        'fn main<n>(x: Tensor[n, f32]) -> Tensor[n, f32] { on(far0, sigmoid(x)) } entry main("x") -> ("y");'
    )
    with served(suite, "native", offers(), memory=1 << 20) as server:
        exe = inlay.compile(read(source), board=board_at(tmp_path, server, "remote"), cache="none")
        for n in (1000, 1 << 20, 1000):
            x = np.linspace(-2, 2, n, dtype=np.float32)
            if n == 1000:
                np.testing.assert_allclose(exe.run({"x": x})["y"], 1 / (1 + np.exp(-x)), rtol=1e-5)
            else:
                with pytest.raises(RunError, match=r"'far0': .*\d+ asked for, .* --memory") as e:
                    exe.run({"x": x})
                assert e.value.ids == ("run.out-of-memory",)
            assert exe.live_objects() == 0


def test_idle_places_are_given_back(image):
    need_zeromq()
    with Server("native", "tcp://127.0.0.1:*", clients=1, key=None, limits=Limits(idle=1)) as server:
        words = f"endpoint={server.endpoint} key=none"
        with OpenDevice("remote", words) as idle:
            compute(idle, image)
            wait_until(lambda: comes_in(words))
            with failing("run.server-limit", match=r"nothing was asked for in 1 s.*--idle"):
                idle.allocate(4)


def comes_in(words: str) -> bool:
    try:
        OpenDevice("remote", words).close()
    except RunError as failure:
        return failure.ids != ("run.device-absent",)
    return True


@pytest.mark.slow
def test_who_waits_for_a_kernel_is_not_idle(suite, image):
    with served(suite, "native", offers(), idle=1) as server, OpenDevice("remote", server.words) as device:
        program = device.load(image)
        x = np.ones(N, np.int32)
        a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
        device.copy(a, x).wait()
        begun, steps = time.monotonic(), 100_000
        while time.monotonic() - begun < 1.3:
            begun = time.monotonic()
            device.launch(program, "slow", [a, b], [N, steps], [1]).wait(60)
            steps *= 4


# ---------------------------------------------------------------------------------------- digests


class Spoiler(Proxy):
    """A network that changes one bit of what goes to a server, behind a mark."""

    def __init__(self, server: str, mark: bytes) -> None:
        self.mark, self.left = mark, 1
        super().__init__(server)

    def changed(self, data: bytes) -> bytes:
        at = data.find(self.mark)
        if at < 0 or not self.left:
            return data
        self.left -= 1
        place = min(at + 300, len(data) - 1)
        return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def test_damaged_kernels_are_refused(suite, image):
    with served(suite, "native", offers()) as server, Spoiler(server.endpoint, image[:8]) as network:
        words = server.words.replace(server.endpoint, network.endpoint)
        with OpenDevice("remote", words) as device:
            with failing("run.build-failed", match=f"damaged on its way: {len(image)} bytes came"):
                device.load(image)
            assert not network.left
            compute(device, image)  # sent again it is whole


# -------------------------------------------------------------------------------- the key of the user


def as_user(home: Path, *words: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "HOME": str(home)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


@contextlib.contextmanager
def command(home: Path, *words: str) -> Iterator[str]:
    """Serve by the command, as a user; yield where it listens."""
    with as_user(home, "-m", "inlay", "serve", "--listen", "tcp://127.0.0.1:*", *words) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving host at "), process.stderr.read()
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(30)


KEY = ".config/inlay/remote.key"
OPEN = (
    "import sys; from inlay.runtime.device import OpenDevice; OpenDevice('remote', sys.argv[1]).allocate(4)"
)


def opens(home: Path, words: str) -> str:
    """Open a device as a user; return what that says, nothing where it is let in."""
    with as_user(home, "-c", OPEN, f"endpoint={words} connect=20000") as client:
        return client.communicate(timeout=60)[1]


def test_one_user_needs_no_word_and_a_stranger_is_refused(tmp_path):
    need_zeromq()
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    with command(one) as endpoint:
        assert (one / KEY).stat().st_mode & 0o777 == 0o600
        assert opens(one, endpoint) == ""
        assert f"another key or none, or is no server of devices; this side has that of {two / KEY}" in (
            opens(two, endpoint)
        )


@pytest.mark.slow
def test_who_has_the_key_needs_to_say_so_elsewhere(tmp_path):
    need_zeromq()
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    with command(one) as endpoint:
        assert "this side has none" in opens(one, f"{endpoint} key=none")
        assert opens(two, f"{endpoint} key={one / KEY}") == ""


@pytest.mark.slow
def test_anyone_who_is_let_in(tmp_path):
    need_zeromq()
    with command(tmp_path, "--anyone") as endpoint:
        assert opens(tmp_path, f"{endpoint} key=none") == ""
        assert not (tmp_path / ".config").exists()


def test_a_user_without_a_home_is_told_what_to_do(tmp_path, monkeypatch):
    need_zeromq()
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    for act in (
        lambda: OpenDevice("remote", "endpoint=tcp://127.0.0.1:9 connect=60"),
        lambda: Server("native", "tcp://127.0.0.1:*"),
    ):
        with failing(
            "run.bad-argument", match=r"cannot write a key: No such file .*; name a file .*--anyone"
        ):
            act()


def test_a_key_that_all_can_read_is_none(tmp_path, monkeypatch):
    need_zeromq()
    monkeypatch.setenv("HOME", str(tmp_path))
    with Server("native", "tcp://127.0.0.1:*") as server:
        OpenDevice("remote", f"endpoint={server.endpoint}").close()
        (tmp_path / ".config/inlay/remote.key").chmod(0o644)
        with failing("run.bad-argument", match="a key that all users can read"):
            OpenDevice("remote", f"endpoint={server.endpoint}")
