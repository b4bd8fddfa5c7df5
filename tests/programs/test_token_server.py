"""The example of a server: streams, sessions, deadlines, clients that go away."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import importlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from inlay.runtime.native import Settings

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
uvicorn = pytest.importorskip("uvicorn", reason="the server needs the extra `serve`")
example = importlib.import_module("examples.token_server.server")

TOO_LATE = ("run.deadline", "run.would-be-late")
"""Time is over, or would be."""


@contextlib.contextmanager
def served(**options: Any) -> Iterator[tuple[Any, int]]:
    """Yield the application, and the port that it answers at."""
    listening = socket.create_server(("127.0.0.1", 0))
    with example.serving(**options) as application:
        config = uvicorn.Config(application.app, log_level="error", ws="none", http="h11", loop="asyncio")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield application, listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            listening.close()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Any, int]]:
    with served(idle=0.2) as found:
        yield found


@contextlib.contextmanager
def asked(port: int, **body: Any) -> Iterator[http.client.HTTPResponse]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", "/generate", json.dumps(body))
        with connection.getresponse() as answer:
            yield answer


def lines(port: int, **body: Any) -> list[dict[str, Any]]:
    with asked(port, **body) as answer:
        return [json.loads(line) for line in answer]


@pytest.fixture(scope="module")
def alone():
    """Return what a session gives that nobody else runs beside, kernel by kernel."""
    executable = example.compile_decoder(batch=False, settings=Settings(threads=1, mode="sequential"))

    def tokens(prompt: list[int], count: int) -> list[int]:
        session, found = executable.session(), list[int]()
        for i in range(len(prompt) + count - 1):
            given = prompt[i] if i < len(prompt) else found[-1]
            next_token = int(session.run({"token": np.array(given)})["next"])
            if i >= len(prompt) - 1:
                found.append(next_token)
        return found

    return tokens


def test_two_clients_are_answered_as_if_alone(server, alone) -> None:
    _, port = server
    prompts = [[7, 8, 9], [200, 3]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda p: lines(port, prompt=p, count=30), prompts))
    for prompt, answer in zip(prompts, both, strict=True):
        assert [a["token"] for a in answer[:-1]] == alone(prompt, 30)
        assert answer[-1] == {"done": 30}


def test_a_conversation_goes_on_behind_idle_time(server, alone) -> None:
    application, port = server
    first = lines(port, prompt=[5, 6], count=4, session="mine")
    until = time.monotonic() + 10
    while not list(application.folder.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.02)
    second = lines(port, prompt=[first[-2]["token"]], count=4, session="mine")
    assert [a["token"] for a in (*first[:-1], *second[:-1])] == alone([5, 6], 8)


def test_an_answer_ends_with_its_time(server) -> None:
    _, port = server
    answer = lines(port, prompt=[1], count=4096, timeout=0.05)
    assert answer[-1]["error"] in TOO_LATE
    with asked(port, prompt=[1] * 4000, timeout=0.01) as refused:
        assert refused.status in (503, 504)
        assert json.loads(refused.read())["error"] in TOO_LATE


def test_who_goes_away_is_not_served_on(server) -> None:
    application, port = server
    before = application.given_up
    with asked(port, prompt=[1], count=4096, session="gone") as answer:
        assert json.loads(answer.readline())
    until = time.monotonic() + 20
    while application.given_up == before:
        assert time.monotonic() < until
        time.sleep(0.02)
    shown = application.conversations["gone"].session.state["keys"].shape[0]
    assert 1 <= shown < 4096
    assert lines(port, prompt=[2], count=1, session="gone")[-1] == {"done": 1}


def test_what_is_asked_wrongly_is_refused(server) -> None:
    _, port = server
    for body in ({}, {"prompt": []}, {"prompt": [256]}, {"prompt": [1], "count": 0}, {"prompt": "x"}):
        with asked(port, **body) as answer:
            assert answer.status == 400
