"""Remote devices when things go wrong: servers that die, hang or lie, and clients that do."""

from __future__ import annotations

import contextlib
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.runtime.device import COPY, OpenDevice
from inlay.runtime.drivers import zeromq_library
from inlay.runtime.serve import Server
from tests.drivers import serving as wire
from tests.drivers.build import NAME_OF_KERNELS, native_image, offers
from tests.drivers.serving import Running, served
from tests.system import need_zeromq

pytestmark = [pytest.mark.cc, pytest.mark.llvm]
N = 1000


@pytest.fixture(scope="module")
def image() -> bytes:
    return native_image()


@pytest.fixture
def server(suite) -> Iterator[Running]:
    with served(suite, "native", offers()) as running:
        yield running


def compute(device: OpenDevice, image: bytes) -> None:
    """Compute something and look at it."""
    program = device.load(image)
    x, y = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
    written = device.copy(a, x)
    launched = device.launch(program, "affine", [a, b], [N], [3], after=[written])
    device.copy(y, b, after=[launched]).wait()
    np.testing.assert_array_equal(y, 3 * x + 1)
    a.release()
    b.release()
    program.unload()


def slow(device: OpenDevice, image: bytes) -> list:
    """Start what takes a second or more, and what waits for it."""
    program = device.load(image)
    x = np.ones(N, np.int32)
    a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
    written = device.copy(a, x)
    launched = device.launch(program, "slow", [a, b], [N, 3_000_000], [1], after=[written])
    read = device.copy(x, b, after=[launched])
    written.wait(20)
    return [launched, read]


@contextlib.contextmanager
def failing(*ids: str, match: str = ".") -> Iterator[None]:
    with pytest.raises(RunError, match=match) as failure:
        yield
    assert failure.value.ids == ids


def eventually(action: Callable[[], None]) -> None:
    """Try for some seconds: what a server does after a client has gone takes a moment."""
    end = time.monotonic() + 20
    while True:
        try:
            return action()
        except RunError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


# ------------------------------------------------------------------------------- servers that fail


def lost(device: OpenDevice, pending: list, match: str) -> None:
    for p in pending:
        with failing("run.device-lost", match=match):
            p.wait(30)
    with failing("run.device-lost", match=match):
        device.allocate(4)
    with failing("run.device-lost", match=match):
        device.load(b"")


def test_a_server_that_is_killed(suite, server, image):
    with OpenDevice("remote", server.words) as device:
        pending = slow(device, image)
        server.process.kill()
        lost(device, pending, f"{server.endpoint}: the connection was closed")
        # The device is lost, its process is not: another server at the same place serves another.
        with served(suite, "native", offers(), server.endpoint) as again:
            with OpenDevice("remote", again.words) as other:
                compute(other, image)
            with failing("run.device-lost"):
                device.allocate(4)


def test_a_server_that_hangs(server, image):
    with OpenDevice("remote", f"{server.words} timeout=700") as device:
        pending = slow(device, image)
        server.process.send_signal(signal.SIGSTOP)
        lost(device, pending, "has not answered for 700 ms")
    server.process.send_signal(signal.SIGCONT)
    with OpenDevice("remote", server.words) as device:
        compute(device, image)


def test_a_device_that_works_for_longer_than_the_time_out_is_no_failure(server, image):
    with OpenDevice("remote", f"{server.words} timeout=300") as device:
        program = device.load(image)
        x = np.ones(N, np.int32)
        a, b = device.allocate(x.nbytes), device.allocate(x.nbytes)
        device.copy(a, x).wait()
        begun, steps = time.monotonic(), 100_000
        while time.monotonic() - begun < 0.7:
            begun = time.monotonic()
            device.launch(program, "slow", [a, b], [N, steps], [1]).wait(60)
            steps *= 4


def test_nobody_answers():
    with failing("run.device-absent", match=r"127\.0\.0\.1:9.*nothing answers within 60 ms|libzmq"):
        OpenDevice("remote", "endpoint=tcp://127.0.0.1:9 connect=60 key=none")


def test_options_are_checked():
    for words in ("", "endpoint=", "endpoint=tcp://127.0.0.1:9 window=1", "timeout=no"):
        with failing("run.bad-argument", match="options are endpoint="):
            OpenDevice("remote", words)
    with failing("run.device-absent", match="no ZeroMQ library at /nowhere"):
        OpenDevice("remote", "endpoint=tcp://127.0.0.1:9 library=/nowhere")


