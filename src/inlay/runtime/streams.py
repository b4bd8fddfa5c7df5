"""Kernels that are streams of commands: data that an executable keeps, and runs when it is loaded.

A stream reads and writes a region of memory, of which addresses in its words are relative. What a kernel is
given comes there as arrays of units (`Blocks`), and its result is read from there. Constants are in the
region in the form that the device reads: an image of it for each set of constants that the program calls the
kernel with, found by their digest. Streams are a property of the executable, a record for each kernel; words
and images are constants of the program.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from inlay.base.diagnostics import error
from inlay.bytecode.program import Constant, Kernel, Program
from inlay.runtime.calls import calls_of, kept_of, opened
from inlay.runtime.driver_arguments import digest_of
from inlay.runtime.driver_places import Place, place_of, place_record, starting
from inlay.runtime.native import Callback

STREAMS = "streams"
"""The property of an executable that has them."""
BASE_ALIGN = 4096
"""Of regions, in bytes."""
_REPORT = 4
"""Numbers that a driver reports: cycles, the command that failed, the address, the queue."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a tensor is an array of units: some of its axes are divided, and a unit is one part of each.

    Attributes:
        unit: bytes; what a tensor does not fill is 0.
        dtype: of elements.
        lanes: for each axis of a unit its length, and the axis of the tensor that it divides; -1 where the
            tensor is the same along it.
    """

    unit: int
    dtype: str
    lanes: tuple[tuple[int, int], ...]

    def pack(self, array: np.ndarray, units: int) -> np.ndarray:
        """Return the elements of a tensor, [units, lanes ...]."""
        if not array.shape:  # one number for all
            return np.broadcast_to(array, (units, *(n for n, _ in self.lanes)))
        split = {axis: n for n, axis in self.lanes if axis >= 0}
        array = np.pad(array, [(0, -n % split.get(a, 1)) for a, n in enumerate(array.shape)])
        shape: list[int] = []
        outer: list[int] = []
        lane_at: dict[int, int] = {}
        for a, n in enumerate(array.shape):
            outer.append(len(shape))
            if a in split:
                lane_at[a] = len(shape) + 1
                shape += [n // split[a], split[a]]
            else:
                shape.append(n)
        lanes = [lane_at[axis] for _, axis in self.lanes if axis >= 0]
        made = array.reshape(shape).transpose([*outer, *lanes])
        return made.reshape(units, *(n for n, _ in self.lanes))

    def unpack(self, units: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Return a tensor of some shape from [units, bytes]."""
        split = {axis: n for n, axis in self.lanes if axis >= 0}
        lanes = [axis for _, axis in self.lanes if axis >= 0]
        blocks = [-(-n // split.get(a, 1)) for a, n in enumerate(shape)]
        inside = int(np.prod([n for n, _ in self.lanes], dtype=np.int64)) * np.dtype(self.dtype).itemsize
        flat = units[:, :inside].reshape(-1).view(self.dtype)
        made = flat.reshape([*blocks, *(split[a] for a in lanes)])
        order: list[int] = []
        for a in range(len(shape)):
            order += [a, len(shape) + lanes.index(a)] if a in split else [a]
        whole = [n * split.get(a, 1) for a, n in enumerate(blocks)]
        return made.transpose(order).reshape(whole)[tuple(slice(n) for n in shape)]


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of the kernel in the region.

    Attributes:
        tensor: its position: what the kernel reads before what it writes.
        at, bytes: where its units are.
        blocks: how.
    """

    tensor: int
    at: int
    bytes: int
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class StreamCall:
    """A stream, and what it is run on.

    Attributes:
        device: whose it is, for messages.
        library, function: what runs it (docs/reference/accelerators.md).
        config: the parameters of the device.
        words: of the stream.
        is_for_each: whether it is run for each index of the first axis of its tensors.
        comes: what the kernel is given that is no constant.
        result: what it gives.
        constants: positions of tensors that are constants.
        images: the region before a run, by the digest of the constants.
        rooms: memories of the device in the scratch memory of the kernel, its tensor behind the result: where
            each begins, and its bytes.
    """

    device: str
    library: Place
    function: str
    config: tuple[int, ...]
    words: bytes
    is_for_each: bool
    comes: tuple[Part, ...]
    result: Part
    constants: tuple[int, ...]
    images: Mapping[str, bytes]
    rooms: tuple[tuple[int, int], ...] = ()


def region_of(size: int) -> np.ndarray:
    """Return a region of zeros where regions may begin."""
    made = np.zeros(size + BASE_ALIGN, np.uint8)
    start = -made.ctypes.data % BASE_ALIGN
    return made[start : start + size]


def _nobody_knows(word: int) -> str:
    del word
    return ""


def run_words(
    target: Callable[..., int],
    name: str,
    device: str,
    config: Sequence[int],
    words: bytes,
    region: np.ndarray,
    rooms: Sequence[np.ndarray] = (),
    command_at: Callable[[int], str] = _nobody_knows,
) -> int:
    """Run words on a region by a function of a driver; return the cycles that it reports.

    Args:
        target: the function.
        name: of it, for messages.
        device: its name, for messages.
        config: the parameters of the device.
        words: the stream.
        region: of the memory outside.
        rooms: memories of the device that are in a memory of the board.
        command_at: tells which command a word is of; empty where nobody knows.

    Raises:
        RunError: `run.device-failed`.
    """
    report = np.zeros(_REPORT, np.int64)
    numbers, stream = np.array(config or (0,), np.int64), np.frombuffer(words, np.uint8)
    numbers.flags.writeable = False
    inside = [x for room in rooms for x in (room, room.size)]
    status = target(numbers, stream, len(words), region, region.size, report, *inside)
    if status:
        raise error(
            "run.device-failed",
            f"'{device}' ended {name} with the fault {status}, at word {report[1]}"
            f"{command_at(int(report[1]))}, address {report[2]}",
        )
    return int(report[0])


@dataclass(slots=True, eq=False)
class _Running:
    """What runs a stream of an executable.

    Attributes:
        call: which.
        target: the function of the driver.
    """

    call: StreamCall
    target: Callable[..., int]
    _regions: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, arrays: list[np.ndarray], ints: list[int]) -> None:
        """Run it."""
        del ints
        call, result = self.call, arrays[self.call.result.tensor]
        indices = range(result.shape[0]) if call.is_for_each else (None,)
        with self._lock:
            region, rooms = (
                self._region(arrays),
                rooms_in(arrays, result_at=call.result.tensor, rooms=call.rooms),
            )
            for index in indices:
                for part in call.comes:
                    whole = arrays[part.tensor]
                    units = _units(region, part)
                    given = part.blocks.pack(whole if index is None else whole[index], len(units))
                    flat = np.ascontiguousarray(given).view(np.uint8).reshape(len(units), -1)
                    units[:, : flat.shape[1]] = flat
                run_words(self.target, call.function, call.device, call.config, call.words, region, rooms)
                target = result if index is None else result[index]
                if result.size:
                    target[...] = call.result.blocks.unpack(_units(region, call.result), target.shape)

    def _region(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the region with the constants of a call: the only one, where a program has one set."""
        if len(self.call.images) == 1 and self._regions:
            return next(iter(self._regions.values()))
        digest = digest_of([arrays[i] for i in self.call.constants])
        if digest not in self._regions:
            image = self.call.images.get(digest)
            if image is None:
                raise error(
                    "run.device-failed",
                    f"'{self.call.device}' is given constants that the program was not saved with",
                    hint="run the model itself, on its board",
                )
            self._regions[digest] = region_of(len(image))
            self._regions[digest][:] = np.frombuffer(image, np.uint8)
        return self._regions[digest]


def rooms_in(
    arrays: Sequence[np.ndarray], *, result_at: int, rooms: Sequence[tuple[int, int]]
) -> list[np.ndarray]:
    """Return memories of a device in the scratch memory of a kernel, which is behind its result."""
    return [arrays[result_at + 1].reshape(-1)[at : at + size] for at, size in rooms]


def _units(region: np.ndarray, part: Part) -> np.ndarray:
    return region[part.at : part.at + part.bytes].reshape(-1, part.blocks.unit)


# ---------------------------------------------------------------------------- in executables


def with_streams(program: Program, streams: Mapping[str, StreamCall]) -> Program:
    """Return a program that keeps streams, by the names of kernels; equal bytes are kept once."""
    if not streams:
        return program
    constants, places = list(program.constants), dict[bytes, int]()

    def kept(data: bytes) -> int:
        if data not in places:
            places[data] = len(constants)
            constants.append(Constant("u8", (len(data),), data))
        return places[data]

    said = {
        name: {
            "device": s.device,
            **place_record(s.library),
            "function": s.function,
            "config": s.config,
            "words": kept(s.words),
            "each": s.is_for_each,
            "comes": [_part_record(x) for x in s.comes],
            "result": _part_record(s.result),
            "constants": s.constants,
            "images": {digest: kept(image) for digest, image in s.images.items()},
            **({"rooms": s.rooms} if s.rooms else {}),
        }
        for name, s in streams.items()
    }
    text = json.dumps(said, sort_keys=True)
    return replace(program, constants=tuple(constants), properties={**program.properties, STREAMS: text})


def _part_record(x: Part) -> list[Any]:
    return [x.tensor, x.at, x.bytes, x.blocks.unit, x.blocks.dtype, x.blocks.lanes]


def opened_kept(
    program: Callable[[], Program], properties: Mapping[str, str], beside: Container[str]
) -> dict[Kernel, Callback]:
    """Return what makes the calls and runs the streams that an executable keeps, by kernel.

    Args:
        program: reads the executable.
        properties: of the executable.
        beside: names of kernels that something else stands for.

    Raises:
        RunError: `run.device-absent` where a library, or a function of it, is not there.
        CompileError: `container.corrupt` for a property that is not of the form.
    """
    calls = calls_of(program, properties)
    streams = kept_of(program, properties, STREAMS, _read)
    made: dict[Kernel, Callback] = {k: opened(call) for k, call in calls.items() if k.name not in beside}
    for k, s in streams.items():
        if k.name not in beside:
            made[k] = _Running(s, starting(s.library, s.function, s.device))
    return made


def _read(said: Any, kernel: Kernel, program: Program) -> StreamCall:
    images = {str(d): _bytes(program, i) for d, i in said["images"].items()}
    size = {len(x) for x in images.values()}
    if len(size) != 1:
        raise ValueError("a stream has images of one size, and one at least")
    (region,), ports = size, len(kernel.ports)
    comes = tuple(_part(x, region, ports) for x in said["comes"])
    constants = tuple(_whole(i, ports) for i in said["constants"])
    return StreamCall(
        str(said["device"]),
        place_of(said),
        str(said["function"]),
        tuple(_whole(x, 2**63) for x in said["config"]),
        _bytes(program, said["words"]),
        bool(said["each"]),
        comes,
        _part(said["result"], region, ports),
        constants,
        images,
        tuple((_whole(at, 2**40), _whole(size, 2**40)) for at, size in said.get("rooms", ())),
    )


def _part(said: Any, region: int, ports: int) -> Part:
    tensor, at, size, unit, dtype, lanes = said
    blocks = Blocks(
        _whole(unit, region + 1),
        np.dtype(str(dtype)).str,
        tuple((_whole(n, 2**31), int(a)) for n, a in lanes),
    )
    if blocks.unit < 1 or _whole(at, region + 1) + _whole(size, region + 1) > region or size % blocks.unit:
        raise ValueError("a tensor is in its region, as whole units")
    return Part(_whole(tensor, ports), at, size, blocks)


def _bytes(program: Program, position: Any) -> bytes:
    return program.constants[_whole(position, len(program.constants))].bytes().tobytes()


def _whole(value: Any, below: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
        raise ValueError(f"{value} is no number below {below}")
    return value
