"""State that runs of a session add to where it is.

A session of a program that joins what it gets to what it gives, as a decoder does with keys and values,
would copy all of that in each run. Where the compiler could prove that nobody else sees it (`grow-state`),
the program has a second entry that extends it, and the runtime gives that entry memory with room behind:

    | what runs before have made | what this run adds | room |

Nothing that is there is ever written again. So a run that fails, is cancelled or comes too late has lost
nothing: the state is as long as it was before, and the next run writes over what it left behind. Arrays that
a session has shown stay as they were, too. Where there is no room the run takes twice as much and copies, so
a session copies each byte about once on average, however long it becomes.

What is only updated has a second memory instead: see `inlay.runtime.updating`.

With other dims before the axis (heads of `[batch, heads, n, d]`), memory has that axis first; who asks for
the state sees it through a view.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import InlayError
from inlay.bytecode.program import Entry
from inlay.runtime.binder import bind
from inlay.runtime.kept import Kept
from inlay.runtime.native import NOT_DONE, NativeEngine, bits_of, limited
from inlay.runtime.request import deadline_after
from inlay.runtime.state import Growing
from inlay.runtime.updating import Spares, Updates


class GrowingRuns:
    """Runs of an entry with state that grows.

    Args:
        outer: the entry, as everybody calls it.
        index: the number of the one that extends and updates.
        grows: what it extends.
        updates: what it updates.
        opened: gives the engine.
    """

    def __init__(
        self,
        outer: Entry,
        index: int,
        grows: Sequence[Growing],
        updates: Updates,
        opened: Callable[[], NativeEngine],
    ) -> None:
        self._outer, self._index, self._opened = outer, index, opened
        self._updates = updates
        self._inputs = [spec.name for spec in outer.inputs]
        self._outputs = [spec.name for spec in outer.outputs]
        self._grows = tuple(grows)
        numbers = [(self._inputs.index(g.given), self._outputs.index(g.made)) for g in grows]
        self._places = {given: g for (given, _), g in zip(numbers, grows, strict=True)}
        self._pairs = b"".join(struct.pack("=III", *pair, 0) for pair in numbers) + updates.pairs

    def run(self, inputs: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Run once; takes and gives state that grows as `Kept`, or takes it as an array.

        Raises:
            RunError: as `Executable.run`.
        """
        if timeout is None:
            return self._run(inputs)
        return limited(bytearray(1), deadline_after(timeout), partial(self._run, inputs))

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        engine = self._opened()
        spares = self._updates.take(inputs)
        try:
            given = [inputs[name] for name in self._inputs] if len(inputs) == len(self._inputs) else None
        except KeyError:
            given = None
        found = None
        if given is not None:
            try:
                found = self._call(engine, given, spares)
            except NOT_DONE as failure:
                problem = engine.problem_of(failure)
                if problem is not None and problem.ids != ("input.mismatch",):
                    raise problem from failure.__cause__
        if found is None:  # something differs: this says what, or brings it to its type
            found = self._again(engine, self._bound(inputs), spares)
        return dict(zip(self._outputs, found, strict=True))

    def _again(self, engine: NativeEngine, given: Sequence[Any], spares: Spares) -> list[Any]:
        try:
            return self._call(engine, given, spares)
        except NOT_DONE as failure:
            problem: InlayError | None = engine.problem_of(failure)
            if problem is None:
                raise
            raise problem from failure.__cause__

    def _call(self, engine: NativeEngine, given: Sequence[Any], spares: Spares) -> list[Any]:
        values = [self._as_kept(i, x) if i in self._places else x for i, x in enumerate(given)]
        values = self._updates.arguments(values, spares)
        found = engine.call_state(self._index, self._pairs, *values)
        self._updates.keep(given, found)
        for g in self._grows:
            k, spec = self._outputs.index(g.made), self._outer.inputs[self._inputs.index(g.given)]
            dtype = dtypes.BY_NAME[spec.dtype].numpy  # type: ignore[union-attr]  # only tensors grow
            found[k] = Kept(found[k], dtype, g.axis if g.is_first else 0)
        return found

    def _as_kept(self, place: int, value: Any) -> Any:
        """Return what the entry takes for a state: what it gave, or a copy of an array, its axis first."""
        if isinstance(value, Kept):
            return value.value
        g = self._places[place]
        found = np.asarray(value)
        if g.is_first and found.ndim > g.axis:
            found = np.moveaxis(found, g.axis, 0)
        return bits_of(np.array(found, order="C"))

    def _bound(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Return inputs that fit; state that is as the entry made it stays so.

        Raises:
            RunError: `input.*`, in the names and dims that everybody knows.
        """
        seen = {name: x.view() if isinstance(x, Kept) else x for name, x in inputs.items()}
        arrays: list[Any] = bind(self._outer, seen)
        kept = [inputs[name] for name in self._inputs]
        return [
            was if isinstance(was, Kept) else (x if i in self._places else bits_of(x))
            for i, (was, x) in enumerate(zip(kept, arrays, strict=True))
        ]
