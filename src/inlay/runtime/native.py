"""The C runtime as an engine: loads a container and calls its entries.

Arrays go in without copies where they are contiguous, results come out as arrays over the memory
that the runtime allocated, and the GIL is free while a call runs. A callback gets arrays over the
memory of the machine: they are valid until it returns and must not be kept.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from inlay.arith import dtype as dtypes
from inlay.base.diagnostics import Diagnostic, InlayError, RunError, error_of
from inlay.bytecode.isa import DTYPE_CODES
from inlay.bytecode.program import Entry, HostBody, Kernel
from inlay.machine.target import HAND_OFF_NS
from inlay.runtime import _runtime
from inlay.runtime.structure import Flat, Structure, are_plain, from_flat, to_flat
from inlay.runtime.trace import Event
from inlay.runtime.usage import Usage
from inlay.runtime.value import Handles

Callback: TypeAlias = Callable[[list[np.ndarray], list[int]], "Future[Any] | None"]
"""A kernel in Python: gets all tensors of its ports and its integers, writes the outputs.

It may answer with a future. Then it ends when the future is done, which keeps the arrays alive and
writes the outputs before; a call in parallel mode goes on meanwhile, with whatever does not need
them. So a device that another thread, process or machine drives is a callback."""


NOT_DONE = (_runtime.Failure, ValueError, BufferError, TypeError)
"""What `NativeEngine.call` raises where a call fails, or is not begun."""


@runtime_checkable
class Clocked(Protocol):
    """A callback of a device that counts its own time, as models of devices do."""

    def predicted_ns(self, arrays: Sequence[np.ndarray]) -> float:
        """Return what a call with these arrays is predicted to take."""
        ...

    def clock_ns(self) -> float:
        """Return what the last call took by the clock of the device."""
        ...


_DTYPE = attrgetter("dtype")
_BF16, _STRING = DTYPE_CODES["bf16"], DTYPE_CODES["string"]
HAND_OFF = "hand-off-ns"
"""The property of an executable that says `Settings.hand_off_ns`, where its board does."""
OWN_BATCHES = "own-batches"
"""The property that says `Settings.own_batches`."""
_MOST_DIGITS = 18
"""Of a number that the runtime can hold."""
_MOST_CALLS = (1 << 31) - 1

Mode: TypeAlias = Literal["sequential", "parallel", "replay"]
"""How calls go through a program; see design 0010. All give the same results and failures."""
MOST_THREADS = 4096
MODES: tuple[Mode, ...] = ("sequential", "parallel", "replay")


@dataclass(frozen=True, slots=True)
class Settings:
    """How an executable runs.

    Attributes:
        threads: parts that parallel kernels are divided into, on as many threads.
        stack_bytes: limit of the stack of the machine; 0 for the default of 256 MiB.
        cache_bytes: freed tensor memory that each activation keeps; 0 for the default.
        activations: calls that may run at once; further ones wait. Calls that callbacks make come on
            top, as those that wait for them cannot end before.
        waiting: requests that may wait to begin, beyond which `submit` refuses more (`run.queue-full`); None
            for any number.
        hand_off_ns: kernels predicted to be shorter run in one part, on the calling thread. None: as long
            as the board says that the executable was compiled for, or `HAND_OFF_NS`. A kernel whose sizes
            were known to be shorter by the board has one part whatever is said here.
        own_batches: of executables compiled with `batch=True`: with at least so many calls under way for each
            thread, and until a third fewer are left, threads run batches of their own, of the calls that are
            ready, and do not wait for each other; with fewer, and where it is 0, they share each batch. None:
            as the executable says.
        mode: one kernel after the other; or each as soon as its inputs are there, on `threads`
            threads; or on one thread in an order that `seed` picks. None: as the program suits, and
            where both of the first may, as earlier calls were faster.
        seed: of mode `replay`.
        trace: whether events are kept for `Executable.events`.
        checked: whether each launch of a kernel holds the tensors against what its code may touch, so
            that no program can make it write elsewhere (`run.bad-dims`). None: for what comes from a
            file, and not for what was compiled in this process.
        races: whether accesses of a call are compared: two that touch the same bytes or cell and that
            nothing orders, and a kernel that writes what it is said to read, end it (`run.race`). Only
            what is put off can race: see `mode` and `seed`.
    """

    threads: int = 1
    stack_bytes: int = 0
    cache_bytes: int = 0
    activations: int = 16
    waiting: int | None = None
    hand_off_ns: int | None = None
    own_batches: int | None = None
    mode: Mode | None = None
    seed: int = 0
    trace: bool = False
    checked: bool | None = None
    races: bool = False

    @property
    def least_shared_ns(self) -> int:
        """Kernels that are predicted to take less run in one part."""
        return HAND_OFF_NS if self.hand_off_ns is None else self.hand_off_ns

    def completed(self, properties: Mapping[str, str]) -> Settings:
        """Return the settings with what an executable says of itself, where they say nothing."""
        found = self
        if found.hand_off_ns is None:
            found = replace(found, hand_off_ns=_number(properties, HAND_OFF))
        if found.own_batches is None:
            found = replace(found, own_batches=_number(properties, OWN_BATCHES))
        return found


def _number(properties: Mapping[str, str], name: str) -> int | None:
    """Return the number that a property says, if it does."""
    said = properties.get(name, "")
    is_number = said.isascii() and said.isdecimal() and len(said) <= _MOST_DIGITS
    return int(said) if is_number else None


class NativeEngine:
    """An executable in the C runtime; may be called by any thread."""

    def __init__(
        self,
        source: Path | mmap.mmap,
        settings: Settings,
        kernels: Sequence[Kernel],
        callbacks: Mapping[Kernel, Callback],
        symbols: Mapping[str, int],
    ) -> None:
        wrapped = {
            index: _shown(callbacks[kernel])
            for index, kernel in enumerate(kernels)
            if isinstance(kernel.body, HostBody)
        }
        is_file = isinstance(source, Path)
        try:
            self._executable = _runtime.load(
                os.fsencode(source) if is_file else None,
                None if is_file else source,
                settings.threads,
                settings.stack_bytes,
                settings.cache_bytes,
                settings.least_shared_ns,
                0,  # digests of constants are computed by the caller, with hashlib
                settings.activations,
                wrapped,
                dict(symbols),
                MODES.index(settings.mode or "parallel"),
                settings.mode is None,
                settings.seed,
                settings.trace,
                is_file if settings.checked is None else settings.checked,
                settings.races,
                np.asarray,
                _array,
                min(settings.own_batches or 0, _MOST_CALLS),
            )
        except _runtime.Failure as failure:
            raise _error(failure) from None
        self.call: Callable[..., list[np.ndarray]] = self._executable.call
        """Takes the number of an entry and its arrays, and returns the results of the entry.

        It is called for each run of a small program, so nothing is around it: what it raises is one of
        `NOT_DONE`, and `problem_of` says what that is.
        """

        self.call_state: Callable[..., list[Any]] = self._executable.call_state
        """Takes the number of an entry, what is state, and its arrays, as `call` does.

        For each state there are three 32-bit integers: the input, the result, and whether it may be
        written over. State comes as it is: see `inlay.runtime.growing`.
        """

    @staticmethod
    def problem_of(failure: Exception) -> InlayError | None:
        """Return what a call raised as an error; None where an array has no row-major memory to offer.

        The error is a `RunError` `run.*`, or `input.mismatch` where an input does not fit.
        """
        if isinstance(failure, InlayError):
            return failure
        return _error(failure) if isinstance(failure, _runtime.Failure) else None

    def call_structured(self, entry: int, inputs: Flat) -> Flat:
        """Return the results of an entry that takes or gives structure.

        Raises:
            RunError: `run.*`, or `input.mismatch` where an input does not fit.
            ValueError, BufferError, TypeError: an array has no row-major memory to offer.
        """
        tensors: Iterable[np.ndarray] = inputs.tensors
        codes = _codes(inputs.tensors)
        if any(codes):
            tensors = map(bits_of, tensors)
        counts = np.array(inputs.counts, np.int64).tobytes()
        try:
            results, lengths = self._executable.call_structured(entry, counts, codes, *tensors)
        except _runtime.Failure as failure:
            raise _error(failure) from failure.__cause__
        return Flat(results, np.frombuffer(lengths, np.int64).tolist())

    def call_values(self, index: int, entry: Entry, inputs: Sequence[Structure]) -> list[Structure]:
        """Return the results of an entry that takes or gives structure, in the structure of its specs.

        Raises: as `call_structured`; `Unfit` where inputs have not the structure of their specs.
        """
        return from_flat(entry.outputs, self.call_structured(index, to_flat(entry.inputs, inputs)))

    def events(self) -> list[Event]:
        """Return what happened since they were asked for last."""
        return [Event.of(fields) for fields in self._executable.events()]

    def is_lost(self) -> bool:
        """Return whether a device does not answer any more: then calls that need it fail."""
        return self._executable.is_lost()

    def usage(self, memories: Sequence[str]) -> Usage:
        """Return what calls took, given the names of the memories of the program."""
        peaks, storages, taken, most, allocations, copied = self._executable.usage()
        by_name = dict(zip(memories, peaks[1:], strict=False))
        return Usage(peaks[0] if peaks else 0, storages, taken, most, allocations, by_name, copied)

    def live_objects(self) -> int:
        """Return how many objects are alive between calls: none, or there is a leak."""
        return self._executable.live_objects()


Result = TypeVar("Result")


def lifts() -> bool:
    """Return whether results leave the blocks of calls as pages here, without being copied."""
    return _runtime.lifts()


def limited(
    flag: bytearray, deadline: int, function: Callable[[], Result], *, inside: bool = False
) -> Result:
    """Return function(), and give up the runs that it makes on this thread when the byte of `flag`
    is not 0 (`run.cancelled`) or `time.monotonic_ns()` is beyond a deadline that is not 0
    (`run.deadline`). With `inside`, they count as made inside a call.
    """
    return _runtime.limited(flag, deadline, function, inside)


def is_inside() -> bool:
    """Whether this thread is inside a call: in a callback of it, or in a request made in one.

    A call that is made there does not wait for an activation: those that run may wait for it.
    """
    return _runtime.is_inside()


def bits_of(array: np.ndarray) -> np.ndarray:
    """Return an array as the buffer protocol can show it."""
    return array.view(np.uint16) if array.dtype == dtypes.BF16.numpy else array


def _codes(arrays: Sequence[np.ndarray]) -> bytes:
    """Return for each array the code of an element type that the buffer protocol does not know, else 0."""
    if are_plain(arrays) and dtypes.BF16.numpy not in set(map(_DTYPE, arrays)):
        return bytes(len(arrays))
    return bytes(map(_code, arrays))


def _code(array: np.ndarray) -> int:
    if isinstance(array, Handles):
        return _STRING
    return _BF16 if array.dtype == dtypes.BF16.numpy else 0


def _array(result: Any) -> np.ndarray:
    array = np.asarray(result)
    if result.dtype == _BF16:
        return array.view(dtypes.BF16.numpy)
    return array.view(Handles) if result.dtype == _STRING else array


def _shown(callback: Callback) -> Callable[[list[Any], list[int]], Any]:
    def run(tensors: list[Any], integers: list[int]) -> Any:
        try:
            return callback([_array(tensor) for tensor in tensors], integers)
        except RunError as problem:  # the runtime adds where it happened
            (first, *_) = problem.diagnostics
            raise _runtime.Failure(first.id, first.message, []) from problem.__cause__

    return run


def _error(failure: Exception) -> InlayError:
    id, message, frames = failure.args
    notes = tuple(f"in '{name}'" + (f" at {span}" if span else "") for name, span in frames)
    return error_of([Diagnostic(id, message, notes=notes)])
