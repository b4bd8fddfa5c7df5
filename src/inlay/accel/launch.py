"""Running a stream: tensors to units and back, packed constants, and the call of the driver.

A region of the memory outside is made once for a command, with room for what comes and goes and the
constants in the form that the device reads. Its base is what addresses of the stream are relative to.
Constants are packed in the first call that has them, and kept with a copy that says which they were: layers
of equal shapes are one command with several sets of constants. Where all calls in a program have one set,
nothing is compared behind the first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from inlay.accel.accelerator import Accelerator, Architecture
from inlay.accel.borrowed import places, taken
from inlay.accel.declare import Absent, Driver, Library, Mock, Process, Socket, place_of
from inlay.accel.encode import command_at, stream_of
from inlay.accel.group import Tensor
from inlay.accel.layout import blocks_of, packed, unpacked
from inlay.accel.stages import Value
from inlay.accel.stream_mock import StreamMock
from inlay.accel.tiled import TiledCommand, constants
from inlay.arith.expr import evaluate
from inlay.base.diagnostics import error
from inlay.ir.expr import Const, Expr, Var
from inlay.ir.types import TensorType
from inlay.runtime.driver_arguments import digest_of
from inlay.runtime.driver_places import Place, starting
from inlay.runtime.streams import Part, StreamCall, region_of, rooms_in, run_words


@dataclass(slots=True)
class _Region:
    """A region of the memory outside with one set of constants.

    Attributes:
        said: the arrays of constants that are packed in it.
        bytes: of the region.
    """

    said: list[np.ndarray]
    bytes: np.ndarray


@dataclass(eq=False)
class Launcher:
    """What runs a stream.

    Attributes:
        arch: the architecture.
        driver: whom.
        device: its name, for messages.
        command: what is to be done.
        params: of the function that it is; the tensors among them come as arrays, the result behind them.
        cycles: of the last call, as the driver reports them.
        is_same: whether the constants are known to be the same in all calls.
    """

    arch: Architecture
    driver: Driver
    device: str
    command: TiledCommand
    params: Sequence[Var]
    cycles: int = 0
    is_same: bool = False
    _regions: list[_Region] = field(default_factory=list[_Region])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, arrays: list[np.ndarray], ints: list[int]) -> None:
        """Run it; what it needs of integers it reads off shapes."""
        del ints
        assert self.command.made is not None, "a command that is run has a stream"
        scheduled = self.command.made.scheduled
        sizes = self._places
        at = len(arrays) - (2 if sizes else 1)
        result, rooms = arrays[at], rooms_in(arrays, result_at=at, rooms=sizes)
        launches = range(result.shape[0]) if scheduled.launches else (None,)
        with self._lock:
            region = self._region(arrays)
            self.cycles = 0
            for index in launches:
                self._fill(region, arrays, index)
                self.cycles += self._run(region.bytes, rooms)
                tensor = scheduled.result
                target = result if index is None else result[index]
                if result.size:
                    target[...] = unpacked(tensor.laid, self._units(region, tensor), target.shape)

    def predicted_ns(self, arrays: Sequence[np.ndarray]) -> float:
        """Return what a call is predicted to take: the cycles that placement was told, for these images."""
        assert self.command.made is not None, "a command that is run has a stream"
        scheduled = self.command.made.scheduled
        result = arrays[-2 if self.arch.borrowed else -1]
        images = result.shape[0] if scheduled.launches else 1
        launch = evaluate(self.arch.number(self._kind.launch_cycles), {})
        return self._ns(images * (launch + scheduled.timing.total))

    def clock_ns(self) -> float:
        """Return what the last call took by the clock of the device, without what a launch adds."""
        return self._ns(self.cycles)

    @functools.cached_property
    def _places(self) -> tuple[tuple[int, int], ...]:
        """Where memories that are a part of one of the board are in the scratch memory of the kernel."""
        assert self.command.made is not None, "a command that is run has a stream"
        return places(taken(self.arch, self.command.made.scheduled.stream))

    @property
    def _kind(self) -> type[Accelerator]:
        return type(self.arch.device)

    def _ns(self, cycles: int) -> float:
        return cycles * 1e9 / evaluate(self.arch.number(self._kind.clock), {})

    def _units(self, region: _Region, tensor: Tensor) -> np.ndarray:
        return region.bytes[tensor.at : tensor.at + tensor.bytes].reshape(-1, tensor.laid.unit)

    def _array(self, e: Expr, arrays: Sequence[np.ndarray]) -> np.ndarray:
        if isinstance(e, Const):
            return np.asarray(e.value)
        tensors = [p for p in self.params if isinstance(p.type, TensorType)]
        return arrays[next(i for i, p in enumerate(tensors) if p is e)]

    def _fill(self, region: _Region, arrays: Sequence[np.ndarray], index: int | None) -> None:
        """Bring what changes from call to call into the region."""
        assert self.command.made is not None, "a command that is run has a stream"
        for tensor in self.command.made.scheduled.tensors:
            value = tensor.laid.whole
            if value is not None and _comes(value):
                source = self.command.values(tensor.part)[value].source
                assert source is not None, "what comes is a value of the program"
                whole = self._array(source, arrays)
                self._units(region, tensor)[...] = packed(
                    tensor.laid, {value: whole if index is None else whole[index]}
                )

    def _region(self, arrays: Sequence[np.ndarray]) -> _Region:
        """Return the region with the constants of a call."""
        if self.is_same and self._regions:
            return self._regions[0]
        assert self.command.made is not None, "a command that is run has a stream"
        stages, scheduled = self.command.stages, self.command.made.scheduled
        sources = {e: self._array(e, arrays) for e in self._sources()}
        said = list(sources.values())
        for region in self._regions:
            if all(map(np.array_equal, region.said, said)):
                return region
        own = constants(stages, sources)
        found = [
            {theirs: own[mine] for theirs, mine in self.command.values(part).items() if mine in own}
            for part in range(len(stages))
        ]
        region = _Region([x.copy() for x in said], region_of(scheduled.bytes))
        for tensor in scheduled.tensors:
            value = tensor.laid.whole
            if value is None or not _comes(value):
                self._units(region, tensor)[...] = packed(tensor.laid, found[tensor.part])
        self._regions.append(region)
        return region

    def _run(self, region: np.ndarray, rooms: Sequence[np.ndarray]) -> int:
        """Run the stream on a region, and memories in one of the board; return the cycles of the driver."""
        assert self.command.made is not None, "a command that is run has a stream"
        scheduled, words = self.command.made.scheduled, self.command.made.words
        match self.driver:
            case Library() | Process() | Socket():
                return self._call(place_of(self.driver), words, region, rooms)
            case Mock():
                StreamMock(self.arch).run(words, region, rooms)
                return scheduled.timing.total
            case Absent(why=why):
                raise error("run.device-absent", f"'{self.device}' cannot be used: {why}")
            case _:
                assert_never(self.driver)

    def _call(self, place: Place, words: bytes, region: np.ndarray, rooms: Sequence[np.ndarray]) -> int:
        name = stream_of(self.arch).run
        target = starting(place, name, self.device)
        return run_words(target, name, self.device, self.config, words, region, rooms, self._command_at)

    def _command_at(self, word: int) -> str:
        """Return which command a word of the stream is of, for messages."""
        assert self.command.made is not None, "a command that is run has a stream"
        found = command_at(self.arch, self.command.made.scheduled.stream, word)
        return f" (of {found})" if found else ""

    @property
    def config(self) -> tuple[int, ...]:
        """The parameters of the device, as its driver is given them."""
        return tuple(getattr(self.arch.device, n) for n in self.arch.description.params)

    def saved(self, calls: Sequence[Mapping[int, np.ndarray]]) -> StreamCall | None:
        """Return the stream as an executable keeps it.

        None where nothing but this process has the device, or a constant is not known where it is called.

        Args:
            calls: for each call of the kernel in the program the operands that are constants, by position.
        """
        found = self._sets(calls)
        if isinstance(self.driver, Mock | Absent) or self.command.made is None or found is None:
            return None
        images = {digest: self._region(arrays).bytes.tobytes() for digest, arrays in found.items()}
        tensors = [p for p in self.params if isinstance(p.type, TensorType)]
        scheduled, comes = self.command.made.scheduled, list[Part]()
        for tensor in scheduled.tensors:
            value = tensor.laid.whole
            if value is not None and _comes(value):
                source = self.command.values(tensor.part)[value].source
                comes.append(_part(tensor, next(i for i, p in enumerate(tensors) if p is source)))
        return StreamCall(
            self.device,
            place_of(self.driver),
            stream_of(self.arch).run,
            self.config,
            self.command.made.words,
            bool(scheduled.launches),
            tuple(comes),
            _part(scheduled.result, len(tensors)),
            tuple(self._asked()),
            images,
            self._places,
        )

    def settle(self, calls: Sequence[Mapping[int, np.ndarray]]) -> None:
        """Note whether all calls have one set of constants; `calls` as of `saved`."""
        found = self._sets(calls)
        self.is_same = found is not None and len(found) == 1

    def _asked(self) -> list[int]:
        """Return the positions of the tensors that are constants of the stream."""
        tensors = [p for p in self.params if isinstance(p.type, TensorType)]
        return [i for i, p in enumerate(tensors) if p in self._sources()]

    def _sets(self, calls: Sequence[Mapping[int, np.ndarray]]) -> dict[str, list[np.ndarray]] | None:
        """Return the sets of constants that calls have, by their digests; None where one is not known."""
        asked, count = self._asked(), sum(isinstance(p.type, TensorType) for p in self.params)
        if not calls or any(i not in known for known in calls for i in asked):
            return None
        made = ([known.get(i, _UNKNOWN) for i in range(count)] for known in calls)
        return {digest_of([arrays[i] for i in asked]): arrays for arrays in made}

    def _sources(self) -> dict[Expr, None]:
        """Return the values of the program that are constants of the stream."""
        found: dict[Expr, None] = {}
        for v in (v for x in self.command.stages for v in x.values.values()):
            for e in v.factor.operands if v.factor is not None else (v.source,):
                if e is not None and (v.is_constant or v.factor is not None):
                    found[e] = None
        return found


_UNKNOWN = np.zeros(0, np.uint8)
"""What stands for operands that are no constants while these are packed."""


def _part(tensor: Tensor, position: int) -> Part:
    (f,) = tensor.laid.fields
    return Part(position, tensor.at, tensor.bytes, blocks_of(tensor.laid, f))


def _comes(value: Value) -> bool:
    """Whether a value is another one in each call."""
    return not value.is_constant and value.source is not None


def launching(
    arch: Architecture, driver: Driver, device: str, command: TiledCommand, params: Sequence[Var]
) -> Launcher:
    """Return what runs a command that is a stream.

    Raises:
        RunError: `run.device-absent` where the driver cannot be loaded.
    """
    match driver:
        case Library() | Process() | Socket():
            starting(place_of(driver), stream_of(arch).run, device)
        case Absent(why=why):
            raise error("run.device-absent", f"'{device}' cannot be used: {why}")
        case Mock():
            pass
        case _:
            assert_never(driver)
    return Launcher(arch, driver, device, command, params)
