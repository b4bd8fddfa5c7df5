"""State of a fixed size that runs of a session update where it is.

Beside the state there is a spare memory, which has the state of a run ago. A run gets both: it reads the
state, brings the spare one up to date by what the run before told it wrote, updates it, and gives it back as
the state (`transforms/update_state.py`). Then the two change places:

    the state   A0 ---- A2 = A0 + what runs 1, 2 wrote ---- ..
    spare          A1 = A0 + what run 1 wrote ---- A3 ...

What counts is never written. A run that fails, is cancelled or comes too late has spoiled the spare memory
alone, and the next one begins with a copy of the state. So does one behind an array that was shown to
somebody, since that stays as it is, and the first two runs, because the first state is the caller's.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.bytecode.program import Entry
from inlay.bytecode.spec import TensorSpec
from inlay.runtime.kept import Kept, Pair, Updated
from inlay.runtime.native import bits_of

Spares = dict[int, tuple[Any, tuple[Any, ...]]]
"""By the position of an input: memory that may be written over, and where it differs from the state."""


class Updates:
    """What an entry with spare memory takes and gives beside what everybody sees.

    Args:
        outer: the entry, as everybody calls it.
        inner: the one that updates.
        pairs: input and output of what it updates.
        carry: which output becomes which input of the next run; what does not is given as an array.
    """

    def __init__(
        self, outer: Entry, inner: Entry, pairs: Sequence[tuple[str, str]], carry: Mapping[str, str]
    ) -> None:
        inputs = [spec.name for spec in inner.inputs]
        outputs = [spec.name for spec in inner.outputs]
        self._n_inputs, self._n_outputs = len(outer.inputs), len(outer.outputs)
        self._each = [_Update(inner, given, made, carry.get(made) == given) for given, made in pairs]
        spares = [(inputs.index(f"{given}.spare"), outputs.index(made), 1) for given, made in pairs]
        self.pairs = b"".join(struct.pack("=III", *spare) for spare in spares)

    def take(self, inputs: Mapping[str, Any]) -> Spares:
        """Return the spare memories of what is given; whatever comes of the run, nobody else has them."""
        found: Spares = {}
        for u in self._each:
            value = inputs.get(u.given)
            if isinstance(value, Updated) and value.pair.spare is not None:
                found[u.input] = value.pair.spare, value.pair.told
                value.pair.spare = None
        return found

    def arguments(self, given: Sequence[Any], spares: Spares) -> list[Any]:
        """Return what the entry takes: what everybody gives, then spare memories and what they lack."""
        values, more = list(given), list[Any]()
        for u in self._each:
            value = values[u.input]
            if isinstance(value, Kept):
                values[u.input] = value = value.value
            spare = spares.get(u.input)
            if spare is None:
                state = np.asarray(value)
                spare = bits_of(np.array(state, order="C")), u.nothing(state)
            more += [spare[0], *spare[1]]
        return values + more

    def keep(self, given: Sequence[Any], found: list[Any]) -> None:
        """Make state of what the entry gave: what was the state is spare from here on, if nobody has it."""
        told, at = found[self._n_outputs :], 0
        del found[self._n_outputs :]
        for u in self._each:
            own = tuple(map(bits_of, told[at : at + len(u.told)]))
            at += len(u.told)
            was, now = given[u.input], found[u.output]
            if not u.is_carried:
                found[u.output] = np.array(now).view(u.dtype)  # nobody else may write to what was spare
                continue
            spare = was.value if isinstance(was, Updated) and was.pair.is_own else None
            found[u.output] = Updated(now, u.dtype, 0, Pair(spare, own))


class _Update:
    """An input and an output of an entry, and what else it takes for them."""

    def __init__(self, inner: Entry, given: str, made: str, is_carried: bool) -> None:  # noqa: FBT001
        specs = {spec.name: spec for spec in inner.inputs if isinstance(spec, TensorSpec)}
        self.given, self.is_carried = given, is_carried
        self.input = [spec.name for spec in inner.inputs].index(given)
        self.output = [spec.name for spec in inner.outputs].index(made)
        self._whole = specs[given]
        self.dtype = _dtype(self._whole)
        names = itertools.takewhile(specs.__contains__, (f"{given}.at{j}" for j in itertools.count()))
        self.told = [specs[name] for name in names]

    def nothing(self, state: np.ndarray) -> tuple[Any, ...]:
        """Return what says that nothing is to be caught up with: no rows, as long as those of the state."""
        sizes = dict(zip(self._whole.shape, state.shape, strict=False))
        return tuple(
            bits_of(np.zeros([d if isinstance(d, int) else sizes.get(d, 0) for d in s.shape], _dtype(s)))
            for s in self.told
        )


def _dtype(spec: TensorSpec) -> np.dtype[Any]:
    return dtypes.BY_NAME[spec.dtype].numpy
