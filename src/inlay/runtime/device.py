"""Devices from Python, through their drivers: for tests, measurements and tools.

    with Device("opencl") as device:
        program = device.load(text)
        x, y = device.allocate(4 * n), device.allocate(4 * n)
        device.copy(x, array)
        device.launch(program, "affine", [x, y], [n], [n])
        device.copy(result, y).wait()

Executables do not come this way: the C runtime calls drivers itself (`runtime/include/
inlay_driver.h`, which says what holds for all of them). Requests of one queue are in order; others
are ordered by what they are told to come `after`.
"""

from __future__ import annotations

import ctypes as c
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from inlay.base.diagnostics import InlayError, error
from inlay.base.registry import unknown_name
from inlay.runtime import _runtime
from inlay.runtime.drivers import driver_of

RUN, COPY = 0, 1
"""Queues of the first unit: of launches, and of copies."""

_STATUS = {
    0x10: "run.bad-argument",
    0x20: "run.out-of-memory",
    0x22: "run.cancelled",
    0x23: "run.deadline",
    0x24: "run.server-limit",
    0x40: "run.device-absent",
    0x41: "run.device-failed",
    0x42: "run.build-failed",
    0x43: "run.device-lost",
    0x50: "run.check-failed",
}
_MESSAGE_BYTES = 8192
_P = c.c_void_p


class _Region(c.Structure):
    _fields_ = (("memory", _P), ("offset", c.c_size_t), ("host", _P))


class _Ticket(c.Structure):
    _fields_ = (("queue", c.c_uint32), ("number", c.c_uint64))


_Done = c.CFUNCTYPE(None, _P, c.c_int, c.c_int64, c.c_char_p)


class _Request(c.Structure):
    _fields_ = (
        ("action", c.c_uint32),
        ("queue", c.c_uint32),
        ("after", c.POINTER(_Ticket)),
        ("n_after", c.c_uint32),
        ("to", _Region),
        ("from_", _Region),
        ("bytes", c.c_size_t),
        ("program", _P),
        ("kernel", c.c_uint32),
        ("buffers", c.POINTER(_Region)),
        ("n_buffers", c.c_uint32),
        ("ints", c.POINTER(c.c_int64)),
        ("n_ints", c.c_uint32),
        ("items", c.POINTER(c.c_int64)),
        ("n_phases", c.c_uint32),
        ("done", _Done),
        ("argument", _P),
        ("times", c.POINTER(c.c_int64)),
    )


class _Facts(c.Structure):
    _fields_ = (
        ("name", c.c_char * 64),
        ("units", c.c_uint32),
        ("queues_per_unit", c.c_uint32),
        ("memory_bytes", c.c_uint64),
        ("largest_bytes", c.c_uint64),
        ("has_f64", c.c_uint32),
        ("compute_units", c.c_uint32),
        ("offers", c.c_char * 1024),
    )


_TEXT = (c.c_char_p, c.c_size_t)


