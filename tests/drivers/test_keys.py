"""Servers with keys: who has the key uses the device, nobody else gets in."""

from __future__ import annotations

import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from inlay.base.diagnostics import RunError
from inlay.cli.main import main
from inlay.runtime.device import OpenDevice
from inlay.runtime.drivers import zeromq_library
from inlay.runtime.serve import make_key
from tests.drivers.serving import HELLO_HEAD, Running, served
from tests.system import need, need_zeromq

pytestmark = [pytest.mark.cc, pytest.mark.llvm]


@pytest.fixture
def key(tmp_path) -> Path:
    path = tmp_path / "key"
    assert make_key(path) == (path, True)
    return path


@pytest.fixture
def server(suite, key) -> Iterator[Running]:
    with served(suite, "native", "", key=key) as running:
        yield running


def refused(words: str, match: str, id: str = "run.device-absent") -> None:
    with pytest.raises(RunError, match=match) as failure:
        OpenDevice("remote", words)
    assert failure.value.ids == (id,)


def exchange(words: str) -> None:
    """Move some bytes there and back."""
    data = np.arange(100_000, dtype=np.int32)
    back = np.zeros_like(data)
    with OpenDevice("remote", words) as device:
        memory = device.allocate(data.nbytes)
        written = device.copy(memory, data)
        device.copy(back, memory, after=[written]).wait(20)
        memory.release()
    np.testing.assert_array_equal(back, data)


def test_who_has_the_key_comes_in_and_others_do_not(server, tmp_path):
    words = server.words.rsplit(" ", 1)[0]
    exchange(server.words)
    refused(f"{words} key=none connect=2000", "another key or none")
    other = tmp_path / "other"
    make_key(other)
    refused(f"{words} key={other} connect=2000", "another key or none")
    exchange(server.words)


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
int zmq_msg_send(void *message, void *socket, int flags)
{
    int (*send)(void *, void *, int);
    void *found = dlsym(RTLD_NEXT, "zmq_msg_send");
    memcpy(&send, &found, sizeof send);
    usleep(300000);
    return send(message, socket, flags);
}
"""
"""A ZeroMQ that sends late, as a busy machine does: a refused connection has ended by then."""


@pytest.fixture(scope="module")
def late(tmp_path_factory) -> Path:
    need("gcc")
    need_zeromq()
    library = zeromq_library()
    folder = tmp_path_factory.mktemp("late")
    (folder / "late.c").write_text(SLOW)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "late.c", "-o", "late.so", "-Wl,--no-as-needed", library, "-ldl"],
        cwd=folder,
        check=True,
    )
    return folder / "late.so"


def test_a_wrong_key_is_named_however_late_the_greeting_is(server, suite, late, tmp_path):
    other = tmp_path / "other"
    make_key(other)
    for key in (other, "none"):
        words = f"endpoint={server.endpoint} library={late} key={key} connect=20000"
        refused(words, "another key or none")
    with served(suite, "native", "") as open_to_all:
        words = f"endpoint={open_to_all.endpoint} library={late} key={other} connect=20000"
        refused(words, "another key or none")


def test_who_does_not_let_in_is_told_from_nobody(tmp_path):
    """A server that listens and stands still; and who greets nobody at all."""
    need_zeromq()
    key = tmp_path / "key"
    make_key(key)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        words = f"endpoint=tcp://127.0.0.1:{mute.getsockname()[1]} key={key} connect=300"
        refused(words, "has not let this client in within 300 ms: it has another key or none")
    refused(f"{words}", "nothing answers within 300 ms")


def test_a_server_that_has_just_ended_is_no_wrong_key():
    """It hangs up before it greets, once; who tries again finds nobody."""
    need_zeromq()
    with socket.create_server(("127.0.0.1", 0)) as ending:
        port = ending.getsockname()[1]

        def end() -> None:
            client, _ = ending.accept()
            ending.close()
            client.close()

        thread = threading.Thread(target=end)
        thread.start()
        refused(f"endpoint=tcp://127.0.0.1:{port} key=none connect=500", "nothing answers within 500 ms")
        thread.join()


def test_the_public_half_alone_is_no_key(server, key):
    """Who knows how to greet the server must still prove the secret half."""
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    if not zmq.has("curve"):
        pytest.skip("this ZeroMQ has no CURVE")
    secret = key.read_text().strip().encode()
    told = zmq.curve_public(secret)
    with zmq.Context() as context:
        for pair, is_in in ((zmq.curve_keypair(), False), ((told, secret), True)):
            with context.socket(zmq.DEALER) as peer:
                peer.linger = 0
                peer.curve_serverkey = told
                peer.curve_publickey, peer.curve_secretkey = pair
                peer.connect(server.endpoint)
                peer.send(HELLO_HEAD)
                assert bool(peer.poll(10_000 if is_in else 700)) == is_in


def test_a_server_without_a_key_is_not_for_who_wants_one(suite, key):
    with served(suite, "native", "") as server:
        refused(f"{server.words.replace('=none', f'={key}')} connect=2000", "another key or none")
        exchange(server.words)


def test_files_that_are_no_keys(tmp_path):
    need_zeromq()
    words = "endpoint=tcp://127.0.0.1:9 connect=60"
    refused(f"{words} key=/nowhere", "/nowhere: found no key to read", "run.bad-argument")
    file = tmp_path / "key"
    for text in ("", "short\n", "x" * 41, "x" * 400, "'" * 40):
        file.write_text(text)
        refused(f"{words} key={file}", "found no key, needed 40 characters", "run.bad-argument")


def test_keys_are_made_once_and_for_their_owner(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert make_key(first)[1] and make_key(second)[1]
    text = first.read_text()
    assert make_key(first) == (first, False)
    assert first.read_text() == text != second.read_text()
    assert len(text) == 41
    assert stat.S_IMODE(first.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--key k --anyone", "found --key and --anyone"),
        ("--memory much", "found --memory much, needed bytes"),
    ],
)
def test_words_that_make_no_sense(words, message, capsys):
    assert main(["serve", "--listen", "tcp://256.0.0.1:1", *words.split()]) == 1
    assert message in capsys.readouterr().err
