"""A server of tokens: a decoder behind HTTP, streaming, with sessions that many clients share a machine for.

    pip install 'inlay-compiler[serve]'
    python examples/token_server/server.py --port 8000
    curl -N localhost:8000/generate -d '{"prompt": [1, 2, 3], "count": 5}'
    curl -N localhost:8000/generate -d '{"prompt": [4], "count": 5, "session": "mine", "timeout": 2}'

Each line of an answer is JSON: `{"token": 17}`, and last `{"done": 5}` or `{"error": "run.deadline", ...}`.

What a server needs of the compiler is in `Tokens` and `TokenServer`, and each is a line:

* one executable, compiled with `batch=True`: steps of clients that are at work at the same time run together
  and give the bits of running alone;
* a session for each conversation: keys and values grow where they are, so a step costs what it adds;
* `await session.submit(...)`: the loop of asyncio goes on meanwhile; a client that goes away cancels the task
  that waits, and that gives up the run, which leaves the session as it was;
* `timeout`: what is left of the time of the whole answer; `Settings(waiting=...)`: beyond it, 503 at once;
* `session.spill(file)` for conversations that are idle: memory is free until their next token.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import io
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import inlay
from inlay.base.diagnostics import RunError
from inlay.ir.parser import parse_module
from inlay.ops.table import table
from inlay.runtime.native import Settings
from inlay.runtime.session import Executable
from inlay.runtime.sessions import Session

WORDS, WIDTH, HEADS = 256, 64, 4
STEP = """
fn main<n>(
  keys: Tensor[n, 4, 16, f32], values: Tensor[n, 4, 16, f32], token: some int t. int[t]
) {
  let x = reshape(get_row(f32[256, 64](#"words"), int(t)), shape(1, 64));
  let query = reshape(matmul(x, f32[64, 64](#"query")), shape(4, 1, 16));
  let all_keys = concat{axis=0}(keys, reshape(matmul(x, f32[64, 64](#"key")), shape(1, 4, 16)));
  let all_values = concat{axis=0}(values, reshape(matmul(x, f32[64, 64](#"value")), shape(1, 4, 16)));
  let scores = matmul(query, transpose{perm=[1, 2, 0]}(all_keys));
  let mixed = matmul(softmax{axis=2}(scores), transpose{perm=[1, 0, 2]}(all_values));
  let y = add(x, matmul(reshape(mixed, shape(1, 64)), f32[64, 64](#"out")));
  let logits = matmul(tanh(y), f32[64, 256](#"head"));
  (reshape(argmax{axis=1, keepdims=false}(logits), shape()), all_keys, all_values)
}
entry main("keys", "values", "token") -> ("next", "all_keys", "all_values");
"""


def compile_decoder(*, batch: bool, settings: Settings) -> Executable:
    """Return a decoder with weights at random: one step, from a token to the next."""
    random = np.random.default_rng(0)
    shapes = {"words": (WORDS, WIDTH), "head": (WIDTH, WORDS)}
    shapes |= dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    weights = {n: random.normal(0, 0.3, s).astype(np.float32) for n, s in shapes.items()}
    module = parse_module(STEP, table(), resources=weights)
    file = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.inlay"
        inlay.compile(module, batch=batch).save(path)
        file.write(path.read_bytes())
    return inlay.load_executable(file.getvalue(), settings=settings)


class Tokens:
    """A conversation: a session, and when somebody last asked for a token of it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.used = time.monotonic()
        self.lock = asyncio.Lock()  # one answer after the other

    async def answer(self, prompt: list[int], count: int, until: float) -> AsyncGenerator[int]:
        """Yield tokens.

        Raises:
            RunError: `run.deadline` when the time is over, `run.would-be-late` where too many are before
                this one, `run.queue-full`.
        """
        async with self.lock:
            token = 0
            for i in range(len(prompt) + count - 1):
                given = prompt[i] if i < len(prompt) else token
                left = max(0.0, until - time.monotonic())
                outputs = await self.session.submit({"token": np.array(given)}, timeout=left)
                self.used = time.monotonic()
                token = int(outputs["next"])
                if i >= len(prompt) - 1:
                    yield token


class TokenServer:
    """The application.

    Args:
        executable: a step of a decoder.
        folder: where the state of idle conversations is.
        idle: seconds after which a conversation is.
    """

    def __init__(self, executable: Executable, folder: Path, idle: float = 60.0) -> None:
        self.executable, self.folder, self.idle = executable, folder, idle
        self.conversations: dict[str, Tokens] = {}
        self.given_up = 0
        routes = [Route("/generate", self.generate, methods=["POST"]), Route("/health", self.health)]
        self.app = Starlette(routes=routes, lifespan=self._lifespan)

    async def health(self, _request: Request) -> Response:
        """Say how many conversations there are, and how many answers were given up by their clients."""
        return JSONResponse({"conversations": len(self.conversations), "given_up": self.given_up})

    async def generate(self, request: Request) -> Response:
        """Answer with a stream of tokens."""
        try:
            prompt, count, timeout, name = _read(await request.json())
        except (ValueError, TypeError, KeyError) as fault:
            return JSONResponse({"error": "bad-request", "message": str(fault)}, 400)
        tokens = self.conversations.get(name) or Tokens(self.executable.session())
        if name:
            self.conversations[name] = tokens
        found = tokens.answer(prompt, count, time.monotonic() + timeout)
        try:
            first = await anext(found)  # what fails at once is no stream
        except RunError as problem:
            status = 504 if problem.ids == ("run.deadline",) else 503  # 503: come again later
            return JSONResponse({"error": problem.ids[0], "message": str(problem)}, status)
        return StreamingResponse(self._lines(first, found), media_type="application/x-ndjson")

    async def _lines(self, first: int, tokens: AsyncGenerator[int]) -> AsyncIterator[str]:
        count = 1
        try:
            yield json.dumps({"token": first}) + "\n"
            async with contextlib.aclosing(tokens):
                async for token in tokens:
                    count += 1
                    yield json.dumps({"token": token}) + "\n"
        except RunError as problem:
            yield json.dumps({"error": problem.ids[0], "message": str(problem)}) + "\n"
        except (asyncio.CancelledError, GeneratorExit):  # the client went away
            self.given_up += 1
            raise
        else:
            yield json.dumps({"done": count}) + "\n"

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(self._sweep())
        yield
        sweeping.cancel()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.idle / 4)
            await asyncio.to_thread(self.spill_idle)

    def spill_idle(self) -> None:
        """Let conversations that nobody uses give their memory back."""
        for i, tokens in enumerate(list(self.conversations.values())):
            if time.monotonic() - tokens.used > self.idle and not tokens.lock.locked():
                tokens.session.spill(self.folder / f"{i}.state")


def _read(asked: Any) -> tuple[list[int], int, float, str]:
    """Return prompt, count of tokens, seconds, and the name of the conversation.

    Raises:
        ValueError, TypeError, KeyError: what is asked is not of the form.
    """
    prompt, count = [int(t) for t in asked["prompt"]], int(asked.get("count", 16))
    timeout, name = float(asked.get("timeout", 30.0)), str(asked.get("session", ""))
    if not prompt or not all(0 <= t < WORDS for t in prompt):
        raise ValueError(f"a prompt is a list of numbers below {WORDS}")
    if not 1 <= count <= 4096 or not 0 <= timeout <= 600:
        raise ValueError("count is from 1 to 4096, timeout from 0 to 600 seconds")
    return prompt, count, timeout, name


@contextlib.contextmanager
def serving(idle: float = 60.0, **settings: Any) -> Iterator[TokenServer]:
    """Yield the application with a folder of its own."""
    chosen = Settings(**{"threads": 2, "activations": 32, "waiting": 256, **settings})
    with tempfile.TemporaryDirectory() as folder:
        yield TokenServer(compile_decoder(batch=True, settings=chosen), Path(folder), idle)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds until a conversation is spilled")
    arguments = parser.parse_args()
    with serving(arguments.idle) as server:
        gc.collect()  # what compiling left: collecting it again would hold all threads for 60 to 80 ms
        gc.freeze()
        sys.setswitchinterval(0.001)  # what a thread waits for another one; 5 ms by default
        uvicorn.run(server.app, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
