"""Strings at run time: handles, and the table that says what they stand for.

The machine moves and compares elements of tensors; it never looks into a string. So an element of a
tensor of strings is a *handle*, an integer of 64 bits: a position in the table of strings of the
executable. Equal strings have one handle, and handle 0 is the empty string; so a copy, a branch, a
gather and a comparison for equality are those of integers, and zeroed memory is empty strings.

**The table** begins with the strings of the program file: constants hold handles of those, and there
is nothing to translate when a program is loaded. What calls bring (their inputs, what operators on
contents make) is appended while they run. When no call runs, the table is cut back to its beginning.
Where calls overlap all the time that moment never comes by itself: a call that finds the table grown
by more than `MOST_NEW` strings waits until those that run have ended. A call inside of a call (code
from outside may make one) does not wait, and no call waits for longer than `PATIENCE`.

**Handles are an array type of their own**, so that nothing takes them for numbers of the user.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from inlay.base.diagnostics import error
from inlay.bytecode.program import AccessCode, Kernel
from inlay.bytecode.spec import ListSpec, OptionSpec, Spec, TensorSpec, TupleSpec
from inlay.runtime.native import Callback
from inlay.runtime.structure import Structure, map_tensors
from inlay.runtime.value import Handles

MOST_NEW = 1 << 16
"""Strings beyond those of the program at which calls that begin wait for those that run."""
PATIENCE = 1.0
"""Seconds that such a call waits at most."""


class Strings:
    """The table of one executable; used by any thread."""

    def __init__(self, own: Sequence[str]) -> None:
        if own and own[0]:
            raise error("container.corrupt", "the program has strings, and the first is not the empty one")
        self._texts = list(own) or [""]
        self._handles = {text: i for i, text in reversed(list(enumerate(self._texts)))}
        self._own = len(self._texts)
        self._running = 0
        self._changed = threading.Condition()
        self._thread = threading.local()

    def begin_anew(self) -> None:
        """In a forked child: calls of other threads are not here."""
        self._changed = threading.Condition()
        self._running = 1 if getattr(self._thread, "depth", 0) else 0

    def __len__(self) -> int:
        """How many strings there are now."""
        return len(self._texts)

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """Keep all handles valid; for the time of a call."""
        depth: int = getattr(self._thread, "depth", 0)
        with self._changed:
            if not depth and len(self._texts) - self._own > MOST_NEW:
                self._changed.wait_for(lambda: not self._running, PATIENCE)
            self._running += 1
        self._thread.depth = depth + 1
        try:
            yield
        finally:
            self._thread.depth = depth
            with self._changed:
                self._running -= 1
                if not self._running:
                    self._cut()
                    self._changed.notify_all()

    def _cut(self) -> None:
        for text in self._texts[self._own :]:
            del self._handles[text]
        del self._texts[self._own :]

    def encode(self, array: np.ndarray) -> Handles:
        """Return the handles of an array of `str`, in row-major order."""
        items: list[str] = array.reshape(-1).tolist()
        made = np.empty(len(items), np.int64)
        handles, texts = self._handles, self._texts
        with self._changed:
            for i, text in enumerate(items):
                handle = handles.get(text)
                if handle is None:
                    handle = handles[text] = len(texts)
                    texts.append(text)
                made[i] = handle
        return made.reshape(array.shape).view(Handles)

    def decode(self, handles: np.ndarray) -> np.ndarray:
        """Return what handles stand for.

        Raises:
            RunError: `run.bad-handle` where one stands for nothing.
        """
        made = np.empty(handles.shape, object)
        numbers: list[int] = handles.reshape(-1).tolist()
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self._texts):
            raise error(
                "run.bad-handle",
                f"found a string of number {max(numbers, key=abs)} where there are "
                f"{len(self._texts)} strings",
                hint="the program file is damaged; compile the model again",
            )
        made.reshape(-1)[:] = [self._texts[n] for n in numbers]
        return made

    def encode_all(self, specs: Sequence[Spec], values: Sequence[Structure]) -> list[Structure]:
        """Return inputs that fit their specs with handles in place of strings."""
        return map_tensors(specs, values, lambda s, a: self.encode(a) if _is_text(s) else a)

    def decode_all(self, specs: Sequence[Spec], values: Sequence[Structure]) -> list[Structure]:
        """Return results with strings in place of handles."""
        return map_tensors(specs, values, lambda s, a: self.decode(a) if _is_text(s) else a)

    def shown(self, kernel: Kernel, callback: Callback) -> Callback:
        """Return a callback that gets handles for one that gets strings and writes them."""

        def run(tensors: list[np.ndarray], integers: list[int]) -> Future[Any] | None:
            if not any(isinstance(t, Handles) for t in tensors):
                return callback(tensors, integers)
            given = [self._shown(t, a) for t, a in zip(tensors, kernel.ports, strict=True)]

            def write() -> None:
                for tensor, access, text in zip(tensors, kernel.ports, given, strict=True):
                    if access is not AccessCode.READ and isinstance(tensor, Handles):
                        tensor[...] = self.encode(text)

            answer = callback(given, integers)
            return write() if answer is None else _behind(answer, write)

        return run

    def _shown(self, tensor: np.ndarray, access: AccessCode) -> np.ndarray:
        if not isinstance(tensor, Handles):
            return tensor
        return np.full(tensor.shape, "", object) if access is AccessCode.WRITE else self.decode(tensor)


def _behind(answer: Future[Any], then: Callable[[], None]) -> Future[Any]:
    """Return a future that is done when another one is and something has been done then."""
    later: Future[Any] = Future()

    def finish(done: Future[Any]) -> None:
        try:
            done.result()
            then()
        except BaseException as problem:  # noqa: BLE001  whatever it is, who waits gets it
            later.set_exception(problem)
        else:
            later.set_result(None)

    answer.add_done_callback(finish)
    return later


def has_strings(specs: Sequence[Spec]) -> bool:
    """Whether there are strings in values of these specs."""
    return any(_has(spec) for spec in specs)


def _has(spec: Spec) -> bool:
    match spec:
        case TensorSpec():
            return _is_text(spec)
        case TupleSpec(fields=fields):
            return has_strings(fields)
        case ListSpec(element=element) | OptionSpec(element=element):
            return _has(element.spec)


def _is_text(spec: TensorSpec) -> bool:
    return spec.dtype == "string"