class _Driver(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("open", c.CFUNCTYPE(c.c_int, _P, c.c_char_p, c.POINTER(_P), *_TEXT)),
        ("close", c.CFUNCTYPE(None, _P)),
        ("facts", c.CFUNCTYPE(None, _P, c.POINTER(_Facts))),
        ("load", c.CFUNCTYPE(c.c_int, _P, _P, c.c_size_t, c.POINTER(_P), *_TEXT)),
        ("unload", c.CFUNCTYPE(None, _P, _P)),
        ("find", c.CFUNCTYPE(c.c_int32, _P, _P, c.c_char_p, c.c_uint32)),
        ("allocate", c.CFUNCTYPE(c.c_int, _P, c.c_uint32, c.c_size_t, c.POINTER(_P), *_TEXT)),
        ("release", c.CFUNCTYPE(None, _P, _P)),
        ("start", c.CFUNCTYPE(c.c_int, _P, c.POINTER(_Request), c.POINTER(_Ticket), *_TEXT)),
        ("wait", c.CFUNCTYPE(None, _P, _Ticket)),
        ("progress", c.CFUNCTYPE(c.c_int, _P)),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What a device says of itself; see `inlay_device_facts_t`."""

    name: str
    units: int
    queues_per_unit: int
    memory_bytes: int
    largest_bytes: int
    has_f64: bool
    compute_units: int
    offers: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a device; `at` gives a part of them."""

    device: OpenDevice
    handle: int
    offset: int = 0

    def at(self, offset: int) -> Memory:
        """Return what begins so many bytes further on."""
        return Memory(self.device, self.handle, self.offset + offset)

    def release(self) -> None:
        """Give the whole memory back, when what uses it has ended."""
        self.device.table.release(self.device.handle, self.handle)


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """A loaded image."""

    device: OpenDevice
    handle: int

    def unload(self) -> None:
        """Give it back, when what uses it has ended."""
        self.device.table.unload(self.device.handle, self.handle)


class Pending:
    """A request that was started."""

    def __init__(self, device: OpenDevice, kept: object) -> None:
        self.ticket = _Ticket()
        self._device = device
        self._ended = threading.Event()
        self._failure: InlayError | None = None
        self._kept = kept  # host memory that the device still uses

    def wait(self, seconds: float | None = None) -> None:
        """Return when the request has ended.

        Raises:
            RunError: how it failed; `run.deadline` when it takes longer.
        """
        if self._device.table.progress:
            while not self._ended.is_set():
                self._device.table.progress(self._device.handle)
        if not self._ended.wait(seconds):
            raise error("run.deadline", f"a request takes longer than {seconds} s")
        try:
            if self._failure is not None:
                raise self._failure
        finally:
            del self  # the failure refers to this frame

    def end(self, status: int, answer: int, message: str) -> None:
        """Note the end of the request; called by the driver."""
        if status:
            about = f" (assertion {answer})" if answer else ""
            self._failure = error(_STATUS.get(status, "run.device-failed"), message + about)
        self._kept = None
        self._ended.set()


class OpenDevice:
    """A device that is open; `close` it, or use it in `with`.

    Args:
        driver: name of a driver (`opencl`, `native`, `remote`, `host`, `null`).
        options: words `key=value` of the driver; see `inlay_driver.h`.

    Raises:
        CompileError: `name.unknown`.
        RunError: `run.device-absent`, `run.bad-argument`; `run.device-lost` where a server accepts the
            device and then goes away. From then on all that it is asked for fails so too, until it is
            closed.
    """

    def __init__(self, driver: str, options: str = "") -> None:
        facts = driver_of(driver)
        addresses, host = _runtime.drivers()
        if driver not in addresses:
            raise unknown_name("driver", driver, tuple(addresses))
        self.table = _Driver.from_address(addresses[driver])
        facts.prepare()
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._done = _Done(self._end)
        handle = _P()
        message = c.create_string_buffer(_MESSAGE_BYTES)
        given = (host, facts.options(options).encode(), c.byref(handle), message, _MESSAGE_BYTES)
        check(self.table.open(*given), message)
        self.handle = handle.value

    def __enter__(self) -> OpenDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is in flight and give the device back."""
        if self.handle:
            self.table.close(self.handle)
            self.handle = None

    @property
    def facts(self) -> Facts:
        """What the device says of itself."""
        f = _Facts()
        self.table.facts(self.handle, c.byref(f))
        return Facts(
            f.name.decode(errors="replace"),
            f.units,
            f.queues_per_unit,
            f.memory_bytes,
            f.largest_bytes,
            bool(f.has_f64),
            f.compute_units,
            f.offers.decode(errors="replace"),
        )

    def load(self, image: str | bytes) -> DeviceProgram:
        """Make an image runnable.

        Raises:
            RunError: `run.build-failed`, with what the device's compiler says.
        """
        data = image.encode() if isinstance(image, str) else image
        handle, message = _P(), c.create_string_buffer(_MESSAGE_BYTES)
        status = self.table.load(self.handle, data, len(data), c.byref(handle), message, _MESSAGE_BYTES)
        check(status, message)
        return DeviceProgram(self, handle.value or 0)

    def allocate(self, size: int, unit: int = 0) -> Memory:
        """Return memory with undefined contents.

        Raises:
            RunError: `run.out-of-memory`.
        """
        handle, message = _P(), c.create_string_buffer(_MESSAGE_BYTES)
        given = (self.handle, unit, size, c.byref(handle), message, _MESSAGE_BYTES)
        check(self.table.allocate(*given), message)
        return Memory(self, handle.value or 0)

    def copy(
        self,
        to: Memory | np.ndarray,
        source: Memory | np.ndarray,
        size: int | None = None,
        *,
        queue: int = COPY,
        after: Sequence[Pending] = (),
    ) -> Pending:
        """Start a copy; arrays are contiguous, and give the size where there is one."""
        if size is None:
            arrays = [x.nbytes for x in (to, source) if isinstance(x, np.ndarray)]
            size = min(arrays)
        request = _Request(action=0, queue=queue, to=_region(to), from_=_region(source), bytes=size)
        return self._start(request, after, (to, source))

    def launch(
        self,
        program: DeviceProgram,
        kernel: str,
        buffers: Sequence[Memory],
        ints: Sequence[int],
        items: Sequence[int],
        *,
        queue: int = RUN,
        after: Sequence[Pending] = (),
    ) -> Pending:
        """Start a kernel, with the work items of each of its phases.

        Raises:
            CompileError: `name.unknown`.
            RunError: `run.bad-argument`.
        """
        number = self.table.find(self.handle, program.handle, kernel.encode(), len(items))
        if number < 0:
            self._start(_Request(action=0, queue=queue), (), ())  # a device that is lost says so
            raise unknown_name("kernel", kernel, ())
        request = _Request(
            action=1,
            queue=queue,
            program=program.handle,
            kernel=number,
            buffers=(_Region * len(buffers))(*(_region(b) for b in buffers)),
            n_buffers=len(buffers),
            ints=(c.c_int64 * len(ints))(*ints),
            n_ints=len(ints),
            items=(c.c_int64 * len(items))(*items),
            n_phases=len(items),
        )
        return self._start(request, after, ())

    def _start(self, request: _Request, after: Sequence[Pending], kept: object) -> Pending:
        pending = Pending(self, kept)
        number = next(self._numbers)
        self._pending[number] = pending
        request.after = (_Ticket * len(after))(*(p.ticket for p in after))
        request.n_after = len(after)
        request.done, request.argument = self._done, number
        message = c.create_string_buffer(_MESSAGE_BYTES)
        status = self.table.start(
            self.handle, c.byref(request), c.byref(pending.ticket), message, _MESSAGE_BYTES
        )
        if status:
            del self._pending[number]
        check(status, message)
        return pending

    def _end(self, number: int, status: int, answer: int, message: bytes) -> None:
        self._pending.pop(number).end(status, answer, message.decode(errors="replace"))


def _region(x: Memory | np.ndarray) -> _Region:
    if isinstance(x, Memory):
        return _Region(x.handle, x.offset, None)
    if not x.flags.c_contiguous:
        raise error("run.bad-argument", "found an array that is not contiguous")
    return _Region(None, 0, x.ctypes.data)


def check(status: int, message: c.Array[c.c_char]) -> None:
    """Raise what a status and its sentence say; nothing where all went well."""
    if status:
        text = message.value.decode(errors="replace").strip() or f"the driver answers {status:#x}"
        raise error(_STATUS.get(status, "run.device-failed"), text)
