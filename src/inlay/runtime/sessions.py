"""Sessions: runs of one executable in which outputs become inputs of the next run.

    session = executable.session()
    outputs = session.run({"token": token})          # what stays is not among the outputs
    session.spill("idle.state")                      # its memory is free until the next run
    session.save("kept.state"); other.restore("kept.state")

State is an explicit output and input of the program. One run at a time; others wait. A run that fails, or
that was given up before it ended, leaves the state as it was.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inlay.base.diagnostics import error
from inlay.bytecode.program import Entry
from inlay.runtime.kept import Kept, shown
from inlay.runtime.request import Outputs, Party, Request, Requests, Run
from inlay.runtime.state import State
from inlay.runtime.state_file import StateFile


class Session:
    """Runs of one executable that hand values on: each takes what the one before it gave.

    Args:
        run: runs the executable once.
        carry: which output becomes which input of the next run.
        state: the first values of those inputs.
        requests: those of the executable; the session has its own without.
        signature: the types of those inputs as text, by name: what files of state are compared with.
    """

    def __init__(
        self,
        run: Run,
        carry: Mapping[str, str],
        state: Mapping[str, Any],
        requests: Requests | None = None,
        signature: Mapping[str, str] | None = None,
    ) -> None:
        missing = sorted(set(carry.values()) - set(state))
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            raise error("input.missing", f"the session has no first value for {names}")
        self._run = run
        self._carry = dict(carry)
        self._state = {name: state[name] for name in carry.values()}
        self._signature = {name: (signature or {}).get(name, "") for name in carry.values()}
        self._spilled: StateFile | None = None
        self._lock = threading.Lock()
        self._requests = requests or Requests(1)
        self._party = Party()
        _SESSIONS.add(self)

    def begin_anew(self) -> None:
        """In a forked child: no run of the parent holds the state."""
        self._lock = threading.Lock()
        self._party = Party()

    @property
    def state(self) -> dict[str, Any]:
        """What the next run takes, by input; what grows is shown by read-only arrays, which stay as they are.

        Raises:
            RunError: `run.bad-state` where the state was spilled and its file is not what was written.
            OSError: the file cannot be read.
        """
        with self._lock:
            self._bring_back()
            return {name: shown(value) for name, value in self._state.items()}

    def run(self, inputs: Mapping[str, Any] | None = None, *, timeout: float | None = None) -> Outputs:
        """Run once; return the outputs that are not state.

        Raises:
            RunError: as `Executable.run`; `run.bad-state` as `state`.
            OSError: as `state`.
        """
        with self._lock:
            return self._keep(self._outputs(inputs, timeout))

    def submit(
        self, inputs: Mapping[str, Any] | None = None, *, timeout: float | None = None, priority: int = 0
    ) -> Request:
        """Return the request of a run, as `Executable.submit`.

        Those of one session run one after the other in their order, and take turns with other sessions. One
        that fails, or is given up, leaves the state as it was, and the next goes on from there.
        """
        step = _Step(self, inputs)
        return self._requests.submit(step.run, timeout, priority, self._party, step.end)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file; an existing one is replaced at once. The session goes on with it.

        Raises:
            UnsupportedError: `entry.state-structure` where not all of it is tensors of numbers.
            RunError, OSError: as `state`; the file cannot be written.
        """
        with self._lock:
            self._bring_back()
            StateFile.write(Path(path), self._state, self._signature)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Go on from the state that a file has, instead of the session's own, which stays on a failure.

        Raises:
            RunError: `run.bad-state` where the file is no state, is damaged, or has that of another program.
            OSError: the file cannot be read.
        """
        with self._lock:
            found = StateFile.at(Path(path), self._signature).read()
            self._drop_file()
            self._state = dict(found)

    def spill(self, path: str | os.PathLike[str] | None = None) -> None:
        """Give the memory of the state back until the next run, which brings it back by itself.

        Args:
            path: the file that holds it meanwhile, and that is removed when the state is back; an existing
                one is replaced, and a session that is dropped before leaves it behind. By default the state
                stays in memory, without the room to grow that it has.

        Raises:
            UnsupportedError: `entry.state-structure`.
            OSError: the file cannot be written; the state is as it was.
        """
        with self._lock:
            if path is None:
                pairs = self._state.items()
                self._state = {n: v.compact() if isinstance(v, Kept) else v for n, v in pairs}
            elif self._spilled is None:
                self._spilled = StateFile.write(Path(path), self._state, self._signature)
                self._state = {}

    def _bring_back(self) -> None:
        """Read the state that was spilled; where that fails it stays where it is. With the lock."""
        if self._spilled is not None:
            self._state = dict(self._spilled.read())
            self._drop_file()

    def _drop_file(self) -> None:
        if self._spilled is not None:
            self._spilled.path.unlink(missing_ok=True)
            self._spilled = None

    def _outputs(self, inputs: Mapping[str, Any] | None, timeout: float | None) -> Outputs:
        """Run; the state is as before until `_keep`. With the lock."""
        self._bring_back()
        return self._run({**(inputs or {}), **self._state}, timeout=timeout)

    def _keep(self, outputs: Outputs) -> Outputs:
        """Take the state out of the outputs of a run. With the lock."""
        self._state = {to: outputs.pop(name) for name, to in self._carry.items()}
        return outputs

    def begin_step(self) -> threading.Lock:
        """Take the lock for a run that somebody else ends; return it."""
        lock = self._lock
        lock.acquire()
        return lock

    def step(self, inputs: Mapping[str, Any] | None) -> Outputs:
        """Run; the state stays as it was until `end_step`."""
        return self._outputs(inputs, None)

    def end_step(self, lock: threading.Lock, outputs: Outputs | None) -> None:
        """Keep the state that is among some outputs, if there are any, and give the lock back."""
        try:
            if outputs is not None:
                self._keep(outputs)
        finally:
            lock.release()


class _Step:
    """A run of a session as a request: the lock is held until it is known whether its outputs are wanted."""

    def __init__(self, session: Session, inputs: Mapping[str, Any] | None) -> None:
        self._session, self._inputs = session, inputs
        self._lock: threading.Lock | None = None
        self._outputs: Outputs | None = None

    def run(self) -> Outputs:
        """Run; return the outputs, from which `end` takes the state."""
        self._lock = self._session.begin_step()
        self._outputs = self._session.step(self._inputs)
        return self._outputs

    def end(self, is_kept: bool) -> None:  # noqa: FBT001  (a callback)
        """Keep the state, unless the run failed or was given up before."""
        assert self._lock is not None, "a run that ends has begun"
        self._session.end_step(self._lock, self._outputs if is_kept else None)


def chosen_state(
    entry: Entry,
    said: State,
    carry: Mapping[str, str] | None,
    state: Mapping[str, Any] | None,
    first: Callable[[Sequence[str]], Mapping[str, Any]],
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what a session of an entry carries, and first values.

    Args:
        entry: what is called.
        said: what the program says of its state.
        carry: input by output; None for what the program says.
        state: first values that were given.
        first: gives those of other inputs, by their names.

    Raises:
        CompileError: `input.session`, `input.missing`.
    """
    if carry is None:
        carry = {made: given for given, made in said.all_pairs}
    state = dict(state or {})
    if unknown := [name for name in state if name not in carry.values()]:
        raise error("input.session", f"found a first value of '{unknown[0]}', which is not carried")
    begun = first([given for given, _ in said.all_pairs if given in carry.values() and given not in state])
    for kind, names, specs in (
        ("output", carry.keys(), entry.outputs),
        ("input", carry.values(), entry.inputs),
    ):
        for name in names:
            if all(spec.name != name for spec in specs):
                raise error("input.session", f"the entry has no {kind} '{name}'")
    return dict(carry), {**begun, **state}


_SESSIONS: weakref.WeakSet[Session] = weakref.WeakSet()


def _in_child() -> None:
    for session in tuple(_SESSIONS):
        session.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