def test_an_endpoint_that_is_none():
    need_zeromq()
    with failing("run.bad-argument", match="cannot connect to nonsense"):
        OpenDevice("remote", "endpoint=nonsense key=none")
    with failing("run.bad-argument", match="cannot listen at tcp://256"):
        Server("native", "tcp://256.0.0.1:1", key=None)


# ---------------------------------------------------------------------------------- what is refused


def test_what_the_device_refuses_is_told_and_order_stays(server, image):
    with OpenDevice("remote", server.words) as device:
        program = device.load(image)
        memory = device.allocate(4 * N)
        wrong = device.launch(program, "affine", [memory], [N], [1])
        after = device.copy(np.zeros(N, np.int32), memory, after=[wrong])
        with failing("run.bad-argument", match="another number of buffers"):
            wrong.wait()
        after.wait()
        compute(device, image)


def test_an_image_for_another_processor(server, image):
    needs = struct.unpack_from("<I", image, 8)[0]
    other = image[:8] + wire.text("x86_64 wings aarch64") + image[12 + needs :]
    with OpenDevice("remote", server.words) as device:
        with failing("run.build-failed", match="needs (wings|x86_64)"):
            device.load(other)
        for size in (0, 7, 12, 40, len(image) - len(image) // 2):
            with failing("run.build-failed", match="image"):
                device.load(image[:size])
        compute(device, image)


def test_no_more_clients_than_the_server_takes(image):
    need_zeromq()
    with Server("native", "tcp://127.0.0.1:*", clients=1, key=None) as small:
        words = f"endpoint={small.endpoint} key=none"
        with OpenDevice("remote", words) as device:
            with failing("run.device-absent", match="1 clients, as many as it takes"):
                OpenDevice("remote", words)
            compute(device, image)

        def again() -> None:
            with OpenDevice("remote", words) as device:
                compute(device, image)

        eventually(again)


def test_a_client_that_dies_is_forgotten():
    need_zeromq()
    with Server("native", "tcp://127.0.0.1:*", clients=1, key=None) as small:
        words = f"endpoint={small.endpoint} timeout=300 key=none"
        program = (
            f"from inlay.runtime.device import OpenDevice\nd = OpenDevice('remote', {words!r})\n"
            "d.allocate(100)\nprint('here', flush=True)\ninput()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout.readline() == "here\n"
            client.kill()
        eventually(lambda: OpenDevice("remote", words).close())


# --------------------------------------------------------------------------------- large and many


def test_copies_beyond_the_window_let_others_pass(server):
    rng = np.random.default_rng(3)
    data = rng.integers(0, 255, (24 << 20) + 12345, np.uint8)
    back = np.zeros_like(data)
    with OpenDevice("remote", f"{server.words} window=4") as device:
        memory, small = device.allocate(data.nbytes + 7), device.allocate(64)
        written = device.copy(memory.at(7), data)
        other = device.copy(small, data[:64], queue=0)
        read = device.copy(back, memory.at(7), after=[written])
        other.wait(30)
        read.wait(60)
        memory.release()
        small.release()
    np.testing.assert_array_equal(back, data)


def test_many_clients_at_once(server, image):
    failures = []

    def work() -> None:
        try:
            for _ in range(3):
                with OpenDevice("remote", server.words) as device:
                    compute(device, image)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


def test_from_the_command_line(image):
    need_zeromq()
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [sys.executable, "-m", "inlay", "serve", "--anyone", "--listen", "tcp://127.0.0.1:*"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            line = process.stdout.readline()
            assert line.startswith("serving host at tcp://127.0.0.1:")
            try:
                with OpenDevice("remote", f"endpoint={line.split()[-1]} key=none") as device:
                    compute(device, image)
            finally:
                process.send_signal(number)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""


# ------------------------------------------------------------------------------- peers that lie


def sockets() -> tuple:
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    context = zmq.Context()
    return zmq, context


def test_a_client_of_another_version_is_refused(server):
    zmq, context = sockets()
    with context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.connect(server.endpoint)
        peer.send(wire.head(wire.HELLO, "QII", wire.MAGIC, 4, 5000) + b"and more of version 4")
        assert peer.poll(10_000)
        answer = peer.recv()
        assert struct.unpack_from("<IQI", answer) == (wire.REFUSED, wire.MAGIC, wire.VERSION)


def requests() -> list[list[bytes]]:
    """Return messages that make sense after each other, as frames."""
    one = struct.pack("<IQI", COPY, 1, 0)
    return [
        [wire.head(wire.PING)],
        [wire.head(wire.LOAD, "I", 1) + sha256(NAME_OF_KERNELS.encode()).digest(), NAME_OF_KERNELS.encode()],
        [wire.head(wire.FIND, "III", 2, 0, 1) + wire.text("affine")],
        [wire.head(wire.ALLOCATE, "IIQ", 3, 0, 400)],
        [wire.head(wire.ALLOCATE, "IIQ", 4, 0, 400)],
        [wire.head(wire.WRITE) + one + struct.pack("<IQ", 0, 0), bytes(400)],
        [
            wire.head(wire.LAUNCH)
            + struct.pack("<IQIIQ", 0, 1, 1, COPY, 1)
            + struct.pack("<III", 0, 0, 2)
            + struct.pack("<IQIQ", 0, 0, 1, 0)
            + struct.pack("<IqIq", 1, 100, 1, 0)
        ],
        [wire.head(wire.COPY) + struct.pack("<IQI", 1, 2, 0) + struct.pack("<IQIQQ", 1, 0, 0, 8, 64)],
        [wire.head(wire.READ) + struct.pack("<IQI", 1, 3, 0) + struct.pack("<IQQ", 1, 0, 400)],
        [wire.head(wire.RELEASE, "I", 0)],
        [wire.head(wire.UNLOAD, "I", 0)],
    ]


def spoil(frames: list[bytes], rng: random.Random) -> list[bytes]:
    """Return a message with something wrong in it, mostly."""
    frames = [bytearray(f) for f in frames]
    f = rng.choice(frames)
    match rng.randrange(6):
        case 0 if f:
            f[rng.randrange(len(f))] ^= 1 << rng.randrange(8)
        case 1 if f:
            del f[rng.randrange(len(f)) :]
        case 2:
            f += rng.randbytes(rng.randrange(1, 40))
        case 3 if len(f) >= 8:
            at = 4 * rng.randrange(1, len(f) // 4)
            f[at : at + 4] = struct.pack("<I", rng.choice([0, 1, 2**31, 2**32 - 1, 4001]))
        case 4:
            frames += [bytearray(rng.randbytes(rng.randrange(9)))]
        case _:
            frames = [bytearray(rng.randbytes(rng.randrange(200))) for _ in range(rng.randrange(1, 4))]
    return [bytes(f) for f in frames]


@pytest.mark.parametrize("driver", ["host", "null"])
@pytest.mark.parametrize(
    "rounds", [pytest.param(100, id="some"), pytest.param(4000, id="many", marks=pytest.mark.slow)]
)
def test_clients_that_send_nonsense(suite, driver, rounds):
    """Other clients notice nothing, and the server has no fault under sanitizers."""
    zmq, context = sockets()
    rng = random.Random(5)
    # A host would really take, and fill, the gigabytes of a spoiled allocation.
    with served(suite, driver, "memory=1000000" if driver == "host" else "") as server, context:
        for _ in range(rounds):
            messages = [[wire.HELLO_HEAD], *requests()]
            for at in rng.sample(range(len(messages)), rng.randrange(1, 4)):
                # What a client runs is its own affair: a kernel with wrong integers writes anywhere. So
                # launches are spoiled only where nothing runs.
                if driver == "null" or messages[at][0][0] != wire.LAUNCH:
                    messages[at] = spoil(messages[at], rng)
            if rng.randrange(3) == 0:
                rng.shuffle(messages)
            with context.socket(zmq.DEALER) as peer:
                peer.linger = 200
                peer.connect(server.endpoint)
                for frames in messages:
                    peer.send_multipart(frames)
                if rng.randrange(2):
                    peer.poll(20)
                peer.send(wire.head(wire.BYE))

        def again() -> None:
            with OpenDevice("remote", server.words) as device:
                data = np.arange(100, dtype=np.uint8)
                memory = device.allocate(100)
                device.copy(memory, data).wait(20)
                memory.release()

        eventually(again)


class Liar:
    """A server that answers with what `answer` makes of each message."""

    def __init__(self, answer: Callable[[bytes, int], list[list[bytes]]]) -> None:
        self.zmq, self.context = sockets()
        self.socket = self.context.socket(self.zmq.ROUTER)
        self.socket.linger = 0
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.answer = answer
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        n = 0
        while not self.ends.is_set():
            if not self.socket.poll(20):
                continue
            name, *frames = self.socket.recv_multipart()
            for answer in self.answer(frames[0], n):
                self.socket.send_multipart([name, *answer])
            n += 1

    def __enter__(self) -> Liar:
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.thread.join()
        self.socket.close()
        self.context.term()


def honest(message: bytes, _: int) -> list[list[bytes]]:
    """Answer as a server would that computes nothing."""
    kind, first = struct.unpack_from("<II", message.ljust(8, b"\0"))
    match kind:
        case wire.HELLO:
            return [[wire.WELCOME_HEAD]]
        case wire.PING:
            return [[wire.head(wire.PONG, "q", 0)]]
        case wire.ALLOCATE | wire.LOAD | wire.FIND:
            return [[wire.head(wire.ANSWER, "IIq", first, 0, 0) + wire.text("")]]
        case wire.WRITE | wire.COPY | wire.LAUNCH | wire.READ:
            queue, number = struct.unpack_from("<IQ", message, 4)
            body = []
            if kind == wire.READ:
                body = [bytes(struct.unpack_from("<Q", message, len(message) - 8)[0])]
            return [[wire.head(wire.DONE, "IQIqqq", queue, number, 0, 0, 0, 0) + wire.text(""), *body]]
    return []


def use(endpoint: str) -> None:
    """Do a bit of everything; raises what goes wrong."""
    with OpenDevice("remote", f"endpoint={endpoint} timeout=400 connect=400 key=none") as device:
        data = np.zeros(100, np.uint8)
        program = device.load(b"an image")
        memory = device.allocate(100)
        device.copy(memory, data)
        device.launch(program, "any", [memory], [1], [1])
        read = device.copy(data, memory)
        read.wait(20)
        memory.release()
        program.unload()


def test_an_honest_fake_is_believed():
    with Liar(honest) as liar:
        use(liar.endpoint)


@pytest.mark.parametrize(
    ("answer", "id", "match"),
    [
        (
            lambda m, n: [[wire.head(wire.WELCOME, "QI", wire.MAGIC, 2) + b"what was in 2"]],
            "run.device-absent",
            "speaks version 2, needed 3: use the same release",
        ),
        (
            lambda m, n: [[wire.head(wire.REFUSED, "QI", wire.MAGIC, 2) + b"what was in 2"]],
            "run.device-absent",
            "speaks version 2, needed 3: use the same release",
        ),
        (lambda m, n: [[b"220 mail.example.com ESMTP"]], "run.device-absent", "not asked for"),
        (lambda m, n: [], "run.device-absent", "has not answered within 400 ms"),
        (lambda m, n: [[wire.WELCOME_HEAD[:-4]]], "run.device-absent", "make no sense"),
        (lambda m, n: honest(m, n) * 2, "run.device-lost", "make no sense"),
        (
            lambda m, n: honest(m, n) if n < 1 else [[wire.head(wire.ANSWER, "I", 1)]],
            "run.device-lost",
            "not asked for",
        ),
        (
            lambda m, n: (
                honest(m, n) if n < 2 else [[wire.head(wire.FAILED, "I", 0) + wire.text("tired\x1b[2J")]]
            ),
            "run.device-lost",
            r"gives up: tired\?\[2J",
        ),
        (
            lambda m, n: honest(m, n) if n < 3 else [[*honest(m, n)[0], b"more", b"and more"]],
            "run.device-lost",
            "not asked for|too many parts",
        ),
        (lambda m, n: honest(m, n) if n < 2 else [], "run.device-lost", "has not answered for 400 ms"),
    ],
    ids=["version", "refusal", "mail", "silent", "short", "twice", "stub", "failed", "parts", "mute"],
)
def test_servers_that_lie(answer, id, match):
    with Liar(answer) as liar, failing(id, match=match):
        use(liar.endpoint)


@pytest.mark.parametrize(
    "rounds", [pytest.param(40, id="some"), pytest.param(1500, id="many", marks=pytest.mark.slow)]
)
def test_servers_that_send_nonsense(suite, rounds):
    """Whatever comes back, a client under sanitizers ends by itself and without a fault."""
    library = zeromq_library() or ""
    for seed in range(rounds):
        rng = random.Random(seed)

        def answer(message: bytes, n: int, rng: random.Random = rng) -> list[list[bytes]]:
            answers = honest(message, n)
            return [spoil(a, rng) if rng.randrange(6) == 0 else a for a in answers]

        with Liar(answer) as liar:
            words = f"endpoint={liar.endpoint} timeout=150 connect=150 key=none"
            words += f" library={library}" if library else ""
            done = subprocess.run(
                [suite / "suite", "remote-null", words],
                check=False,
                capture_output=True,
                text=True,
                timeout=120,
                env={"ASAN_OPTIONS": "detect_leaks=0"},
            )
        assert done.returncode in (0, 1), done.stderr
        assert "Sanitizer" not in done.stderr, done.stderr
